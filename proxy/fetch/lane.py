"""What a reader and its broker say to each other: one fetch at a time, in a session where that pays."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Final

import attrs

from proxy.errors import BrokerProtocolError
from proxy.events import FetchRecord, RouteKind, SessionEvent, SessionRecord
from proxy.fetch.commands import Ask, Farewell, LaneId, Note
from proxy.fetch.sent import Sent, name_of
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import (
    AcceptedResponse,
    FetchPlan,
    RejectedResponse,
    RejectionReason,
    SessionResponseFields,
    UpstreamSession,
)
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    MAX_VERSION,
    FetchOptions,
    FetchPartition,
    FetchResponse,
    PartitionKey,
    Topic,
    write_request,
)
from proxy.wire.headers import RequestHeader

__all__ = ["Landed", "Lane", "Terms"]

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


_MANY: Final = 100
"""Partitions that cost more to name in each fetch than they lose by being read out of turn once."""
_LATE_S: Final = 2.0
"""How much longer than it was told to wait a broker may take."""


@attrs.frozen
class Terms:
    """How a fetch waits at the broker."""

    exchange: int
    """The number of the client's that it is sent for."""
    wait_s: float
    """How long it may wait."""
    timeout_s: float
    """How long an answer may take that waits for nothing."""
    is_parked: bool = False
    """Whether anything that is new ends the wait, which may outlast the client's."""
    is_ahead: bool = False
    """Whether the client has not asked for it yet."""


@attrs.frozen
class _Flight:
    """A fetch that the broker has not answered."""

    sent: Sent
    terms: Terms
    min_bytes: int
    max_bytes: int
    late_s: float
    """When the broker must have answered, unless its answer comes."""
    begun_in: int | None = None
    """The number of the client's exchange in which its answer began to come; None as long as it has not."""


