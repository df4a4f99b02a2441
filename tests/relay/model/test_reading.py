"""One client connection between a client and a broker that misbehave, each in every way that it can.

``judge`` has the invariants. In the end, without further accidents, the client has read everything, in a bounded
number of exchanges.
"""

from typing import Final, Literal, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.cluster.routing import Selector
from proxy.errors import ErrorCode
from proxy.fetch.commands import FetcherId
from proxy.wire.fetch import FetchOptions
from tests.relay.model import judge
from tests.relay.model.broker import FOLLOWER, FOLLOWERS_VERSION, LEADER, RACK, ModelBroker, ModelFollower
from tests.relay.model.client import ModelClient, Name
from tests.relay.model.logs import Kind
from tests.relay.model.world import FETCHER_IDS, NO_RACK, Racks, World
from tests.strategies import steps

TOPICS: Final = {"a": 3, "b": 2}
NAMES: Final = [(topic, index) for topic, number in TOPICS.items() for index in range(number)]
ALL: Final = 0xFFFF
PRODUCERS: Final = (7, 8)

Whim = Literal["ask no more", "ask later", "refresh metadata"]
Fate = Literal[
    "replicated",
    "records deleted",
    "broken",
    "mended",
    "truncated",
    "led by another",
    "created anew",
]
FollowersFate = Literal[
    "catches up",
    "fetches a batch",
    "falls behind",
    "leaves the in-sync set",
    "rejoins",
    "deletes records",
    "broken",
    "mended",
    "reassigned",
    "assigned again",
]
Accident = Literal[
    "answers are late",
    "the broker looks at nothing",
    "a link is lost on its way back",
    "a link is lost on its way there",
    "lost requests arrive",
    "metadata is late",
    "metadata is stale",
    "links open slowly",
    "sessions are evicted",
    "throttled for a moment",
    "throttled for seconds",
    "topology sent to all",
    "held data is needed elsewhere",
    "memory is used up",
    "drained",
    "a broker is gone",
    "the leader names followers that have left",
    "the follower names replicas itself",
]
Polls = tuple[int, ...]
ERRORS: Final = [
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_topic_id,
    ErrorCode.kafka_storage_error,
]

some_name = st.sampled_from(NAMES)
some_link = st.sampled_from(FETCHER_IDS)
mostly = st.sampled_from([True, True, False])
some_polls = st.lists(st.sampled_from([0, 20, 500, 30_000]), max_size=3).map(tuple)
"""Fetches of a client that is well, by their max wait."""
some_transactions: st.SearchStrategy[tuple[Kind, ...]] = st.sampled_from(
    [
        ("transactional",),
        ("transactional", "plain", "commit"),
        ("transactional", "transactional", "abort"),
        ("transactional", "abort", "transactional", "commit"),
        ("abort",),
        ("commit",),
    ]
)
some_heeds = st.one_of(st.just(ALL), st.integers(0, ALL))
some_versions = st.sampled_from([(4, 18), (4, 11), (11, 18), (11, 12), (12, 18), (12, 13), (13, 18), (17, 18)])
some_followers_versions = st.sampled_from([None, None, None, None, None, 10, 12, 18])
"""None for the leader's."""
some_racks = st.sampled_from(
    [
        NO_RACK,
        Racks(ours=RACK),
        Racks(ours=RACK),
        Racks(ours=RACK),
        Racks(ours=RACK, is_slow=True),
        Racks(ours=RACK, selector=Selector.RACK_AWARE, leader_selects=False),
        Racks(ours=RACK, selector=Selector.RACK_AWARE, leader_selects=False),
        Racks(ours=RACK, selector=Selector.RACK_AWARE),
        Racks(clients=RACK),
        Racks(ours=RACK, clients=RACK),
    ]
)
some_waits_ms = st.sampled_from([0, 20, 500, 30_000])
some_min_bytes = st.sampled_from([1, 1, 1, 1 << 20])
some_max_bytes = st.sampled_from([1 << 20, 150])
some_part_bytes = st.sampled_from([1 << 20, 1 << 20, 100])


