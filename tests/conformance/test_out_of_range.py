"""Offsets that a replica does not have: only the leader's error is delivered, a follower's is not.

KIP-392 has four cases of an offset that a follower does not have. The place of each test:

===========  ===================================================  ================================================
case         situation                                            test
===========  ===================================================  ================================================
uncommitted  in the follower's log, above the high watermark      here: without a selector a follower learns of a
             that it knows: its response is empty                 high watermark by its next fetch, which may wait
unavailable  committed, and not in the follower's log yet: it     scripted (``relay/test_closest_replica``): real
             answers 1                                            leaders name no follower that is behind, and one
                                                                  that falls behind loses no records that it had
too small    below the start of the follower's log: it answers    here, both: retention runs at the follower only;
             1, and the leader may still have it, or not          and records are deleted at the leader
too large    beyond the leader's end: an unclean election has     here, both: the client fetches while the new log
             removed records                                      is shorter, and when it has grown past its offset
===========  ===================================================  ================================================

Another scripted test has a leader and a follower that send a client to each other for ever: real leaders end that
within milliseconds, when the follower has reported its log start.

The clients are old: they send no epochs, and reset to the start on error 1. So their records show their errors:
without error 1 every record once, with it those of the start again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.conversation import Client, Task
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import record_bytes_out
from tests.kafka.records import Record, by_partition, known_records, offset_runs
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

Programs = Callable[[str], Client]

LOCAL: Final = 1
RACK: Final = "a"
LEADER: Final = 2
READERS: Final = ("java-0.10.2.2", "kafka-python")
HEADLESS: Final = ("java-0.10.2.2",)
COUNT: Final = 1_500
MORE: Final = 60
ENDLESS: Final = 1_000_000
"""More records than there are: a program that is still at it is started anew for the next test."""
SLOWLY: Final = {"wait_ms": 200, "chunk_bytes": 1_000, "max_bytes": 2_000}
"""So that a client that is stopped has most of it before it."""
SOME: Final = 30
LEARNS_AFTER_S: Final = 2.0
"""A follower learns of a new high watermark so much later."""
LONG_MS: Final = 3_600_000
A_DAY_MS: Final = 86_400_000

_RETENTION: Final = {
    LOCAL: {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300},
    **{node: {"log.retention.check.interval.ms": LONG_MS, "log.initial.task.delay.ms": LONG_MS} for node in (2, 3)},
}
"""By broker: old records are deleted at the follower at once, and stay at leaders."""


@attrs.frozen
class Way:
    """Brokers, and how clients come to them."""

    cluster: KafkaCluster
    operator: Admin
    bootstrap: str


def _through(cluster: KafkaCluster, programs: Programs, *options: str) -> Iterator[Way]:
    with Sidefetch(cluster.bootstrap, options=("--rack", RACK, "--upstream-max-wait", "2s", *options)) as sidefetch:
        yield Way(cluster, Admin(cluster), sidefetch.bootstrap)
        for name in READERS:
            programs(name).kill()  # they would go on


@pytest.fixture(scope="module")
def by_the_leaders(programs: Programs) -> Iterator[Way]:
    """Leaders name the replica to read from."""
    with KafkaCluster("4.3.1", of_broker=_RETENTION) as cluster:
        yield from _through(cluster, programs)


@pytest.fixture(scope="module")
def by_itself(programs: Programs) -> Iterator[Way]:
    """Let Sidefetch select replicas, on a cluster whose followers learn the high watermark late."""
    late = {"replica.selector.class": None, "replica.fetch.wait.max.ms": round(LEARNS_AFTER_S * 1000)}
    with KafkaCluster("4.3.1", settings=late, of_broker=_RETENTION) as cluster:
        yield from _through(cluster, programs, "--replica-selector", "rack-aware")


@pytest.fixture(params=["by_the_leaders", "by_itself"])
def way(request: pytest.FixtureRequest) -> Way:
    way: Way = request.getfixturevalue(request.param)
    return way


def read(reader: Client, way: Way, topic: str, **how: object) -> Task:
    return reader.begin("read", way.bootstrap, topic, partitions=[0, 1, 2], count=ENDLESS, **how)


def seen(name: str, records: list[Record]) -> dict[int, list[Record]]:
    """*records*, as the client of that name has them."""
    return by_partition([attrs.evolve(each, headers=()) for each in records] if name in HEADLESS else records)


def test_records_deleted_only_at_follower_are_read_from_leader(way: Way, programs: Programs) -> None:
    topic = way.operator.create_topic(unique("too-small"), assignment=[[LEADER, LOCAL]] * 3)
    produced = way.operator.produce_known(topic, COUNT, 3)

    tasks = {name: read(programs(name), way, topic, **SLOWLY) for name in READERS}
    for task in tasks.values():
        task.wait_for(SOME)
    with ExitStack() as stopped:
        for name in READERS:
            stopped.enter_context(programs(name).stopped())
        way.operator.configure_topic(topic, {"retention.ms": str(A_DAY_MS)})
        end = COUNT // 3
        eventually(
            lambda: all(way.operator.log_at(topic, each, LOCAL, end).start == end for each in range(3)),
            "nothing left at the follower",
        )
        before = record_bytes_out(way.cluster, topic)
    for task in tasks.values():
        task.wait_for(COUNT)
    after = record_bytes_out(way.cluster, topic)

    assert before[LOCAL] > 0
    assert before[LEADER] == 0
    assert after[LEADER] > 0
    for name, task in tasks.items():
        assert by_partition(task.records) == seen(name, produced), name


def test_records_deleted_at_leader_are_reported_out_of_range(by_the_leaders: Way, programs: Programs) -> None:
    way = by_the_leaders
    topic = way.operator.create_topic(unique("deleted"), assignment=[[LEADER, LOCAL]] * 3)
    produced = seen("", way.operator.produce_known(topic, COUNT, 3))
    last = COUNT // 3 - 10

    tasks = {name: read(programs(name), way, topic, **SLOWLY) for name in READERS}
    for task in tasks.values():
        task.wait_for(SOME)
    with ExitStack() as stopped:
        for name in READERS:
            stopped.enter_context(programs(name).stopped())
        for partition in range(3):
            way.operator.delete_records(topic, partition, before=last)
    for name, task in tasks.items():
        eventually(lambda task=task: _has(task, 3, COUNT // 3 - 1), f"the last records at {name}")  # type: ignore[misc]

    for name, task in tasks.items():
        for partition, records in by_partition(task.records).items():
            expected = seen(name, produced[partition])[partition]
            until = len(records) - (len(expected) - last)
            assert records == expected[:until] + expected[last:], name


def _has(task: Task, partitions: int, offset: int) -> bool:
    task.poll()
    return sum(record.offset == offset for record in task.records) == partitions


def test_offsets_lost_in_unclean_election_are_out_of_range_for_any_length_of_new_log(
    by_the_leaders: Way, programs: Programs
) -> None:
    way, operator = by_the_leaders, by_the_leaders.operator
    unclean = {"unclean.leader.election.enable": "true"}
    shorter, grown = (
        operator.create_topic(unique(name), assignment=[[LEADER, LOCAL]] * 3, config=unclean)
        for name in ("shorter", "grown")
    )
    kept = known_records(300, 3)
    taken_back = known_records(MORE, 3, first=300)
    new = [attrs.evolve(record, value=b"new") for record in known_records(2 * MORE, 3, first=300)]
    for topic in (shorter, grown):
        operator.produce(topic, kept)

    with ExitStack() as running:
        others = {name: running.enter_context(Client(name)) for name in READERS}
        of_shorter = {name: read(programs(name), way, shorter, wait_ms=200) for name in READERS}
        of_grown = {name: read(client, way, grown, wait_ms=200) for name, client in others.items()}
        way.cluster.stop(LOCAL)
        for topic in (shorter, grown):
            operator.produce(topic, taken_back)
        for task in (*of_shorter.values(), *of_grown.values()):
            task.wait_for(300 + MORE)
        with ExitStack() as stopped:
            for client in others.values():
                stopped.enter_context(client.stopped())
            way.cluster.kill(LEADER)
            way.cluster.restart(LOCAL)
            for topic in (shorter, grown):
                operator.wait_led(topic, LOCAL)
            operator.produce(grown, new)
        for task in of_shorter.values():
            task.wait_for(300 + MORE + 300)
        operator.produce(shorter, new)
        for task in (*of_shorter.values(), *of_grown.values()):
            task.wait_for(300 + MORE + 300 + 2 * MORE)
        way.cluster.restart(LEADER)

    for tasks in (of_shorter, of_grown):
        for name, task in tasks.items():
            last, new_last = 99 + MORE // 3, 99 + 2 * MORE // 3
            assert offset_runs(task.records) == {p: [(0, last), (0, new_last)] for p in range(3)}, name
            assert by_partition(task.records[: 300 + MORE]) == seen(name, [*kept, *taken_back]), name
            assert by_partition(task.records[300 + MORE :]) == seen(name, [*kept, *new]), name


@pytest.mark.long
def test_offset_above_follower_high_watermark_is_awaited(by_itself: Way) -> None:
    operator = by_itself.operator
    topic = operator.create_topic(unique("uncommitted"), assignment=[[LEADER, LOCAL]])
    operator.produce(topic, known_records(SOME, 1))
    time.sleep(LEARNS_AFTER_S + 0.5)

    operator.produce(topic, known_records(SOME, 1, first=SOME), codecs=["none"])
    known = operator.log_at(topic, 0, LOCAL, 2 * SOME)
    with Patient(by_itself.bootstrap, topic, 2 * SOME) as consumer:
        early = consumer.take(0.5)
        operator.produce(topic, known_records(SOME, 1, first=2 * SOME), codecs=["none"])
        later = consumer.take(LEARNS_AFTER_S + 2.0)
    sent = record_bytes_out(by_itself.cluster, topic)

    assert known.high_watermark < 2 * SOME
    assert early == []
    assert later == list(range(2 * SOME, 3 * SOME))
    assert sent[LOCAL] > 0
    assert sent[LEADER] == 0


class Patient:
    """A consumer of partition 0 from *offset* on, while in context, for which it is an error to be out of range."""

    def __init__(self, bootstrap: str, topic: str, offset: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "fetch.wait.max.ms": 200,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, offset)])

    def __enter__(self) -> "Patient":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def take(self, seconds: float) -> list[int]:
        """The offsets that come within so long."""
        found: list[int] = []
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(200, timeout=min(left_s, 0.2)):
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                found.append(offset)
        return found
