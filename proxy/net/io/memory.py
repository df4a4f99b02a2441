"""Memory budgets for received frames: a frame that exceeds the budget waits for memory, and does not fail."""

import weakref
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final

import attrs
import trio

from proxy.net.io.logs import Log
from proxy.wire.frames import Buffer

__all__ = ["RESERVE_BYTES", "Budget"]

RESERVE_BYTES: Final = 64 * 1024
"""The largest frame that claims no memory: each connection receives at most one such frame at a time."""
_COMPLAIN_EVERY_S: Final = 60.0


def _do_nothing() -> None:
    pass


@attrs.frozen
class _Holder:
    since_s: float
    drop: Callable[[], None]


@attrs.define(eq=False)
class _Waiter:
    size_bytes: int
    granted: trio.Event = attrs.field(factory=trio.Event)


class Budget:
    """The memory budget for frames from brokers, or from clients, over all connections; for one trio run.

    A frame claims its whole size before its buffer is allocated and its body is read, and waits while that does not
    fit. A claim lasts until the last view of the buffer is gone. Claims are granted in order of arrival, so that
    none starves. A claim that is larger than the whole budget is granted when nothing else is claimed.

    While a frame waits, the budget reclaims memory from holders that can fetch their data again (``holding``),
    oldest first, the next one after the previous one has called ``released``.

    Frames from clients have a separate budget: a response must never wait for a request that waits for a response.
    """

    def __init__(
        self, limit_bytes: int, log: Log, limit: str = "memory", on_wait: Callable[[], None] = _do_nothing
    ) -> None:
        """Create a budget; *on_wait* is called whenever a frame has to wait for memory."""
        self.limit_bytes = limit_bytes
        self.limit = limit
        """The name of the option that sets the limit."""
        self._on_wait = on_wait
        self.claimed_bytes = 0
        """The bytes of all claimed buffers, including buffers that are kept for the next frame."""
        self._log = log
        self._waiters: deque[_Waiter] = deque()
        self._holders: dict[Hashable, _Holder] = {}
        self._asked: Hashable | None = None
        """The holder that was asked to drop its memory and has not called ``released`` yet; None without one."""
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def waiting(self) -> int:
        """The number of frames that wait for memory."""
        return len(self._waiters)

    @property
    def is_short(self) -> bool:
        """Whether unused memory must be freed at once rather than kept for reuse."""
        return bool(self._waiters) or self.claimed_bytes > self.limit_bytes

    async def admit(self, size_bytes: int, allocate: Callable[[], Buffer]) -> None:
        """Claim *size_bytes*, waiting as needed, then *allocate*; the claim lasts as long as the buffer."""
        if size_bytes <= RESERVE_BYTES:
            allocate()
            return
        await self._claim(size_bytes)
        try:
            buffer = allocate()
        except BaseException:
            self._give_back(size_bytes)
            raise
        weakref.finalize(buffer, self._give_back, size_bytes).atexit = False

    def holding(self, key: Hashable, since_s: float, drop: Callable[[], None]) -> None:
        """Register reclaimable memory of *key*; its oldest part is held since *since_s* on trio's clock.

        The budget may call *drop* once, at any time and from any task; *drop* must neither wait nor raise. It frees
        the memory, now or soon, and ``released`` must be called then. A further call for the same key replaces the
        values.
        """
        self._holders[key] = _Holder(since_s, drop)
        self._soon()

    def released(self, key: Hashable) -> None:
        """Record that *key* holds no memory any more; unknown keys are ignored."""
        self._holders.pop(key, None)
        if self._asked == key:
            self._asked = None
            self._soon()

    async def _claim(self, size_bytes: int) -> None:
        if not self._waiters and self._fits(size_bytes):
            self.claimed_bytes += size_bytes
            return
        waiter = _Waiter(size_bytes)
        self._token = trio.lowlevel.current_trio_token()
        self._waiters.append(waiter)
        self._on_wait()
        self._log.info(
            "memory-exhausted",
            every_s=_COMPLAIN_EVERY_S,
            per=self.limit,
            wanted_bytes=size_bytes,
            claimed_bytes=self.claimed_bytes,
            waiting=self.waiting,
            limit=self.limit,
            remedy="raise the limit, or configure clients to fetch fewer bytes at once",
        )
        try:
            self._hand_out()
            await waiter.granted.wait()
        except BaseException:
            if waiter.granted.is_set():
                self.claimed_bytes -= size_bytes
            else:
                self._waiters.remove(waiter)
            self._hand_out()
            raise

    def _fits(self, size_bytes: int) -> bool:
        return self.claimed_bytes == 0 or self.claimed_bytes + size_bytes <= self.limit_bytes

    def _hand_out(self) -> None:
        while self._waiters:
            first = self._waiters[0]
            if self._fits(first.size_bytes):
                self._waiters.popleft()
                self.claimed_bytes += first.size_bytes
                first.granted.set()
            elif self._asked is None and self._holders:
                self._asked = oldest = min(self._holders, key=lambda key: self._holders[key].since_s)
                self._holders.pop(oldest).drop()
            else:
                return

    def _give_back(self, size_bytes: int) -> None:
        self.claimed_bytes -= size_bytes
        self._soon()

    def _soon(self) -> None:
        """Schedule a check of the waiting frames in trio's loop.

        The last view of a buffer may be dropped anywhere, also by the garbage collector: within trio's own code,
        where no task may be woken, or in another thread.
        """
        if self._waiters and self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._hand_out, idempotent=True)
