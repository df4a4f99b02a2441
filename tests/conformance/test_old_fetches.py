"""Fetch v0 to v3 of the same log, from brokers that still convert and through Sidefetch: the same messages.

On Kafka 4, which converts nothing, the records through Sidefetch are compared with the produced ones.
"""

import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import attrs
import pytest
from confluent_kafka import Producer

from proxy.demo.client import KafkaConnection, connect
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, known_records
from tests.kafka.transactions import Transactors, planned
from tests.old_clients import OldRecord, fetch_frame, heard
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.each_once]

VERSIONS: Final = (0, 1, 2, 3)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
AS_BROKERS_DID: Final = ("--lz4-magic0", "kafka", "--zstd", "refuse")
RECORDS: Final = 400
REFUSED: Final = 76


@attrs.frozen
class Log:
    """A topic, partition by partition."""

    topic: str
    kinds: tuple[str, ...]
    produced: tuple[tuple[Record, ...], ...]


@attrs.frozen
class Read:
    """A partition, read to its end, or as far as it went."""

    records: tuple[OldRecord, ...]
    error: int


@pytest.fixture(scope="module")
def sidefetch(kafka: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka.bootstrap, options=AS_BROKERS_DID) as started:
        yield started


@pytest.fixture(scope="module", params=["CreateTime", "LogAppendTime"])
def log(request: pytest.FixtureRequest, kafka: KafkaCluster, admin: Admin) -> Log:
    """A partition a codec, one of all of them, and one of transactions that overlap and abort."""
    kinds = (*CODECS, "mixed", "transactions")
    assignment = [[1, 2, 3]] * len(kinds)
    config = {"message.timestamp.type": request.param}
    topic = admin.create_topic(unique("old-fetches"), assignment=assignment, config=config)
    produced = [_produce(kafka, topic, partition, kind) for partition, kind in enumerate(kinds)]
    admin.wait_in_sync(topic)
    return Log(topic, kinds, tuple(map(tuple, produced)))


def _produce(kafka: KafkaCluster, topic: str, partition: int, kind: str) -> list[Record]:
    if kind == "transactions":
        transactors = Transactors(kafka.bootstrap, topic, producers=3)
        moved = [attrs.evolve(step, partitions=(partition,)) for step in planned(60, 1)]
        transactors.carry_out(moved)
        return transactors.committed
    dice = random.Random(7)
    producers = {codec: _producer(kafka, codec) for codec in CODECS}
    records = [attrs.evolve(record, partition=partition) for record in known_records(RECORDS, 1)]
    pending = list(records)
    while pending:
        codec = kind if kind != "mixed" else dice.choice(CODECS[:4])
        size = dice.randint(1, 60)
        for record in pending[:size]:
            producers[codec].produce(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        assert producers[codec].flush(30) == 0
        pending = pending[size:]
    return records


def _producer(kafka: KafkaCluster, codec: str) -> Producer:
    return Producer(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 50, "log_level": 0}
    )


@contextlib.asynccontextmanager
async def led_by_1(bootstrap: str) -> AsyncIterator[KafkaConnection]:
    """Return a connection to broker 1, or to its listener at Sidefetch."""
    async with connect(bootstrap) as raw:
        brokers = (await raw.call("metadata", 12, {})).brokers
    (address,) = [f"{broker.host}:{broker.port}" for broker in brokers if broker.node_id == 1]
    async with connect(address) as raw:
        yield raw


async def read(raw: KafkaConnection, version: int, topic: str, partition: int, **more: Any) -> Read:
    """Read from start to end: on from the last message, or one offset further if there is none."""
    records: list[OldRecord] = []
    offset = 0
    for number in itertools.count(1):
        frame = fetch_frame(
            version, {partition: offset}, topic=topic, max_wait_ms=100, correlation_id=number, **more
        )
        await raw.send_frame(frame)
        answer = await raw.receive_frame()
        assert answer is not None, "the connection was closed"
        came = heard([len(answer).to_bytes(4), answer], version)[partition]
        if came.error:
            return Read(tuple(records), came.error)
        new = [record for record in came.records if record.offset >= offset]
        records += new
        offset = new[-1].offset + 1 if new else offset + 1
        if offset >= came.high_watermark:
            return Read(tuple(records), 0)
    raise AssertionError("unreachable")


