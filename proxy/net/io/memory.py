"""Memory budgets for received frames: a frame that does not fit waits until memory is free, and does not fail.

Memory goes first to the host, and the connection, that hold least of it.
"""

import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final

import attrs
import trio

from proxy.net.io.logs import Log
from proxy.wire.frames import Buffer

__all__ = ["RESERVE_BYTES", "Account", "Budget"]

RESERVE_BYTES: Final = 64 * 1024
"""The part of a frame that claims no memory: each connection receives at most one frame at a time."""
_LONGEST_PASSED_S: Final = 10.0
"""The time after which a waiting frame is passed by no other, however little that holds."""
_COMPLAIN_EVERY_S: Final = 60.0


def _do_nothing() -> None:
    pass


@attrs.frozen
class _Holder:
    since_s: float
    drop: Callable[[], None]


@attrs.define(eq=False)
class Account:
    """The memory that one connection has claimed of a budget, for the frames that it receives."""

    host: "Account | None" = None
    """The account of all connections of the same host; None if this is such an account."""
    claimed_bytes: int = 0


@attrs.define(eq=False)
class _Claim:
    """The memory of one frame; it grows while the frame arrives."""

    account: Account
    size_bytes: int = 0


@attrs.define(eq=False)
class _Waiter:
    claim: _Claim
    more_bytes: int
    since_s: float
    granted: trio.Event = attrs.field(factory=trio.Event)


