"""What a reader and its broker say to each other: one fetch at a time, in a session where that pays."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Final

import attrs

from proxy.errors import BrokerProtocolError, ErrorCode, MalformedFrame
from proxy.fetch.commands import Ask, Farewell, LaneId, Note
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import Brought, Plan, Refusal, Refused, SessionReply, UpstreamSession
from proxy.trace import FetchRecord, RouteKind, SessionEvent, SessionRecord
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    MAX_VERSION,
    FetchOptions,
    FetchResponse,
    Key,
    Topic,
    read_response,
    write_request,
)
from proxy.wire.fetch import Ask as KeyAsk
from proxy.wire.frames import SIZE_BYTES
from proxy.wire.headers import RequestHeader

__all__ = ["Landed", "Lane"]

_SESSIONS_VERSION: Final = 7
_LEADERS_VERSION: Final = 4
_FOLLOWERS_VERSION: Final = 11
"""Of Fetch; below, consumers are answered by leaders only (KIP-392)."""
_LAST_TO_SIT_ON_REDIRECTS: Final = 13
"""Fetch version of Kafka 3.1 to 3.4; later ones are without that fault."""

_BACK_OFF_S: Final = 10.0
"""After a broker refused or evicted a session, how long to do without: its slots are scarce."""
_NAMED_SESSION_LIMIT: Final = 1000
"""Partitions in a session by name. Kafka's hash of names makes larger ones stall a broker: 12 s at 5,000."""


_LATE_S: Final = 2.0
"""How much longer than it was told to wait a broker may take."""


@attrs.frozen
class _Flight:
    """A fetch that the broker has not answered."""

    lane: LaneId
    route: RouteKind
    plan: Plan
    version: int
    correlation_id: int
    request_bytes: int
    sent_s: float
    late_s: float | None
    """When the broker must have answered; None once its answer comes."""

    def read(self, frame: memoryview) -> FetchResponse:
        """Raises: BrokerProtocolError: *frame* is no answer to this."""
        try:
            response = read_response(self.version, frame)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to Fetch v{self.version}: {wrong}") from wrong
        if response.correlation_id != self.correlation_id:
            raise BrokerProtocolError(f"answer {response.correlation_id} to request {self.correlation_id}")
        return response


@attrs.frozen
class Landed:
    """An answer, and whether it may be used."""

    response: FetchResponse
    outcome: Brought | Refused
    asked: Mapping[Key, KeyAsk]
    """What it answers."""
    _record: FetchRecord
    _session_notes: tuple[Note, ...]

    def notes(self, kept_bytes: int = 0) -> Iterator[Note]:
        """What is to be told of it; *kept_bytes*: of its records, what may be given to the client."""
        yield Note(attrs.evolve(self._record, dropped_bytes=self._record.record_bytes - kept_bytes))
        yield from self._session_notes


