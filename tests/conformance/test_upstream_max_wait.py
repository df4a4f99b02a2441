"""Real clients whose fetches wait at real brokers for longer than they know: every record once and in order.

Each test has several clients read at the same time, through one Sidefetch and each on its own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.clients.conversation import Client, Task
from tests.conformance.judging import assert_repeats_only_what_was_not_committed, have_all, produce_until
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, by_partition, known_records
from tests.kafka.transactions import Transactors, committed_count, planned
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

Programs = Callable[[str], Client]

ALL_REPLICAS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""Three partitions, each led by another broker and kept by all."""
READERS: Final = ("java", "librdkafka", "kafka-python", "kafkajs")
BY_ASSIGNMENT: Final = ("java", "librdkafka", "kafka-python")
"""KafkaJS has groups only, and joins its own anew, from its last commit, whenever a leader has moved."""
OF_COMMITTED: Final = {3: ("java", "librdkafka", "aiokafka"), 1: ("kafkajs",)}
"""By producers: KafkaJS delivers aborted records if transactions overlap. kafka-python has no isolation."""
WAIT_MS: Final = 200
PARKED_S: Final = 1.0
"""The time after which a client's fetch waits at the broker beyond the client's own wait."""
STALLED_S: Final = 6.0
IDLE_PARTITIONS: Final = 30
IDLE_S: Final = 6.0


@pytest.fixture(scope="module")
def way(kafka: KafkaCluster) -> Iterator[str]:
    """Through a Sidefetch with the usual max wait upstream."""
    with Sidefetch(kafka.bootstrap) as sidefetch:
        yield sidefetch.bootstrap


@pytest.fixture
def _leaders_restored(admin: Admin) -> Iterator[None]:
    """Other tests rest on the leaders of their topics."""
    yield
    admin.restore_leaders()


def begin(
    programs: Programs, names: Iterable[str], way: str, topic: str, count: int, **more: object
) -> dict[str, Task]:
    """Have each of the clients read three partitions from the start."""
    settings: dict[str, object] = {"partitions": [0, 1, 2], "count": count, "wait_ms": WAIT_MS, **more}
    return {name: programs(name).begin("read", way, topic, client_id=name, **settings) for name in names}


def wait_for(readings: Mapping[str, Task], count: int) -> None:
    for reading in readings.values():
        reading.wait_for(count)


def assert_each_has_read(readings: Mapping[str, Task], expected: list[Record]) -> None:
    for name, reading in readings.items():
        assert by_partition(reading.wait()) == by_partition(expected), name


@pytest.mark.each_once
@pytest.mark.parametrize("producers", OF_COMMITTED)
def test_committed_records_equal_those_of_brokers_if_responses_end_in_transactions(
    programs: Programs, way: str, kafka: KafkaCluster, admin: Admin, producers: int
) -> None:
    topic = admin.create_topic(unique("transactions"), assignment=ALL_REPLICAS)
    readers, plan = OF_COMMITTED[producers], planned(15 + 15 * producers, partitions=3, producers=producers)
    half, count = len(plan) // 2, committed_count(plan)
    small = {"isolation": "read_committed", "chunk_bytes": 1_000, "max_bytes": 2_000}
    transactors = Transactors(kafka.bootstrap, topic, producers)

    transactors.carry_out(plan[:half])
    readings = begin(programs, readers, way, topic, count, **small)
    time.sleep(PARKED_S)
    transactors.carry_out(plan[half:])
    assert_each_has_read(readings, transactors.committed)
    direct = begin(programs, readers, kafka.bootstrap, topic, count, **small)

    assert len(transactors.committed) == count
    assert_each_has_read(direct, transactors.committed)


