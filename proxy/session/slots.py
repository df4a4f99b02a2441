"""A bounded cache of fetch sessions with the eviction rules of Kafka's brokers.

Kafka 3.8 and later split this cache into eight shards, each with an eighth of the slots; a ``SessionSlots`` is one
shard. Followers' sessions take precedence over consumers'. Sidefetch's clients are consumers; the simulation of a
broker's cache in ``analysis.whatif`` has followers as well.

Source: Kafka's ``FetchSessionCache``.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

import attrs

from proxy.session.epochs import NO_SESSION, SessionId

__all__ = ["EVICTION_S", "MAX_SESSION_ID", "OccupiedSlot", "SessionSlots"]

EVICTION_S: Final = 120.0
"""The time in seconds after which an unused session may be evicted, and a used one for a larger session.

Kafka's ``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``, which no setting changes."""
MAX_SESSION_ID: Final = 2**31 - 1


class SizedSession(Protocol):
    """A fetch session; ``len`` of it is its number of partitions."""

    def __len__(self) -> int: ...


T = TypeVar("T", bound=SizedSession)


@attrs.define
class OccupiedSlot(Generic[T]):
    """A session in the cache, with its id, times of creation and of last use in seconds, and size."""

    id: SessionId
    session: T
    created_s: float
    used_s: float
    size: int
    """Partitions at the last use: the size that eviction compares."""
    size_bytes: int = 0
    """The memory at the last use."""
    is_follower: bool = False
    evictable: bool = False
    """Whether the session was older than ``EVICTION_S`` at its last use, so that a larger one may evict it."""

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The key by which sessions are evicted, lowest first: (is a follower's, partitions, id)."""
        return self.is_follower, self.size, self.id


def _ignore(_: object) -> None:
    """Ignore an eviction."""


def _weightless(_: object) -> int:
    """Return 0: the sessions have no bytes."""
    return 0


class SessionSlots(Generic[T]):
    """A cache of at most *slots* fetch sessions, by session id; ``add`` may evict some.

    Args:  slots: the capacity; with 0, no session is ever granted.
           id_factory: returns a candidate for an id; it is called until one in 1..2**31-1 is free.
           on_eviction: is called with each evicted session, after its removal.
           bytes_of: returns the memory of a session; Kafka's cache counts none.
           most_bytes: the limit for the memory of all sessions.
    Cost:  O(1); O(log slots) if a size changes or a session is evicted; O(slots) for a follower's session if the
           slots are full and no session is stale.
    """

    def __init__(
        self,
        slots: int,
        id_factory: Callable[[], int],
        on_eviction: Callable[[OccupiedSlot[T]], None] = _ignore,
        bytes_of: Callable[[T], int] = _weightless,
        most_bytes: int = 0,
    ) -> None:
        self.slots = slots
        self.evictions = 0
        self.refusals = 0
        self._id_factory = id_factory
        self._on_eviction = on_eviction
        self._bytes_of = bytes_of
        self._most_bytes = most_bytes
        self.held_bytes = 0
        """The memory of all sessions, each at its last use."""
        self._held: dict[SessionId, OccupiedSlot[T]] = {}  # least recently used first
        self._evictable: list[tuple[bool, int, int]] = []
        """A heap of ``worth`` of evictable sessions; outdated entries stay until they come to the top."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[T]:
        return (held.session for held in self._held.values())

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together; each counts with its size at its last use."""
        return sum(held.size for held in self._held.values())

    def get(self, session_id: SessionId) -> T | None:
        """Return the session with this id, or None; this is no use of the session, unlike ``touch``."""
        held = self._held.get(session_id)
        return None if held is None else held.session

    def remove(self, session_id: SessionId) -> bool:
        """Remove the session with this id, which is no eviction, and return whether it existed."""
        held = self._held.pop(session_id, None)
        if held is None:
            return False
        self.held_bytes -= held.size_bytes
        return True

    def add(self, session: T, now_s: float, *, is_follower: bool = False) -> SessionId:
        """Add *session* and return its new id; return ``NO_SESSION`` (0) if no slot is free or can be freed.

        If all slots are occupied, or *session* exceeds the limit for memory, others are evicted by Kafka's rules as
        long as that is needed: the least recently used session is evicted if it was unused for more than 120 s.
        Otherwise, of the sessions that were older than 120 s at their last use, the one with the fewest partitions
        is evicted if *session* has more. Regardless of size, a follower's session evicts a consumer's, of any age,
        and is not evicted for a consumer's.
        """
        size_bytes = self._bytes_of(session)
        while len(self._held) >= self.slots or self.held_bytes + size_bytes > self._most_bytes:
            if size_bytes > self._most_bytes or not self._make_room(len(session), is_follower, now_s):
                self.refusals += 1
                return NO_SESSION
        session_id = self._new_id()
        self._held[session_id] = OccupiedSlot(
            session_id, session, now_s, now_s, len(session), size_bytes, is_follower
        )
        self.held_bytes += size_bytes
        return session_id

    def touch(self, session_id: SessionId, now_s: float) -> bool:
        """Record a use of the session at *now_s*: make it the most recently used, and take over its current size.

        If it was created more than 120 s ago, it becomes evictable for a larger session. Return False, after its
        eviction, if it has grown and all sessions now exceed the limit for memory.

        Raises: KeyError: there is no session with this id.
        """
        held = self._held.pop(session_id)
        grown_bytes = self._bytes_of(held.session) - held.size_bytes
        held.size_bytes += grown_bytes
        self.held_bytes += grown_bytes
        before = held.evictable, held.size
        held.used_s = now_s
        held.size = len(held.session)
        held.evictable = now_s - held.created_s > EVICTION_S
        self._held[session_id] = held
        if held.evictable and before != (True, held.size):
            self._add_evictable(held)
        return not (grown_bytes > 0 and self.held_bytes > self._most_bytes and self._evict(held))

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
        least = self._find_least_for_follower() if is_follower else self._find_least()
        # Kafka compares ids last, and a new session has 0: of equal sizes, the old session stays.
        return least is not None and (is_follower, size) > (least.is_follower, least.size) and self._evict(least)

    def _find_least(self) -> OccupiedSlot[T] | None:
        """Return the evictable session with the lowest ``worth``, or None."""
        while self._evictable:
            worth = self._evictable[0]
            held = self._held.get(SessionId(worth[-1]))
            if held is not None and held.evictable and held.worth == worth:
                return held
            heappop(self._evictable)
        return None

    def _find_least_for_follower(self) -> OccupiedSlot[T] | None:
        """Return the session of lowest ``worth`` that a follower's may evict, among them consumers' of any age."""
        held = [held for held in self._held.values() if held.evictable or not held.is_follower]
        return min(held, key=lambda each: each.worth, default=None)

    def _add_evictable(self, held: OccupiedSlot[T]) -> None:
        heappush(self._evictable, held.worth)
        if len(self._evictable) > 2 * len(self._held) + 64:
            self._evictable = [each.worth for each in self._held.values() if each.evictable]
            heapify(self._evictable)

    def _evict(self, held: OccupiedSlot[T]) -> bool:
        self.remove(held.id)
        self.evictions += 1
        self._on_eviction(held)
        return True