class Budget:
    """A limit on the memory of all frames that are received from brokers, or of all frames from clients.

    A frame of over 64 KiB claims memory while it arrives, at most four times what has arrived, and waits while the
    claim would exceed the limit. Its claim lasts until the last view of its buffer is gone. Memory is granted to
    the host that holds least, and there to the connection that holds least; after 10 s, in order of arrival, so
    that none starves. If all memory is claimed by frames that have arrived in part and wait for more, the first of
    them gets it. So a frame that is larger than the limit is received, too, and the limit is exceeded by at most
    one frame.

    While a frame waits, the budget reclaims memory from holders that can fetch their data again
    (``register_holder``), oldest first, the next one after the previous one has called ``remove_holder``.

    Frames from clients have a separate budget: a response must never wait for a request that waits for a response.
    A budget can be used in one trio run only.
    """

    def __init__(
        self, limit_bytes: int, log: Log, limit: str = "memory", on_wait: Callable[[], None] = _do_nothing
    ) -> None:
        """Create a budget of *limit_bytes*.

        Args:
            limit:   the name of the option that sets the limit.
            on_wait: called whenever a frame has to wait for memory.
        """
        self.limit_bytes = limit_bytes
        self.limit = limit
        """The name of the option that sets the limit."""
        self._on_wait = on_wait
        self.claimed_bytes = 0
        """The bytes of all claimed buffers, including buffers that are kept for the next frame."""
        self._log = log
        self._claims: dict[int, _Claim] = {}
        """By the id of the buffer."""
        self._exceeding: _Claim | None = None
        """The last frame that got memory beyond the limit: it comes first until it is complete."""
        self._hosts: weakref.WeakValueDictionary[str, Account] = weakref.WeakValueDictionary()
        self._waiters: list[_Waiter] = []
        """In order of arrival, behind the one of ``_exceeding``."""
        self._holders: dict[Hashable, _Holder] = {}
        self._dropping: Hashable | None = None
        """The holder that must drop its memory and has not called ``remove_holder`` yet; None without one."""
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def waiting(self) -> int:
        """The number of frames that wait until their memory can be claimed."""
        return len(self._waiters)

    @property
    def is_short(self) -> bool:
        """Whether a frame waits for memory, or the claims exceed the limit.

        Connections then free a buffer at once when its frame is no longer used, rather than keep it for the next
        frame.
        """
        return bool(self._waiters) or self.claimed_bytes > self.limit_bytes

    def open_account(self, host: str) -> Account:
        """Return a new account, for a connection to or from *host*."""
        of_host = self._hosts.get(host)
        if of_host is None:
            of_host = self._hosts[host] = Account()
        return Account(of_host)

    async def admit(self, buffer: Buffer, size_bytes: int, account: Account) -> None:
        """Wait until the budget has room for the first *size_bytes* of *buffer*, and claim them for *account*.

        The claim ends when the buffer and all views of it are gone. Up to 64 KiB (``RESERVE_BYTES``) claim nothing,
        and never wait.
        """
        if size_bytes <= RESERVE_BYTES:
            return
        claim = self._claims.get(id(buffer))
        if claim is None:
            claim = self._claims[id(buffer)] = _Claim(account)
            weakref.finalize(buffer, self._release, id(buffer)).atexit = False
        if size_bytes > claim.size_bytes:
            await self._grow(claim, size_bytes - claim.size_bytes)

    def register_holder(self, key: Hashable, since_s: float, drop: Callable[[], None]) -> None:
        """Register that *key* holds memory which the budget may reclaim while a frame waits.

        Args:
            key:     identifies the holder; a further call for the same key replaces the values.
            since_s: when the oldest part of the memory was filled, on trio's clock; the oldest holder is the first
                to lose its memory.
            drop:    frees the memory, now or soon, after which ``remove_holder`` must be called. The budget calls
                it at most once, at any time and from any task; it must neither wait nor raise.
        """
        self._holders[key] = _Holder(since_s, drop)
        self._schedule_grants()

    def remove_holder(self, key: Hashable) -> None:
        """Remove the holder *key*, which has no memory to reclaim any more; unknown keys are ignored.

        If the budget has called its *drop*, the budget then goes on with the waiting frames.
        """
        self._holders.pop(key, None)
        if self._dropping == key:
            self._dropping = None
            self._schedule_grants()

    async def _grow(self, claim: _Claim, more_bytes: int) -> None:
        if not self._waiters and self._has_room(more_bytes):
            self._grant(claim, more_bytes)
            return
        waiter = _Waiter(claim, more_bytes, trio.current_time())
        self._token = trio.lowlevel.current_trio_token()
        if claim is self._exceeding:
            self._waiters.insert(0, waiter)
        else:
            self._waiters.append(waiter)
        self._on_wait()
        self._log.info(
            "memory-exhausted",
            every_s=_COMPLAIN_EVERY_S,
            per=self.limit,
            wanted_bytes=more_bytes,
            claimed_bytes=self.claimed_bytes,
            waiting=self.waiting,
            limit=self.limit,
            remedy="raise the limit, or configure clients to fetch fewer bytes at once",
        )
        try:
            self._grant_claims()
            await waiter.granted.wait()
        finally:
            if not waiter.granted.is_set():
                self._waiters.remove(waiter)
                self._grant_claims()

    def _has_room(self, more_bytes: int) -> bool:
        return self.claimed_bytes + more_bytes <= self.limit_bytes

    def _grant(self, claim: _Claim, more_bytes: int) -> None:
        claim.size_bytes += more_bytes
        self._count(claim, more_bytes)

    def _count(self, claim: _Claim, more_bytes: int) -> None:
        """Count *more_bytes*; without a call, so that no other thread's ``_release`` comes between."""
        self.claimed_bytes += more_bytes
        account = claim.account
        account.claimed_bytes += more_bytes
        if account.host is not None:
            account.host.claimed_bytes += more_bytes

    def _grant_claims(self) -> None:
        for waiter in self._in_order():
            while not (has_room := self._has_room(waiter.more_bytes)) and not self._is_stuck:
                if self._dropping is not None or not self._holders:
                    return
                self._dropping = oldest = min(self._holders, key=lambda key: self._holders[key].since_s)
                self._holders.pop(oldest).drop()
            if not has_room:
                self._exceeding = waiter.claim
            self._waiters.remove(waiter)
            self._grant(waiter.claim, waiter.more_bytes)
            waiter.granted.set()

    def _in_order(self) -> list[_Waiter]:
        """Return the waiting frames in the order in which they get memory."""
        passed_s = trio.current_time() - _LONGEST_PASSED_S

        def rank(waiter: _Waiter) -> tuple[int, int]:
            if waiter.claim is self._exceeding or waiter.since_s <= passed_s:
                return -1, 0
            account = waiter.claim.account
            return account.host.claimed_bytes if account.host else 0, account.claimed_bytes

        return sorted(self._waiters, key=rank)

    @property
    def _is_stuck(self) -> bool:
        """Whether all that is claimed is claimed by frames that wait for more, so that none of it will be free."""
        return self.claimed_bytes == sum(waiter.claim.size_bytes for waiter in self._waiters)

    def _release(self, key: int) -> None:
        claim = self._claims.pop(key)
        self._count(claim, -claim.size_bytes)
        if claim is self._exceeding:
            self._exceeding = None
        self._schedule_grants()

    def _schedule_grants(self) -> None:
        """Have ``_grant_claims`` called soon in trio's loop, if a frame waits.

        The last view of a buffer may be dropped anywhere, also by the garbage collector: within trio's own code,
        where no task may be woken, or in another thread.
        """
        if self._waiters and self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._grant_claims, idempotent=True)
