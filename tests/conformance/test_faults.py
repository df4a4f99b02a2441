"""Clusters that misbehave under a reader: nothing is lost, nothing comes twice, nothing comes out of order."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.clients.conversation import Client, Task
from tests.conformance.judging import assert_repeats_only_what_was_not_committed, have_all, produce_until
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, by_partition, known_records
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

FEW_SLOTS = 16
"""Session slots of a broker: two in each of its eight shards, from which followers evict."""
CROWD = 130
ALL_REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""Three partitions, each led by another broker and kept by all."""


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def fragile(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A cluster to be broken, of this module alone; each test leaves it whole."""
    with KafkaCluster(request.param, settings={"max.incremental.fetch.session.cache.slots": FEW_SLOTS}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _whole_again(fragile: KafkaCluster) -> Iterator[None]:
    """One failed test must not fail the rest."""
    yield
    for node_id in set(fragile.brokers) - set(fragile.running):
        fragile.restart(node_id)


@pytest.fixture(scope="module")
def operator(fragile: KafkaCluster) -> Admin:
    return Admin(fragile)


@pytest.fixture(scope="module")
def way(fragile: KafkaCluster) -> Iterator[str]:
    """Through Sidefetch only: that the tests hold directly too took as long again and said nothing of Sidefetch."""
    with Sidefetch(fragile.bootstrap) as sidefetch:
        yield sidefetch.bootstrap


@pytest.fixture(params=["librdkafka", "kafka-python"])
def reader(request: pytest.FixtureRequest, programs: Callable[[str], Client]) -> Client:
    return programs(request.param)


def read_by_assignment(reader: Client, way: str, topic: str, count: int | None) -> Task:
    return reader.begin("read", way, topic, partitions=[0, 1, 2], count=count, wait_ms=200)


def test_a_broker_killed_and_restarted_costs_a_reader_nothing(
    reader: Client, way: str, fragile: KafkaCluster, operator: Admin
) -> None:
    topic = operator.create_topic(unique("killed"), assignment=ALL_REPLICAS)
    produced = operator.produce_known(topic, 9_000, 3)

    reading = read_by_assignment(reader, way, topic, 9_000 + 600)
    reading.wait_for(1_000)
    fragile.kill(2)
    produced += operator.produce_known(topic, 300, 3, first=9_000)
    reading.wait_for(9_000 + 300)
    fragile.restart(2)
    operator.wait_in_sync(topic)
    operator.move_leader(topic, 1, 2)
    produced += operator.produce_known(topic, 300, 3, first=9_300)
    reading.wait()

    assert by_partition(reading.records) == by_partition(produced)


def test_leaders_that_move_cost_a_reader_nothing(reader: Client, way: str, operator: Admin) -> None:
    topic = operator.create_topic(unique("moved"), assignment=ALL_REPLICAS)
    produced = operator.produce_known(topic, 9_000, 3)

    reading = read_by_assignment(reader, way, topic, 9_000 + 900)
    reading.wait_for(1_000)
    for move in range(3):
        for partition in range(3):
            operator.move_leader(topic, partition, ALL_REPLICAS[partition][(move + 1) % 3])
        produced += operator.produce_known(topic, 300, 3, first=9_000 + 300 * move)
        reading.wait_for(len(produced))
    reading.wait()

    assert by_partition(reading.records) == by_partition(produced)


def test_a_topic_deleted_and_made_again_is_read_from_its_new_beginning(
    reader: Client, way: str, operator: Admin
) -> None:
    topic = operator.create_topic(unique("remade"), assignment=ALL_REPLICAS)
    old = operator.produce_known(topic, 300, 3)

    reading = read_by_assignment(reader, way, topic, 300 + 60)
    reading.wait_for(300)
    operator.delete_topic(topic)
    operator.create_topic(topic, assignment=ALL_REPLICAS)
    new = operator.produce_known(topic, 60, 3)
    reading.wait()

    assert by_partition(reading.records[:300]) == by_partition(old)
    assert by_partition(reading.records[300:]) == by_partition(new)


def test_buffered_records_lost_in_unclean_election_are_not_mixed_with_new_records(
    reader: Client, way: str, fragile: KafkaCluster, operator: Admin
) -> None:
    unclean = {"unclean.leader.election.enable": "true"}
    topic = operator.create_topic(unique("unclean"), assignment=[[1, 2]] * 3, config=unclean)
    kept = operator.produce_known(topic, 300, 3)

    reading = read_by_assignment(reader, way, topic, None)
    reading.wait_for(300)
    fragile.stop(2)
    with reader.stopped():
        taken_back = operator.produce_known(topic, 60, 3, first=300)
        fragile.kill(1)
        fragile.restart(2)
        eventually(lambda: set(operator.leaders(topic).values()) == {2}, "the follower that missed some as leader")
        new = [attrs.evolve(record, value=b"new") for record in known_records(120, 3, first=300)]
        operator.produce(topic, new)
    eventually(lambda: have_all([reading], new[-3:]), "the last records", timeout_s=60)
    reading.stop()

    was, became = (by_partition([*kept, *later]) for later in (taken_back, new))
    for partition, records in by_partition(reading.records).items():
        pairs = enumerate(zip(records, was[partition], strict=False))
        turn = next((index for index, (got, old) in pairs if got != old), len(was[partition]))
        assert records[turn].offset <= turn
        assert records[turn:] == became[partition][records[turn].offset :]


@pytest.mark.long
def test_rebalances_and_crash_of_a_group_lose_nothing_and_repeat_only_uncommitted(
    way: str, operator: Admin
) -> None:
    topic = operator.create_topic(unique("shared"), assignment=ALL_REPLICAS * 2)
    group = unique("group")
    produced = operator.produce_known(topic, 600, 6)

    with Client("librdkafka") as first, Client("kafka-python") as second, Client("librdkafka") as third:
        tasks = [first.begin("group", way, topic, group=group, count=None)]
        tasks[0].wait_for(600)
        tasks.append(second.begin("group", way, topic, group=group, count=None))
        produced += produce_until(operator, topic, produced, tasks[1], 100)
        tasks[0].stop()
        produced += produce_until(operator, topic, produced, tasks[1], len(tasks[1].records) + 300)
        second.kill()
        tasks[1].take_what_is_there()
        tasks.append(third.begin("group", way, topic, group=group, count=None))
        produced += produce_until(operator, topic, produced, tasks[2], 300)
        eventually(lambda: have_all(tasks, produced), "all records read by someone")
        tasks[2].stop()

    assert have_all(tasks, produced)
    assert_repeats_only_what_was_not_committed(tasks)


def test_a_group_outlives_its_coordinator(reader: Client, way: str, fragile: KafkaCluster, operator: Admin) -> None:
    topic = operator.create_topic(unique("led"), assignment=ALL_REPLICAS)
    group = unique("group")
    produced = operator.produce_known(topic, 300, 3)
    coordinator = operator.coordinator(group)

    reading = reader.begin("group", way, topic, group=group, count=None)
    reading.wait_for(300)
    fragile.kill(coordinator)
    produced += operator.produce_known(topic, 300, 3, first=300)
    eventually(lambda: have_all([reading], produced), "all records read", timeout_s=60)
    fragile.restart(coordinator)
    operator.wait_in_sync(topic)
    reading.stop()
    again = reader.begin("group", way, topic, group=group, count=None)
    more = operator.produce_known(topic, 30, 3, first=600)
    eventually(lambda: have_all([again], more), "what came later", timeout_s=60)
    again.stop()

    assert set(reading.records) == set(produced)
    unexpected = set(again.records) - set(more)
    assert all(record.offset >= reading.committed.get(record.partition, 0) for record in unexpected)


@pytest.mark.long
def test_a_crowd_of_sessions_at_a_broker_with_few_slots_reads_everything_once(
    fragile: KafkaCluster, operator: Admin
) -> None:
    topic = operator.create_topic(unique("crowded"), assignment=[[1], [1], [1]])
    produced = operator.produce_known(topic, 60, 3)
    read: list[list[Record]] = [[] for _ in range(CROWD)]
    with fragile.tap() as tap, Sidefetch(tap.bootstrap) as sidefetch, ExitStack() as leaving:
        consumers = [_member_of_the_crowd(sidefetch.bootstrap, topic, number) for number in range(CROWD)]
        for consumer in consumers:
            leaving.callback(consumer.close)
        eventually(lambda: _poll_all(consumers, read) == 60, "the first records at all of the crowd", timeout_s=90)
        for _ in range(20):  # idle fetches, each within a session or refused one
            _poll_all(consumers, read)
        produced += operator.produce_known(topic, 60, 3, first=60)
        eventually(lambda: _poll_all(consumers, read) == 120, "the last records at all of the crowd", timeout_s=90)
        asked = [fetch for fetch in tap.answered() if (fetch.session_id, fetch.epoch) == (0, 0)]

    assert sum(fetch.granted_id == 0 for fetch in asked) >= CROWD - FEW_SLOTS
    assert any(fetch.granted_id != 0 for fetch in asked)
    expected = {
        partition: [each.offset for each in records] for partition, records in by_partition(produced).items()
    }
    for records in read:
        assert {
            partition: [each.offset for each in got] for partition, got in by_partition(records).items()
        } == expected


def _member_of_the_crowd(way: str, topic: str, number: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": way,
            "group.id": f"crowd-{number}",
            "client.id": f"crowd-{number}",
            "fetch.wait.max.ms": 500,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    return consumer


def _poll_all(consumers: list[Consumer], read: list[list[Record]]) -> int:
    """Take the new records of each consumer; return how many the slowest has."""
    for consumer, records in zip(consumers, read, strict=True):
        for message in consumer.consume(200, timeout=0.005):
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                records.append(Record(partition, offset, 0, None, None))
    return min(map(len, read))
