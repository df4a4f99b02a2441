"""The broker's half of KIP-227: grants sessions, applies deltas, leaves out of an answer what did not change.

::

    request (id, epoch)          SessionCache.open()       answer, once the partitions have been read
    -------------------          -------------------       ------------------------------------------
    (any, -1)                    Sessionless               all partitions, id 0; session id closed
    (any, 0)                     NewSession                all partitions, a new id or 0; session id closed
    (id, n), found, in step      Incremental               what changed since it was last told
    (id, n), emptied by it       Sessionless               closed: nothing, id 0
    (id, n), not found           Refused                   70
    (id, n), another epoch       Refused                   71
    (id, n), ids against names   Refused                   106; the session stays as it was

Opening and answering are two steps, since a fetch may wait for long in between. Meanwhile the same session
may be used by another request (a client that gave up and asked again), and then the first one's answer is 71.

Source: Kafka's ``FetchManager``, ``FetchContext`` and ``FetchSession``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol
from uuid import UUID

import attrs

from proxy.errors import ErrorCode
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION, SessionId, is_full, next_epoch
from proxy.session.slots import SessionSlots

__all__ = [
    "FetchContext",
    "FetchSessionCache",
    "FullFetchContext",
    "IncrementalFetchContext",
    "Key",
    "PartitionState",
    "PlainPartitionState",
    "SessionErrorContext",
    "SessionPartition",
    "SessionRequest",
    "SessionResponse",
    "SessionlessFetchContext",
]

Key = tuple[str | UUID, int]
"""Topic (its id in a session that uses topic ids, else its name) and partition."""


@attrs.frozen
class SessionPartition:
    """What a request says of one partition; the session remembers it until told otherwise."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1
    """A follower's; consumers send -1."""


@attrs.frozen
class SessionRequest:
    """What a fetch request says to the session."""

    session_id: SessionId
    epoch: int
    asks: Mapping[Key, SessionPartition]
    """The partitions named, in the request's order."""
    forget: Collection[Key] = ()
    by_id: bool = False
    """Whether keys hold topic ids: Fetch v13 and later."""


class PartitionState(Protocol):
    """What reading a partition brought, as far as it decides whether the answer has to say so."""

    @property
    def error(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start(self) -> int: ...
    @property
    def has_records(self) -> bool: ...
    @property
    def preferred_replica(self) -> int: ...
    @property
    def diverging(self) -> bool: ...


@attrs.frozen
class PlainPartitionState:
    """The plain ``PartitionState``."""

    high_watermark: int
    log_start: int = 0
    error: int = 0
    has_records: bool = False
    preferred_replica: int = -1
    """-1 for none."""
    diverging: bool = False
    """Whether the answer tells where the asker's log and ours part ways."""


@attrs.frozen
class SessionResponse:
    """What the response says of the session, and of which partitions, in this order."""

    error: ErrorCode
    session_id: SessionId
    keys: Collection[Key]


@attrs.define
class _Entry:
    ask: SessionPartition
    high_watermark: int = -1  # what the client was told last; -1 if nothing, or an error
    log_start: int = -1


@attrs.define
class _Session:
    entries: dict[Key, _Entry]
    by_id: bool
    epoch: int
    """The next request's."""
    topic_names: dict[UUID, str]

    def __len__(self) -> int:
        return len(self.entries)

    def apply(self, request: SessionRequest) -> None:
        for key, ask in request.asks.items():
            entry = self.entries.get(key)
            if entry is None:
                self.entries[key] = _Entry(ask)
            else:
                entry.ask = ask
        for key in request.forget:
            self.entries.pop(key, None)

    def told(self, key: Key, state: PartitionState) -> bool:
        """Whether the answer has to contain this partition; if so, it counts as told."""
        entry = self.entries[key]
        if state.error:
            entry.high_watermark = -1  # so that the first good answer after it is not left out
            entry.log_start = state.log_start
            return True
        changed = (
            entry.high_watermark != state.high_watermark
            or entry.log_start != state.log_start
            or state.preferred_replica != -1
            or state.diverging
        )
        if changed:
            entry.high_watermark = state.high_watermark
            entry.log_start = state.log_start
        if state.has_records:
            self.entries[key] = self.entries.pop(key)  # to the end: fairness under a size limit (KAFKA-12330)
        return changed or state.has_records


class FetchContext(ABC):
    """One fetch request's view of its session, from its arrival to its answer."""

    topic_names: dict[UUID, str]
    """Names that topic ids had when first resolved: the session's own memory, for its user to fill."""

    @property
    @abstractmethod
    def error(self) -> ErrorCode:
        """Other than ``none``: read nothing, and answer with ``answer({}, now_s)``."""

    @abstractmethod
    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        """What to read, in the order in which to read it; good until the next ``open``."""

    @abstractmethod
    def __len__(self) -> int:
        """How many ``partitions`` there are."""

    @abstractmethod
    def __contains__(self, key: Key) -> bool:
        """Whether the key is one of ``partitions``."""

    @abstractmethod
    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:
        """Shape the answer from what reading each of ``partitions`` brought. To be called once."""

    @abstractmethod
    def throttled(self) -> SessionResponse:
        """The empty answer to a request that is over its quota; called in place of ``answer``."""


class SessionErrorContext(FetchContext):
    """An error for an answer; no session was changed."""

    def __init__(self, error: ErrorCode) -> None:
        self.topic_names = {}
        self._error = error

    @property
    def error(self) -> ErrorCode:
        return self._error

    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        return ()

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: Key) -> bool:
        return False

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:  # noqa: ARG002
        return SessionResponse(self._error, NO_SESSION, ())

    def throttled(self) -> SessionResponse:
        return SessionResponse(self._error, NO_SESSION, ())