class Reading(RuleBasedStateMachine):
    @initialize(
        versions=some_versions,
        isolation=st.integers(0, 1),
        knows_epochs=st.booleans(),
        has_sessions=st.booleans(),
        slots=st.sampled_from([10, 10, 1, 0]),
        assigned=st.lists(some_name, min_size=1, unique=True),
        filled=st.lists(some_name, unique=True),
        may_drain=st.sampled_from([False] * 7 + [True]),
        racks=some_racks,
        followers_version=some_followers_versions,
        reads_ahead=mostly,
    )
    def begin(
        self,
        versions: tuple[int, int],
        isolation: int,
        knows_epochs: bool,
        has_sessions: bool,
        slots: int,
        assigned: list[Name],
        filled: list[Name],
        may_drain: bool,
        racks: Racks,
        followers_version: int | None,
        reads_ahead: bool,
    ) -> None:
        if racks.clients and versions[0] < FOLLOWERS_VERSION:
            racks = NO_RACK
        self.may_drain = may_drain
        self.broker = ModelBroker(versions[1], TOPICS, slots)
        self.broker.selects, self.broker.is_slow_to_redirect = racks.leader_selects, racks.is_slow
        self.follower = ModelFollower(followers_version or versions[1], self.broker, slots)
        for replica in self.broker.replicas.values():
            replica.follow()
        self.client = ModelClient(
            versions[0], isolation, knows_epochs=knows_epochs, has_sessions=has_sessions, broker=self.broker
        )
        self.world = World(self.broker, self.follower, self.client, racks, reads_ahead=reads_ahead)
        for name in filled:
            self.produce(name, 2, True)
        for name in assigned:
            self.client.assign(name, 0, 1 << 20)

    # -------------------------------------------------------------------------------------- the client

    @precondition(lambda self: self.client.positions and self.client.may_ask)
    @rule(
        wait_ms=some_waits_ms,
        min_bytes=some_min_bytes,
        max_bytes=some_max_bytes,
        heeds=some_heeds,
        then_s=st.sampled_from([0, 0.01, 0.1, 0.6]),
    )
    def poll(self, wait_ms: int, min_bytes: int, max_bytes: int, heeds: int, then_s: float) -> None:
        self.fetch(wait_ms, min_bytes, max_bytes, heeds)
        self.world.pass_time(then_s)

    @precondition(lambda self: self.client.positions and not self.client.waiting)
    @rule(times=st.integers(1, 6), wait_ms=some_waits_ms, idle_s=st.sampled_from([0, 0, 0.1]))
    def poll_on(self, times: int, wait_ms: int, idle_s: float) -> None:
        """Poll as a healthy client does."""
        for _ in range(times):
            self.go_on(wait_ms, idle_s)

    def go_on(self, wait_ms: int, idle_s: float = 0.0) -> None:
        if self.client.positions and not self.client.waiting:
            self.fetch(wait_ms, 1, 1 << 20, ALL)
            self.world.pass_time(min(wait_ms / 1000, 1))
            self.world.pass_time(idle_s)

    def fetch(self, wait_ms: int, min_bytes: int, max_bytes: int, heeds: int) -> None:
        rack, isolation = self.world.racks.clients, self.client.isolation
        self.world.fetch(FetchOptions(wait_ms, min_bytes, max_bytes, isolation, rack), heeds)

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 1, 3, 11, 25]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(name=some_name, back=st.integers(0, 5), max_bytes=some_part_bytes)
    def seek(self, name: Name, back: int, max_bytes: int) -> None:
        """Ask for a partition from now on, or from somewhere else, after all others."""
        log = self.broker.log(name)
        self.client.assign(name, max(log.start, log.bound(self.client.isolation) - back), max_bytes)

    @rule(whim=st.sampled_from(get_args(Whim)), name=some_name)
    def change_mind(self, whim: Whim, name: Name) -> None:
        positions = self.client.positions
        match whim:
            case "ask no more":
                positions.pop(name, None)
            case "ask later":
                if name in positions:
                    positions[name] = positions.pop(name)
            case "refresh metadata":
                self.client.refresh()

    # ---------------------------------------------------------------------------------------- the logs

    @rule(then=some_polls, name=some_name, batches=st.integers(1, 3), replicated=mostly, heard=mostly)
    def produce(self, name: Name, batches: int, replicated: bool, heard: bool = True, then: Polls = ()) -> None:
        log = self.broker.log(name)
        for number in range(batches):
            self.broker.append(log, "plain", number + 1)
        if replicated:
            self.broker.replicate(log, hears=heard)
        self.world.settle()
        for wait_ms in then:
            self.go_on(wait_ms)

    @rule(
        then=some_polls,
        name=some_name,
        producer=st.sampled_from(PRODUCERS),
        what=some_transactions,
        replicated=mostly,
        heard=mostly,
    )
    def transact(
        self, name: Name, producer: int, what: tuple[Kind, ...], replicated: bool, heard: bool, then: Polls
    ) -> None:
        log = self.broker.log(name)
        for kind in what:
            is_open = any(each.producer == producer and each.last is None for each in log.transactions())
            if kind in ("plain", "transactional") or is_open:
                self.broker.append(log, kind, 1, -1 if kind == "plain" else producer)
        if replicated:
            self.broker.replicate(log, hears=heard)
        self.world.settle()
        for wait_ms in then:
            self.go_on(wait_ms)

    @rule(then=some_polls, what=st.sampled_from(get_args(Fate)), name=some_name, number=st.integers(0, 6))
    def befall(self, what: Fate, name: Name, number: int, then: Polls) -> None:
        """Something happens to a partition, or to its topic."""
        log = self.broker.log(name)
        match what:
            case "replicated":
                self.broker.replicate(log)
            case "records deleted":
                log.delete_before(log.last_stable - number)
            case "broken":
                log.error = ERRORS[number]
            case "mended":
                log.error = 0
            case "truncated":
                log.truncate(log.end - number)
                self.broker.replicas[log].is_in_sync = False
            case "led by another":
                log.is_led_here = not log.is_led_here
                log.begin_epoch()
            case "created anew":
                self.broker.create(name[0], TOPICS[name[0]])
                for index in range(TOPICS[name[0]] if number % 2 else 0):
                    self.produce((name[0], index), number, True)
        self.world.settle()
        for wait_ms in then:
            self.go_on(wait_ms)

    @rule(then=some_polls, what=st.sampled_from(get_args(FollowersFate)), name=some_name, number=st.integers(0, 6))
    def befall_follower(self, what: FollowersFate, name: Name, number: int, then: Polls) -> None:
        """Change a follower's replica of a partition."""
        log = self.broker.log(name)
        replica = self.broker.replicas[log]
        can_fetch = replica.is_assigned and not replica.error
        match what:
            case "catches up" | "rejoins" if can_fetch:
                replica.follow(hears=number < 3)
                replica.is_in_sync |= what == "rejoins"
            case "fetches a batch" if can_fetch:
                replica.follow(most=1)
            case "falls behind":
                replica.is_in_sync = False
                self.produce(name, 1, True)
            case "leaves the in-sync set":
                replica.is_in_sync = False
            case "deletes records":
                replica.delete_before(replica.last_stable - number)
            case "broken":
                replica.error, replica.is_in_sync = ERRORS[number], False
            case "mended":
                replica.error = 0
            case "reassigned":
                replica.is_assigned = replica.is_in_sync = replica.is_hosted = False
                replica.batches.clear()
                replica.start = replica.end = replica.high_watermark = 0
            case "assigned again":
                replica.is_assigned = True
        self.world.settle()
        for wait_ms in then:
            self.go_on(wait_ms)

    # ----------------------------------------------------------------------------------------- accidents

    @rule(
        then=some_polls,
        what=st.sampled_from(get_args(Accident)),
        link=some_link,
        lasts_s=st.sampled_from([0.05, 0.4, 3.0, 20.0]),
    )
    def suffer(self, what: Accident, link: FetcherId, lasts_s: float, then: Polls) -> None:
        world, wire = self.world, self.world.wires[link]
        broker = world.brokers[link.source.node_id]
        world.trouble(lasts_s)
        match what:
            case "answers are late":
                wire.is_late = True
            case "the broker looks at nothing":
                wire.is_deaf = True
            case "a link is lost on its way back":
                world.lose(link, seen=True)
            case "a link is lost on its way there":
                world.lose(link, seen=False)
            case "lost requests arrive":
                world.haunt()
            case "metadata is late":
                world.is_metadata_late = True
            case "metadata is stale":
                world.is_metadata_stale = True
            case "links open slowly":
                world.is_opening_slow = True
            case "sessions are evicted":
                broker.evict()
            case "throttled for a moment":
                broker.throttle_ms = 50
            case "throttled for seconds":
                broker.throttle_ms = 2000
            case "topology sent to all":
                world.update_topology()
            case "held data is needed elsewhere":
                world.need_memory()
            case "memory is used up":
                wire.is_starved = True
            case "drained":
                if self.may_drain:
                    world.drain()
            case "a broker is gone":
                world.go_away(link.source.node_id)
            case "the leader names followers that have left":
                self.broker.is_mistaken = not self.broker.is_mistaken
            case "the follower names replicas itself":
                self.follower.sends_back = not self.follower.sends_back
        for wait_ms in then:
            self.go_on(wait_ms)

    # -------------------------------------------------------------------------------------- what holds

    @invariant()
    def nothing_stalls(self) -> None:
        judge.nothing_stalls(self.world)

    @invariant()
    def an_accident_costs_one_refusal_at_most(self) -> None:
        for broker in self.world.brokers.values():
            assert broker.refusals <= broker.accidents

    def teardown(self) -> None:
        """With the accidents over, everything is read, and then nothing is new."""
        if not hasattr(self, "world"):
            return
        world, client = self.world, self.client
        for log in self.broker.logs():
            log.error, log.is_led_here = 0, True
            for each in log.transactions():
                if each.last is None:
                    self.broker.append(log, "abort", 1, each.producer)
            self.broker.replicate(log)
            replica = self.broker.replicas[log]
            replica.error, replica.is_assigned, replica.is_in_sync = 0, True, True
            replica.follow()
        self.broker.is_mistaken = self.broker.is_slow_to_redirect = self.follower.sends_back = False
        self.broker.selects &= not world.racks.clients
        world.heal()
        world.update_topology()
        client.refresh()
        world.pass_time(100)
        assert not client.waiting
        world.is_draining = False
        if not client.positions:
            client.assign(NAMES[0], 0, 1 << 20)
        batches = sum(len(log.batches) for log in self.broker.logs())
        for _ in range(batches + 4 * len(NAMES)):
            self.fetch(100, 1, 150, ALL)
            world.pass_time(1)
            assert not client.waiting
        behind = {name for name, each in client.positions.items() if each.offset != self.broker.log(name).end}
        assert not behind, f"{behind} are never read to their ends"
        if not self.may_drain:
            self.reads_come_home()
        world.farewell()

    def reads_come_home(self) -> None:
        """Check that reads return to the follower, and wait there, once every back-off is over."""
        self.client.refresh()
        for _ in range(6):
            self.world.pass_time(100)
            self.fetch(10_000, 1, 150, ALL)
            self.world.pass_time(10)
        self.fetch(30_000, 1, 150, ALL)
        self.world.pass_time(0.1)
        waiting = {
            self.broker.name_of(key[0], flight.meant): flight.node_id
            for flight in self.world.under_way()
            for key in flight.covers
        }
        node_id = FOLLOWER if self.world.is_follower_read else LEADER
        topics = {topic for topic, _ in self.client.positions}
        assert waiting == dict.fromkeys(topics, node_id), f"in the end, brokers are asked for {waiting}"
        self.world.pass_time(100)


TestReading = Reading.TestCase
TestReading.settings = steps(50, runs=150)
