"""The sessions that clients of Fetch v7 and later have with Sidefetch: the broker's half of KIP-227.

::

    request (id, epoch)          ClientSessions.open()     response
    -------------------          ---------------------     --------
    (any, -1)                    Sessionless               all partitions, id 0; session id closed
    (any, 0)                     NewSession                all partitions, a new id or 0; session id closed
    (id, n), found, epoch is n   Incremental               records, errors and changed offsets
    (id, n), emptied by it       Sessionless               session closed: no partitions, id 0
    (id, n), not found           Refused                   error 70
    (id, n), another epoch       Refused                   error 71
    (id, n), ids against names   Refused                   error 106; the session does not change

The reader proceeds as if the client had sent a full fetch: ``Context.request`` names all partitions of the session.
A fetch may wait for long between ``open`` and its response. If the same session is used meanwhile (the client gave
up and sent another request), the response to the first request is error 71.

All connections and listeners share one set of session slots, as those of a broker do. A session is found only at
the listener of the broker where it was created, and only by the principal that created it.

``proxy.session.downstream`` implements the same half for the embedded cluster, with an object for each partition.
The only difference in the rules: here a fetch without partitions is granted no session.

Source: Kafka's ``FetchManager``, ``FetchContext`` and ``FetchSession``.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Self

import attrs

from proxy.errors import ErrorCode, LimitReached
from proxy.events import SessionEvent, SessionRecord
from proxy.fetch.client_session import ClientSession
from proxy.fetch.response_template import ResponseTemplate, Updates
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION, SessionId, is_full, next_epoch
from proxy.session.slots import OccupiedSlot, SessionSlots
from proxy.wire.fetch import FetchRequest, Topic
from proxy.wire.frames import Piece

__all__ = ["Answer", "ClientSessions", "Context", "Incremental", "NewSession", "Refused", "Sessionless"]


_NO_LIMIT: Final = 2**31 - 1


class Answer(NamedTuple):
    """The body of a Fetch response: its error code, its session id and its encoded topics."""

    error: int
    session_id: int
    topics: int
    """The number of topic sections."""
    partitions: int
    """The number of partitions."""
    pieces: list[Piece]
    """The encoded topics."""


def _nothing(error: int = ErrorCode.none, session_id: int = NO_SESSION) -> Answer:
    return Answer(error, session_id, 0, 0, [])


Spliced = list[Piece] | None
"""The encoded topics of a response with all partitions; None if a session chooses some of them."""


@attrs.frozen
class Context(ABC):
    """The session handling of one client fetch, from request to response: it decides which partitions are sent."""

    request: FetchRequest
    """The client's request, with all partitions of its session, also those that the request did not name."""

    def splice(self, template: ResponseTemplate, updates: Updates) -> Spliced:  # noqa: ARG002
        """Return the topics of a response with all partitions, for ``answer``; None if the session chooses some.

        Any thread may call it. *template* and *updates* are those of ``answer``.
        """
        return None

    @abstractmethod
    def answer(self, template: ResponseTemplate, updates: Updates, spliced: Spliced = None) -> Answer:
        """Return the response with *updates*, and with the partitions of *template* that the client must be sent.

        If the session refuses the request, it has only the session's error. *template* must have the partitions of
        ``request``, with their last offsets; *updates* has records and errors. Call this once, or ``empty`` in its
        place: in a session, the partitions without an error count as sent.

        *spliced*: the result of ``splice``; None if that was not called.
        """

    def empty(self) -> Answer:
        """Return a response without partitions, with the session's error if there is one; create no session.

        It is for a fetch that is throttled, is refused by its session, or has no partitions.
        """
        return _nothing()


@attrs.frozen
class Refused(Context):
    """The context of a request that is answered with a session error; no session was changed."""

    error: ErrorCode

    def answer(self, template: ResponseTemplate, updates: Updates, spliced: Spliced = None) -> Answer:  # noqa: ARG002
        return _nothing(self.error)

    def empty(self) -> Answer:
        return _nothing(self.error)