class Lane:
    """The fetches to one broker, on one connection after another.

    A session goes on from one connection to the next, unless the first was lost with a fetch under way.
    What a fetch asks for does not change while it is under way, but partitions may be taken out.
    """

    def __init__(self, lane_id: LaneId, jitter: float, route: RouteKind, *, session_from: int = 0) -> None:
        """*jitter*: 0..1, so that lanes that were refused together do not come back together.

        *route*: why its broker is asked. *session_from*: partitions below which a session would save nothing worth
        a slot of the broker's.
        """
        self.id = lane_id
        self.is_follower = route in ("preferred", "selected")
        """Whether its broker does not lead what it is asked for."""
        self._route = route
        self._session_from = session_from
        self._back_off_s = _BACK_OFF_S * (1 + jitter)
        self._sessionless_until_s = 0.0
        self._session = UpstreamSession()
        self._flight: _Flight | None = None
        self._version = 0
        """The connection's, and the last one's while there is none; 0 before the first."""
        self._correlation_id = 0
        self._muted_until_s = 0.0
        self._brought_before = False
        self._session_made_s: float | None = None
        self.asks: dict[Key, KeyAsk] = {}
        """What the next fetch is for, and the one under way, in the order in which they were put in."""
        self.topics: dict[Topic, int] = {}
        """How many partitions of each those are."""
        self.waits = self.is_parked = False
        """Whether the fetch under way may wait at the broker, and whether anything that is new ends that wait."""
        self.is_open = False
        self.is_opening = False
        self.sent_s = float("-inf")
        """When the last fetch was sent."""
        self.heard_s = float("-inf")
        """From when on the broker listens to it: not before the throttling that it has told is over (KIP-219)."""
        self.asked_in = self.answered_in = 0
        """The numbers of the client's exchanges in which it was asked last, and for which it has told all."""
        self._answering_in: int | None = None
        """The number of that in which its answer began to come; None as long as it has not."""

    @property
    def _node_id(self) -> int:
        return self.id.source.node_id

    @property
    def sits_on_redirects(self) -> bool:
        """Whether the broker is one that tells of a closer replica only when the wait is over (KAFKA-13767)."""
        return self._version <= _LAST_TO_SIT_ON_REDIRECTS

    @property
    def has_session(self) -> bool:
        return self._session.session_id != NO_SESSION

    @property
    def is_asking(self) -> bool:
        """Whether the broker owes an answer, and would not look at another request before."""
        return self._flight is not None

    @property
    def is_answering(self) -> bool:
        """Whether an answer has begun to come."""
        return self._answering_in is not None

    @property
    def late_s(self) -> float | None:
        """When the broker must have answered; None if it owes nothing."""
        return None if self._flight is None else self._flight.late_s

    @property
    def version(self) -> int:
        """Fetch version that is spoken there, or was last; 0 if there was no connection yet."""
        return self._version

    @property
    def by_id(self) -> bool:
        """Whether topics are called by their ids."""
        return self._version >= IDS_VERSION

    def opened(self, ranges: ApiRanges) -> None:
        """There is a connection, to a broker that serves *ranges*.

        Raises: BrokerProtocolError: it serves no Fetch that we speak.
        """
        served = ranges.get(FETCH)
        version = min(served.last, MAX_VERSION) if served is not None else 0
        oldest = _FOLLOWERS_VERSION if self.is_follower else _LEADERS_VERSION
        if version < oldest:
            raise BrokerProtocolError(f"broker {self._node_id} serves Fetch up to v{version}, v{oldest} is needed")
        by_id = self.by_id
        self._version = version
        if self.by_id != by_id:
            self._session.restart()
        self.is_open, self.is_opening = True, False

    def lost(self, now_s: float) -> list[Note]:
        """The connection is gone, and with it what was under way."""
        self.is_open = self.is_opening = False
        self._muted_until_s = 0.0
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        self._session.lost(flight.plan)
        return [Note(_unanswered(flight, now_s))]

    def answering(self, exchange: int) -> None:
        """The broker's answer has begun to come, and may take its time.

        *exchange*: the number of the client's. Of what happens from here on, the answer knows nothing.
        """
        self.is_parked = False
        self._answering_in = exchange
        if self._flight is not None:
            self._flight = attrs.evolve(self._flight, late_s=None)

    def put(self, key: Key, ask: KeyAsk) -> None:
        """Ask for this, too; only while nothing is under way."""
        if key not in self.asks:
            self.topics[key.topic] = self.topics.get(key.topic, 0) + 1
        self.asks[key] = ask
        self.answered_in = 0
        self._session.touch((key,))

    def take_out(self, key: Key) -> None:
        """Ask for it no more."""
        del self.asks[key]
        self.topics[key.topic] -= 1
        if not self.topics[key.topic]:
            del self.topics[key.topic]
        self._session.touch((key,))

    def restart(self) -> None:
        """Have the next fetch name every partition, and the broker tell of every one again."""
        self.answered_in = 0
        self._session.restart()

    def makes_session(self, now_s: float) -> bool:
        """Whether the next fetch asks for a session. While it waits, there is none yet that could be closed."""
        return not self._session.session_id and self._keeps_session(now_s)

    def ask(
        self,
        exchange: int,
        client_id: str | None,
        options: FetchOptions,
        wait_s: float,
        now_s: float,
        timeout_s: float,
    ) -> Ask:
        """The next fetch, for all of ``asks``; only while none is under way.

        *exchange*: the number of the client's. *wait_s*: how long it may wait at the broker. *timeout_s*: how long
        an answer may take that waits for nothing.
        """
        options = attrs.evolve(options, max_wait_ms=ceil(wait_s * 1000 - 0.001))
        plan = self._session.plan(self.asks, keep=self._keeps_session(now_s))
        ask = self._framed(plan, client_id, options)
        self.heard_s = max(now_s, self._muted_until_s)
        late_s = self.heard_s + max(wait_s + _LATE_S, timeout_s)
        self._flight = self._flown(plan, ask.frame, now_s, late_s)
        self.sent_s, self.asked_in, self._answering_in = now_s, exchange, None
        return ask

    def told(self, exchange: int) -> None:
        """The answer tells of all that was asked for, as of *exchange*, the client's, or as of when it began."""
        self.answered_in = exchange if self._answering_in is None else min(exchange, self._answering_in)

    def received(self, frame: memoryview, now_s: float, *, name_of: Callable[[Topic], str]) -> Landed:
        """Take in the broker's answer; *name_of* is for the record of it.

        Raises: BrokerProtocolError: it is none to what was asked. The connection must be closed, then ``lost``.
        """
        flight = self._flight
        if flight is None:
            raise BrokerProtocolError("an answer to nothing")
        response = flight.read(frame)
        self._flight = None
        self._muted_until_s = now_s + response.throttle_ms / 1000
        keys = [Key(topic, each.partition) for topic, replies in response.topics for each in replies]
        reply = SessionReply(response.error, SessionId(response.session_id), response.throttle_ms, keys)
        asked = ChainMap(dict(flight.plan.asks), self._session.listed)
        outcome = self._session.receive(flight.plan, reply)
        self._learn_of_slots(flight.plan, response, outcome, now_s)
        record = _answered(flight, response, len(keys), len(frame), now_s, name_of)
        return Landed(response, outcome, asked, record, tuple(self._session_notes(flight, outcome, now_s)))

    def close_session(self, now_s: float, timeout_s: float) -> Ask:
        """Have the broker give its slot to another; only while nothing is asked for, or under way."""
        return self.ask(0, None, FetchOptions(0, 0), 0.0, now_s, timeout_s)

    def farewell(self, now_s: float) -> Iterator[Note | Farewell]:
        """Give up what is under way, and close the session at the broker, if there is one."""
        size = len(self._session.listed)
        yield from self.lost(now_s)
        plan = self._session.farewell()
        if plan is None:
            return
        yield self._session_note(plan.session_id, "closed", size, "the client has gone")
        frame = self._framed(plan, None, FetchOptions(0, 0)).frame
        yield Farewell(self.id, frame, partial(_told_of_farewell, self._flown(plan, frame, now_s, None)))

    def _keeps_session(self, now_s: float) -> bool:
        return (
            bool(self.asks)
            and self._brought_before
            and self._version >= _SESSIONS_VERSION
            and now_s >= self._sessionless_until_s
            and len(self.asks) >= self._session_from
            and (self.by_id or len(self.asks) <= _NAMED_SESSION_LIMIT)
        )

    def _learn_of_slots(
        self, plan: Plan, response: FetchResponse, outcome: Brought | Refused, now_s: float
    ) -> None:
        match outcome:
            case Refused(why):
                crowded = why is Refusal.EVICTED
            case Brought(session_id):
                self._brought_before = True
                wanted_session = plan.epoch == INITIAL_EPOCH and not response.throttle_ms
                crowded = wanted_session and session_id == NO_SESSION
        if crowded:
            self._sessionless_until_s = now_s + self._back_off_s

    def _session_notes(self, flight: _Flight, outcome: Brought | Refused, now_s: float) -> Iterator[Note]:
        plan = flight.plan
        match outcome:
            case Brought(session_id) if plan.epoch == INITIAL_EPOCH and session_id == NO_SESSION:
                yield self._session_note(session_id, "refused", plan.size, "the broker has granted none")
            case Brought(session_id) if plan.epoch == INITIAL_EPOCH:
                self._session_made_s = now_s
                yield self._session_note(session_id, "created", plan.size)
            case Refused(why) if plan.session_id != NO_SESSION:
                event: SessionEvent = "evicted" if why is Refusal.EVICTED else "reset"
                yield self._session_note(plan.session_id, event, plan.size, why.value)
            case _:
                pass

    def _session_note(self, session_id: int, event: SessionEvent, size: int, reason: str = "") -> Note:
        made_s, used_s = (self._session_made_s, self.sent_s) if session_id else (None, None)
        name = _name_of(self.id)
        return Note(SessionRecord(self._node_id, session_id, event, size, "upstream", name, reason, made_s, used_s))

    def _flown(self, plan: Plan, frame: bytes, now_s: float, late_s: float | None) -> _Flight:
        version, number = self._version, self._correlation_id
        return _Flight(self.id, self._route, plan, version, number, len(frame), now_s, late_s)

    def _framed(self, plan: Plan, client_id: str | None, options: FetchOptions) -> Ask:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(FETCH, self._version, self._correlation_id, client_id)
        frame = write_request(header, options, plan.session_id, plan.epoch, plan.asks, plan.forgotten)
        return Ask(self.id, frame)