def test_all_of_a_recreated_topic_is_read_after_held_records_and_then_nothing_old(
    programs: Programs, way: str, admin: Admin
) -> None:
    topic = admin.create_topic(unique("remade"), assignment=ALL_REPLICAS)
    old = admin.produce_known(topic, 300, 3)
    new = [attrs.evolve(record, value=b"new") for record in known_records(60, 3)]

    readings = begin(programs, BY_ASSIGNMENT, way, topic, count=len(old) + 30 + len(new))
    wait_for(readings, len(old))
    time.sleep(PARKED_S)
    with ExitStack() as stopped:
        for name in readings:
            stopped.enter_context(programs(name).stopped())
        time.sleep(PARKED_S)
        old += admin.produce_known(topic, 30, 3, first=len(old))
        admin.delete_topic(topic)
        admin.create_topic(topic, assignment=ALL_REPLICAS)
        admin.produce(topic, new)

    for name, reading in readings.items():
        eventually(lambda reading=reading: have_all([reading], new), f"all new records at {name}")  # type: ignore[misc]
        for partition, records in by_partition(reading.records).items():
            of_old, of_new = (by_partition(each)[partition] for each in (old, new))
            assert records[-len(of_new) :] == of_new, name
            assert records[: -len(of_new)] == of_old[: len(records) - len(of_new)], name


def test_leaders_that_move_while_fetches_wait_with_them_cost_a_reader_nothing(
    programs: Programs, way: str, admin: Admin
) -> None:
    topic = admin.create_topic(unique("moved"), assignment=ALL_REPLICAS)
    produced = admin.produce_known(topic, 300, 3)

    readings = begin(programs, BY_ASSIGNMENT, way, topic, count=300 + 2 * 60)
    for move in (1, 2):
        wait_for(readings, len(produced))
        time.sleep(PARKED_S)
        for partition, replicas in enumerate(ALL_REPLICAS):
            admin.move_leader(topic, partition, replicas[move])
        produced += admin.produce_known(topic, 60, 3, first=len(produced))

    assert_each_has_read(readings, produced)


@pytest.mark.usefixtures("_leaders_restored")
def test_a_broker_that_stalls_with_its_connections_up_costs_a_reader_nothing(
    programs: Programs, way: str, kafka: KafkaCluster, admin: Admin
) -> None:
    """It stalls for less than one Sidefetch would wait for it, and for longer than the other."""
    topic = admin.create_topic(unique("stalled"), assignment=ALL_REPLICAS)
    produced = admin.produce_known(topic, 300, 3)

    with (
        Sidefetch(kafka.bootstrap, options=("--upstream-max-wait", "2s")) as hasty,
        Client("librdkafka") as one,
        Client("kafka-python") as other,
    ):
        count = 300 + 2 * 60
        readings = begin(programs, BY_ASSIGNMENT, way, topic, count)
        more = {"librdkafka": one, "kafka-python": other}
        for name, reading in begin(more.__getitem__, more, hasty.bootstrap, topic, count).items():
            readings[f"{name} of the hasty"] = reading
        wait_for(readings, len(produced))
        time.sleep(PARKED_S)
        with ThreadPoolExecutor(1) as aside:
            with kafka.stalled(2):
                producing = aside.submit(admin.produce_known, topic, 60, 3, first=len(produced))
                time.sleep(STALLED_S)
            produced += producing.result()
        wait_for(readings, len(produced))
        admin.wait_in_sync(topic)
        produced += admin.produce_known(topic, 60, 3, first=len(produced))
        assert_each_has_read(readings, produced)