@attrs.frozen
class Sessionless(Context):
    """The context of a fetch without a session: its response has all partitions."""

    def splice(self, template: ResponseTemplate, updates: Updates) -> list[Piece]:
        return template.answer(updates)

    def answer(self, template: ResponseTemplate, updates: Updates, spliced: Spliced = None) -> Answer:
        pieces = self.splice(template, updates) if spliced is None else spliced
        return Answer(ErrorCode.none, NO_SESSION, template.sections, template.partitions, pieces)


@attrs.frozen
class NewSession(Sessionless):
    """The context of a request for a new session, which ``answer`` creates if a slot is free or can be freed.

    The response has all partitions, and the new session id, or 0 if none was created.
    """

    _session: ClientSession
    _grant: Callable[[ClientSession], SessionId]

    def splice(self, template: ResponseTemplate, updates: Updates) -> list[Piece]:
        if self.request.sections is self._session.sections:
            self._session.record_full_response(template, updates)
        return super().splice(template, updates)

    def answer(self, template: ResponseTemplate, updates: Updates, spliced: Spliced = None) -> Answer:
        answer = super().answer(template, updates, spliced)
        return answer._replace(session_id=self._grant(self._session))


@attrs.frozen
class Incremental(Context):
    """The context of a request within a session: its response has only the partitions that changed.

    If a later request has advanced the session's epoch meanwhile, the response is INVALID_FETCH_SESSION_EPOCH. If
    the session was only closed or evicted, the response is sent as usual.
    """

    session_id: SessionId
    _session: ClientSession
    _expected: int
    """The session's epoch if no later request has used it."""

    def answer(self, template: ResponseTemplate, updates: Updates, spliced: Spliced = None) -> Answer:  # noqa: ARG002
        # If the session was evicted or closed meanwhile, only the next request fails, as with Kafka.
        return self._overtaken or Answer(
            ErrorCode.none, self.session_id, *self._session.take_changes(template, updates)
        )

    def empty(self) -> Answer:
        return self._overtaken or _nothing(session_id=self.session_id)

    @property
    def _overtaken(self) -> Answer | None:
        if self._session.epoch == self._expected:
            return None
        return _nothing(ErrorCode.invalid_fetch_session_epoch, self.session_id)


