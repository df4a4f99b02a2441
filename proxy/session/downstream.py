"""The broker's half of fetch sessions (KIP-227): granted sessions, their updates, and incremental responses.

::

    request (id, epoch)          FetchSessionCache.open()   response, once the partitions have been read
    -------------------          ------------------------   --------------------------------------------
    (any, -1)                    SessionlessFetchContext    all partitions, id 0; session id closed
    (any, 0)                     FullFetchContext           all partitions, a new id or 0; session id closed
    (id, n), known epoch         IncrementalFetchContext    the partitions that changed since the last response
    (id, n), now empty           SessionlessFetchContext    no partition, id 0; session closed
    (id, n), not found           SessionErrorContext        70
    (id, n), another epoch       SessionErrorContext        71
    (id, n), ids against names   SessionErrorContext        106; the session stays as it was

Opening and answering are two steps, since a fetch may wait in between. If another request uses the session
meanwhile (the client timed out and sent it again), the response to the first request is error 71.

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
    """The fetch parameters of one partition, which its session keeps until a later request changes them.

    They are the offset, the byte limit, the client's leader epochs, and the log start offset of a follower.
    """

    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1
    """The log start offset of a follower; consumers send -1."""


@attrs.frozen
class SessionRequest:
    """The fields of a Fetch request that concern its session: id and epoch, changed and removed partitions."""

    session_id: SessionId
    epoch: int
    requested: Mapping[Key, SessionPartition]
    """The partitions that the request names, in its order."""
    forget: Collection[Key] = ()
    """The partitions to remove from the session."""
    by_id: bool = False
    """Whether keys have topic ids, as in Fetch v13 and later."""


class PartitionState(Protocol):
    """The result of reading a partition, as far as it decides whether a response must contain the partition.

    An incremental response contains the partition on an error, with records, with a preferred replica, with a
    diverging epoch, or if the high watermark or the log start offset differs from the last one sent.
    """

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
    """A ``PartitionState`` with stored values: the base class for the embedded cluster's results of reads."""

    high_watermark: int
    log_start: int = 0
    error: int = 0
    has_records: bool = False
    preferred_replica: int = -1
    """-1 for none."""
    diverging: bool = False
    """Whether the response has a diverging epoch: the follower's log differs from the leader's."""


@attrs.frozen
class SessionResponse:
    """The fields of a Fetch response that its session decides: top-level error, session id, and partitions.

    *keys* are the partitions that the response must contain, in order.
    """

    error: ErrorCode
    session_id: SessionId
    keys: Collection[Key]


@attrs.define
class _Entry:
    wanted: SessionPartition
    high_watermark: int = -1  # in the last response; -1 if there was none, or an error
    log_start: int = -1


@attrs.define
class _Session:
    entries: dict[Key, _Entry]
    by_id: bool
    epoch: int
    """The epoch of the next request."""
    topic_names: dict[UUID, str]

    def __len__(self) -> int:
        return len(self.entries)

    def apply(self, request: SessionRequest) -> None:
        for key, wanted in request.requested.items():
            entry = self.entries.get(key)
            if entry is None:
                self.entries[key] = _Entry(wanted)
            else:
                entry.wanted = wanted
        for key in request.forget:
            self.entries.pop(key, None)

    def update_sent(self, key: Key, state: PartitionState) -> bool:
        """Return whether the response must contain this partition, which was read as *state*.

        If so, note its offsets as sent. A partition with records moves to the end of the session's order.
        """
        entry = self.entries[key]
        if state.error:
            entry.high_watermark = -1  # the next response without an error must contain it
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
    """One Fetch request and its session, from the arrival of the request to its response.

    ``FetchSessionCache.open`` returns the subclass for the kind of the request. The caller reads ``partitions``,
    waits as needed, then calls ``answer``, which says which partitions the response must contain.
    """

    topic_names: dict[UUID, str]
    """The name of each topic id when it was first resolved; the user of the session fills it."""

    @property
    @abstractmethod
    def error(self) -> ErrorCode:
        """The top-level error of the response, or ``ErrorCode.none``.

        On an error, the caller reads no partition: ``answer({}, now_s)`` is the response.
        """

    @abstractmethod
    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        """Return the partitions to read with their parameters, in order; in a session, all partitions of it.

        Iterate over them before the next ``FetchSessionCache.open``, which may change the session.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of ``partitions``."""

    @abstractmethod
    def __contains__(self, key: Key) -> bool:
        """Return whether the key is one of ``partitions``."""

    @abstractmethod
    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:
        """Return the session id and the partitions of the response, and update the session. Call it once.

        *results* are the results of reading ``partitions``, in the order of the response. In an existing session,
        the response has only those that changed, have records or an error; its error is INVALID_FETCH_SESSION_EPOCH
        if another request used the session meanwhile. For a full fetch, this creates the session.
        """

    @abstractmethod
    def answer_throttled(self) -> SessionResponse:
        """Return a response without partitions, for a client over its quota; call it instead of ``answer``.

        An existing session stays; a full fetch gets no session.
        """


