"""The memory for the partitions of clients' fetches: clients that hold most of it wait, and give it back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import trio

from proxy.net.io.logs import Log
from proxy.net.io.memory import RESERVE_BYTES

__all__ = ["FetchMemory", "Holder"]

_LONGEST_WAIT_S: Final = 2.0
"""The longest time for which a large fetch waits until there is memory."""
_PAUSE: Final = 2
"""The pause after a large fetch has begun, relative to the time that it took."""
_LONGEST_PAUSE_S: Final = 0.5
_COMPLAIN_EVERY_S: Final = 60.0


class Holder(Protocol):
    """A client connection whose fetches take memory."""

    def rest(self) -> bool:
        """Free the memory, unless a fetch is unanswered; return whether that was done."""

    def end_wait(self) -> None:
        """Have the open fetch end its wait for records soon; at once for the caller."""


class FetchMemory:
    """A limit on the memory of partitions that clients fetch, as far as a connection takes over 64 KiB.

    A client repeats in each fetch, or Sidefetch keeps in its fetch session, all that the memory holds. So while the
    limit is exceeded, connections without an open fetch are asked to free their memory, largest first. If that does
    not suffice, the largest ones with an open fetch must end its wait, and free it then. They lose time, not data.

    Fetches with large requests begin in turn (``turn``), each with a pause after it: others are served between two
    of them.
    """

    limit: Final = "fetches"
    """The name of the limit in metrics."""

    def __init__(self, limit_bytes: int, log: Log) -> None:
        """Create an account without holders; *limit_bytes* is the limit for all."""
        self.limit_bytes = limit_bytes
        self.claimed_bytes = 0
        """The memory of all holders, by their own estimates."""
        self._log = log
        self._held: dict[Holder, int] = {}
        self._hurried: set[Holder] = set()
        """The holders that were asked to end their wait, until their memory is freed or the limit holds."""
        self._is_reclaiming = False
        self._has_room = trio.Event()
        self._turns = trio.Lock()

    @property
    def waiting(self) -> int:
        """The number of connections that were asked to end the wait of a fetch."""
        return len(self._hurried)

    @property
    def is_short(self) -> bool:
        """Whether the limit is exceeded."""
        return self.claimed_bytes > self.limit_bytes

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Record that *holder* takes *size_bytes* now, and enforce the limit.

        Cost: O(1); O(n log n) for *n* holders while the limit is exceeded.
        """
        if size_bytes <= RESERVE_BYTES:
            self.release(holder)
            return
        self.claimed_bytes += size_bytes - self._held.get(holder, 0)
        self._held[holder] = size_bytes
        if not self.is_short:
            self._note_room()
        elif not self._is_reclaiming:
            # To free memory wakes other clients, which call this again.
            self._is_reclaiming = True
            try:
                self._reclaim()
            finally:
                self._is_reclaiming = False

    def release(self, holder: Holder) -> None:
        """Record that *holder* takes no memory any more; no effect if it takes none."""
        size_bytes = self._held.pop(holder, 0)
        if size_bytes:
            self.claimed_bytes -= size_bytes
            self._hurried.discard(holder)
            if not self.is_short:
                self._note_room()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of a large fetch, and for memory; the block should last until it waits for records.

        Turns are taken in the order of the calls. Memory is waited for at most 2 s. After the block, this waits for
        twice the time that the block took, but at most 0.5 s.
        """
        async with self._turns:
            with trio.move_on_after(_LONGEST_WAIT_S):
                while self.is_short:
                    await self._has_room.wait()
            began_s = trio.current_time()
            yield
            await trio.sleep(min(_PAUSE * (trio.current_time() - began_s), _LONGEST_PAUSE_S))

    def _reclaim(self) -> None:
        self._log.info(
            "fetch-memory-exhausted",
            every_s=_COMPLAIN_EVERY_S,
            claimed_bytes=self.claimed_bytes,
            connections=len(self._held),
            limit="request-memory",
            remedy="raise the limit, or have clients fetch fewer partitions on fewer connections",
        )
        if self._has_room.is_set():
            self._has_room = trio.Event()
        largest_first = sorted(self._held, key=self._held.__getitem__, reverse=True)
        for holder in largest_first:
            if not self.is_short:
                return
            if holder in self._held and holder.rest():
                self.release(holder)
        leaving_bytes = sum(self._held[holder] for holder in self._hurried)
        for holder in largest_first:
            if self.claimed_bytes - leaving_bytes <= self.limit_bytes:
                return
            if holder in self._held and holder not in self._hurried:
                self._hurried.add(holder)
                leaving_bytes += self._held[holder]
                holder.end_wait()

    def _note_room(self) -> None:
        self._hurried.clear()
        self._has_room.set()
