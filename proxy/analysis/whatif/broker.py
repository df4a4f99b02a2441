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
    """The partitions of a session in the model, reduced to their number: its length."""

    size: int

    def __len__(self) -> int:
        return self.size


def _ignore(_: SessionId) -> None:
    """Ignore an eviction: the default callback."""


class SessionCacheModel:
    """A model of one broker's fetch session cache, which grants, refuses and evicts sessions as Kafka does.

    Args: slots: the broker's setting; each shard gets an equal part, rounded down.
          shards: the number of shards: 8 for Kafka 3.8 and later, 1 for earlier versions.
          on_eviction: called with the id of each evicted session.
    Cost: as ``proxy.session.slots.SessionSlots``: O(1) or O(log slots) for most calls.
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
        """The largest number of sessions at one time."""
        self.peak_partitions = 0
        """The largest number of partitions in all sessions at one time."""

    @property
    def evictions(self) -> int:
        """The number of sessions that were evicted so far to make room for another."""
        return sum(shard.evictions for shard in self._shards)

    @property
    def refusals(self) -> int:
        """The number of requests for a session that were refused so far, because the shard had no room."""
        return sum(shard.refusals for shard in self._shards)

    def __len__(self) -> int:
        """Return the number of cached sessions."""
        return sum(map(len, self._shards))

    @property
    def partitions(self) -> int:
        """The number of partitions in all cached sessions."""
        return self._partitions

    def shard_of(self, session_id: int) -> int:
        """Return the index of the shard to which *session_id* belongs: each shard has an equal range of ids.

        A real broker with as many shards uses the same ranges.
        """
        return session_id // self._range

    def create(
        self, partitions: int, now_s: float, *, is_follower: bool = False, granted: int = NO_SESSION
    ) -> SessionId:
        """Create a session with *partitions* partitions in the next shard; return its id, or 0 if it is refused.

        The shards take turns. If the shard has no free slot, the rules of eviction decide whether another session
        makes room; other shards are not tried.

        Args: is_follower: whether the session is a replica fetcher's, which takes precedence over consumers'
              sessions.
              granted: a session id from a real broker's response. The session gets this id, in the shard to which
              it belongs; 0: the model chooses an id and the shard whose turn it is.
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
        """Record a fetch in the session at *now_s*, which from now on has *partitions* partitions.

        Return False if the session does not exist, for example because it was evicted.
        """
        shard = self._shard(session_id)
        session = shard.get(SessionId(session_id))
        if session is None:
            return False
        self._partitions += partitions - session.size
        session.size = partitions
        shard.touch(SessionId(session_id), now_s)
        return True

    def close(self, session_id: int) -> bool:
        """Remove the session, which frees its slot; return whether it existed."""
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