def _unanswered(flight: _Flight, now_s: float) -> FetchRecord:
    """As Kafka's clients call it when a connection ends before the answer."""
    (source, kind), plan = flight.lane, flight.plan
    return FetchRecord(
        node=source.node_id,
        lane="rackless" if source.is_rackless else kind.value,
        lane_id=_name_of(flight.lane),
        version=flight.version,
        kind="full" if plan.epoch == INITIAL_EPOCH else "sessionless" if plan.is_full else "incremental",
        session_id=NO_SESSION,
        epoch=plan.epoch,
        size=plan.size,
        named=len(plan.asks),
        forgotten=len(plan.forgotten),
        answered=0,
        request_bytes=flight.request_bytes,
        response_bytes=0,
        record_bytes=0,
        dropped_bytes=0,
        error=ErrorCode.network_exception,
        throttle_ms=0,
        route=flight.route,
        topics=(),
        sent_s=flight.sent_s,
        answered_s=now_s,
    )


def _answered(
    flight: _Flight,
    response: FetchResponse,
    answered: int,
    size: int,
    now_s: float,
    name_of: Callable[[Topic], str],
) -> FetchRecord:
    read = [(topic, sum(len(reply.records) for reply in replies)) for topic, replies in response.topics]
    return attrs.evolve(
        _unanswered(flight, now_s),
        session_id=response.session_id,
        answered=answered,
        response_bytes=SIZE_BYTES + size,
        record_bytes=response.record_bytes,
        dropped_bytes=response.record_bytes,
        error=response.error,
        throttle_ms=response.throttle_ms,
        topics=tuple((name_of(topic), record_bytes) for topic, record_bytes in read if record_bytes),
    )


def _told_of_farewell(flight: _Flight, frame: memoryview, now_s: float) -> FetchRecord:
    return _answered(flight, flight.read(frame), 0, len(frame), now_s, str)


def _name_of(lane: LaneId) -> str:
    (node_id, is_rackless), kind = lane
    return f"{node_id}-{'rackless-' if is_rackless else ''}{kind.value}"
