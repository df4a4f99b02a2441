"""A client connection's relay between a model client and a model broker, under a clock that tests move.

Nothing takes time unless a test delays it: connections open, responses arrive and topologies are delivered at once.
"""

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Final
from uuid import UUID

import attrs

from proxy.cluster.routing import Selector, Source
from proxy.cluster.topology import BrokerId, Topology
from proxy.errors import ErrorCode
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import (
    ClientFrame,
    CloseLink,
    Command,
    Draining,
    EmitRecord,
    Event,
    Link,
    LinkAnswering,
    LinkFrame,
    LinkLost,
    LinkOpened,
    MetadataUpdated,
    OpenLink,
    RefreshMetadata,
    Reply,
    Send,
    Tick,
)
from proxy.wire.apis import VersionRange
from proxy.wire.fetch import FETCH, IDS_VERSION, FetchOptions
from tests.pieces import joined
from tests.relay.driver import MemoryNeeded
from tests.relay.model import judge
from tests.relay.model.broker import FOLLOWER, FOLLOWERS_VERSION, LEADER, RACK, Flight, ModelBroker, ModelFollower
from tests.relay.model.client import ModelClient
from tests.relay.model.logs import Log
from tests.relay.solo import Solo

__all__ = ["FETCHER_IDS", "NO_RACK", "Racks", "Wire", "World"]

FETCHER_IDS: Final = [
    FetcherId(Source(BrokerId(node_id), rackless), kind)
    for node_id, rackless in ((LEADER, False), (LEADER, True), (FOLLOWER, False))
    for kind in FetcherKind
]
_ELSEWHERE: Final = 3
"""The leader of partitions that node 1 does not lead."""
_BURST: Final = 200
"""More events than this without any time passing are a loop."""
_SENT_AT_ONCE: Final = 24
"""More fetches than this without any time passing are a storm."""
_MAX_AGE_S: Final = 300.0


@attrs.frozen
class Racks:
    """The parties that use racks."""

    ours: str = ""
    clients: str = ""
    selector: Selector = Selector.BROKER
    leader_selects: bool = True
    is_slow: bool = False
    """Whether the leader takes its time to redirect."""

    @property
    def reads_followers(self) -> bool:
        """Whether a follower is read for the client, without its knowledge."""
        return self.selector is Selector.RACK_AWARE or bool(self.ours and not self.clients)


NO_RACK: Final = Racks()


@attrs.frozen
class Limits:
    """Time limits of the relay, in seconds."""

    upstream_max_wait_s: float
    response_timeout_s: float | None
    """None where it waits for the broker whatever happens."""


def build_relay(racks: Racks, *, reads_ahead: bool) -> tuple[Solo, Limits]:
    """A relay with a max wait of 10 s upstream."""
    reading = FetchConfig(
        upstream_max_wait_s=10.0,
        fetch_buffer_bytes=8 * 1024 * 1024,
        response_timeout_s=5.0,
        rack=racks.ours,
        selector=racks.selector,
        preferred_max_age_s=_MAX_AGE_S,
        sessions=ClientSessions(10, partial(next, count(1))),
        reads_ahead=reads_ahead,
        checks_liveness=True,
        records_exchanges=True,
    )
    return Solo(BrokerId(LEADER), _map_address, reading), Limits(10.0, 5.0)


def _map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:  # noqa: ARG001
    return "127.0.0.1", 9093 + node_id


@attrs.define(eq=False)
class Wire:
    """One of the relay's connections to the broker."""

    is_opening: bool = False
    is_open: bool = False
    is_late: bool = False
    """The broker's answers do not arrive."""
    is_deaf: bool = False
    """Whether the broker ignores requests."""
    is_starved: bool = False
    """There is no memory for the broker's answers, though they have begun to come."""
    muted_until_s: float = 0.0
    """The broker looks at nothing before: it has throttled this connection."""
    lost_at: int = 0
    """The last loss, in the count of all events."""
    closed_at: int = 0
    """The last close by the relay, in the same count."""