def test_a_consumer_that_pauses_for_longer_than_the_max_wait_misses_nothing(
    programs: Programs, kafka: KafkaCluster, admin: Admin
) -> None:
    topic = admin.create_topic(unique("paused"), assignment=ALL_REPLICAS)
    produced = admin.produce_known(topic, 300, 3)

    with Sidefetch(kafka.bootstrap, options=("--upstream-max-wait", "1s")) as sidefetch, ExitStack() as leaving:
        consumer = consumer_of(sidefetch.bootstrap, topic)
        leaving.callback(consumer.close)
        got: list[int] = []
        # kafkajs reads in a group, which must not expel it while it is stopped, also on a slow machine.
        readings = begin(programs, READERS, sidefetch.bootstrap, topic, count=300 + 3 * 30, session_ms=60_000)
        wait_for(readings, len(produced))
        eventually(lambda: take(consumer, got) == 100, "the first records of partition 0")
        consumer.pause([TopicPartition(topic, 0)])
        with ExitStack() as stopped:
            for name in readings:
                stopped.enter_context(programs(name).stopped())
            for pause_s in (0.3, 2.0):
                time.sleep(pause_s)
                produced += admin.produce_known(topic, 30, 3, first=len(produced))
                assert take(consumer, got) == 100
        consumer.resume([TopicPartition(topic, 0)])
        produced += admin.produce_known(topic, 30, 3, first=len(produced))
        assert_each_has_read(readings, produced)
        eventually(lambda: take(consumer, got) >= 130, "the last records of partition 0")

    assert got == list(range(130))


@pytest.mark.long
def test_repeated_rebalances_of_a_group_lose_nothing_and_repeat_only_uncommitted(way: str, admin: Admin) -> None:
    topic = admin.create_topic(unique("shared"), assignment=ALL_REPLICAS * 2)
    group = unique("group")
    produced = admin.produce_known(topic, 60, 6)
    tasks: list[Task] = []

    with Client("librdkafka") as one, Client("kafka-python") as other:
        for member in (one, other, one, other):
            tasks.append(member.begin("group", way, topic, group=group, count=None))
            produced += produce_until(admin, topic, produced, tasks[-1], 30)
            time.sleep(PARKED_S)
            produced += admin.produce_known(topic, 60, 6, first=len(produced))
            if len(tasks) > 1:
                tasks[-2].stop()
        eventually(lambda: have_all(tasks, produced), "all records read by someone", timeout_s=60)
        tasks[-1].stop()

    assert_repeats_only_what_was_not_committed(tasks)


def test_idle_polls_do_not_reach_brokers_and_new_records_arrive_within_1_s(
    programs: Programs, kafka: KafkaCluster, admin: Admin
) -> None:
    topic, produced = admin.filled_topic("idle", IDLE_PARTITIONS)

    with kafka.tap() as tap, Sidefetch(tap.bootstrap) as sidefetch:
        readings = begin(
            programs,
            READERS,
            sidefetch.bootstrap,
            topic,
            count=len(produced) + 1,
            partitions=list(range(IDLE_PARTITIONS)),
        )
        wait_for(readings, len(produced))
        eventually(lambda: len(waiting(tap.fetches)) == len(READERS) * len(kafka.brokers), "fetches that wait")
        tap.forget()
        time.sleep(IDLE_S)
        idle = list(tap.fetches)
        produced += admin.produce_known(topic, 1, IDLE_PARTITIONS, first=1_020)
        written_s = time.monotonic()
        assert_each_has_read(readings, produced)
        took_s = time.monotonic() - written_s

    for name in READERS:
        for broker in kafka.brokers.values():
            asked = [fetch for fetch in idle if (fetch.client_id, fetch.port) == (name, broker.tap_port)]
            assert len(asked) <= 2, f"{name} at {broker.node_id}"
    assert took_s < 1


def waiting(fetches: list[SeenFetch]) -> set[tuple[str | None, int]]:
    """Return the clients and tap ports of the fetches that wait within a session."""
    return {(fetch.client_id, fetch.port) for fetch in fetches if fetch.is_incremental and not fetch.response_bytes}


def consumer_of(way: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": way,
            "group.id": "unused",
            "fetch.wait.max.ms": WAIT_MS,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    return consumer


def take(consumer: Consumer, got: list[int]) -> int:
    """Take the new records into *got*, the offsets of partition 0; return their number."""
    for message in consumer.consume(500, timeout=0.3):
        assert message.error() is None
        if message.partition() == 0:
            offset = message.offset()
            assert offset is not None
            got.append(offset)
    return len(got)
