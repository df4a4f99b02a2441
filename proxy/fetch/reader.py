"""Reads a broker's partitions for one client connection: the client's fetches in, answers out, lanes in between.

The client takes the broker that it has come to for the leader of what it asks for. Each partition is read from
its *source*: that leader, or a replica that is closer (see ``cluster.routing``). Each source has two lanes, and one
answer to the client is put together from what they all bring.

What a client polls for is answered here as long as the broker has nothing to say. Upstream, a fetch waits at the
broker for up to ``Reading.upstream_max_wait_s``, and goes on waiting while the client is answered "nothing new"
and asks again. Partitions go where they are asked for first::

    patient lane   whatever it was free to take when it last asked: nearly all of its source, nearly always
    quick lane     what keeps moving, beside many that do not; and what cannot wait until the patient lane is back
    held           brought while the client was not asking, or more than it takes at once: on no lane until given
    homeless       changed since: placed when the client asks next

A client that reads on is read ahead of (``ahead``): what comes next is asked for while it is given what there is.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from proxy.cluster.routing import Routes, Source
from proxy.cluster.topology import BrokerId, Topology
from proxy.convert.types import NothingForClient
from proxy.errors import BrokerProtocolError, ErrorCode
from proxy.events import Cause, StalledFetchRecord
from proxy.fetch.commands import Answered, CloseLane, Command, Convert, Farewell, LaneId, Learn, Note, OpenLane
from proxy.fetch.converting import are_small, begin_all
from proxy.fetch.exchange import Exchange, Manner, check_request, erroneous
from proxy.fetch.held import Ready
from proxy.fetch.lane import Landed, Lane
from proxy.fetch.lanes import Lanes
from proxy.fetch.liveness import unserved
from proxy.fetch.reading import Reading
from proxy.fetch.stages import Asking, Connecting, Converting, Delayed, Pausing, Resolving, Stage
from proxy.fetch.tables import Tables
from proxy.fetch.telling import Telling
from proxy.fetch.waits import Waits
from proxy.session.upstream import RejectedResponse, RejectionReason
from proxy.wire.addresses import Place
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import FetchRequest, PartitionKey
from proxy.wire.frames import Pieces

__all__ = ["Reader"]

_CLIENT_THROTTLES_VERSION: Final = 8

_UNWATCHED_S: Final = 1.0
"""How old held records may be when a fetch begins: no broker is asked meanwhile whether they are still there."""
_RESOLVE_S: Final = 5.0
"""How long a fetch waits for the topology; below the request timeouts of all clients."""
_GONE_S: Final = 0.25
"""How long a client is held whose broker is gone, so that it does not ask in a tight loop."""
_DRAINING_WAIT_S: Final = 0.1
"""How long a fetch may wait while draining: not the client's wait, nor so short that it asks in a tight loop."""
_ATTEMPTS: Final = 4
"""How often one exchange asks before the client is told an error."""
_REFRESHES: Final = 3
"""How often one client fetch has metadata refreshed because of an id or an epoch that the client did not send."""
_SPARING_S: Final = 10.0
"""After memory was asked back, how long nothing is read ahead."""
_INSTANT_S: Final = 1e-6
"""Too short a time to wait for."""


