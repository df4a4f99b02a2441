"""Reads one broker for one client connection: the client's fetches in, answers out, two lanes in between.

What a client polls for is answered here as long as the broker has nothing to say. Upstream, a fetch waits at the
broker for as long as ``Reading.patience_s`` allows, and goes on waiting while the client is answered "nothing new"
and asks again. Partitions go where they are asked for first::

    patient lane   whatever it was free to take when it last asked: nearly all, nearly always
    quick lane     what keeps moving, beside many that do not; and what cannot wait until the patient lane is back
    held           brought while the client was not asking, or more than it takes at once: on no lane until given
    homeless       changed since: placed when the client asks next

States of the exchange at hand; after each event it moves as far along as it can go::

    Connecting --> Resolving --> Asking (Pausing) --> Delayed --> (answered)
        |              |           | ^
        |              |           | | refused or lost: asked again, a few times
        +--------------+-----------+-+--> an error to the client, which looks again

* Connecting: the patient lane is being opened.
* Resolving: the topology does not tell a topic yet, or tells another leader than the client was told.
* Asking: until there is enough, or the client's wait is over; and until every lane is sure, so that "nothing new"
  is the broker's word and not a memory.
* Pausing: the broker throttled the fetch of a client that knows no throttling; it is asked again afterwards.
* Delayed: the answer is ready but must not go yet: the client is throttled and does not know it, or its broker is
  gone and it would ask again at once.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from proxy.errors import BrokerProtocolError, ErrorCode
from proxy.fetch.commands import Answered, CloseLane, Command, LaneName, Learn, OpenLane
from proxy.fetch.exchange import Exchange, Pieces, check_request, erroneous
from proxy.fetch.heat import Heat, Parks
from proxy.fetch.held import Held
from proxy.fetch.lane import Landed, Lane
from proxy.fetch.lowering import STALE_TOPOLOGY
from proxy.fetch.reading import Reading
from proxy.fetch.sheet import Sheet
from proxy.fetch.topology import BrokerId, Topology
from proxy.fetch.wanted import Asker, Wanted
from proxy.session.upstream import Refusal, Refused
from proxy.wire.addresses import Place
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    UNKNOWN,
    FetchRequest,
    Key,
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
_DRAINING_WAIT_S: Final = 0.1
"""How long a fetch may wait while draining: not the client's wait, nor so short that it asks in a tight loop."""
_ATTEMPTS: Final = 4
"""How often one exchange asks before the client is told an error."""
_SURE_S: Final = 0.05
"""A broker that had something would have said so this long after it was asked."""
_WORTH_PARKING: Final = 100
"""Idle partitions from which it pays to read the moving ones apart; and moving ones from which a session pays."""
_PLAIN_S: Final = 30.0
"""How long the client's own wait is used after less came than it wants: brokers can wait for more, we would ask."""
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
class _Delayed:
    until_s: float
    pieces: Pieces


_Stage = _Connecting | _Resolving | _Asking | _Pausing | _Delayed