@attrs.frozen
class Landed:
    """An answer, and whether it may be used."""

    response: FetchResponse
    outcome: AcceptedResponse | RejectedResponse
    asked: Callable[[PartitionKey], FetchPartition | None]
    """What it answers, until the next fetch is sent."""
    terms: Terms
    begun_in: int | None
    """The number of the client's exchange in which it began to come; None if it came at once."""
    _record: Callable[[int], FetchRecord]
    """With the bytes of its records that are kept."""
    _session_notes: tuple[Note, ...]

    def notes(self, kept_bytes: int = 0) -> Iterator[Note]:
        """What is to be told of it; *kept_bytes*: of its records, what may be given to the client."""
        yield Note(self._record(kept_bytes))
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
        self._is_behind: bool | None = None
        """Whether the last response was about as large as it may be; None before the first."""
        self._session_made_s: float | None = None
        self.asks: Mapping[PartitionKey, FetchPartition] = self._session.asks
        """What the next fetch is for, and the one under way, in the order in which they were put in."""
        self.topics: dict[Topic, int] = {}
        """How many partitions of each those are."""
        self.is_open = False
        self.is_opening = False
        self._opens_by_s: float | None = None
        self.sent_s = float("-inf")
        """When the last fetch was sent."""
        self.heard_s = float("-inf")
        """From when on the broker listens to it: not before the throttling that it has told is over (KIP-219)."""
        self.answered_in = 0
        """The number of the client's exchange for which it has told all."""

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
        return self._flight is not None and self._flight.begun_in is not None

    @property
    def waits(self) -> bool:
        """Whether the fetch under way may wait at the broker."""
        return self._flight is not None and self._flight.terms.wait_s > 0

    @property
    def is_parked(self) -> bool:
        """Whether it does, and anything that is new ends that wait."""
        return self._flight is not None and self._flight.terms.is_parked

    @property
    def reads_ahead(self) -> bool:
        """Whether it is under way for what the client had not asked for when it was sent."""
        return self._flight is not None and self._flight.terms.is_ahead

    def outwaits(self, until_s: float, min_bytes: int, *, needs_response: bool) -> bool:
        """Return whether the fetch under way may wait for longer than *until_s*, or for more than *min_bytes*.

        The silence of a parked fetch is an answer at any time, unless the client *needs_response*.
        """
        flight = self._flight
        if flight is None or (self.is_parked and not needs_response) or not self.waits or self.is_answering:
            return False
        return self.heard_s + flight.terms.wait_s > until_s or flight.min_bytes > min_bytes

    def ends_waiting_by(self, until_s: float) -> bool:
        """Return whether the broker must end the wait of the fetch under way by *until_s*."""
        return self._flight is not None and self.heard_s + self._flight.terms.wait_s <= until_s

    @property
    def asked_in(self) -> int:
        """The number of the client's exchange that the fetch under way was sent for; 0 if there is none."""
        return 0 if self._flight is None else self._flight.terms.exchange

    def describe(self, now_s: float) -> str:
        """Return what it is doing, for the log."""
        state = "opening" if self.is_opening else "idle" if self.is_open else "closed"
        if self._flight is not None:
            parked = "parked" if self.is_parked else "in flight"
            state = f"{parked} for {now_s - self.sent_s:.3f} s"
        return f"{name_of(self.id)}: {state}, {len(self.asks)} partitions"

    @property
    def late_s(self) -> float | None:
        """When the broker must have answered, or let us connect; None: it owes nothing, or has begun to answer."""
        if self._flight is None:
            return self._opens_by_s
        return None if self.is_answering else self._flight.late_s

    @property
    def version(self) -> int:
        """Fetch version that is spoken there, or was last; 0 if there was no connection yet."""
        return self._version

    @property
    def by_id(self) -> bool:
        """Whether topics are called by their ids."""
        return self._version >= IDS_VERSION

    def opening(self, by_s: float | None = None) -> None:
        """A connection is being opened; *by_s*: until when it is waited for, None if that is not limited."""
        self.is_opening, self._opens_by_s = True, by_s

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
        self.is_open, self.is_opening, self._opens_by_s = True, False, None

    def lost(self, now_s: float) -> list[Note]:
        """The connection is gone, and with it what was under way."""
        self.is_open, self.is_opening, self._opens_by_s = False, False, None
        self._muted_until_s = 0.0
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        self._session.lost(flight.sent.plan)
        return [Note(flight.sent.unanswered(now_s))]

    def answering(self, exchange: int) -> None:
        """The broker's answer has begun to come, and may take its time.

        *exchange*: the number of the client's. Of what happens from here on, the answer knows nothing.
        """
        if self._flight is not None:
            self._flight = attrs.evolve(self._flight, begun_in=exchange)

    def put(self, key: PartitionKey, ask: FetchPartition) -> None:
        """Ask for this, too; only while nothing is under way."""
        if key not in self.asks:
            self.topics[key.topic] = self.topics.get(key.topic, 0) + 1
        self._session.put(key, ask)
        self.answered_in = 0

    def take_out(self, key: PartitionKey) -> None:
        """Ask for it no more."""
        self._session.take_out(key)
        self.topics[key.topic] -= 1
        if not self.topics[key.topic]:
            del self.topics[key.topic]

    def restart(self) -> None:
        """Have the next fetch name every partition, and the broker tell of every one again."""
        self.answered_in = 0
        self._session.restart()

    def makes_session(self, now_s: float) -> bool:
        """Whether the next fetch asks for a session. While it waits, there is none yet that could be closed."""
        return not self._session.session_id and self._keeps_session(now_s)

    def ask(self, client_id: str | None, options: FetchOptions, terms: Terms, now_s: float) -> Ask:
        """The next fetch, for all of ``asks``; only while none is under way."""
        options = attrs.evolve(options, max_wait_ms=ceil(terms.wait_s * 1000 - 0.001))
        plan = self._session.plan(keep=self._keeps_session(now_s))
        ask = self._framed(plan, client_id, options)
        self.heard_s = max(now_s, self._muted_until_s)
        late_s = self.heard_s + max(terms.wait_s + _LATE_S, terms.timeout_s)
        self._flight = _Flight(
            self._sent(plan, ask.frame, now_s), terms, options.min_bytes, options.max_bytes, late_s
        )
        self.sent_s = now_s
        return ask

    def received(self, frame: memoryview, now_s: float, *, topic_name: Callable[[Topic], str]) -> Landed:
        """Take in the broker's answer; *topic_name* is for the record of it.

        Raises: BrokerProtocolError: it is none to what was asked. The connection must be closed, then ``lost``.
        """
        flight = self._flight
        if flight is None:
            raise BrokerProtocolError("an answer to nothing")
        sent = flight.sent
        response = sent.read(frame)
        self._flight = None
        self._muted_until_s = now_s + response.throttle_ms / 1000
        keys = [PartitionKey(topic, each.partition) for topic, replies in response.topics for each in replies]
        reply = SessionResponseFields(response.error, SessionId(response.session_id), response.throttle_ms, keys)
        outcome = self._session.receive(sent.plan, reply)
        if isinstance(outcome, AcceptedResponse):
            self._is_behind = _is_behind(response, flight.max_bytes, self._session.asked)
        self._learn_of_slots(sent.plan, response, outcome, now_s)
        record = partial(sent.answered, response, len(frame), now_s, topic_name)
        notes = tuple(self._session_notes(sent, outcome, now_s))
        return Landed(response, outcome, self._session.asked, flight.terms, flight.begun_in, record, notes)

    def close_session(self, now_s: float, timeout_s: float) -> Ask:
        """Have the broker give its slot to another; only while nothing is asked for, or under way."""
        return self.ask(None, FetchOptions(0, 0), Terms(0, 0.0, timeout_s), now_s)

    def farewell(self, now_s: float) -> Iterator[Note | Farewell]:
        """Give up what is under way, and close the session at the broker, if there is one."""
        size = self._session.size
        yield from self.lost(now_s)
        plan = self._session.farewell()
        if plan is None:
            return
        yield self._session_note(plan.session_id, "closed", size, "the client has gone")
        frame = self._framed(plan, None, FetchOptions(0, 0)).frame
        yield Farewell(self.id, frame, self._sent(plan, frame, now_s).closed)

    def _keeps_session(self, now_s: float) -> bool:
        return (
            bool(self.asks)
            and self._is_worth_a_session
            and self._version >= _SESSIONS_VERSION
            and now_s >= self._sessionless_until_s
            and len(self.asks) >= self._session_from
            and (self.by_id or len(self.asks) <= _NAMED_SESSION_LIMIT)
        )

    @property
    def _is_worth_a_session(self) -> bool:
        """Return whether a session would save more than it costs.

        Not at the first fetch: clients that come once would use up slots. And the response that creates a session
        leaves the partitions in their order, so one that fills it is read again before the others: clients of few
        partitions get none until they have caught up.
        """
        if self._is_behind is None:
            return False
        return self.has_session or not self._is_behind or len(self.asks) >= _MANY

    def _learn_of_slots(
        self, plan: FetchPlan, response: FetchResponse, outcome: AcceptedResponse | RejectedResponse, now_s: float
    ) -> None:
        match outcome:
            case RejectedResponse(why):
                crowded = why is RejectionReason.EVICTED
            case AcceptedResponse(session_id):
                wanted_session = plan.epoch == INITIAL_EPOCH and not response.throttle_ms
                crowded = wanted_session and session_id == NO_SESSION
        if crowded:
            self._sessionless_until_s = now_s + self._back_off_s

    def _session_notes(
        self, sent: Sent, outcome: AcceptedResponse | RejectedResponse, now_s: float
    ) -> Iterator[Note]:
        plan = sent.plan
        match outcome:
            case AcceptedResponse(session_id) if plan.epoch == INITIAL_EPOCH and session_id == NO_SESSION:
                yield self._session_note(session_id, "refused", plan.size, "the broker has granted none")
            case AcceptedResponse(session_id) if plan.epoch == INITIAL_EPOCH:
                self._session_made_s = now_s
                yield self._session_note(session_id, "created", plan.size)
            case RejectedResponse(why) if plan.session_id != NO_SESSION:
                event: SessionEvent = "evicted" if why is RejectionReason.EVICTED else "reset"
                yield self._session_note(plan.session_id, event, plan.size, why.value)
            case _:
                pass

    def _session_note(self, session_id: int, event: SessionEvent, size: int, reason: str = "") -> Note:
        made_s, used_s = (self._session_made_s, self.sent_s) if session_id else (None, None)
        name = name_of(self.id)
        return Note(SessionRecord(self._node_id, session_id, event, size, "upstream", name, reason, made_s, used_s))

    def _sent(self, plan: FetchPlan, frame: bytes, now_s: float) -> Sent:
        return Sent(self.id, self._route, plan, self._version, self._correlation_id, len(frame), now_s)

    def _framed(self, plan: FetchPlan, client_id: str | None, options: FetchOptions) -> Ask:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(FETCH, self._version, self._correlation_id, client_id)
        frame = write_request(header, options, plan.session_id, plan.epoch, plan.asks, plan.forgotten)
        return Ask(self.id, frame)


def _is_behind(
    response: FetchResponse, max_bytes: int, asked: Callable[[PartitionKey], FetchPartition | None]
) -> bool:
    """Return whether *response* is about as large as it may be, so that there is probably more to read."""
    total_bytes = 0
    for topic, replies in response.topics:
        for reply in replies:
            ask = asked(PartitionKey(topic, reply.partition)) if len(reply.records) else None
            if ask is not None and 2 * len(reply.records) >= ask.max_bytes:
                return True
            total_bytes += len(reply.records)
    return 2 * total_bytes >= max_bytes