class Reader:
    """One client connection's fetches of what one broker leads.

    Use: give it events; carry out the commands that it returns. ``deadline_s`` is when it wants ``tick``.
    """

    def __init__(self, node_id: BrokerId, place: Place, jitter: float, reading: Reading) -> None:
        """*jitter*: 0..1, so that connections that were refused together do not come back together."""
        self._node_id = node_id
        self._place = place
        self._reading = reading
        self._topology = Topology()
        self._routes = Routes(node_id, reading.selector, reading.preferred_max_age_s)
        self._lanes = Lanes(self._routes.home, jitter, self._routes.kind)
        self._tables = Tables(node_id, self._lanes, self._routes, reading)
        self._exchange: Exchange | None = None
        self._manner: Manner | None = None
        """Of the client's last fetch."""
        self._stage: Stage = Connecting()
        self._waits = Waits(self._lanes, reading)
        self._throttled_until_s = 0.0
        self._spares_until_s = float("-inf")
        """Nothing is read ahead before: there was no memory for it."""
        self._now_s = float("-inf")

    # ------------------------------------------------------------------------------------------- events

    def fetch(
        self, request: FetchRequest, topology: Topology, now_s: float, *, request_bytes: int = 0
    ) -> list[Command]:
        """The client's next fetch, of so many bytes; only after the last one was answered.

        Raises: ClientProtocolError: only a broker may fetch like this.
        """
        check_request(request)
        self._topology = topology
        context = self._reading.sessions.open(self._reading.policy.read_as(request), self._node_id, now_s)
        longest_s = _DRAINING_WAIT_S if self._waits.is_draining else float("inf")
        rack = request.options.rack_id or self._reading.told_rack
        telling = Telling(request, request_bytes, now_s) if self._reading.tells_exchanges else None
        exchange = Exchange(context.request, now_s, longest_s, rack, context=context, telling=telling)
        self._exchange, self._manner = exchange, exchange.manner
        if not context.request.sections:
            return self._answered(exchange.empty(), now_s)
        self._stage = Connecting()
        self._waits.next_exchange(exchange.manner)
        return self._moved(self._begin(exchange, now_s), now_s)

    def opened(self, lane_id: LaneId, ranges: ApiRanges, now_s: float) -> list[Command]:
        """The lane is open, to a broker that serves *ranges*.

        Raises: BrokerProtocolError: a leader serves no Fetch that we speak, or other versions than a moment ago.
        """
        return self._moved(self._opened(self._lanes.named(lane_id), ranges, now_s), now_s)

    def received(self, lane_id: LaneId, frame: memoryview, now_s: float) -> list[Command]:
        """The lane brought an answer.

        Raises: BrokerProtocolError: it is none to what was asked. The lane must be closed, then ``lost``.
        """
        lane = self._lanes.named(lane_id)
        if lane.is_answering and self._exchange is not None:
            self._exchange.watched_s = now_s
        landed = lane.received(frame, now_s, topic_name=self._topology.name_of)
        return self._moved(self._take_in(lane, landed, now_s), now_s)

    def lost(self, lane_id: LaneId, now_s: float) -> list[Command]:
        """The lane is gone, or could not be opened."""
        return self._moved(self._lost(self._lanes.named(lane_id), now_s), now_s)

    def told(self, topology: Topology, now_s: float) -> list[Command]:
        """The topology was refreshed."""
        before, self._topology = self._topology, topology
        return self._moved(self._told(before, now_s), now_s)

    def converted(self, now_s: float) -> list[Command]:
        """What was to be converted has been begun."""
        return self._moved(self._converted(now_s), now_s)

    def tick(self, now_s: float) -> list[Command]:
        """``deadline_s`` has passed."""
        return self._moved((), now_s)

    def drain(self, now_s: float) -> list[Command]:
        """Wait hardly any more: what waits at the broker is answered now, with what is known."""
        self._waits.is_draining = True
        exchange = self._exchange
        if exchange is None:
            return []
        exchange.longest_s = now_s - exchange.started_s + _DRAINING_WAIT_S
        waits = all(lane.waits for lane in self._lanes if lane.is_asking)
        parked = isinstance(self._stage, Asking) and self._lanes.is_under_way and waits
        ready = self._tables.ready(exchange)
        answers = parked and not self._tables.lacking(exchange, ready)
        return self._moved(self._finish(exchange, ready, now_s) if answers else (), now_s)

    def answering(self, lane_id: LaneId, now_s: float) -> list[Command]:
        """The lane's answer has begun to come."""
        self._lanes.named(lane_id).answering(self._waits.number)
        return self._moved((), now_s)

    def drop_held(self, now_s: float) -> list[Command]:
        """Give up what was brought and not handed out: the memory is needed. It is asked for again."""
        self._spares_until_s = now_s + _SPARING_S
        return self.client_looks_again(now_s)

    def client_looks_again(self, now_s: float) -> list[Command]:
        """Drop held records: the client asks for metadata, so something may have changed in the cluster."""
        self._lanes.held.drop()
        asking = self._exchange is not None and isinstance(self._stage, Asking)
        return self._moved(self._find_homes(now_s) if asking else (), now_s)

    @property
    def held_since_s(self) -> float | None:
        """When the oldest was brought that is not handed out; None if there is none."""
        return self._lanes.held.oldest_s if self._lanes.held else None

    def farewell(self, now_s: float) -> list[Note | Farewell]:
        """The client has gone: close its sessions at the brokers. Nothing else may be told from here on."""
        return self._lanes.farewell(now_s)

    @property
    def deadline_s(self) -> float | None:
        """When ``tick`` is wanted; None for never."""
        times = [lane.late_s for lane in self._lanes if lane.late_s is not None]
        if self._exchange is None:
            times.append(self._lanes.held.oldest_s + _UNWATCHED_S)
        match self._stage:
            case Resolving(until_s) | Pausing(until_s) | Delayed(until_s) if self._exchange is not None:
                times.append(until_s)
            case Asking() if self._exchange is not None:
                times += (self._exchange.deadline_s, self._lanes.held.oldest_s + _UNWATCHED_S)
                times += self._waits.turns_s()
            case _:
                pass
        times.append(self._stalled_s)
        return min((time_s for time_s in times if self._now_s < time_s < float("inf")), default=None)

    @property
    def version(self) -> int:
        """Fetch version that is spoken with the leader; 0 if that is not known yet."""
        return self._lanes.home.patient.version

    @property
    def is_answering(self) -> bool:
        """Whether a fetch of the client waits for its answer: no other may be given before."""
        return self._exchange is not None

    @property
    def is_busy(self) -> bool:
        """Whether it is answering, or has a lane opened: it cannot be left alone yet."""
        return self.is_answering or any(lane.is_opening for lane in self._lanes)

    def is_asking(self, lane_id: LaneId) -> bool:
        """Whether the broker owes an answer on the lane, and would not look at another request before."""
        return self._lanes.named(lane_id).is_asking

    # ---------------------------------------------------------------------------------------- liveness

    def unserved(self) -> list[PartitionKey]:
        """Return the partitions of the client's open fetch that nothing will answer: see ``liveness``."""
        if self._exchange is None or not isinstance(self._stage, Asking):
            return []
        return list(unserved(self._exchange, self._tables, self._lanes, self._waits, self._now_s))

    @property
    def _stalled_s(self) -> float:
        """When the client's open fetch will have outlived its wait by the ask timeout; infinity for never."""
        is_waiting = self._exchange is not None and isinstance(self._stage, Connecting | Asking)
        if self._exchange is None or not is_waiting or any(lane.is_answering for lane in self._lanes):
            return float("inf")
        muted_s = (lane.heard_s for lane in self._lanes if lane.is_asking and lane.heard_s > lane.sent_s)
        # A follower that does not answer is left for its leader, which then has the time that it takes.
        followers = (lane for lane in self._lanes if lane.is_follower and not lane.is_parked)
        left_s = (lane.late_s for lane in followers if lane.late_s is not None)
        since_s = max(self._exchange.deadline_s, self._exchange.watched_s, *muted_s, *left_s)
        return since_s + self._reading.ask_timeout_s

    def _answer_stalled(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """Answer a fetch that outlived its wait with a retriable error, and begin with new requests."""
        asks = self._tables.wanted.asks
        yield Note(
            StalledFetchRecord(
                self._node_id,
                exchange.manner.client_id,
                type(self._stage).__name__.lower(),
                now_s - exchange.started_s,
                len(asks),
                len(self.unserved()),
                sum(self._lanes.held.has(key, ask) for key, ask in asks.items()),
                ", ".join(lane.describe(now_s) for lane in self._lanes),
            )
        )
        yield from self._lanes.start_over(now_s, "a client fetch has outlived its wait")
        yield from self._give_up(exchange, now_s)

    # ------------------------------------------------------------------------------- from stage to stage

    def _moved(self, commands: Iterable[Command], now_s: float) -> list[Command]:
        """*commands*, once nobody is late, and whatever can be done after them."""
        self._now_s = now_s
        done = [*self._hang_up_on_the_late(now_s), *commands, *self._go_on(now_s)]
        if self._reading.checks_liveness:
            assert not self.unserved(), f"nothing answers {self.unserved()}"
        if self._exchange is not None and self._exchange.telling is not None:
            self._exchange.telling.waits_for(self._cause(self._exchange), now_s)
        return done

    def _cause(self, exchange: Exchange) -> Cause:
        """What *exchange* waits for."""
        match self._stage:
            case Pausing():
                return "throttle"
            case Delayed():
                return "throttle" if exchange.throttle_ms else "broker"
            case Converting():
                return "convert"
            case Asking() if not any(lane.is_opening or _is_at_work(lane) for lane in self._lanes):
                return "poll"
            case _:
                return "broker"

    def _hang_up_on_the_late(self, now_s: float) -> Iterator[Command]:
        for lane in self._lanes:
            if lane.late_s is None or now_s < lane.late_s:
                continue
            if lane.is_opening:
                lane.opening()
                yield from self._leave_follower(lane, now_s)
            else:
                yield CloseLane(lane.id, f"no answer within {lane.late_s - lane.heard_s:g} s", is_fault=True)
                yield from self._lost(lane, now_s)

    def _go_on(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        if exchange is None:
            self._sift(now_s)
        yield from self._leave_unused(now_s)
        if exchange is None:
            return
        if now_s >= self._stalled_s:
            yield from self._answer_stalled(exchange, now_s)
        match self._stage:
            case Delayed(until_s, pieces) if now_s >= until_s:
                yield from self._answered(pieces, now_s)
            case Resolving(until_s) | Pausing(until_s) if now_s >= until_s:
                yield from self._ask(exchange, now_s)
            case _:
                pass
        yield from self._settle(exchange, now_s)

    def _begin(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        home = self._lanes.home.patient
        if home.is_open:
            yield from self._update(exchange, now_s)
        if not home.is_open:
            self._stage = Connecting()
            yield from self._open(home, exchange, now_s)
        elif self._tables.wanted.unknown:
            self._stage = Resolving(now_s + _RESOLVE_S)
            yield Learn(frozenset(self._tables.wanted.unknown))
        else:
            yield from self._ask(exchange, now_s)

    def _update(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if self._tables.update(exchange.request, self._topology):
            yield from self._lanes.start_over(now_s)

    def _open(self, lane: Lane, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if not lane.is_opening:
            lane.opening(now_s + self._reading.ask_timeout_s if lane.is_follower else None)
            yield OpenLane(lane.id, exchange.request.header.client_id)

    def _opened(self, lane: Lane, ranges: ApiRanges, now_s: float) -> Iterator[Command]:
        home = self._lanes.home.patient
        try:
            lane.opened(ranges)
            if lane is not home and lane.by_id != home.by_id:
                raise BrokerProtocolError(f"broker {lane.id.source.node_id} names topics in another way")
        except BrokerProtocolError as unfit:
            if not lane.is_follower:
                raise
            yield CloseLane(lane.id, str(unfit), is_fault=False)
            yield from self._lost(lane, now_s)
            return
        exchange = self._exchange
        if exchange is not None and isinstance(self._stage, Connecting) and home.is_open:
            yield from self._begin(exchange, now_s)

    def _leave_unused(self, now_s: float) -> Iterator[Command]:
        for lane in list(self._lanes.unused(now_s)):
            if lane.has_session:
                yield lane.close_session(now_s, self._reading.ask_timeout_s)
            elif lane.id.source != self._routes.home:
                yield CloseLane(lane.id, "nothing is read there any more", is_fault=False)
                yield from lane.lost(now_s)

    def _told(self, before: Topology, now_s: float) -> Iterator[Command]:
        outdated = self._lanes.outdated(before, self._topology)
        if self._exchange is not None and isinstance(self._stage, Asking):
            if self._tables.wanted.names_another(self._topology):
                self._stage = Resolving(now_s + _RESOLVE_S)  # the requests name a topic that is gone
            elif outdated:
                yield from self._find_homes(now_s)
        yield from self._resolved(now_s)

    def _resolved(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, Resolving):
            return
        yield from self._update(exchange, now_s)
        if not any(self._topology.topic(topic) is None for topic in self._tables.wanted.unknown):
            yield from self._ask(exchange, now_s)

    def _ask(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """See to it that every partition is asked for, from the start, once this is settled."""
        if not self._lanes.home.patient.is_open:
            yield from self._begin(exchange, now_s)
            return
        if isinstance(self._stage, Resolving | Pausing | Converting):
            exchange.watched_s = now_s
        self._stage = Asking()
        exchange.news = {}
        for (topic, partition), error in self._tables.wanted.misfits.items():
            exchange.add(topic, erroneous(partition, error))
        lacking = self._tables.sheet.lacking(())
        for lane in self._waits.overlong(exchange, partial(self._tables.asks_for, partitions=lacking)):
            self._lanes.vacate(lane)
        yield from self._find_homes(now_s)
        if exchange.telling is not None:
            exchange.telling.is_asked = True

    def _settle(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """While asking: answer, if there is enough or the time is over, and all are sure; else have lanes asked."""
        if not isinstance(self._stage, Asking):
            return
        ready = self._tables.ready(exchange)
        brought = sum(len(reply.records) for _, reply in ready.replies)
        enough = bool(exchange.news) or brought >= exchange.manner.min_bytes or not ready.is_all
        waits = self._waits
        answered = all(map(waits.has_told, self._lanes))
        over = now_s + _INSTANT_S >= exchange.deadline_s
        due = enough or over or (answered and waits.is_plain(exchange.manner, now_s))
        sure = not self._lanes.is_crowded and all(waits.is_sure(lane, now_s, enough=enough) for lane in self._lanes)
        if due and sure:
            lacking = self._tables.lacking(exchange, ready)
            if not lacking:
                yield from self._finish(exchange, ready, now_s)
                return
            if self._tables.are_under_way(lacking):
                return
            # The session says "unchanged" of a partition whose offsets we gave up: let it tell them again.
            exchange.attempts += 1
            if exchange.attempts >= _ATTEMPTS:
                for topic, partition in lacking:
                    exchange.add(topic, erroneous(partition, ErrorCode.not_leader_or_follower))
                yield from self._finish(exchange, ready, now_s)
                return
            for lane in self._lanes:
                if not lane.is_asking:
                    lane.restart()
        elif brought and not due and self._must_read_together(exchange, now_s):
            waits.be_plain(now_s)
            self._lanes.held.drop()
            brought = 0
            yield from self._find_homes(now_s)
        if self._lanes.is_crowded or any(
            pair.quick.asks and not pair.patient.is_asking for pair in self._lanes.pairs
        ):
            yield from self._find_homes(now_s)
        for lane in self._lanes:
            if not lane.asks or lane.is_asking or (due and waits.is_sure(lane, now_s, enough=enough)):
                continue
            if now_s < waits.pace.until_s and not due:
                continue
            if lane.is_open:
                wait_s = 0.0
                if not due:
                    lacks = bool(self._tables.lacking(exchange, self._tables.ready(exchange)))
                    wait_s = waits.longest_s(lane, exchange, now_s, lacks=lacks)
                yield waits.ask(lane, exchange.manner, wait_s, now_s, brought=brought)
            else:
                yield from self._open(lane, exchange, now_s)

    def _must_read_together(self, exchange: Exchange, now_s: float) -> bool:
        """Return whether held records, too few to end the wait of *exchange*, are fetched again with all others.

        A broker that waits has the bytes of all partitions in view. And while records are held, nobody notices that
        their partition gets another leader, or that they are deleted.
        """
        if not self._waits.is_plain(exchange.manner, now_s):
            return True
        held_since_s = self._lanes.held.oldest_s
        return held_since_s < exchange.started_s or held_since_s + _UNWATCHED_S <= now_s

    def _take_in(self, lane: Lane, landed: Landed, now_s: float) -> Iterator[Command]:
        outcome, response = landed.outcome, landed.response
        asking = self._exchange if isinstance(self._stage, Asking) else None
        if isinstance(outcome, RejectedResponse):
            yield from landed.notes()
            if lane.is_follower and outcome.why is RejectionReason.ERROR:
                yield from self._leave_follower(lane, now_s)
            elif asking is not None:
                yield from self._refused(asking, outcome, now_s)
            return
        self._routes.answers(lane.id.source.node_id)
        self._throttled_until_s = max(self._throttled_until_s, now_s + response.throttle_ms / 1000)
        self._waits.pace.answered(response, len(self._tables.wanted.asks), now_s)
        if response.throttle_ms and not response.topics:
            # Held back before it read anything: that is no word about any partition.
            yield from landed.notes()
            if asking is not None:
                yield from self._held_back(asking, now_s)
            return
        self._waits.told(lane, landed)
        pair = self._lanes.pair(lane.id.source)
        if lane is pair.patient and pair.quick.asks and asking is not None:
            pair.parks.ended(lane.sent_s, now_s, asking.request.options.max_wait_ms / 1000)
        if asking is not None:
            asking.endpoints |= {each.node_id: each for each in response.endpoints}
        taken = self._tables.take_in(lane, landed, asking, self._topology, now_s)
        yield from landed.notes(taken.record_bytes)
        yield from taken.notes
        if taken.stale:
            yield Learn(frozenset(taken.stale))
        if taken.needs_topology and asking is not None and asking.refreshes < _REFRESHES:
            # The client knows nothing of the id or the epoch: it is answered about what is there now.
            asking.refreshes += 1
            self._stage = Resolving(now_s + _RESOLVE_S)
            if not self._tables.know(self._topology):
                yield from self._resolved(now_s)
            return
        if taken.has_strays and asking is not None:
            yield from self._find_homes(now_s)
        if landed.terms.is_ahead and self._exchange is None and self._manner is not None:
            yield from self._park(self._manner, now_s)

    def _held_back(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        if exchange.version >= _CLIENT_THROTTLES_VERSION:
            # Clients that know throttling take an answer without partitions.
            yield from self._answered(self._throttled(exchange, now_s).empty(), now_s)
        else:
            exchange.paused_ms += round((self._throttled_until_s - now_s) * 1000)
            self._stage = Pausing(self._throttled_until_s)

    def _refused(self, exchange: Exchange, outcome: RejectedResponse, now_s: float) -> Iterator[Command]:
        exchange.attempts += 1
        if outcome.why is RejectionReason.ERROR:
            yield from self._answered(self._throttled(exchange, now_s).refusal(outcome.error), now_s)
        elif exchange.attempts >= _ATTEMPTS:
            yield from self._give_up(exchange, now_s)

    def _lost(self, lane: Lane, now_s: float) -> Iterator[Command]:
        was_open = lane.is_open
        yield from lane.lost(now_s)
        self._lanes.held.drop()
        if lane.is_follower:
            yield from self._leave_follower(lane, now_s)
            return
        exchange = self._exchange
        if exchange is None or not isinstance(self._stage, Connecting | Asking):
            return
        exchange.attempts += 1
        if was_open and exchange.attempts < _ATTEMPTS:
            yield from self._begin(exchange, now_s)
        else:
            yield from self._give_up(exchange, now_s)

    def _leave_follower(self, lane: Lane, now_s: float) -> Iterator[Command]:
        """Read from the leader what was read there, within the same exchange."""
        if self._exchange is not None:
            self._exchange.watched_s = now_s
        keys = [key for each in self._lanes.pair(lane.id.source) for key in each.asks]
        self._routes.lost(lane.id.source.node_id, keys, now_s)
        self._lanes.changed(keys)
        if self._exchange is not None and isinstance(self._stage, Asking):
            yield from self._find_homes(now_s)

    def _finish(self, exchange: Exchange, ready: Ready, now_s: float) -> Iterator[Command]:
        jobs = self._tables.hand_out(exchange, ready, now_s)
        if not jobs:
            yield from self._answer(exchange, now_s)
            return
        self._stage = Converting(jobs)
        if are_small(jobs):
            begin_all(jobs, self._reading.cpu_s)
            yield from self._converted(now_s)
        else:
            yield Convert(jobs)

    def _converted(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        assert exchange is not None
        assert isinstance(self._stage, Converting)
        yield from self._tables.converted(exchange, self._stage.jobs, now_s)
        was_skipped = any(isinstance(job.outcome, NothingForClient) for job in self._stage.jobs)
        ready = self._tables.ready(exchange)
        if ready.replies and not exchange.has_records:
            # A marker that exceeds a limit was to be delivered alone (KIP-74), and came to nothing.
            yield from self._finish(exchange, ready, now_s)
        elif exchange.has_records or not was_skipped or now_s + _INSTANT_S >= exchange.deadline_s:
            yield from self._answer(exchange, now_s)
        else:
            yield from self._ask(exchange, now_s)
            yield from self._settle(exchange, now_s)

    def _answer(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        quiet = not exchange.news
        pieces = self._throttled(exchange, now_s).answer(self._tables.sheet, self._place)
        if exchange.throttle_ms and exchange.version < _CLIENT_THROTTLES_VERSION:
            self._stage = Delayed(now_s + exchange.throttle_ms / 1000, pieces)
            return
        answered = self._answered(pieces, now_s)
        if quiet and self._lanes.have_all:
            # The client does not wait, so we do: its next poll is then answered by the broker's silence.
            yield from self._park(exchange.manner, now_s)
        elif self._reading.reads_ahead and not (quiet or exchange.throttle_ms):
            yield from self._read_ahead(exchange, now_s)
        yield from answered

    def _park(self, manner: Manner, now_s: float) -> Iterator[Command]:
        """Have the patient lanes wait at their brokers, whatever the client does meanwhile."""
        if self._waits.is_draining or manner.is_instant or self._waits.is_plain(manner, now_s):
            return
        for lane in [pair.patient for pair in self._lanes.pairs]:
            if lane.is_open and lane.asks and not (lane.is_asking or lane.makes_session(now_s)):
                yield self._waits.ask(lane, manner, self._reading.upstream_max_wait_s, now_s)

    def _read_ahead(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """Have the brokers send what comes next while the client takes what it is given."""
        ahead, waits = self._tables.take_ahead(), self._waits
        if waits.is_draining or waits.is_plain(exchange.manner, now_s) or now_s < waits.pace.until_s:
            return
        if now_s >= self._spares_until_s:
            source_of = self._source_of(exchange.rack, now_s)
            yield from self._lanes.read_ahead(ahead, self._tables.wanted.asks, source_of, now_s)
        for lane in self._lanes:
            if lane.is_open and not lane.is_asking and any(key in lane.asks for key in ahead):
                yield waits.ask_ahead(lane, exchange.manner, now_s)
        if ahead or self._lanes.held:
            # What is read ahead will be given at once, and not before the others have been heard.
            yield from self._park(exchange.manner, now_s)

    def _give_up(self, exchange: Exchange, now_s: float) -> Iterator[Command]:
        """Answer every partition with a retriable error, after a while, and have metadata refreshed."""
        yield Learn(frozenset(section.topic for section in exchange.request.sections))
        self._stage = Delayed(
            max(now_s, exchange.started_s + _GONE_S), exchange.unreadable(ErrorCode.not_leader_or_follower)
        )

    def _answered(self, pieces: Pieces, now_s: float) -> list[Command]:
        assert self._exchange is not None
        request, telling, self._exchange = self._exchange.request, self._exchange.telling, None
        self._stage = Connecting()  # the last one may hold records, and what they were read from
        record = None
        if telling is not None:
            record = telling.record(request, self._routes.home, self._lanes, self._topology.name_of, now_s)
        return [*map(Note, self._reading.sessions.take_records()), Answered(pieces, request, record)]

    # ----------------------------------------------------------------------------------- what lanes ask

    def _find_homes(self, now_s: float) -> Iterator[Command]:
        exchange = self._exchange
        assert exchange is not None
        self._sift(now_s)
        self._lanes.changed(self._routes.expired(now_s))
        together = self._waits.is_plain(exchange.manner, now_s)
        yield from self._lanes.find_homes(
            self._tables.wanted.asks,
            self._source_of(exchange.rack, now_s),
            now_s,
            together=together,
            is_answered=self._tables.answered_by(exchange),
        )

    def _source_of(self, rack: str, now_s: float) -> Callable[[PartitionKey], Source]:
        routes, checked, topology = self._routes, self._tables.wanted.checked, self._topology
        looks_back_at = routes.home if self._tables.follows or not rack else routes.rackless

        def source_of(key: PartitionKey) -> Source:
            return looks_back_at if key in checked else routes.source(key, rack, topology, now_s)

        return source_of

    def _sift(self, now_s: float) -> None:
        """Drop held records that the client does not ask for any more, or that were too old when it asked."""
        wanted = self._tables.wanted
        wanted.ahead.prune(now_s - self._reading.upstream_max_wait_s)
        begun_s, most_s = now_s, _UNWATCHED_S
        if self._exchange is not None:
            begun_s = self._exchange.started_s
            most_s = 0.0 if self._exchange.manner.is_instant else _UNWATCHED_S
        self._lanes.held.sift(wanted.expected, begun_s - most_s)

    def _throttled(self, exchange: Exchange, now_s: float) -> Exchange:
        """*exchange*, in which its client is told to keep away for as long as the broker has told us."""
        exchange.throttle_ms = round(max(self._throttled_until_s - now_s, 0.0) * 1000)
        self._throttled_until_s = 0.0
        return exchange


def _is_at_work(lane: Lane) -> bool:
    """Whether its broker was asked not to wait, or does not wait any more."""
    return lane.is_asking and (not lane.waits or lane.is_answering)
