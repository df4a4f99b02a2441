"""A model of a broker's fetch session cache: ``max.incremental.fetch.session.cache.slots`` slots, in shards.

New sessions go to the shards in turn. A session needs room in its shard, even if other shards have free slots; its
id identifies the shard. Kafka 3.8 and later have eight shards, which together may have up to seven slots fewer than
the setting; below 8 slots the broker grants no session. Kafka 3.7 and earlier have one shard.

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
"""Number of shards: Kafka's ``NumFetchSessionCacheShards``, which no setting changes."""


@attrs.define
class Partitions:
    """The partitions of a session, reduced to their number."""

    size: int

    def __len__(self) -> int:
        return self.size


def _ignore(_: SessionId) -> None:
    """Ignore an eviction: the default callback."""


class SessionCacheModel:
    """A model of one broker's fetch session cache.

    Args: slots:       the broker's setting; each shard gets an equal part, rounded down.
          on_eviction: called with the id of each evicted session.
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
        """The largest number of partitions in all sessions at one time."""

    @property
    def evictions(self) -> int:
        """The number of evicted sessions."""
        return sum(shard.evictions for shard in self._shards)

    @property
    def refusals(self) -> int:
        """The number of requests for a session that were refused."""
        return sum(shard.refusals for shard in self._shards)

    def __len__(self) -> int:
        """Return the number of cached sessions."""
        return sum(map(len, self._shards))

    @property
    def partitions(self) -> int:
        """The number of partitions in all cached sessions."""
        return self._partitions

    def shard_of(self, session_id: int) -> int:
        """Return the index of the shard that has the session, in a broker with as many shards."""
        return session_id // self._range

    def create(
        self, partitions: int, now_s: float, *, is_follower: bool = False, granted: int = NO_SESSION
    ) -> SessionId:
        """Create a session and return its id; 0 if the shard has no room.

        *granted*: the id from a real broker's response, which the session gets, in the shard of that id; 0 for
        none.
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
        """Fetch in the session and set its number of partitions; return False if the session does not exist."""
        shard = self._shard(session_id)
        session = shard.get(SessionId(session_id))
        if session is None:
            return False
        self._partitions += partitions - session.size
        session.size = partitions
        shard.touch(SessionId(session_id), now_s)
        return True

    def close(self, session_id: int) -> bool:
        """Close the session, which frees its slot; return whether it existed."""
        shard = self._shard(session_id)
        session = shard.get(SessionId(session_id))
        if session is not None:
            self._partitions -= session.size
        return shard.remove(SessionId(session_id))

    def _shard(self, session_id: int) -> SessionSlots[Partitions]:
        return self._shards[self.shard_of(session_id)]

    def _ids(self, shard: int) -> Iterator[int]:
        """Yield ids for the sessions of *shard*: a real broker's id if given, else consecutive ones."""
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
