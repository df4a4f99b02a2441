"""The bounded set of sessions that a broker holds, and who has to make room for whom.

Kafka 3.8 and later split this set into eight shards, each with an eighth of the slots; one ``SessionSlots`` is one
shard. Followers' sessions are preferred over consumers'; Sidefetch has no followers, but who plays a broker's cache
through may have.

Source: Kafka's ``FetchSessionCache``.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

import attrs

from proxy.session.epochs import NO_SESSION, SessionId

__all__ = ["EVICTION_S", "MAX_SESSION_ID", "OccupiedSlot", "SessionSlots"]

EVICTION_S: Final = 120.0
"""Kafka's ``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``, which no setting changes."""
MAX_SESSION_ID: Final = 2**31 - 1


class SizedSession(Protocol):
    def __len__(self) -> int: ...


T = TypeVar("T", bound=SizedSession)


@attrs.define
class OccupiedSlot(Generic[T]):
    """A session in its slot."""

    id: SessionId
    session: T
    created_s: float
    used_s: float
    size: int
    """Partitions when last touched: what counts when room is made."""
    is_follower: bool = False
    evictable: bool = False
    """Old enough, when last touched, to make room for a larger one."""

    @property
    def worth(self) -> tuple[bool, int, int]:
        """Who is worth least makes room first."""
        return self.is_follower, self.size, self.id


def _ignore(_: object) -> None:
    """Nobody wants to know."""


class SessionSlots(Generic[T]):
    """Sessions by id, at most *slots* of them.

    Args:  slots: how many may be held; 0 means that no session is ever granted.
           id_factory: proposes ids. It must come up with one in 1..2**31-1 that is free before long.
           on_eviction: told of each session that had to make room, once it has gone.
    Cost:  O(1), O(log slots) where sizes change or somebody makes room; O(slots) for a follower that needs room
           where no session is stale.
    """

    def __init__(
        self,
        slots: int,
        id_factory: Callable[[], int],
        on_eviction: Callable[[OccupiedSlot[T]], None] = _ignore,
    ) -> None:
        self.slots = slots
        self.evictions = 0
        self.refusals = 0
        self._id_factory = id_factory
        self._on_eviction = on_eviction
        self._held: dict[SessionId, OccupiedSlot[T]] = {}  # least recently used first
        self._evictable: list[tuple[bool, int, int]] = []
        """A heap of what evictable sessions are worth; what is no longer so is left in it until it is found."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[T]:
        return (held.session for held in self._held.values())

    @property
    def partitions(self) -> int:
        """Of all sessions, as of when each was last touched."""
        return sum(held.size for held in self._held.values())

    def get(self, session_id: SessionId) -> T | None:
        held = self._held.get(session_id)
        return None if held is None else held.session

    def remove(self, session_id: SessionId) -> bool:
        """Forget the session; whether there was one."""
        return self._held.pop(session_id, None) is not None

    def add(self, session: T, now_s: float, *, is_follower: bool = False) -> SessionId:
        """Hold *session* and name it; ``NO_SESSION`` if there is no room and none can be made."""
        if len(self._held) >= self.slots and not self._make_room(len(session), is_follower, now_s):
            self.refusals += 1
            return NO_SESSION
        session_id = self._new_id()
        self._held[session_id] = OccupiedSlot(session_id, session, now_s, now_s, len(session), is_follower)
        return session_id

    def touch(self, session_id: SessionId, now_s: float) -> None:
        """Mark the session as used now, and take notice of its size."""
        held = self._held.pop(session_id)
        before = held.evictable, held.size
        held.used_s = now_s
        held.size = len(held.session)
        held.evictable = now_s - held.created_s > EVICTION_S
        self._held[session_id] = held
        if held.evictable and before != (True, held.size):
            self._may_make_room(held)

    def _new_id(self) -> SessionId:
        while True:
            session_id = SessionId(self._id_factory())
            if 0 < session_id <= MAX_SESSION_ID and session_id not in self._held:
                return session_id

    def _make_room(self, size: int, is_follower: bool, now_s: float) -> bool:
        if not self._held:
            return False
        oldest = next(iter(self._held.values()))
        if now_s - oldest.used_s > EVICTION_S:
            return self._evict(oldest)
        least = self._least_for_follower() if is_follower else self._least()
        # Kafka compares ids last, the newcomer's being 0: equal sizes leave the old one where it is.
        return least is not None and (is_follower, size) > (least.is_follower, least.size) and self._evict(least)

    def _least(self) -> OccupiedSlot[T] | None:
        """Who is worth least of those that are evictable."""
        while self._evictable:
            worth = self._evictable[0]
            held = self._held.get(SessionId(worth[-1]))
            if held is not None and held.evictable and held.worth == worth:
                return held
            heappop(self._evictable)
        return None

    def _least_for_follower(self) -> OccupiedSlot[T] | None:
        """The same for a follower, for whom consumers make room at any age."""
        held = [held for held in self._held.values() if held.evictable or not held.is_follower]
        return min(held, key=lambda each: each.worth, default=None)

    def _may_make_room(self, held: OccupiedSlot[T]) -> None:
        heappush(self._evictable, held.worth)
        if len(self._evictable) > 2 * len(self._held) + 64:
            self._evictable = [each.worth for each in self._held.values() if each.evictable]
            heapify(self._evictable)

    def _evict(self, held: OccupiedSlot[T]) -> bool:
        del self._held[held.id]
        self.evictions += 1
        self._on_eviction(held)
        return True