class SessionlessFetchContext(FetchContext):
    """All partitions asked for, all partitions answered, nothing remembered."""

    def __init__(self, asks: Mapping[Key, SessionPartition]) -> None:
        self.topic_names = {}
        self._asks = asks

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.none

    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        return self._asks.items()

    def __len__(self) -> int:
        return len(self._asks)

    def __contains__(self, key: Key) -> bool:
        return key in self._asks

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:  # noqa: ARG002
        return SessionResponse(ErrorCode.none, NO_SESSION, results.keys())

    def throttled(self) -> SessionResponse:
        return SessionResponse(ErrorCode.none, NO_SESSION, ())


class FullFetchContext(SessionlessFetchContext):
    """Like ``SessionlessFetchContext``, and a session is granted with the answer if there is room for it."""

    def __init__(self, asks: Mapping[Key, SessionPartition], by_id: bool, slots: SessionSlots[_Session]) -> None:
        super().__init__(asks)
        self._by_id = by_id
        self._slots = slots

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:
        entries = {
            key: _Entry(self._asks[key], state.high_watermark, state.log_start) for key, state in results.items()
        }
        session = _Session(entries, self._by_id, epoch=1, topic_names=self.topic_names)
        return SessionResponse(ErrorCode.none, self._slots.add(session, now_s), results.keys())


class IncrementalFetchContext(FetchContext):
    """A request within a session; only what changed is answered."""

    def __init__(self, session_id: SessionId, session: _Session) -> None:
        self.session_id = session_id
        self.topic_names = session.topic_names
        self._session = session
        self._expected = session.epoch

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.none

    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        return ((key, entry.ask) for key, entry in self._session.entries.items())

    def __len__(self) -> int:
        return len(self._session.entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._session.entries

    def _overtaken(self) -> SessionResponse | None:
        if self._session.epoch == self._expected:
            return None
        return SessionResponse(ErrorCode.invalid_fetch_session_epoch, self.session_id, ())

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:  # noqa: ARG002
        # Evicted while it waited: answered all the same, as Kafka does; the next request is told.
        told = self._session.told
        return self._overtaken() or SessionResponse(
            ErrorCode.none, self.session_id, [key for key, state in results.items() if told(key, state)]
        )

    def throttled(self) -> SessionResponse:
        return self._overtaken() or SessionResponse(ErrorCode.none, self.session_id, ())


class FetchSessionCache:
    """All sessions of one broker."""

    def __init__(self, slots: int, id_factory: Callable[[], int]) -> None:
        self._slots: SessionSlots[_Session] = SessionSlots(slots, id_factory)

    def __len__(self) -> int:
        """Sessions held."""
        return len(self._slots)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions held."""
        return self._slots.partitions

    @property
    def evictions(self) -> int:
        return self._slots.evictions

    @property
    def refusals(self) -> int:
        """Sessions asked for and not granted."""
        return self._slots.refusals

    def open(self, request: SessionRequest, now_s: float) -> FetchContext:
        """Decide what kind of fetch this is, and bring the session up to date with it."""
        if is_full(request.epoch):
            if request.session_id != NO_SESSION:
                self._slots.remove(request.session_id)
            if request.epoch == FINAL_EPOCH:
                return SessionlessFetchContext(request.asks)
            return FullFetchContext(request.asks, request.by_id, self._slots)
        return self._continue(request, now_s)

    def _continue(self, request: SessionRequest, now_s: float) -> FetchContext:
        session = self._slots.get(request.session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.epoch:
            return SessionErrorContext(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != request.by_id:
            return SessionErrorContext(ErrorCode.fetch_session_topic_id_error)
        session.apply(request)
        if not session.entries:
            self._slots.remove(request.session_id)
            return SessionlessFetchContext({})
        self._slots.touch(request.session_id, now_s)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(request.session_id, session)

    def evict(self, session_id: SessionId) -> bool:
        """Forget a session as if another had needed its slot; whether there was one."""
        return self._slots.remove(session_id)