class Reader:
    """One client connection's fetches from one broker.

    Use: give it events; carry out the commands that it returns. ``deadline_s`` is when it wants ``tick``.
    """

    def __init__(self, node_id: BrokerId, place: Place, jitter: float, reading: Reading) -> None:
        """*jitter*: 0..1, so that connections that were refused together do not come back together."""
        self._node_id = node_id
        self._place = place
        self._reading = reading
        self._topology = Topology()
        self._patient = Lane(LaneName.PATIENT, node_id, jitter)
        self._quick = Lane(LaneName.QUICK, node_id, jitter, session_from=_WORTH_PARKING)
        self._lanes = {LaneName.PATIENT: self._patient, LaneName.QUICK: self._quick}
        self._wanted = Wanted()
        self._homeless: dict[Key, None] = {}
        self._held = Held()
        self._heat = Heat()
        self._parks = Parks()
        self._sheet: Sheet | None = None
        self._exchange: Exchange | None = None
        self._number = 0
        self._stage: _Stage = _Connecting()
        self._plain_until_s = float("inf") if reading.patience_s == 0 else float("-inf")
        self._throttled_until_s = 0.0
        self._draining = False
        self._now_s = float("-inf")

    # ------------------------------------------------------------------------------------------- events

    def fetch(self, request: FetchRequest, topology: Topology, now_s: float) -> list[Command]:
        """The client's next fetch; only after the last one was answered.

        Raises: ClientProtocolError: only a broker may fetch like this.
        """
        check_request(request)
        self._topology = topology
        exchange = Exchange(request, now_s, _DRAINING_WAIT_S if self._draining else float("inf"))
        if request.session_epoch > 0:
            # We grant no sessions, so the client is in none of ours.
            return [Answered(exchange.empty(ErrorCode.fetch_session_id_not_found))]
        if not request.sections:
            return [Answered(exchange.empty())]
        self._exchange = exchange
        self._stage = _Connecting()
        self._number += 1
        self._heat.now = self._number
        return self._moved(self._begin(exchange, now_s), now_s)

    def opened(self, name: LaneName, ranges: ApiRanges, now_s: float) -> list[Command]:
        """The lane is open, to a broker that serves *ranges*.

        Raises: BrokerProtocolError: it serves no Fetch that we speak, or other versions than a moment ago.
        """
        lane = self._lanes[name]
        lane.opened(ranges)
        if lane is self._quick and lane.by_id != self._patient.by_id:
            raise BrokerProtocolError(f"broker {self._node_id} has changed its versions")
        exchange = self._exchange
        begins = exchange is not None and isinstance(self._stage, _Connecting) and self._patient.is_open
        return self._moved(self._begin(exchange, now_s) if exchange and begins else (), now_s)

    def received(self, name: LaneName, frame: memoryview, now_s: float) -> list[Command]:
        """The lane brought an answer.

        Raises: BrokerProtocolError: it is none to what was asked. The lane must be closed, then ``lost``.
        """
        lane = self._lanes[name]
        landed = lane.received(frame, now_s)
        return self._moved(self._take_in(lane, landed, now_s), now_s)

    def lost(self, name: LaneName, now_s: float) -> list[Command]:
        """The lane is gone, or could not be opened."""
        return self._moved(self._lost(self._lanes[name], now_s), now_s)

    def told(self, topology: Topology, now_s: float) -> list[Command]:
        """The topology was refreshed."""
        self._topology = topology
        return self._moved(self._resolved(now_s), now_s)

    def tick(self, now_s: float) -> list[Command]:
        """``deadline_s`` has passed."""
        return self._moved((), now_s)

    def drain(self, now_s: float) -> list[Command]:
        """Wait hardly any more: what is with the broker is answered now, with what is known."""
        self._draining = True
        exchange = self._exchange
        parked = exchange is not None and isinstance(self._stage, _Asking) and self._is_under_way
        if not (exchange and parked) or self._lacks(exchange):
            return []
        return self._moved(self._finish(exchange, now_s), now_s)

    def drop_held(self) -> None:
        """Give up what was brought and not handed out: the memory is needed. It is asked for again."""
        self._held.drop()

    def farewell(self) -> list[Command]:
        """The client has gone: close its sessions at the broker."""
        return [command for lane in self._lanes.values() for command in lane.farewell()]

    @property
    def deadline_s(self) -> float | None:
        """When ``tick`` is wanted; None for never."""
        times = [lane.late_s for lane in self._lanes.values() if lane.late_s is not None]
        times.append(self._held.oldest_s + self._reading.patience_s)
        match self._stage:
            case _Resolving(until_s) | _Pausing(until_s) | _Delayed(until_s) if self._exchange is not None:
                times.append(until_s)
            case _Asking() if self._exchange is not None:
                times.append(self._exchange.deadline_s)
                times += [lane.sent_s + _SURE_S for lane in self._lanes.values()]
            case _:
                pass
        return min((time_s for time_s in times if self._now_s < time_s < float("inf")), default=None)

    @property
    def is_answering(self) -> bool:
        """Whether a fetch of the client waits for its answer: no other may be given before."""
        return self._exchange is not None

    def is_asking(self, name: LaneName) -> bool:
        """Whether the broker owes an answer on the lane, and would not look at another request before."""
        return self._lanes[name].is_asking

    # ------------------------------------------------------------------------------- from stage to stage

    def _moved(self, commands: Iterable[Command], now_s: float) -> list[Command]:
        """*commands*, once nobody is late, and whatever can be done after them."""
        self._now_s = now_s
        return [*self._hang_up_on_the_late(now_s), *commands, *self._go_on(now_s)]

    def _hang_up_on_the_late(self, now_s: float) -> Iterator[Command]:
        for name, lane in self._lanes.items():
            if lane.late_s is not None and now_s >= lane.late_s:
                yield CloseLane(name, f"no answer within {lane.late_s - lane.sent_s:g} s")
                yield from self._lost(lane, now_s)

    def _go_on(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        if exchange is None:
            self._held.sift(self._wanted.asks, now_s - self._reading.patience_s)
        match self._stage:
            case _Delayed(until_s, pieces) if exchange is not None and now_s >= until_s:
                yield from self._answered(pieces)
            case _Resolving(until_s) | _Pausing(until_s) if exchange is not None and now_s >= until_s:
                yield from self._ask(exchange, now_s)
            case _Asking() if exchange is not None:
                yield from self._settle(exchange, now_s)
            case _:
                pass

    def _begin(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if self._patient.is_open:
            yield from self._update(exchange)
        if not self._patient.is_open:
            self._stage = _Connecting()
            yield from self._open(LaneName.PATIENT, exchange)
        elif self._wanted.unknown:
            self._stage = _Resolving(now_s + _RESOLVE_S)
            yield Learn(frozenset(self._wanted.unknown))
        else:
            yield from self._ask(exchange, now_s)

    def _open(self, name: LaneName, exchange: Exchange) -> Iterator[Command]:
        lane = self._lanes[name]
        if not lane.is_opening:
            lane.is_opening = True
            yield OpenLane(name, exchange.request.header.client_id)

    def _resolved(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, _Resolving):
            return
        yield from self._update(exchange)
        if not any(self._topology.topic(topic) is None for topic in self._wanted.unknown):
            yield from self._ask(exchange, now_s)

    def _ask(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """See that every partition is asked for, from the start."""
        if not self._patient.is_open:
            yield from self._begin(exchange, now_s)
            return
        self._stage = _Asking()
        exchange.news = {}
        for (topic, partition), error in self._wanted.misfits.items():
            exchange.add(topic, erroneous(partition, error))
        yield from self._find_homes(now_s)
        yield from self._settle(exchange, now_s)

    def _settle(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """Answer, if there is enough or the time is over, and all lanes are sure; else have them asked."""
        ready = self._ready(exchange)
        brought = sum(len(reply.records) for _, reply in ready)
        enough = bool(exchange.news) or brought >= exchange.min_bytes or len(ready) < len(self._held)
        answered = all(lane.answered_in == self._number for lane in self._lanes.values() if lane.asks)
        due = enough or now_s >= exchange.deadline_s or (answered and self._is_plain(now_s))
        if due and all(self._is_sure(lane, now_s) for lane in self._lanes.values()):
            if not self._lacks(exchange):
                yield from self._finish(exchange, now_s)
                return
            if self._is_under_way:
                return
            # The session says "unchanged" of a partition whose offsets we gave up: let it tell them again.
            exchange.attempts += 1
            if exchange.attempts >= _ATTEMPTS:
                yield from self._finish(exchange, now_s)
                return
            for lane in self._lanes.values():
                lane.restart()
        elif brought and not enough and not self._is_plain(now_s):
            self._plain_until_s = now_s + _PLAIN_S
            self._held.drop()
            yield from self._find_homes(now_s)
        if self._quick.asks and not self._patient.is_asking:
            yield from self._find_homes(now_s)
        for name, lane in self._lanes.items():
            if not lane.asks or lane.is_asking:
                continue
            if lane.is_open:
                yield self._sent(lane, exchange, 0.0 if due else self._wait_s(lane, exchange, now_s), now_s)
            else:
                yield from self._open(name, exchange)

    def _take_in(self, lane: Lane, landed: Landed, now_s: float) -> Iterator[Command]:
        yield from landed.notes
        outcome, response = landed.outcome, landed.response
        asking = self._exchange if isinstance(self._stage, _Asking) else None
        if isinstance(outcome, Refused):
            if asking is not None:
                yield from self._refused(asking, outcome, now_s)
            return
        self._throttled_until_s = max(self._throttled_until_s, now_s + response.throttle_ms / 1000)
        if response.throttle_ms and not response.topics:
            # Held back before it read anything: that is no word about any partition.
            if asking is not None:
                yield from self._held_back(asking, now_s)
            return
        # What ends a long wait tells of all that waited, as of now.
        waited = asking is not None and not self._is_plain(now_s)
        lane.answered_in = self._number if waited else lane.asked_in
        if lane is self._patient and self._quick.asks and asking is not None:
            self._parks.ended(lane.sent_s, now_s, asking.request.options.max_wait_ms / 1000)
        if asking is not None:
            asking.endpoints += response.endpoints
        stale = self._keep(lane, landed, asking, now_s)
        if stale:
            yield Learn(stale)

    def _held_back(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if exchange.version >= _CLIENT_THROTTLES_VERSION:
            # Clients that know throttling take an answer without partitions.
            yield from self._answered(self._throttled(exchange, now_s).empty())
        else:
            self._stage = _Pausing(self._throttled_until_s)

    def _refused(self, exchange: Exchange, outcome: Refused, now_s: float) -> Iterator[Command]:
        exchange.attempts += 1
        if outcome.why is Refusal.ERROR:
            yield from self._answered(self._throttled(exchange, now_s).refusal(outcome.error))
        elif exchange.attempts >= _ATTEMPTS:
            yield from self._give_up(exchange, ErrorCode.unknown_server_error, now_s)

    def _lost(self, lane: Lane, now_s: float) -> Iterator[Command]:
        was_open = lane.is_open
        lane.lost()
        self._held.drop()
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, _Connecting | _Asking):
            return
        exchange.attempts += 1
        if was_open and exchange.attempts < _ATTEMPTS:
            yield from self._begin(exchange, now_s)
        else:
            yield from self._give_up(exchange, ErrorCode.not_leader_or_follower, now_s)

    def _finish(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        for key, reply in self._ready(exchange):
            exchange.add(self._wanted.named[key.topic], reply)
            self._held.give(key)
        quiet = not exchange.news
        assert self._sheet is not None
        pieces = self._throttled(exchange, now_s).answer(self._sheet, self._place)
        if exchange.throttle_ms and exchange.version < _CLIENT_THROTTLES_VERSION:
            self._stage = _Delayed(now_s + exchange.throttle_ms / 1000, pieces)
            return
        lane = self._patient
        parks = quiet and not (self._homeless or self._draining or self._is_plain(now_s))
        if parks and lane.is_open and lane.asks and not (lane.is_asking or lane.makes_session(now_s)):
            # The client does not wait, so we do: its next poll is then answered by the broker's silence.
            yield self._sent(lane, exchange, self._reading.patience_s, now_s)
        yield from self._answered(pieces)

    def _give_up(self, exchange: Exchange, error: int, now_s: float) -> Iterator[Command]:
        yield Learn(frozenset(section.topic for section in exchange.request.sections))
        self._stage = _Delayed(max(now_s, exchange.started_s + _GONE_S), exchange.unreadable(error))

    def _answered(self, pieces: Pieces) -> Iterator[Command]:
        self._exchange = None
        yield Answered(pieces)

    # ----------------------------------------------------------------------------------- what lanes ask

    def _find_homes(self, now_s: float) -> Iterator[Command]:
        """Give every partition that has changed to the lane that can ask for it first. Cost: O(changed)."""
        asks = self._wanted.asks
        self._held.sift(asks, now_s - self._reading.patience_s)
        changed, self._homeless = self._homeless, {}
        new: list[Key] = []
        for key in changed:
            ask = asks.get(key)
            if ask is not None and any(lane.asks.get(key) == ask for lane in self._lanes.values()):
                continue
            self._leave_lane(key)
            if ask is None:
                continue
            if self._held.has(key, ask):
                self._homeless[key] = None
            else:
                new.append(key)
        quick = new
        if not self._patient.is_asking:
            self._heat.prune()
            moving = self._moving([*self._quick.asks, *new], now_s)
            for key in [key for key in self._quick.asks if key not in moving]:
                self._quick.take_out(key)
                self._patient.put(key, asks[key])
            for key in new:
                if key not in moving:
                    self._patient.put(key, asks[key])
            quick = [key for key in new if key in moving]
        if quick and self._quick.is_asking:
            yield CloseLane(LaneName.QUICK, "it waits, and others cannot wait for it")
            self._quick.lost()
        for key in quick:
            self._quick.put(key, asks[key])

    def _leave_lane(self, key: Key) -> None:
        for lane in self._lanes.values():
            if key in lane.asks:
                lane.take_out(key)

    def _moving(self, candidates: Iterable[Key], now_s: float) -> set[Key]:
        """Those of *candidates* that are better read apart from the rest."""
        hot = {key for key in candidates if self._heat.is_hot(key)}
        idle = len(self._wanted.asks) - len(hot)
        apart = idle >= _WORTH_PARKING and self._parks.pay(now_s) and not self._is_plain(now_s)
        return hot if apart else set()

    def _sent(self, lane: Lane, exchange: Exchange, wait_s: float, now_s: float) -> Command:
        request, most = exchange.request, self._reading.fetch_buffer_bytes
        options = attrs.evolve(
            request.options,
            min_bytes=min(exchange.min_bytes, most) if self._is_plain(now_s) else 1,
            max_bytes=min(request.options.max_bytes, most),
        )
        timeout_s = self._reading.ask_timeout_s
        return lane.ask(self._number, request.header.client_id, options, wait_s, now_s, timeout_s)

    def _wait_s(self, lane: Lane, exchange: Exchange, now_s: float) -> float:
        remaining_s = max(exchange.deadline_s - now_s, 0.0)
        if lane is self._quick or self._draining or self._is_plain(now_s) or self._lacks(exchange):
            return remaining_s
        if lane.makes_session(now_s) or (remaining_s < _SURE_S and lane.answered_in != self._number):
            return 0.0
        return self._reading.patience_s

    def _is_plain(self, now_s: float) -> bool:
        """Whether fetches wait as their clients would, and no longer."""
        return now_s < self._plain_until_s

    def _is_sure(self, lane: Lane, now_s: float) -> bool:
        """Whether "nothing new" of what the lane asks for would be the broker's word."""
        if not lane.asks or lane.answered_in == self._number:
            return True
        if not lane.is_asking or self._is_plain(now_s):
            return False
        return lane.asked_in < self._number or now_s >= lane.sent_s + _SURE_S

    @property
    def _is_under_way(self) -> bool:
        return any(lane.is_asking for lane in self._lanes.values())

    # --------------------------------------------------------------------------------------- its tables

    def _update(self, exchange: Exchange) -> Iterator[Command]:
        """Bring the tables up to the client's fetch and the topology."""
        request = exchange.request
        layout = request_layout(request.version)
        follows = request.version >= _RACKS_VERSION and bool(request.options.rack_id)
        asker = Asker(self._node_id, self._patient.by_id, follows)
        change = self._wanted.update(layout, request.sections, self._topology, asker)
        self._homeless.update(dict.fromkeys(change.touched))
        committed = bool(request.options.isolation)
        reshaped: Collection[int] = change.reshaped
        if self._sheet is None or not self._sheet.suits(request.version, committed=committed):
            self._sheet = Sheet(response_layout(request.version), committed=committed)
            yield from self._start_over()
            reshaped = range(len(request.sections))
        self._sheet.reshape(layout, request.sections, reshaped)

    def _start_over(self) -> Iterator[Command]:
        """What was asked for and brought was meant for another kind of fetch."""
        self._held.drop()
        for name, lane in self._lanes.items():
            if lane.is_asking:
                yield CloseLane(name, "its client asks in another way")
                lane.lost()
            lane.restart()
            lane.answered_in = 0

    def _ready(self, exchange: Exchange) -> list[tuple[Key, PartitionReply]]:
        return self._held.ready(exchange.request.options.max_bytes)

    def _lacks(self, exchange: Exchange) -> bool:
        """Whether no broker has told the offsets of some partition yet."""
        told = {topic: list(replies) for topic, replies in exchange.news.items()}
        for key, reply in self._ready(exchange):
            told.setdefault(self._wanted.named[key.topic], []).append(reply)
        return self._sheet is None or self._sheet.lacks(told)

    def _throttled(self, exchange: Exchange, now_s: float) -> Exchange:
        """*exchange*, in which its client is told to keep away for as long as the broker has told us."""
        exchange.throttle_ms = round(max(self._throttled_until_s - now_s, 0.0) * 1000)
        self._throttled_until_s = 0.0
        return exchange

    def _keep(self, lane: Lane, landed: Landed, asking: Exchange | None, now_s: float) -> frozenset[Topic]:
        """Take over what an answer tells; returns the client's topics whose errors call for a new look.

        A lane may bring what has moved to the other one meanwhile. It is news all the same, unless the client has
        gone on from there.
        """
        stale = set()
        for topic, replies in landed.response.topics:
            named = self._wanted.named.get(topic)
            for reply in replies:
                key = Key(topic, reply.partition)
                ask = landed.asked.get(key)
                if named is None or ask is None or self._sheet is None or ask != self._wanted.asks.get(key):
                    continue
                is_news = _is_news(reply)
                if reply.error in STALE_TOPOLOGY:
                    stale.add(named)
                elif not reply.error and (is_news or key in lane.asks):
                    self._sheet.learn(named, reply)
                if not is_news:
                    continue
                self._leave_lane(key)
                self._homeless[key] = None
                if len(reply.records) and not reply.error:
                    self._heat.brought(key)
                    self._held.keep(key, ask, reply, now_s)
                    continue
                self._heat.failed(key)
                if asking is not None:
                    asking.add(named, _unless_ours(reply, asking, named))
        return frozenset(stale)


def _is_news(reply: PartitionReply) -> bool:
    """Whether an answer says more of a partition than its offsets."""
    redirected = reply.preferred_read_replica != UNKNOWN
    return bool(reply.error or len(reply.records) or redirected or reply.diverging_epoch is not None)


def _unless_ours(reply: PartitionReply, exchange: Exchange, topic: Topic) -> PartitionReply:
    """*reply*, without codes about an epoch that the client has not sent: it need not know them."""
    if reply.error in _EPOCH_ERRORS and not exchange.has_epoch(topic, reply.partition):
        return reply._replace(error=ErrorCode.not_leader_or_follower)
    return reply