class ClientSessions:
    """The fetch sessions of all clients of the process; a view of it serves one principal.

    It holds at most ``slots`` sessions; with 0, clients get none.
    """

    def __init__(
        self,
        slots: int,
        id_factory: Callable[[], int],
        most_partitions: int = _NO_LIMIT,
        most_bytes: int = _NO_LIMIT,
    ) -> None:
        """Create a cache without sessions.

        Args: id_factory: returns a random session id.
              most_partitions: the most partitions of one session.
              most_bytes: the limit for the memory of all sessions; one beyond it is not granted, unless others can
                  be evicted.
        """
        self._most_partitions = most_partitions
        self._slots: SessionSlots[ClientSession] = SessionSlots(
            slots, id_factory, self._evicted, lambda session: session.size_bytes, most_bytes
        )
        self._records: list[SessionRecord] = []
        self._owner = ""

    def of(self, owner: str) -> Self:
        """Return a view for the principal *owner*, which finds only its own sessions; all views share the slots."""
        seen = copy.copy(self)
        seen._owner = owner
        return seen

    def __len__(self) -> int:
        """Return the number of open sessions: Kafka's ``NumIncrementalFetchSessions``."""
        return len(self._slots)

    @property
    def partitions(self) -> int:
        """The number of partitions of all open sessions: Kafka's ``NumIncrementalFetchPartitionsCached``."""
        return self._slots.partitions

    @property
    def evictions(self) -> int:
        """The number of sessions evicted so far; Kafka has the rate, ``IncrementalFetchSessionEvictionsPerSec``."""
        return self._slots.evictions

    @property
    def refusals(self) -> int:
        """The number of new sessions that were refused: no slot was free or could be freed.

        It stays 0 if there are no slots at all.
        """
        return self._slots.refusals

    def open(self, request: FetchRequest, node_id: int, now_s: float) -> Context:
        """Return the context of a client's request, and apply the request to its session, if it names one.

        A full request (epoch 0 or -1) closes the session that it names. Any other is refused, and changes no
        session, if the session is not found, or has another epoch or way to name topics. A request that leaves its
        session without partitions closes it. Otherwise the epoch of the session is advanced.

        Args: node_id: the broker whose listener the client uses.
        Raises: LimitReached: the session has too many partitions; it is closed.
        """
        if not is_full(request.session_epoch):
            return self._continue(request, node_id, now_s)
        self.close(request.session_id, node_id)
        if request.session_epoch == FINAL_EPOCH or not request.sections or not self._slots.slots:
            return Sessionless(request)
        session = ClientSession(node_id, request.version, request.sections, self._owner)
        if session.sections is not request.sections and len(session.sections) == len(request.sections):
            # The reader's ``FetchState`` and the session then keep the same bytes.
            same = zip(session.sections, request.sections, strict=True)
            if all(len(ours.entries) == len(theirs.entries) for ours, theirs in same):
                request = attrs.evolve(request, sections=session.sections)
        return NewSession(request, session, partial(self._grant, now_s))

    def topics(self, session_id: int, node_id: int) -> frozenset[Topic]:
        """Return the topics of a session of this principal at the listener of broker *node_id*.

        The result is empty if there is no such session.
        """
        session = self._find(session_id, node_id)
        return session.topics if session is not None else frozenset()

    def close(self, session_id: int, node_id: int) -> bool:
        """Close a session of this principal at the listener of broker *node_id*; return whether there was one."""
        session = self._find(session_id, node_id)
        if session is None:
            return False
        self._slots.remove(SessionId(session_id))
        self._note(session_id, session, "closed")
        return True

    def take_records(self) -> list[SessionRecord]:
        """Return and clear the telemetry of sessions created, refused, evicted and closed, of all principals."""
        records = list(self._records)
        self._records.clear()  # in place: all views share it
        return records

    def _find(self, session_id: int, node_id: int) -> ClientSession | None:
        session = self._slots.get(SessionId(session_id))
        is_ours = session is not None and session.node_id == node_id and session.owner == self._owner
        return session if is_ours else None

    def _continue(self, request: FetchRequest, node_id: int, now_s: float) -> Context:
        session_id = SessionId(request.session_id)
        session = self._find(session_id, node_id)
        refused = attrs.evolve(request, sections=())
        if session is None:
            return Refused(refused, ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            return Refused(refused, ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != request.by_id:
            return Refused(refused, ErrorCode.fetch_session_topic_id_error)
        session.apply(request.version, request.sections, request.forgotten)
        if len(session) > self._most_partitions:
            self.close(session_id, node_id)
            many = f"a session of {len(session)} partitions, {self._most_partitions} are let through"
            raise LimitReached("max-fetch-partitions", many)
        if not len(session):
            self.close(session_id, node_id)
            return Sessionless(attrs.evolve(request, sections=()))
        if not self._slots.touch(session_id, now_s):
            return Refused(refused, ErrorCode.fetch_session_id_not_found)
        session.epoch = next_epoch(session.epoch)
        whole = attrs.evolve(request, sections=session.sections)
        return Incremental(whole, session_id, session, session.epoch)

    def _grant(self, now_s: float, session: ClientSession) -> SessionId:
        session_id = self._slots.add(session, now_s)
        self._note(session_id, session, "refused" if session_id == NO_SESSION else "created")
        return session_id

    def _evicted(self, held: OccupiedSlot[ClientSession]) -> None:
        self._note(held.id, held.session, "evicted", held)

    def _note(
        self,
        session_id: int,
        session: ClientSession,
        event: SessionEvent,
        held: OccupiedSlot[ClientSession] | None = None,
    ) -> None:
        times = (None, None) if held is None else (held.created_s, held.used_s)
        record = SessionRecord(session.node_id, session_id, event, len(session), "client", "", "", *times)
        self._records.append(record)
