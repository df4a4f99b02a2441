"""Reads one broker for one client connection: the client's fetches in, answers out, a session in between.

States of the exchange at hand; an event moves it as far along as it can go::

    Connecting --> Resolving --> Asking (Pausing) --> Held --> (answered)
        |              |           | ^
        |              |           | | refused or lost: asked again, a few times
        +--------------+-----------+-+--> an error to the client, which looks again

* Connecting: the lane, the reader's own connection to the broker, is being opened.
* Resolving: the topology does not tell a topic yet, or tells another leader than the client was told.
* Asking: a fetch is with the broker. One at a time: two would race for the session's epoch (KAFKA-8052).
* Pausing: the broker throttled the fetch of a client that knows no throttling; it is asked again afterwards.
* Held: the answer is ready but must not go yet: the client is throttled and does not know it, or its broker is gone
  and it would ask again at once.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import attrs

from proxy.errors import BrokerProtocolError, ErrorCode, MalformedFrame
from proxy.fetch.exchange import Exchange, Pieces, check_request, erroneous
from proxy.fetch.lowering import STALE_TOPOLOGY
from proxy.fetch.sheet import Sheet
from proxy.fetch.topology import BrokerId, Topology
from proxy.fetch.wanted import Asker, Wanted
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import Brought, Plan, Refusal, Refused, SessionReply, UpstreamSession
from proxy.trace import FetchRecord, Record, SessionEvent, SessionRecord
from proxy.wire.addresses import Place
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    MAX_VERSION,
    UNKNOWN,
    FetchOptions,
    FetchRequest,
    FetchResponse,
    Key,
    PartitionReply,
    Topic,
    read_response,
    request_layout,
    response_layout,
    write_request,
)
from proxy.wire.fetch import Ask as KeyAsk
from proxy.wire.headers import RequestHeader

__all__ = ["Answered", "Ask", "Command", "Learn", "Note", "OpenLane", "Reader"]

_SESSIONS_VERSION: Final = 7
_CLIENT_THROTTLES_VERSION: Final = 8
_RACKS_VERSION: Final = 11
_OLDEST_VERSION: Final = 4
_SIZE_BYTES: Final = 4

_RESOLVE_S: Final = 5.0
"""How long a fetch waits for the topology; below the request timeouts of all clients."""
_GONE_S: Final = 0.25
"""How long a client is held whose broker is gone, so that it does not ask in a tight loop."""
_DRAINING_WAIT_MS: Final = 100
"""How long a fetch may wait while draining: not the client's wait, nor so short that it asks in a tight loop."""
_ATTEMPTS: Final = 4
"""How often one exchange asks before the client is told an error."""
_BACK_OFF_S: Final = 10.0
"""After a broker refused or evicted a session, how long to do without: its slots are scarce."""
_EPOCH_ERRORS: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)
_NAMED_SESSION_LIMIT: Final = 1000
"""Partitions in a session by name. Kafka's hash of names makes larger ones stall a broker: 12 s at 5,000."""


@attrs.frozen
class OpenLane:
    """Connect to the broker; then ``opened``, or ``lost``."""

    client_id: str | None
    """Of the client that it is for."""


@attrs.frozen
class Ask:
    """Send this frame on the lane; then ``received``, or ``lost``."""

    frame: bytes


@attrs.frozen
class Learn:
    """These topics are not known, or what is known of them is stale; then ``told``, also if nothing changed."""

    topics: frozenset[Topic]


@attrs.frozen
class Answered:
    """The client's answer; the next fetch may come."""

    pieces: Pieces


@attrs.frozen
class Note:
    """Something to trace."""

    record: Record


Command = OpenLane | Ask | Learn | Answered | Note


@attrs.frozen
class _Connecting:
    pass


@attrs.frozen
class _Resolving:
    until_s: float


@attrs.frozen
class _Asking:
    pass


@attrs.frozen
class _Pausing:
    until_s: float


@attrs.frozen
class _Held:
    until_s: float
    pieces: Pieces


_Stage = _Connecting | _Resolving | _Asking | _Pausing | _Held


@attrs.frozen
class _Flight:
    """A fetch that the broker has not answered."""

    plan: Plan
    exchange: Exchange
    """For which it was sent; drained, it may have been answered since."""
    version: int
    correlation_id: int
    request_bytes: int


