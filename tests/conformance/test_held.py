"""Records that Sidefetch holds or waits for while a right is revoked, a topic is replaced, or retention passes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import attrs
import pytest

from tests.clients.conversation import Client, Task
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.guarded import GUARDED
from tests.kafka.records import Record, by_partition, known_records
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

Programs = Callable[[str], Client]

READERS: Final = ("java-0.10.2.2", "kafka-python", "librdkafka")
HEADLESS: Final = ("java-0.10.2.2",)
UPSTREAM_MAX_WAIT_S: Final = 2.0
PARKED_S: Final = 0.7
"""The time until a client that waits 200 ms is answered, and its partitions wait at the brokers."""
ENDLESS: Final = 1_000_000
ALL_REPLICAS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]

_SETTINGS: Final = {
    **GUARDED,
    "log.retention.check.interval.ms": 300,
    "log.initial.task.delay.ms": 300,
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaCluster]:
    """A cluster with an authorizer, and quick retention."""
    with KafkaCluster("4.3.1", settings=_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def operator(guarded: KafkaCluster) -> Admin:
    return Admin(guarded)


@pytest.fixture(scope="module")
def way(guarded: KafkaCluster) -> Iterator[str]:
    with Sidefetch(guarded.bootstrap, options=("--upstream-max-wait", f"{UPSTREAM_MAX_WAIT_S:g}s")) as sidefetch:
        yield sidefetch.bootstrap


class Readings:
    """Readers of one topic, and the records that they have read."""

    def __init__(self, programs: Programs, names: Sequence[str], way: str, topic: str) -> None:
        self._programs = programs
        how = {"partitions": [0, 1, 2], "count": ENDLESS, "wait_ms": 200}
        self.tasks: dict[str, Task] = {name: programs(name).begin("read", way, topic, **how) for name in names}

    def wait_for(self, count: int) -> None:
        for task in self.tasks.values():
            task.wait_for(count)

    def stopped(self) -> ExitStack:
        """Stop their programs with nothing on its way to them: whatever comes now is held for them."""
        stopped = ExitStack()
        time.sleep(PARKED_S)
        for name in self.tasks:
            stopped.enter_context(self._programs(name).stopped())
        time.sleep(PARKED_S)
        return stopped

    def read(self) -> dict[str, dict[int, list[Record]]]:
        """Return the records by reader and partition, once no more arrive."""
        time.sleep(PARKED_S)
        for task in self.tasks.values():
            task.poll()
        return {name: by_partition(task.records) for name, task in self.tasks.items()}


def seen(name: str, records: Sequence[Record]) -> dict[int, list[Record]]:
    """Return *records* as that reader sees them."""
    return by_partition([attrs.evolve(each, headers=()) for each in records] if name in HEADLESS else [*records])


def test_revoked_permission_to_read_takes_effect_within_the_max_wait_until_granted(
    programs: Programs, way: str, operator: Admin
) -> None:
    topic = operator.create_topic(unique("guarded"), assignment=ALL_REPLICAS)
    produced = operator.produce_known(topic, 300, 3)
    readings = Readings(programs, ("librdkafka",), way, topic)
    reading = readings.tasks["librdkafka"]
    readings.wait_for(300)
    time.sleep(PARKED_S)

    with operator.reading_denied(topic):
        began_s = time.monotonic()
        eventually(lambda: _heard(reading, "TOPIC_AUTHORIZATION_FAILED"), "that it may not read")
        revoked_after_s = time.monotonic() - began_s
        time.sleep(max(0.0, UPSTREAM_MAX_WAIT_S + 1 - revoked_after_s))  # the other brokers' long polls end, too
        produced += operator.produce_known(topic, 60, 3, first=300)
        denied = readings.read()
    readings.wait_for(360)

    assert revoked_after_s < UPSTREAM_MAX_WAIT_S + 2
    assert denied == {"librdkafka": by_partition(produced[:300])}
    assert readings.read() == {"librdkafka": by_partition(produced)}


def _heard(task: Task, what: str) -> bool:
    task.poll()
    return any(what in each for each in task.heard)


def test_recreated_topic_is_read_on_from_the_offset_while_old_records_are_held(
    programs: Programs, way: str, operator: Admin
) -> None:
    """Check that old clients, which name topics, read the replaced topic on from their offset."""
    topic = operator.create_topic(unique("remade"), assignment=ALL_REPLICAS)
    old = operator.produce_known(topic, 300, 3)
    readings = Readings(programs, ("java-0.10.2.2", "kafka-python"), way, topic)
    readings.wait_for(300)

    with readings.stopped():
        old += operator.produce_known(topic, 60, 3, first=300)
        time.sleep(PARKED_S)
        operator.delete_topic(topic)
        operator.create_topic(topic, assignment=ALL_REPLICAS)
        new = [attrs.evolve(record, value=b"new") for record in known_records(420, 3)]
        operator.produce(topic, new)
    readings.wait_for(420)

    for name, read in readings.read().items():
        was, became = seen(name, old), seen(name, new)
        for partition, records in read.items():
            turn = next(at for at, record in enumerate(records) if record == became[partition][at])
            assert turn >= 100, name
            assert records == was[partition][:turn] + became[partition][turn:], name


@pytest.mark.long
def test_reader_that_pauses_until_records_expire_resumes_at_the_log_start(
    programs: Programs, way: str, operator: Admin
) -> None:
    topic = operator.create_topic(unique("old"), assignment=ALL_REPLICAS)
    produced = operator.produce_known(topic, 300, 3)
    readings = Readings(programs, READERS, way, topic)
    readings.wait_for(300)

    with readings.stopped():
        operator.produce_known(topic, 60, 3, first=300)
        time.sleep(PARKED_S)
        operator.configure_topic(topic, {"retention.ms": "1000"})
        for partition, (leader, *_) in enumerate(ALL_REPLICAS):
            eventually(
                lambda p=partition, n=leader: operator.log_at(topic, p, n, 120).start == 120,  # type: ignore[misc]
                "all of it deleted",
            )
        operator.configure_topic(topic, {"retention.ms": None})
        time.sleep(UPSTREAM_MAX_WAIT_S)
        produced += operator.produce_known(topic, 90, 3, first=360)
    readings.wait_for(300 + 90)

    for name, read in readings.read().items():
        assert read == seen(name, produced), name
