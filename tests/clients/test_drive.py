"""The ``drive`` of each program delivers exactly the records of a topic, and takes the steps that it declares."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final
from zlib import crc32

import pytest
from confluent_kafka import Producer

from tests.clients.conversation import Client, Task
from tests.clients.programs import DRIVE_GO_NODE as DRIVE
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, by_partition

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PARTITIONS: Final = 3
EACH: Final = 100
"""Records of a partition."""
FROM: Final = {0: 0, 1: 17, 2: 5}
STEP_MS: Final = 3_000
"""Long enough to produce records meanwhile, on a busy machine."""


@pytest.fixture(scope="module")
def admin(kafka39: KafkaCluster) -> Admin:
    """Kafka 3.9 serves clients of all ages."""
    admin = Admin(kafka39)
    admin.coordinator("any")  # KafkaJS reports a coordinator that is not there yet
    return admin


@pytest.fixture(scope="module")
def programs() -> Iterator[Callable[[str], Client]]:
    with ExitStack() as running:
        started: dict[str, Client] = {}
        yield lambda name: started.get(name) or started.setdefault(name, running.enter_context(Client(name)))


@pytest.fixture(scope="module")
def filled(admin: Admin) -> tuple[str, list[Record]]:
    return admin.filled_topic("driven", PARTITIONS, PARTITIONS * EACH)


def _able(*abilities: str) -> list[str]:
    return [name for name, able in DRIVE.items() if able.issuperset(abilities)]


def _drive(client: Client, kafka: KafkaCluster, topic: str, **more: Any) -> Task:
    asked: dict[str, Any] = {
        "settings": {},
        "from": FROM,
        "until": dict.fromkeys(FROM, EACH - 1),
        "steps": [],
        "isolation": "read_uncommitted",
        "group": unique("group"),
        "rack": None,
    }
    return client.begin("drive", kafka.bootstrap, topic, **(asked | more))


def _offsets(task: Task) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for each in task.delivered:
        offsets[each.partition].append(each.offset)
    return offsets


@pytest.mark.parametrize("name", _able("from"))
def test_records_from_each_offset_on_are_delivered_once(
    name: str, programs: Callable[[str], Client], kafka39: KafkaCluster, filled: tuple[str, list[Record]]
) -> None:
    topic, records = filled
    task = _drive(programs(name), kafka39, topic)
    task.wait()
    delivered = {
        partition: [(each.offset, each.crc) for each in task.delivered if each.partition == partition]
        for partition in FROM
    }
    assert delivered == {
        partition: [
            (each.offset, crc32((each.key or b"") + (each.value or b"")))
            for each in known
            if each.offset >= FROM[partition]
        ]
        for partition, known in by_partition(records).items()
    }
    timestamps = {(each.partition, each.offset): each.timestamp_ms for each in records}
    reported = {each.timestamp_ms == timestamps[each.partition, each.offset] for each in task.delivered}
    assert reported == {True} or {each.timestamp_ms for each in task.delivered} == {-1}
    assert not task.heard


@pytest.mark.parametrize("name", _able("from", "seek"))
def test_seek_continues_at_its_offset_directly_after_its_record(
    name: str, programs: Callable[[str], Client], kafka39: KafkaCluster, filled: tuple[str, list[Record]]
) -> None:
    steps = [
        {"at": [1, 40], "do": "seek", "partition": 1, "to": 10},
        {"at": [2, 20], "do": "seek", "partition": 2, "to": 60},
        {"at": [1, 90], "do": "seek", "partition": 1, "to": 80},
    ]
    task = _drive(programs(name), kafka39, filled[0], steps=steps)
    task.wait()
    assert _offsets(task) == {
        0: [*range(EACH)],
        1: [*range(17, 41), *range(10, 91), *range(80, EACH)],
        2: [*range(5, 21), *range(60, EACH)],
    }


STOPPED: Final[Mapping[str, tuple[dict[str, Any], Sequence[int]]]] = {
    "pause": ({"partition": 1}, [1]),
    "assign": ({"partitions": [0]}, [1, 2]),
    "sleep": ({}, [0, 1, 2]),
}
"""By step that stops partitions for a while, its arguments and the partitions that it stops."""


@pytest.mark.each_once
@pytest.mark.parametrize(("name", "step"), [(name, step) for step in STOPPED for name in _able("from", step)])
def test_stopped_partitions_deliver_nothing_meanwhile_and_all_later(
    name: str, step: str, programs: Callable[[str], Client], kafka39: KafkaCluster, admin: Admin
) -> None:
    arguments, stopped = STOPPED[step]
    topic, _ = admin.filled_topic("stopped", PARTITIONS, PARTITIONS * EACH)
    steps = [{"at": [0, EACH - 1], "do": step, "ms": STEP_MS, **arguments}]
    until = dict.fromkeys(FROM, 2 * EACH - 1)
    task = _drive(programs(name), kafka39, topic, steps=steps, until=until)
    _wait_for_record(task, 0, EACH - 1)
    admin.produce_known(topic, PARTITIONS * EACH, PARTITIONS, first=PARTITIONS * EACH)
    task.wait()
    assert _offsets(task) == {partition: [*range(first, 2 * EACH)] for partition, first in FROM.items()}
    stopped_ms = next(each.after_ms for each in task.delivered if (each.partition, each.offset) == (0, EACH - 1))
    for partition in FROM:
        resumed_ms = min(
            each.after_ms for each in task.delivered if each.partition == partition and each.offset >= EACH
        )
        assert (resumed_ms >= stopped_ms + STEP_MS - 50) == (partition in stopped), partition


@pytest.mark.parametrize("name", _able("from", "assign"))
def test_partitions_that_a_second_assignment_adds_go_on_where_they_were(
    name: str, programs: Callable[[str], Client], kafka39: KafkaCluster, filled: tuple[str, list[Record]]
) -> None:
    steps = [
        {"at": [0, 10], "do": "assign", "partitions": [0], "ms": STEP_MS},
        {"at": [0, 20], "do": "assign", "partitions": [0, 1], "ms": 200},
    ]
    task = _drive(programs(name), kafka39, filled[0], steps=steps)
    task.wait()
    assert _offsets(task) == {partition: [*range(first, EACH)] for partition, first in FROM.items()}


def _wait_for_record(task: Task, partition: int, offset: int) -> None:
    deadline = time.monotonic() + 60
    while not any(each.partition == partition and each.offset >= offset for each in task.delivered):
        assert time.monotonic() < deadline, "the record is not delivered"
        time.sleep(0.05)
        task.poll()


@pytest.mark.parametrize("name", _able("from", "commit", "group"))
def test_commit_covers_all_that_was_delivered_before(
    name: str,
    programs: Callable[[str], Client],
    kafka39: KafkaCluster,
    filled: tuple[str, list[Record]],
    admin: Admin,
) -> None:
    group = unique("driving")
    steps = [{"at": [1, 50], "do": "commit"}]
    task = _drive(programs(name), kafka39, filled[0], steps=steps, group=group)
    task.wait()
    before = task.delivered[: 1 + [(each.partition, each.offset) for each in task.delivered].index((1, 50))]
    assert task.committed == {each.partition: each.offset + 1 for each in before}
    assert admin.committed(group, filled[0]).items() >= task.committed.items()


@pytest.mark.parametrize("name", _able("isolation"))
def test_aborted_records_are_delivered_only_if_uncommitted_are_read(
    name: str, programs: Callable[[str], Client], kafka39: KafkaCluster, admin: Admin
) -> None:
    topic = admin.create_topic(unique("transactional"), 1)
    producer = Producer({"bootstrap.servers": kafka39.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for finish in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"value", partition=0)
        producer.flush()
        finish()
    for isolation, aborted in (("read_committed", []), ("read_uncommitted", [*range(11, 21)])):
        ends = {"from": {0: 0}, "until": {0: 31}}
        task = _drive(programs(name), kafka39, topic, isolation=isolation, **ends)
        task.wait()
        assert _offsets(task)[0] == [*range(10), *aborted, *range(22, 32)]