def without_repeats(records: Iterable[OldRecord]) -> Iterator[OldRecord]:
    """3.9 brokers hand out a batch twice that stands behind a control batch at which a fetch begins."""
    last = -1
    for record in records:
        if record.offset > last:
            yield record
            last = record.offset


@pytest.mark.parametrize("kafka", ["kafka39"], indirect=True)  # the last to convert
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partition_max_bytes", [3_000, 1 << 20])
async def test_the_same_log_gives_the_same_messages_as_from_brokers_that_convert(
    kafka: KafkaCluster, sidefetch: Sidefetch, log: Log, version: int, partition_max_bytes: int
) -> None:
    async with led_by_1(kafka.bootstrap) as direct, led_by_1(sidefetch.bootstrap) as through:
        for partition, kind in enumerate(log.kinds):
            # A broker gives clients below v3 no more than they ask for, not even one batch that is larger.
            more = {"partition_max_bytes": partition_max_bytes if version >= 3 else 1 << 20}
            expected = await read(direct, version, log.topic, partition, **more)
            got = await read(through, version, log.topic, partition, partition_max_bytes=partition_max_bytes)

            for one, other in itertools.zip_longest(got.records, without_repeats(expected.records)):
                assert one == other, kind
            assert got.error == expected.error
            assert expected.error == (REFUSED if kind == "zstd" else 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_produced_records_are_read_with_every_old_fetch_version(
    sidefetch: Sidefetch, log: Log, version: int
) -> None:
    async with led_by_1(sidefetch.bootstrap) as through:
        for partition, kind in enumerate(log.kinds):
            if kind in ("zstd", "transactions"):
                continue
            got = await read(through, version, log.topic, partition)

            assert [(each.offset, each.key, each.value) for each in got.records] == [
                (each.offset, each.key, each.value) for each in log.produced[partition]
            ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_read_committed_option_filters_aborted_records_for_old_clients(
    kafka: KafkaCluster, log: Log, version: int
) -> None:
    partition = log.kinds.index("transactions")
    with Sidefetch(kafka.bootstrap, options=("--isolation", "read_committed")) as sidefetch:
        async with led_by_1(sidefetch.bootstrap) as through:
            got = await read(through, version, log.topic, partition)

    committed = [(each.offset, each.value) for each in log.produced[partition]]
    assert [(each.offset, each.value) for each in got.records] == committed


@pytest.mark.parametrize("version", VERSIONS)
async def test_zstd_is_read_as_gzip_by_default(kafka: KafkaCluster, log: Log, version: int) -> None:
    partition = log.kinds.index("zstd")
    with Sidefetch(kafka.bootstrap) as sidefetch:
        async with led_by_1(sidefetch.bootstrap) as through:
            got = await read(through, version, log.topic, partition)

    assert [(each.offset, each.value) for each in got.records] == [
        (each.offset, each.value) for each in log.produced[partition]
    ]
    assert {each.codec for each in got.records} == {0, 1}  # data that does not become smaller is sent uncompressed


async def test_fetch_at_trailing_marker_returns_no_records_until_next_is_produced(
    kafka: KafkaCluster, sidefetch: Sidefetch, admin: Admin
) -> None:
    topic = admin.create_topic(unique("ends-with-marker"), assignment=[[1, 2, 3]])
    transactor = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("marker"), "log_level": 0}
    )
    transactor.init_transactions(30)
    transactor.begin_transaction()
    transactor.produce(topic, b"first", partition=0)
    transactor.commit_transaction(30)

    async with led_by_1(sidefetch.bootstrap) as through:
        answers = []
        for offset in (0, 1, 1):
            await through.send_frame(fetch_frame(2, {0: offset}, topic=topic, max_wait_ms=200))
            frame = await through.receive_frame()
            assert frame is not None
            answers.append(heard([len(frame).to_bytes(4), frame], 2)[0])
        admin.produce(topic, [Record(0, 2, 1_700_000_000_000, None, b"second")])
        await through.send_frame(fetch_frame(2, {0: 1}, topic=topic, max_wait_ms=2_000))
        frame = await through.receive_frame()
        assert frame is not None
        last = heard([len(frame).to_bytes(4), frame], 2)[0]

    assert [record.value for record in answers[0].records] == [b"first"]
    assert [(each.error, each.record_bytes, each.high_watermark) for each in answers[1:]] == [(0, 0, 2)] * 2
    assert [(record.offset, record.value) for record in last.records] == [(2, b"second")]
