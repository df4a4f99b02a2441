"""The sessions that clients of Fetch v7 and later have with Sidefetch: the broker's half of KIP-227.

::

    request (id, epoch)          ClientSessions.open()     answer, once the reader has it
    -------------------          ---------------------     ------------------------------
    (any, -1)                    Sessionless               all partitions, id 0; session id closed
    (any, 0)                     NewSession                all partitions, a new id or 0; session id closed
    (id, n), found, in step      Incremental               news, and what changed since the client was told
    (id, n), emptied by it       Sessionless               closed: nothing, id 0
    (id, n), not found           Refused                   70
    (id, n), another epoch       Refused                   71
    (id, n), ids against names   Refused                   106; the session stays as it was

The reader goes on as if the client had sent a full fetch: ``Context.request`` names all that the session holds.
A fetch may wait for long between the two steps. If the same session is used meanwhile (a client that gave up and
asked again), the first one's answer is 71.

One set of slots is shared by all connections and all listeners, as a broker shares its own. A session belongs to
the broker whose listener it was made at, and to the principal who made it, and is found there and by that one only:
ids are a broker's own.

``proxy.session.downstream`` plays the same half for the embedded cluster, with an object per partition; the one
rule that differs is that a fetch of nothing is granted no session here.

Source: Kafka's ``FetchManager``, ``FetchContext`` and ``FetchSession``.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Self

import attrs

from proxy.errors import ErrorCode, LimitReached
from proxy.events import SessionEvent, SessionRecord
from proxy.fetch.client_session import ClientSession
from proxy.fetch.sheet import News, Sheet
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION, SessionId, is_full, next_epoch
from proxy.session.slots import OccupiedSlot, SessionSlots
from proxy.wire.fetch import FetchRequest, Topic
from proxy.wire.frames import Piece

__all__ = ["Answer", "ClientSessions", "Context", "Incremental", "NewSession", "Refused", "Sessionless"]


_NO_LIMIT: Final = 2**31 - 1


class Answer(NamedTuple):
    """What an answer says of its session, and its topics."""

    error: int
    session_id: int
    topics: int
    partitions: int
    pieces: list[Piece]


def _nothing(error: int = ErrorCode.none, session_id: int = NO_SESSION) -> Answer:
    return Answer(error, session_id, 0, 0, [])


@attrs.frozen
class Context(ABC):
    """One fetch's view of its session, from the request to the answer."""

    request: FetchRequest
    """With all partitions that are to be read, whether they were named or not."""

    @abstractmethod
    def answer(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> Answer:
        """Shape the answer; *sheet* has the form of ``request``. To be called once, or ``empty`` in its place."""

    def empty(self) -> Answer:
        """The answer to a fetch that is over its quota, that fails, or that is of nothing."""
        return _nothing()


@attrs.frozen
class Refused(Context):
    """An error for an answer; no session was changed."""

    error: ErrorCode

    def answer(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> Answer:  # noqa: ARG002
        return _nothing(self.error)

    def empty(self) -> Answer:
        return _nothing(self.error)


@attrs.frozen
class Sessionless(Context):
    """All partitions asked for, all partitions answered, nothing remembered."""

    def answer(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> Answer:
        return Answer(ErrorCode.none, NO_SESSION, sheet.sections, sheet.partitions, sheet.answer(news))


@attrs.frozen
class NewSession(Sessionless):
    """Like ``Sessionless``, and a session is granted with the answer if there is room for it."""

    _session: ClientSession
    _grant: Callable[[ClientSession], SessionId]

    def answer(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> Answer:
        session_id = self._grant(self._session)
        if self.request.sections is self._session.sections:
            self._session.told_all(sheet, news)
        return super().answer(sheet, news)._replace(session_id=session_id)


@attrs.frozen
class Incremental(Context):
    """A request within a session; only what changed is answered."""

    session_id: SessionId
    _session: ClientSession
    _expected: int
    """The session's epoch as long as nobody else uses it."""

    def answer(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> Answer:
        # Evicted or closed while it waited: answered all the same, as by Kafka; the next request is told.
        return self._overtaken or Answer(ErrorCode.none, self.session_id, *self._session.tell(sheet, news))

    def empty(self) -> Answer:
        return self._overtaken or _nothing(session_id=self.session_id)

    @property
    def _overtaken(self) -> Answer | None:
        if self._session.epoch == self._expected:
            return None
        return _nothing(ErrorCode.invalid_fetch_session_epoch, self.session_id)


class ClientSessions:
    """All sessions of a process's clients, at most *slots* of them; 0 grants none."""

    def __init__(self, slots: int, id_factory: Callable[[], int], most_partitions: int = _NO_LIMIT) -> None:
        """*most_partitions*: of one session."""
        self._most_partitions = most_partitions
        self._slots: SessionSlots[ClientSession] = SessionSlots(slots, id_factory, self._evicted)
        self._records: list[SessionRecord] = []
        self._owner = ""

    def of(self, owner: str) -> Self:
        """The same, as the principal *owner* sees them: nobody finds another's session, whatever id is guessed."""
        seen = copy.copy(self)
        seen._owner = owner
        return seen

    def __len__(self) -> int:
        """Sessions held: Kafka's ``NumIncrementalFetchSessions``."""
        return len(self._slots)

    @property
    def partitions(self) -> int:
        """In all sessions held: Kafka's ``NumIncrementalFetchPartitionsCached``."""
        return self._slots.partitions

    @property
    def evictions(self) -> int:
        """So far; Kafka tells the rate, ``IncrementalFetchSessionEvictionsPerSec``."""
        return self._slots.evictions

    @property
    def refusals(self) -> int:
        """Sessions asked for and not granted."""
        return self._slots.refusals

    def open(self, request: FetchRequest, node_id: int, now_s: float) -> Context:
        """Decide what kind of fetch this is, and bring the session up to date with it.

        Raises: LimitReached: the session has too many partitions; it is forgotten.
        """
        if not is_full(request.session_epoch):
            return self._continue(request, node_id, now_s)
        self.close(request.session_id, node_id)
        if request.session_epoch == FINAL_EPOCH or not request.sections or not self._slots.slots:
            return Sessionless(request)
        session = ClientSession(node_id, request.version, request.sections, self._owner)
        if len(session.sections) == len(request.sections):
            # From now on the reader's table and the session keep the same bytes.
            same = zip(session.sections, request.sections, strict=True)
            if all(len(ours.entries) == len(theirs.entries) for ours, theirs in same):
                request = attrs.evolve(request, sections=session.sections)
        return NewSession(request, session, partial(self._grant, now_s))

    def topics(self, session_id: int, node_id: int) -> frozenset[Topic]:
        """What the session is about; empty if there is no such session."""
        session = self._find(session_id, node_id)
        return session.topics if session is not None else frozenset()

    def close(self, session_id: int, node_id: int) -> bool:
        """Forget the session; whether there was one."""
        session = self._find(session_id, node_id)
        if session is None:
            return False
        self._slots.remove(SessionId(session_id))
        self._note(session_id, session, "closed")
        return True

    def take_records(self) -> list[SessionRecord]:
        """What has become of sessions since this was last called, by whichever principal."""
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
        self._slots.touch(session_id, now_s)
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
