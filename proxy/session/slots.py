"""The bounded set of sessions that a broker holds, and who has to make room for whom.

Kafka 3.8 and later split this set into eight shards, each with an eighth of the slots; one ``Slots`` is one
shard. Followers' sessions, which Kafka prefers over consumers', do not occur here.

Source: Kafka's ``FetchSessionCache``.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import attrs

from proxy.session.epochs import NO_SESSION, SessionId

__all__ = ["EVICTION_S", "MAX_SESSION_ID", "Held", "Slots"]

EVICTION_S: Final = 120.0
"""Kafka's ``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``, which no setting changes."""
MAX_SESSION_ID: Final = 2**31 - 1


class Sized(Protocol):
    def __len__(self) -> int: ...


T = TypeVar("T", bound=Sized)


@attrs.define
class Held(Generic[T]):
    """A session in its slot."""

    id: SessionId
    session: T
    created_s: float
    used_s: float
    size: int
    """Partitions when last touched: what counts when room is made."""
    evictable: bool = False
    """Old enough, when last touched, to make room for a larger one."""


def _ignore(_: object) -> None:
    """Nobody wants to know."""


class Slots(Generic[T]):
    """Sessions by id, at most *slots* of them.

    Args:  slots: how many may be held; 0 means that no session is ever granted.
           id_factory: proposes ids. It must come up with one in 1..2**31-1 that is free before long.
           on_eviction: told of each session that had to make room, once it has gone.
    Cost:  O(1), but O(slots) to find room in a full set where no session is stale.
    """

    def __init__(
        self,
        slots: int,
        id_factory: Callable[[], int],
        on_eviction: Callable[[Held[T]], None] = _ignore,
    ) -> None:
        self.slots = slots
        self.evictions = 0
        self.refusals = 0
        self._id_factory = id_factory
        self._on_eviction = on_eviction
        self._held: dict[SessionId, Held[T]] = {}  # least recently used first

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

    def add(self, session: T, now_s: float) -> SessionId:
        """Hold *session* and name it; ``NO_SESSION`` if there is no room and none can be made."""
        if len(self._held) >= self.slots and not self._make_room(len(session), now_s):
            self.refusals += 1
            return NO_SESSION
        session_id = self._new_id()
        self._held[session_id] = Held(session_id, session, created_s=now_s, used_s=now_s, size=len(session))
        return session_id

    def touch(self, session_id: SessionId, now_s: float) -> None:
        """Mark the session as used now, and take notice of its size."""
        held = self._held.pop(session_id)
        held.used_s = now_s
        held.size = len(held.session)
        held.evictable = now_s - held.created_s > EVICTION_S
        self._held[session_id] = held

    def _new_id(self) -> SessionId:
        while True:
            session_id = SessionId(self._id_factory())
            if 0 < session_id <= MAX_SESSION_ID and session_id not in self._held:
                return session_id

    def _make_room(self, size: int, now_s: float) -> bool:
        if not self._held:
            return False
        oldest = next(iter(self._held.values()))
        if now_s - oldest.used_s > EVICTION_S:
            return self._evict(oldest)
        evictable = [held for held in self._held.values() if held.evictable]
        if not evictable:
            return False
        # Kafka compares (size, id), the newcomer's id being 0: equal sizes leave the old one where it is.
        smallest = min(evictable, key=lambda held: (held.size, held.id))
        return size > smallest.size and self._evict(smallest)

    def _evict(self, held: Held[T]) -> bool:
        del self._held[held.id]
        self.evictions += 1
        self._on_eviction(held)
        return True
