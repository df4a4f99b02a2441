"""A broker's cache of fetch sessions: ``max.incremental.fetch.session.cache.slots`` of them, in shards.

A new session goes to the shard whose turn it is, and has to find room there, whatever room others have; its id
tells its shard. Kafka 3.8 and later have eight shards, which together may have up to seven slots fewer than the
setting says; below 8 slots no session is ever granted. Kafka 3.7 and before have one shard.

Source: Kafka's ``FetchSessionCache`` and ``FetchSessionCacheShard``; KAFKA-9401. The rules within a shard are
``proxy.session.slots``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs

from proxy.session.epochs import NO_SESSION, SessionId
from proxy.session.slots import MAX_SESSION_ID, OccupiedSlot, SessionSlots

__all__ = ["SHARDS", "Partitions", "SessionCacheModel"]

SHARDS: Final = 8
"""Kafka's ``NumFetchSessionCacheShards``, which no setting changes."""


@attrs.define
class Partitions:
    """As much of a session as matters here."""

    size: int

    def __len__(self) -> int:
        return self.size


def _ignore(_: SessionId) -> None:
    """Nobody wants to know."""


class SessionCacheModel:
    """One broker's cache.

    Args: slots:      the setting; each shard has its part of it, rounded down.
          on_eviction: told of each session that had to make room.
    Cost: as ``SessionSlots``.
    """

    def __init__(
        self, slots: int, shards: int = SHARDS, on_eviction: Callable[[SessionId], None] = _ignore
    ) -> None:
        self._range = MAX_SESSION_ID // shards
        self._given = NO_SESSION
        self._on_eviction = on_eviction
        self._shards = [
            SessionSlots[Partitions](slots // shards, partial(next, self._ids(shard)), self._evicted)
            for shard in range(shards)
        ]
        self._turn = 0
        self._partitions = 0
        self.peak_sessions = 0
        self.peak_partitions = 0
        """Of all sessions at once."""

    @property
    def evictions(self) -> int:
        return sum(shard.evictions for shard in self._shards)

    @property
    def refusals(self) -> int:
        """Sessions that were asked for and not granted."""
        return sum(shard.refusals for shard in self._shards)

    def __len__(self) -> int:
        """Sessions held."""
        return sum(map(len, self._shards))

    @property
    def partitions(self) -> int:
        """In all sessions held."""
        return self._partitions

    def shard_of(self, session_id: int) -> int:
        """Where a broker with as many shards keeps the session."""
        return session_id // self._range

    def create(
        self, partitions: int, now_s: float, *, is_follower: bool = False, granted: int = NO_SESSION
    ) -> SessionId:
        """Ask for a session; 0 if there is no room.

        *granted*: the id that a real broker has answered with; the session goes where that says, and has this id.
        """
        if granted:
            self._turn = self.shard_of(granted)
        shard, self._given = self._shards[self._turn], SessionId(granted)
        self._turn = (self._turn + 1) % len(self._shards)
        session_id = shard.add(Partitions(partitions), now_s, is_follower=is_follower)
        if session_id:
            self._partitions += partitions
            self.peak_sessions = max(self.peak_sessions, len(self))
            self.peak_partitions = max(self.peak_partitions, self._partitions)
        return session_id

    def use(self, session_id: int, partitions: int, now_s: float) -> bool:
        """Fetch in the session, which then has so many *partitions*; False if it is not there (any more)."""
        shard = self._shard(session_id)
        session = shard.get(SessionId(session_id))
        if session is None:
            return False
        self._partitions += partitions - session.size
        session.size = partitions
        shard.touch(SessionId(session_id), now_s)
        return True

    def close(self, session_id: int) -> bool:
        """Give the slot back; whether the session was there."""
        shard = self._shard(session_id)
        session = shard.get(SessionId(session_id))
        if session is not None:
            self._partitions -= session.size
        return shard.remove(SessionId(session_id))

    def _shard(self, session_id: int) -> SessionSlots[Partitions]:
        return self._shards[self.shard_of(session_id)]

    def _ids(self, shard: int) -> Iterator[int]:
        """The id that was told, else the shard's one after the other."""
        own = max(1, shard * self._range)
        while True:
            if self._given:
                given, self._given = self._given, NO_SESSION
                yield given
            else:
                yield own
                own += 1

    def _evicted(self, held: OccupiedSlot[Partitions]) -> None:
        self._partitions -= held.session.size
        self._on_eviction(held.id)