class World:
    def __init__(
        self,
        broker: ModelBroker,
        follower: ModelFollower,
        client: ModelClient,
        racks: Racks,
        *,
        reads_ahead: bool,
    ) -> None:
        self.now_s = 1000.0
        self.at = 0
        """Counts events."""
        self.broker, self.follower, self.client = broker, follower, client
        self.brokers: dict[int, ModelBroker] = {LEADER: broker, FOLLOWER: follower}
        self.racks = racks
        self.relay, self.limits = build_relay(racks, reads_ahead=reads_ahead)
        self.announced_at: dict[tuple[str, int], int] = {}
        """The last change of a partition's topic that the relay heard of, in the count of all events."""
        self.named_at: dict[tuple[str, int], int] = {}
        """The last time when it was sent to the follower, in the same count."""
        self.gone: set[int] = set()
        """Brokers to which no connection can be made."""
        self.sent_at_once = 0
        self.wires: dict[Link, Wire] = {link: Wire() for link in FETCHER_IDS}
        self.known = Topology()
        """The relay's last topology."""
        self.learning = 0
        self.asked_ids: set[UUID] = set()
        """The topic ids of which the relay has asked for metadata."""
        """The number of topologies that it waits for."""
        self.is_metadata_late = self.is_metadata_stale = self.is_opening_slow = False
        self.is_draining = False
        self.heals_s = float("-inf")
        self.trouble_at = 0
        """The last disturbance that a client may notice."""
        self.delays_s = 0.0
        """The sum of delays that the relay is not responsible for."""
        self.shown: dict[tuple[str, int], tuple[int, set[int]]] = {}
        """The last high watermark that the client saw of each partition, and the generations that it may be of."""
        self.ghosts: list[Flight] = []
        """Requests that were lost on their way, and may arrive yet."""
        self.refreshed: Topology = self._cluster(Topology())

    @property
    def is_follower_read(self) -> bool:
        """Whether the follower is of use to the client as long as all is well."""
        is_chosen = self.racks.selector is Selector.RACK_AWARE or self.broker.selects
        return self.racks.reads_followers and self.is_follower_able and is_chosen

    @property
    def is_follower_able(self) -> bool:
        """Whether it can be asked as the leader is."""
        versions = (self.broker.version, self.follower.version)
        return min(versions) >= FOLLOWERS_VERSION and len({each >= IDS_VERSION for each in versions}) == 1

    # ----------------------------------------------------------------------------------- what tests may do

    def fetch(self, options: FetchOptions, heeds: int) -> None:
        frame = self.client.fetch(options, heeds, self.at, self.now_s)
        self.client.waiting[-1].delays_s = self.delays_s
        self.client.waiting[-1].known.append(self.known)
        self.handle(ClientFrame(memoryview(frame)[4:], self.known, FetchRules()))
        self.settle()

    def drain(self) -> None:
        self.is_draining = True
        self.handle(Draining())
        self.settle()

    def lose(self, link: Link, *, seen: bool) -> None:
        """Break the connection; *seen*: after the broker has looked at the requests in flight."""
        wire = self.wires[link]
        if not (wire.is_open or wire.is_opening):
            return
        self.trouble()
        self._drop(link, seen=seen)
        wire.lost_at = self.at + 1
        self.handle(LinkLost(link))
        self.settle()

    def go_away(self, node_id: int) -> None:
        """A broker is stopped: its connections are lost, and there are no others."""
        self.gone.add(node_id)
        for link in self.links_to(node_id):
            self.lose(link, seen=False)

    def links_to(self, node_id: int) -> list[FetcherId]:
        return [each for each in FETCHER_IDS if each.source.node_id == node_id]

    def haunt(self) -> None:
        """Deliver lost requests, whose responses nobody waits for."""
        for flight in self.ghosts:
            broker = self.brokers[flight.node_id]
            broker.accidents += 1
            broker.open(flight, self.now_s)
            broker.look(flight, flight.due_s)
        self.ghosts.clear()

    def need_memory(self) -> None:
        """Require the relay to drop held records."""
        self.handle(MemoryNeeded())
        self.settle()

    def trouble(self, lasts_s: float = 0.0) -> None:
        """Something is out of order, and all will be well in so many seconds."""
        self.trouble_at = self.at
        self.heals_s = max(self.heals_s, self.now_s + lasts_s)

    def update_topology(self) -> None:
        """Another connection has had the topology refreshed."""
        self.refreshed = self._cluster(self.refreshed)
        self._update_topology(self.refreshed)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            due = [until_s, self.heals_s, *self._due()]
            step_s = min(each for each in due if each > self.now_s) - self.now_s
            is_starved = any(wire.is_starved for wire in self.wires.values())
            if self.is_metadata_late or self.is_opening_slow or is_starved:
                self.delays_s += step_s
            if not self.is_well:
                self.trouble()
            was_s, self.now_s = self.now_s, self.now_s + step_s
            if was_s < self.heals_s <= self.now_s:
                self.heal()
            self.settle()
            judge.nothing_stalls(self)

    def heal(self) -> None:
        """All connections are well again, and all that was held up goes on."""
        for wire in self.wires.values():
            wire.is_late = wire.is_deaf = wire.is_starved = False
        self.is_metadata_late = self.is_metadata_stale = self.is_opening_slow = False
        for broker in self.brokers.values():
            broker.throttle_ms = 0
        self.gone.clear()
        self.trouble()
        self.settle()

    @property
    def is_well(self) -> bool:
        """Whether nothing is held up now."""
        wires = any(
            wire.is_late or wire.is_deaf or wire.is_starved or self.now_s < wire.muted_until_s
            for wire in self.wires.values()
        )
        metadata = self.is_metadata_late or self.is_metadata_stale
        is_throttled = any(broker.throttle_ms for broker in self.brokers.values())
        return not (wires or metadata or self.is_opening_slow or is_throttled or self.is_draining or self.gone)

    def was_well_since(self, at: int) -> bool:
        return self.is_well and self.trouble_at < at

    # ---------------------------------------------------------------------------------- what happens by itself

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        self.sent_at_once = 0
        for _ in range(_BURST):
            if not self._happens():
                return
        raise AssertionError("events without end, and no time passes")

    def _happens(self) -> bool:
        if self.learning and not self.is_metadata_late:
            self.learning -= 1
            if not self.is_metadata_stale:
                self.refreshed = self._cluster(self.refreshed)
            self._update_topology(self.refreshed)
            return True
        for link in FETCHER_IDS:
            wire = self.wires[link]
            node_id = link.source.node_id
            if wire.is_opening and node_id in self.gone:
                wire.is_opening, wire.lost_at = False, self.at + 1
                self.handle(LinkLost(link))
                return True
            if wire.is_opening and not self.is_opening_slow:
                wire.is_opening, wire.is_open = False, True
                self.handle(LinkOpened(link, {FETCH: VersionRange(0, self.brokers[node_id].version)}))
                return True
        for flight in self.under_way():
            if self._moves(flight):
                return True
        if self.relay.deadline_s is not None and self.relay.deadline_s <= self.now_s:
            self.handle(Tick())
            return True
        return False

    def _moves(self, flight: Flight) -> bool:
        """Whether a request has come further, as far as its answer."""
        wire, broker = self.wires[flight.link], self.brokers[flight.node_id]
        if flight.context is None:
            if wire.is_deaf or self.now_s < wire.muted_until_s:
                return False
            broker.open(flight, self.now_s)
        if flight.answer is None and broker.look(flight, self.now_s) and flight.is_throttled:
            self.trouble()
            self.delays_s += broker.throttle_ms / 1000
            wire.muted_until_s = self.now_s + broker.throttle_ms / 1000
            broker.throttle_ms = 0
        if flight.answer is None or wire.is_late:
            return False
        if wire.is_starved:
            if flight.begun_at is None:
                flight.begun_at, flight.begun_s = self.at, self.now_s
                self.handle(LinkAnswering(flight.link))
                return True
            return False
        self._note_redirects(flight)
        broker.delivered(flight, self.at, self.now_s, self.known)
        self.handle(LinkFrame(flight.link, memoryview(flight.answer)))
        return True

    def _note_redirects(self, flight: Flight) -> None:
        for key, look in flight.looks.items():
            name = self.broker.name_of(key[0], flight.meant)
            if name is not None and look.preferred_replica == FOLLOWER:
                self.named_at[name, key[1]] = self.at + 1

    def _update_topology(self, known: Topology) -> None:
        for log in self.broker.logs():
            if known.topic(log.topic) is not self.known.topic(log.topic):
                self.announced_at[log.key] = self.at + 1
        self.known = known
        for exchange in self.client.waiting:
            exchange.known.append(known)
        self.handle(MetadataUpdated(known))

    def under_way(self) -> list[Flight]:
        return [flight for flight in self.broker.flights if flight.is_under_way]

    def _due(self) -> list[float]:
        due = [flight.due_s for flight in self.under_way()]
        due += [wire.muted_until_s for wire in self.wires.values()]
        if self.relay.deadline_s is not None:
            due.append(self.relay.deadline_s)
        return due

    # ---------------------------------------------------------------------------------------- the relay

    def handle(self, event: Event | MemoryNeeded) -> None:
        self.at += 1
        for command in self.relay.handle(event, self.now_s):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case OpenLink(link):
                wire = self.wires[link]
                assert not wire.is_open, "a link is opened that is open"
                assert not wire.is_opening, "a link is opened twice"
                self.wires[link] = Wire(is_opening=True, lost_at=wire.lost_at, closed_at=wire.closed_at)
            case Send(link, pieces):
                frame = b"".join(pieces)
                assert self.wires[link].is_open
                assert not any(flight.link == link for flight in self.under_way()), "two fetches on one connection"
                assert int.from_bytes(frame[:4]) == len(frame) - 4, "a fetcher sends one fetch at a time"
                judge.was_sent(self, self._take(link, frame))
                self.sent_at_once += 1
                assert self.sent_at_once <= _SENT_AT_ONCE, "fetch upon fetch, and no time passes"
            case CloseLink(link):
                assert self.limits.response_timeout_s is not None, "this broker never breaks the protocol"
                self._drop(link, seen=True)
                self.wires[link].closed_at = self.at
            case Reply(pieces, record):
                assert record is not None
                frame = joined(pieces)
                exchange, response, said = self.client.hear(frame, self.now_s)
                judge.was_delivered(record, len(frame), response)
                judge.was_answered(self, exchange, response, said)
                self.client.heed(exchange, said)
            case RefreshMetadata(topics):
                self.learning += 1
                self.asked_ids |= {UUID(bytes=topic) for topic in topics if isinstance(topic, bytes)}
            case EmitRecord():
                pass

    def _take(self, link: Link, frame: bytes) -> Flight:
        assert isinstance(link, FetcherId)
        broker = self.brokers[link.source.node_id]
        return broker.take(frame, link, self.at, self.now_s, self.known)

    def _drop(self, link: Link, *, seen: bool) -> None:
        wire = self.wires[link]
        wire.is_open = wire.is_opening = False
        assert isinstance(link, FetcherId)
        broker = self.brokers[link.source.node_id]
        for flight in self.under_way():
            if flight.link != link:
                continue
            flight.is_lost = True
            if flight.context is not None or (seen and not wire.is_deaf):
                if flight.context is None:
                    broker.open(flight, self.now_s)
                if flight.answer is None:
                    broker.look(flight, flight.due_s + self.now_s)
            else:
                self.ghosts.append(flight)

    def farewell(self) -> None:
        """The client goes, and every session that was heard of is closed."""
        _, farewell = self.relay.leave(self.now_s)
        for command in farewell:
            flight = self._take(command.fetcher, command.frame)
            broker = self.brokers[flight.node_id]
            broker.open(flight, self.now_s)
            broker.look(flight, self.now_s)
        for broker in self.brokers.values():
            left = set(broker.sessions._slots._held) & broker.heard
            assert not left, f"sessions {left} were left at broker {broker.node_id}"

    def _cluster(self, before: Topology) -> Topology:
        """Return the topology that the cluster reports now."""
        racks = {LEADER: "a", FOLLOWER: RACK, _ELSEWHERE: "c"}
        brokers = [
            SimpleNamespace(node_id=node_id, host="broker.internal", port=19000 + node_id, rack=rack)
            for node_id, rack in racks.items()
            if node_id != FOLLOWER or FOLLOWER not in self.gone
        ]
        topics = [
            SimpleNamespace(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=0,
                partitions=[self._partition(log) for log in topic.logs],
            )
            for topic in self.broker.topics.values()
        ]
        topics += [
            SimpleNamespace(name=None, topic_id=each, error_code=ErrorCode.unknown_topic_id, partitions=[])
            for each in self.asked_ids
            if each not in self.broker.names
        ]
        return before.with_metadata(SimpleNamespace(cluster_id="cluster", brokers=brokers, topics=topics))

    def _partition(self, log: Log) -> SimpleNamespace:
        replica = self.broker.replicas[log]
        others = [LEADER, _ELSEWHERE]
        return SimpleNamespace(
            partition_index=log.index,
            leader_id=LEADER if log.is_led_here else _ELSEWHERE,
            leader_epoch=log.epoch,
            replica_nodes=[*others, FOLLOWER] if replica.is_assigned else others,
            isr_nodes=[*others, FOLLOWER] if replica.is_assigned and replica.is_in_sync else others,
            offline_replicas=[FOLLOWER] if FOLLOWER in self.gone else [],
        )
