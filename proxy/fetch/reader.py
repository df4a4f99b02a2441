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

from collections.abc import Collection, Iterator
from typing import Final

import attrs

from proxy.errors import ErrorCode
from proxy.fetch.commands import Answered, Command, Learn, OpenLane
from proxy.fetch.exchange import Exchange, Pieces, check_request, erroneous
from proxy.fetch.lane import Landed, Lane
from proxy.fetch.lowering import STALE_TOPOLOGY
from proxy.fetch.sheet import Sheet
from proxy.fetch.topology import BrokerId, Topology
from proxy.fetch.wanted import Asker, Wanted
from proxy.session.upstream import Refusal, Refused
from proxy.wire.addresses import Place
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    UNKNOWN,
    FetchRequest,
    FetchResponse,
    PartitionReply,
    Topic,
    request_layout,
    response_layout,
)

__all__ = ["Reader"]

_CLIENT_THROTTLES_VERSION: Final = 8
_RACKS_VERSION: Final = 11

_RESOLVE_S: Final = 5.0
"""How long a fetch waits for the topology; below the request timeouts of all clients."""
_GONE_S: Final = 0.25
"""How long a client is held whose broker is gone, so that it does not ask in a tight loop."""
_DRAINING_WAIT_MS: Final = 100
"""How long a fetch may wait while draining: not the client's wait, nor so short that it asks in a tight loop."""
_ATTEMPTS: Final = 4
"""How often one exchange asks before the client is told an error."""
_EPOCH_ERRORS: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


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


class Reader:
    """One client connection's fetches from one broker.

    Use: give it events; carry out the commands that it returns. ``deadline_s`` is when it wants ``tick``.
    """

    def __init__(self, node_id: BrokerId, place: Place, jitter: float) -> None:
        """*jitter*: 0..1, so that connections that were refused together do not come back together."""
        self._node_id = node_id
        self._place = place
        self._topology = Topology()
        self._lane = Lane(node_id, jitter)
        self._wanted = Wanted()
        self._sheet: Sheet | None = None
        self._exchange: Exchange | None = None
        self._stage: _Stage = _Connecting()
        self._asked_for: Exchange | None = None
        """The exchange that the fetch on the lane was sent for; None once that is answered, as by draining."""
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
        self._lane.opened(ranges)
        if self._exchange is None or not isinstance(self._stage, _Connecting):
            return []
        return list(self._connect(self._exchange, now_s))

    def received(self, frame: memoryview, now_s: float) -> list[Command]:
        """The lane brought an answer.

        Raises: BrokerProtocolError: it is none to what was asked. The lane must be closed, then ``lost``.
        """
        return list(self._take_in(self._lane.received(frame, now_s), now_s))

    def lost(self, now_s: float) -> list[Command]:
        """The lane is gone, or could not be opened."""
        was_open = self._lane.is_open
        self._lane.lost()
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
        if exchange is None or sheet is None or not self._lane.is_asking or self._asked_for is not exchange:
            return []
        if sheet.lacks(exchange.news):
            return []
        return list(self._answered(exchange.answer(sheet, self._place)))

    def farewell(self) -> list[Command]:
        """The client has gone: close the session at the broker, if there is one."""
        return [*self._lane.farewell()]

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
        return self._lane.is_asking

    # ------------------------------------------------------------------------------- from stage to stage

    def _connect(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if not self._lane.is_open:
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
        if not self._lane.is_open:
            yield from self._connect(exchange, now_s)
            return
        self._stage = _Asking()
        if self._lane.is_asking:
            return  # drained: its answer comes first
        exchange.news = {}
        for (topic, partition), error in self._wanted.misfits.items():
            exchange.add(topic, erroneous(partition, error))
        if not self._wanted.asks:
            yield from self._finish(exchange, now_s)
            return
        longest_ms = _DRAINING_WAIT_MS if self._draining else exchange.request.options.max_wait_ms
        wait_ms = 0 if exchange.news else min(exchange.remaining_ms(now_s), longest_ms)
        self._asked_for = exchange
        yield self._lane.ask(self._wanted, exchange.request, wait_ms, now_s)

    def _take_in(self, landed: Landed, now_s: float) -> Iterator[Command]:
        yield from landed.notes
        outcome, response, exchange = landed.outcome, landed.response, self._exchange
        if not isinstance(outcome, Refused):
            stale = self._keep_offsets(response)
            if stale:
                yield Learn(stale)
        if exchange is None:
            return
        if self._asked_for is not exchange:
            if isinstance(self._stage, _Asking):
                yield from self._ask(exchange, now_s)
        elif isinstance(outcome, Refused):
            yield from self._refused(exchange, outcome, now_s)
        else:
            yield from self._brought(exchange, response, now_s)

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
            self._lane.restart()
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
        self._exchange = self._asked_for = None
        yield Answered(pieces)

    # --------------------------------------------------------------------------------------- its tables

    def _update(self, exchange: Exchange) -> None:
        """Bring the tables up to the client's fetch and the topology."""
        request = exchange.request
        layout = request_layout(request.version)
        follows = request.version >= _RACKS_VERSION and bool(request.options.rack_id)
        asker = Asker(self._node_id, self._lane.by_id, follows)
        change = self._wanted.update(layout, request.sections, self._topology, asker)
        self._lane.touch(change.touched)
        committed = bool(request.options.isolation)
        reshaped: Collection[int] = change.reshaped
        if self._sheet is None or not self._sheet.suits(request.version, committed=committed):
            self._sheet = Sheet(response_layout(request.version), committed=committed)
            self._lane.restart()
            reshaped = range(len(request.sections))
        self._sheet.reshape(layout, request.sections, reshaped)

    def _sheet_of(self, exchange: Exchange) -> Sheet:
        if self._sheet is None:
            self._update(exchange)
        assert self._sheet is not None
        return self._sheet

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