class Reader:
    """One client connection's fetches from one broker.

    Use: give it events; carry out the commands that it returns. ``deadline_s`` is when it wants ``tick``.
    """

    def __init__(self, node_id: BrokerId, place: Place, jitter: float) -> None:
        """*jitter*: 0..1, so that connections that were refused together do not come back together."""
        self._node_id = node_id
        self._place = place
        self._topology = Topology()
        self._back_off_s = _BACK_OFF_S * (1 + jitter)
        self._sessionless_until_s = 0.0
        self._session = UpstreamSession()
        self._wanted = Wanted()
        self._sheet: Sheet | None = None
        self._exchange: Exchange | None = None
        self._stage: _Stage = _Connecting()
        self._flight: _Flight | None = None
        self._lane_is_open = False
        self._version = 0
        """The lane's, and the last one's while it is closed; 0 before the first."""
        self._correlation_id = 0
        self._brought_before = False
        self._draining = False

    # ------------------------------------------------------------------------------------------- events

    def fetch(self, request: FetchRequest, topology: Topology, now_s: float) -> list[Command]:
        """The client's next fetch; only after the last one was answered.

        Raises: ClientProtocolError: only a broker may fetch like this.
        """
        check_request(request)
        self._topology = topology
        exchange = Exchange(request, now_s)
        if request.session_epoch > 0:
            # We grant no sessions, so the client is in none of ours.
            return [Answered(exchange.empty(ErrorCode.fetch_session_id_not_found))]
        if not request.sections:
            return [Answered(exchange.empty())]
        self._exchange = exchange
        return list(self._connect(exchange, now_s))

    def opened(self, ranges: ApiRanges, now_s: float) -> list[Command]:
        """The lane is open, to a broker that serves *ranges*.

        Raises: BrokerProtocolError: it serves no Fetch that we speak.
        """
        served = ranges.get(FETCH)
        version = min(served.last, MAX_VERSION) if served is not None else 0
        if version < _OLDEST_VERSION:
            raise BrokerProtocolError(f"broker {self._node_id} serves Fetch up to v{version}, v4 is needed")
        if (version >= IDS_VERSION) != (self._version >= IDS_VERSION):
            self._session.restart()
        self._version = version
        self._lane_is_open = True
        if self._exchange is None or not isinstance(self._stage, _Connecting):
            return []
        return list(self._connect(self._exchange, now_s))

    def received(self, frame: memoryview, now_s: float) -> list[Command]:
        """The lane brought an answer.

        Raises: BrokerProtocolError: it is none to what was asked. The lane must be closed, then ``lost``.
        """
        flight = self._flight
        if flight is None:
            raise BrokerProtocolError("an answer to nothing")
        try:
            response = read_response(flight.version, frame)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to Fetch v{flight.version}: {wrong}") from wrong
        if response.correlation_id != flight.correlation_id:
            raise BrokerProtocolError(f"answer {response.correlation_id} to request {flight.correlation_id}")
        self._flight = None
        return list(self._take_in(flight, response, len(frame), now_s))

    def lost(self, now_s: float) -> list[Command]:
        """The lane is gone, or could not be opened."""
        was_open, self._lane_is_open = self._lane_is_open, False
        if self._flight is not None:
            self._session.lost(self._flight.plan)
            self._flight = None
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, _Connecting | _Asking):
            return []
        exchange.attempts += 1
        if was_open and exchange.attempts < _ATTEMPTS:
            return list(self._connect(exchange, now_s))
        return list(self._give_up(exchange, ErrorCode.not_leader_or_follower, now_s))

    def told(self, topology: Topology, now_s: float) -> list[Command]:
        """The topology was refreshed."""
        self._topology = topology
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, _Resolving):
            return []
        self._update(exchange)
        if any(topology.topic(topic) is None for topic in self._wanted.unknown):
            return []
        return list(self._ask(exchange, now_s))

    def tick(self, now_s: float) -> list[Command]:
        """``deadline_s`` has passed."""
        exchange = self._exchange
        match self._stage:
            case _Held(until_s, pieces) if exchange is not None and now_s >= until_s:
                return list(self._answered(pieces))
            case _Resolving(until_s) | _Pausing(until_s) if exchange is not None and now_s >= until_s:
                return list(self._ask(exchange, now_s))
            case _:
                return []

    def drain(self) -> list[Command]:
        """Wait hardly any more: what is with the broker is answered now, with what is known."""
        self._draining = True
        exchange, sheet = self._exchange, self._sheet
        if exchange is None or sheet is None or self._flight is None or self._flight.exchange is not exchange:
            return []
        if sheet.lacks(exchange.news):
            return []
        return list(self._answered(exchange.answer(sheet, self._place)))

    def farewell(self) -> list[Command]:
        """The client has gone: close the session at the broker, if there is one."""
        size = len(self._session.listed)
        plan = self._session.farewell()
        if plan is None:
            return []
        frame = self._frame(plan, None, FetchOptions(0, 0))
        return [Note(SessionRecord(self._node_id, plan.session_id, "closed", size)), Ask(frame)]

    @property
    def deadline_s(self) -> float | None:
        """When ``tick`` is wanted; None for never."""
        if self._exchange is None or isinstance(self._stage, _Connecting | _Asking):
            return None
        return self._stage.until_s

    @property
    def is_answering(self) -> bool:
        """Whether a fetch of the client waits for its answer: no other may be given before."""
        return self._exchange is not None

    @property
    def is_asking(self) -> bool:
        """Whether the broker owes an answer on the lane, and would not look at another request before."""
        return self._flight is not None

    # ------------------------------------------------------------------------------- from stage to stage

    def _connect(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if not self._lane_is_open:
            self._stage = _Connecting()
            yield OpenLane(exchange.request.header.client_id)
            return
        self._update(exchange)
        if self._wanted.unknown:
            self._stage = _Resolving(now_s + _RESOLVE_S)
            yield Learn(frozenset(self._wanted.unknown))
        else:
            yield from self._ask(exchange, now_s)

    def _ask(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """Send the next fetch, unless nothing is left to be asked."""
        if not self._lane_is_open:
            yield from self._connect(exchange, now_s)
            return
        self._stage = _Asking()
        if self._flight is not None:
            return  # drained: its answer comes first
        exchange.news = {}
        for (topic, partition), error in self._wanted.misfits.items():
            exchange.add(topic, erroneous(partition, error))
        if not self._wanted.asks:
            yield from self._finish(exchange, now_s)
            return
        plan = self._plan(exchange, now_s)
        longest_ms = _DRAINING_WAIT_MS if self._draining else exchange.request.options.max_wait_ms
        wait_ms = 0 if exchange.news else min(exchange.remaining_ms(now_s), longest_ms)
        options = attrs.evolve(exchange.request.options, max_wait_ms=wait_ms)
        frame = self._frame(plan, exchange.request.header.client_id, options)
        self._flight = _Flight(plan, exchange, self._version, self._correlation_id, len(frame))
        yield Ask(frame)

    def _take_in(self, flight: _Flight, response: FetchResponse, size: int, now_s: float) -> Iterator[Command]:
        keys = [Key(topic, each.partition) for topic, replies in response.topics for each in replies]
        reply = SessionReply(response.error, SessionId(response.session_id), response.throttle_ms, keys)
        outcome = self._session.receive(flight.plan, reply)
        yield Note(_fetch_record(self._node_id, flight, response, len(keys), size))
        yield from _session_notes(self._node_id, flight.plan, outcome)
        wanted_session = flight.plan.epoch == INITIAL_EPOCH and not response.throttle_ms
        if isinstance(outcome, Refused):
            if outcome.why is Refusal.EVICTED:
                self._sessionless_until_s = now_s + self._back_off_s
        else:
            self._brought_before = True
            if wanted_session and outcome.session_id == NO_SESSION:
                self._sessionless_until_s = now_s + self._back_off_s
            stale = self._keep_offsets(response)
            if stale:
                yield Learn(stale)
        if flight.exchange is not self._exchange:
            if self._exchange is not None and isinstance(self._stage, _Asking):
                yield from self._ask(self._exchange, now_s)
        elif isinstance(outcome, Refused):
            yield from self._refused(flight.exchange, outcome, now_s)
        else:
            yield from self._brought(flight.exchange, response, now_s)

    def _brought(self, exchange: Exchange, response: FetchResponse, now_s: float) -> Iterator[Command]:
        exchange.throttle_ms, exchange.endpoints = response.throttle_ms, response.endpoints
        for topic, replies in response.topics:
            named = self._wanted.named.get(topic)
            for reply in replies:
                if named is None or not _is_news(reply):
                    continue
                if reply.error in _EPOCH_ERRORS and not exchange.has_epoch(named, reply.partition):
                    # The epoch was ours: a client that sends none need not know these codes.
                    reply = reply._replace(error=ErrorCode.not_leader_or_follower)
                exchange.add(named, reply)
        if not self._sheet_of(exchange).lacks(exchange.news):
            yield from self._finish(exchange, now_s)
        elif response.throttle_ms and exchange.version >= _CLIENT_THROTTLES_VERSION:
            # Held back before it read anything. Clients that know throttling take an answer without partitions.
            yield from self._answered(exchange.empty())
        elif response.throttle_ms:
            self._stage = _Pausing(now_s + response.throttle_ms / 1000)
        else:
            # The session says "unchanged" of a partition whose offsets we gave up: let it tell them again.
            exchange.attempts += 1
            self._session.restart()
            if exchange.attempts < _ATTEMPTS:
                yield from self._ask(exchange, now_s)
            else:
                yield from self._finish(exchange, now_s)

    def _refused(self, exchange: Exchange, outcome: Refused, now_s: float) -> Iterator[Command]:
        exchange.attempts += 1
        if outcome.why is Refusal.ERROR:
            yield from self._answered(exchange.refusal(outcome.error))
        elif exchange.attempts < _ATTEMPTS:
            yield from self._ask(exchange, now_s)
        else:
            yield from self._give_up(exchange, ErrorCode.unknown_server_error, now_s)

    def _finish(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        pieces = exchange.answer(self._sheet_of(exchange), self._place)
        if exchange.throttle_ms and exchange.version < _CLIENT_THROTTLES_VERSION:
            self._stage = _Held(now_s + exchange.throttle_ms / 1000, pieces)
        else:
            yield from self._answered(pieces)

    def _give_up(self, exchange: Exchange, error: int, now_s: float) -> Iterator[Command]:
        yield Learn(frozenset(section.topic for section in exchange.request.sections))
        self._stage = _Held(max(now_s, exchange.started_s + _GONE_S), exchange.unreadable(error))
        yield from self.tick(now_s)

    def _answered(self, pieces: Pieces) -> Iterator[Command]:
        self._exchange = None
        yield Answered(pieces)

    # --------------------------------------------------------------------------------------- its tables

    def _update(self, exchange: Exchange) -> None:
        """Bring the tables up to the client's fetch and the topology."""
        request = exchange.request
        layout = request_layout(request.version)
        follows = request.version >= _RACKS_VERSION and bool(request.options.rack_id)
        asker = Asker(self._node_id, self._version >= IDS_VERSION, follows)
        change = self._wanted.update(layout, request.sections, self._topology, asker)
        self._session.touch(change.touched)
        committed = bool(request.options.isolation)
        reshaped: Collection[int] = change.reshaped
        if self._sheet is None or not self._sheet.suits(request.version, committed=committed):
            self._sheet = Sheet(response_layout(request.version), committed=committed)
            self._session.restart()
            reshaped = range(len(request.sections))
        self._sheet.reshape(layout, request.sections, reshaped)

    def _sheet_of(self, exchange: Exchange) -> Sheet:
        if self._sheet is None:
            self._update(exchange)
        assert self._sheet is not None
        return self._sheet

    def _plan(self, exchange: Exchange, now_s: float) -> Plan:
        wanted: Mapping[Key, KeyAsk] = self._wanted.asks
        keep = (
            self._brought_before
            and self._version >= _SESSIONS_VERSION
            and now_s >= self._sessionless_until_s
            and (self._version >= IDS_VERSION or len(wanted) <= _NAMED_SESSION_LIMIT)
        )
        if not (keep and self._session.session_id):
            wanted = {key: wanted[key] for key in self._wanted.in_order(exchange.request.sections)}
        return self._session.plan(wanted, keep=keep)

    def _frame(self, plan: Plan, client_id: str | None, options: FetchOptions) -> bytes:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(FETCH, self._version, self._correlation_id, client_id)
        return write_request(header, options, plan.session_id, plan.epoch, plan.asks, plan.forgotten)

    def _keep_offsets(self, response: FetchResponse) -> frozenset[Topic]:
        """Take over the offsets of an answer; returns the client's topics whose errors call for a new look."""
        stale = set()
        for topic, replies in response.topics:
            named = self._wanted.named.get(topic)
            if named is None or self._sheet is None:
                continue
            for reply in replies:
                if not reply.error:
                    self._sheet.learn(named, reply)
                elif reply.error in STALE_TOPOLOGY:
                    stale.add(named)
        return frozenset(stale)


def _is_news(reply: PartitionReply) -> bool:
    """Whether an answer says more of a partition than its offsets."""
    redirected = reply.preferred_read_replica != UNKNOWN
    return bool(reply.error or len(reply.records) or redirected or reply.diverging_epoch is not None)


def _fetch_record(
    node_id: BrokerId, flight: _Flight, response: FetchResponse, answered: int, size: int
) -> FetchRecord:
    plan = flight.plan
    return FetchRecord(
        node=node_id,
        version=flight.version,
        kind="full" if plan.epoch == INITIAL_EPOCH else "sessionless" if plan.is_full else "incremental",
        session_id=response.session_id,
        size=plan.size,
        named=len(plan.asks),
        forgotten=len(plan.forgotten),
        answered=answered,
        request_bytes=flight.request_bytes,
        response_bytes=_SIZE_BYTES + size,
        record_bytes=sum(len(each.records) for _, replies in response.topics for each in replies),
        error=response.error,
    )


def _session_notes(node_id: BrokerId, plan: Plan, outcome: Brought | Refused) -> Iterator[Command]:
    match outcome:
        case Brought(session_id) if plan.epoch == INITIAL_EPOCH:
            event: SessionEvent = "created" if session_id else "refused"
            yield Note(SessionRecord(node_id, session_id, event, plan.size))
        case Refused(why) if plan.session_id != NO_SESSION:
            event = "evicted" if why is Refusal.EVICTED else "reset"
            yield Note(SessionRecord(node_id, plan.session_id, event, plan.size))
        case _:
            pass