class SessionErrorContext(FetchContext):
    """A Fetch request that is refused: its session id or epoch is wrong, or it mixes topic ids and names.

    No session changes.
    """

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

    def answer_throttled(self) -> SessionResponse:
        return SessionResponse(self._error, NO_SESSION, ())


class SessionlessFetchContext(FetchContext):
    """A Fetch request without a session: the response has all partitions that were read, and session id 0."""

    def __init__(self, requested: Mapping[Key, SessionPartition]) -> None:
        self.topic_names = {}
        self._requested = requested

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.none

    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        return self._requested.items()

    def __len__(self) -> int:
        return len(self._requested)

    def __contains__(self, key: Key) -> bool:
        return key in self._requested

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:  # noqa: ARG002
        return SessionResponse(ErrorCode.none, NO_SESSION, results.keys())

    def answer_throttled(self) -> SessionResponse:
        return SessionResponse(ErrorCode.none, NO_SESSION, ())


class FullFetchContext(SessionlessFetchContext):
    """A full Fetch request, which asks for a new session: the response has all partitions that were read.

    ``answer`` creates the session if a slot is free or can be freed; otherwise the response has session id 0.
    """

    def __init__(
        self, requested: Mapping[Key, SessionPartition], by_id: bool, slots: SessionSlots[_Session]
    ) -> None:
        super().__init__(requested)
        self._by_id = by_id
        self._slots = slots

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:
        entries = {
            key: _Entry(self._requested[key], state.high_watermark, state.log_start)
            for key, state in results.items()
        }
        session = _Session(entries, self._by_id, epoch=1, topic_names=self.topic_names)
        return SessionResponse(ErrorCode.none, self._slots.add(session, now_s), results.keys())


class IncrementalFetchContext(FetchContext):
    """A Fetch request in an existing session: the response has only partitions with changes, records or errors."""

    def __init__(self, session_id: SessionId, session: _Session) -> None:
        self.session_id = session_id
        self.topic_names = session.topic_names
        self._session = session
        self._expected = session.epoch

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.none

    def partitions(self) -> Iterable[tuple[Key, SessionPartition]]:
        return ((key, entry.wanted) for key, entry in self._session.entries.items())

    def __len__(self) -> int:
        return len(self._session.entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._session.entries

    def _epoch_error(self) -> SessionResponse | None:
        if self._session.epoch == self._expected:
            return None
        return SessionResponse(ErrorCode.invalid_fetch_session_epoch, self.session_id, ())

    def answer(self, results: Mapping[Key, PartitionState], now_s: float) -> SessionResponse:  # noqa: ARG002
        # A session that was evicted during the wait still gets its response, as in Kafka; the next request gets 70.
        update_sent = self._session.update_sent
        return self._epoch_error() or SessionResponse(
            ErrorCode.none, self.session_id, [key for key, state in results.items() if update_sent(key, state)]
        )

    def answer_throttled(self) -> SessionResponse:
        return self._epoch_error() or SessionResponse(ErrorCode.none, self.session_id, ())


class FetchSessionCache:
    """The fetch sessions that one broker keeps for its clients; ``open`` begins each Fetch request."""

    def __init__(self, slots: int, id_factory: Callable[[], int]) -> None:
        """Create an empty cache for at most *slots* sessions; *id_factory* returns candidates for their ids."""
        self._slots: SessionSlots[_Session] = SessionSlots(slots, id_factory)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._slots)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together, as Kafka's NumIncrementalFetchPartitionsCached."""
        return self._slots.partitions

    @property
    def evictions(self) -> int:
        return self._slots.evictions

    @property
    def refusals(self) -> int:
        """The number of sessions so far that clients requested and did not get, for lack of a slot."""
        return self._slots.refusals

    def open(self, request: SessionRequest, now_s: float) -> FetchContext:
        """Begin a Fetch request: close or update the session that it names, and return its context.

        A request with epoch 0 or -1 closes the session. Any other adds, changes and removes partitions of it, and
        advances its epoch; a session that is empty then is closed. If there is no such session, its epoch is
        another, or one of session and request has topic ids and the other names, the context has the error, and the
        session stays as it is.
        """
        if is_full(request.epoch):
            if request.session_id != NO_SESSION:
                self._slots.remove(request.session_id)
            if request.epoch == FINAL_EPOCH:
                return SessionlessFetchContext(request.requested)
            return FullFetchContext(request.requested, request.by_id, self._slots)
        return self._continue_session(request, now_s)

    def _continue_session(self, request: SessionRequest, now_s: float) -> FetchContext:
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
        """Remove a session, as if it had been evicted, and return whether it existed; ``evictions`` stays."""
        return self._slots.remove(session_id)
