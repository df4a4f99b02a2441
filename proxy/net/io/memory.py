"""Bounds the memory of what is received: who would exceed it waits for it to come back, and nobody fails."""

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
"""Frames up to this size claim nothing: there is at most one being received for each connection."""
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
    """The memory of what is received from brokers, or from clients, all connections together; of one trio run.

    A frame claims its whole size before its buffer is made and its body read, and waits while that does not fit.
    A claim lasts until the last view of the buffer is gone. Claims are granted in the order in which they came, so
    that none starves. One that is larger than the whole budget is granted when nothing else is claimed.

    While somebody waits, memory is asked back from those who hold some that they could bring again (``holding``),
    oldest first, each once the one before has said ``released``.

    What clients send has a budget of its own: an answer must never wait for a request that waits for an answer.
    """

    def __init__(
        self, limit_bytes: int, log: Log, limit: str = "memory", on_wait: Callable[[], None] = _do_nothing
    ) -> None:
        """*on_wait* is called whenever somebody has to wait."""
        self.limit_bytes = limit_bytes
        self.limit = limit
        """The option that sets it."""
        self._on_wait = on_wait
        self.claimed_bytes = 0
        """Whole buffers, what is kept for the next frame included."""
        self._log = log
        self._waiters: deque[_Waiter] = deque()
        self._holders: dict[Hashable, _Holder] = {}
        self._asked: Hashable | None = None
        """Who was asked to drop, and has not said yet that it is done."""
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def waiting(self) -> int:
        """How many frames wait for memory."""
        return len(self._waiters)

    @property
    def is_short(self) -> bool:
        """Whether memory that is used no more should not be kept for later."""
        return bool(self._waiters) or self.claimed_bytes > self.limit_bytes

    async def admit(self, size_bytes: int, allocate: Callable[[], Buffer]) -> None:
        """Wait until *size_bytes* may be claimed, then *allocate*; the claim lasts as long as that buffer."""
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
        """*key* holds memory that it could do without, the oldest of it since *since_s* on trio's clock.

        *drop* may be called once, at any time and from any task, and must neither wait nor raise. It has the memory
        let go of, now or soon, and ``released`` told then. Told again, the new values replace the old ones.
        """
        self._holders[key] = _Holder(since_s, drop)
        self._soon()

    def released(self, key: Hashable) -> None:
        """*key* holds nothing any more, or has gone; also where it never said that it did."""
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
            remedy="raise it, or have clients ask for less at once",
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
        """Look at the waiters again, from trio's loop.

        The last view of a buffer may be let go of anywhere, by the garbage collector too: in the middle of trio's
        own work, where no task may be woken, or in another thread.
        """
        if self._waiters and self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._hand_out, idempotent=True)
