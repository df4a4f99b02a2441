"""The topics that combinations read: their shapes, and how a shape is filled with records known by a seed."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal
from zlib import crc32

import attrs
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # it does export them

from tests.kafka.admin import Admin, eventually
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import FIRST_TIMESTAMP_MS

__all__ = [
    "EVENT_SHAPES",
    "RETENTION",
    "SHAPES",
    "Ends",
    "Shape",
    "Topic",
    "Writer",
    "fill",
    "last_offsets",
    "rows",
]

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_LARGEST_BYTES: Final = 2_000_000
"""The largest message that brokers and producers accept."""


@attrs.frozen
class Shape:
    """The properties of a topic; equal shapes give equal records at equal offsets."""

    name: str
    partitions: int = 3
    records: int = 3_000
    """Altogether."""
    sizes: tuple[int, ...] = (300,)
    """Sizes of values, one of which is drawn for each record."""
    codecs: tuple[Codec, ...] = ("none",)
    batch_bytes: int = 16_384
    empty: tuple[int, ...] = ()
    """Partitions without records."""
    is_spread: bool = False
    """Over all brokers; else one leads all partitions, and clients fetch them together."""
    kind: Literal["plain", "transactions", "compacted"] = "plain"
    config: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def largest_bytes(self) -> int:
        """Not less than the largest batch."""
        return max(self.batch_bytes, *self.sizes) + 1_000


SHAPES: Final[Mapping[str, Shape]] = {
    each.name: each
    for each in (
        Shape("small", records=6_000),
        Shape("ten-bytes", partitions=1, records=12_000, sizes=(0, 1, 2, 10)),
        Shape("six-kb", records=5_000, sizes=(6_000,)),
        Shape("six-kb-large-batches", records=3_000, sizes=(6_000,), batch_bytes=400_000),
        Shape("two-kb", records=15_000, sizes=(2_000,), batch_bytes=65_536),
        Shape("two-kb-spread", records=9_000, sizes=(2_000,), batch_bytes=65_536, is_spread=True),
        Shape("six-partitions", partitions=6, records=12_000, sizes=(1_000,)),
        Shape("mixed-sizes", partitions=4, records=1_500, sizes=(10, 100, 1_000, 1_000, 5_000)),
        Shape("huge", partitions=2, records=800, sizes=(10,) * 120 + (100_000, 1_500_000)),
        Shape(
            "wide", partitions=12, records=4_000, sizes=(50, 200), empty=(3, 7), batch_bytes=4_096, is_spread=True
        ),
        Shape("gzip", records=4_000, codecs=("none", "gzip")),
        Shape("snappy", records=4_000, codecs=("snappy",)),
        Shape("lz4", partitions=2, records=4_000, codecs=("lz4", "none")),
        Shape("zstd", partitions=2, records=4_000, codecs=("zstd",)),
        Shape("one-record-batches", records=900, sizes=(200,), batch_bytes=1),
        Shape("transactions", partitions=4, records=3_000, sizes=(200,), kind="transactions"),
        Shape("large-transactions", partitions=2, records=1_200, sizes=(3_000,), kind="transactions"),
        Shape(
            "compacted",
            partitions=2,
            records=5_000,
            sizes=(400,),
            kind="compacted",
            config={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "1000",
                "delete.retention.ms": "0",
            },
        ),
    )
}

EVENT_SHAPES: Final[Mapping[str, Shape]] = {
    each.name: each
    for each in (
        Shape("event-small", partitions=2, records=3_000, sizes=(200,), batch_bytes=2_048),
        Shape("event-mixed", partitions=3, records=1_500, sizes=(10, 100, 2_000), batch_bytes=8_192),
        Shape("event-one", partitions=1, records=1_500, sizes=(500,), batch_bytes=4_096),
    )
}

RETENTION: Final = Shape(
    "event-retention",
    partitions=1,
    records=2_500,
    sizes=(1_000,),
    batch_bytes=4_096,
    config={"segment.bytes": "1048576"},
)
"""Segments may not be smaller than 1 MiB since Kafka 4."""


@attrs.frozen
class Ends:
    """The first offset of a partition, and that of its last record; ``last`` is below ``first`` if it is empty."""

    first: int
    last: int


@attrs.frozen
class Topic:
    """A topic that has been filled."""

    name: str
    shape: Shape
    ends: Mapping[int, Ends]


class Writer:
    """A producer that writes drawn records to plain offsets, acknowledged by all replicas in sync."""

    def __init__(self, bootstrap: str, codec: Codec, batch_bytes: int, **more: object) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": batch_bytes,
            "message.max.bytes": _LARGEST_BYTES,
            "log_level": 0,
        }
        self.producer = Producer(settings | more)
        self.last: dict[int, int] = {}
        """By partition, the offset of the last record."""
        self._problems: list[str] = []

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        while True:
            try:
                self.producer.produce(
                    topic, value, key, partition, timestamp=timestamp_ms, on_delivery=self._delivered
                )
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def flush(self) -> None:
        left = self.producer.flush(60)
        assert not left, f"{left} records not acknowledged"
        assert not self._problems, self._problems[:5]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self._problems.append(str(error))
        else:
            self.last[partition] = offset


def fill(cluster: KafkaCluster, admin: Admin, shape: Shape, topic: str, *, generation: int = 0) -> Topic:
    """Create *topic* and fill it; every partition that is not empty ends with a plain record of its own."""
    config = {"max.message.bytes": str(_LARGEST_BYTES), **shape.config}
    nodes = sorted(cluster.brokers)
    first = crc32(shape.name.encode())
    leaders = [nodes[(first + each * shape.is_spread) % 3] for each in range(shape.partitions)]
    # Replicas compact on their own, so the records of a compacted topic depend on the replica that is read.
    followers = 0 if shape.kind == "compacted" else 1
    assignment = [[leader, nodes[nodes.index(leader) - 1]][: 1 + followers] for leader in leaders]
    admin.create_topic(topic, assignment=assignment, config=config)
    used = [each for each in range(shape.partitions) if each not in shape.empty]
    dice = random.Random(f"{shape.name}/{generation}")
    records = _drawn(dice, shape, used, generation)
    if shape.kind == "transactions":
        _transact(cluster.bootstrap, topic, shape, dice, records)
    else:
        _write(cluster.bootstrap, topic, shape, records)
    if shape.kind == "compacted":
        _wait_compacted(cluster, topic, shape)
        admin.configure_topic(topic, {"cleanup.policy": "delete"})
    sentinels = Writer(cluster.bootstrap, "none", shape.batch_bytes)
    for partition in used:
        sentinels.send(topic, partition, b"end-%d" % partition, b"end of %d" % generation, FIRST_TIMESTAMP_MS)
    sentinels.flush()
    firsts = _firsts(cluster.bootstrap, topic, used)
    ends = {each: Ends(firsts[each], sentinels.last[each]) for each in used}
    return Topic(topic, shape, ends | {each: Ends(0, -1) for each in shape.empty})


Drawn = tuple[int, bytes | None, bytes | None, int]
"""Partition, key, value, timestamp."""


def last_offsets(shape: Shape, generation: int) -> dict[int, int]:
    """Return the offset of each partition's last record, of a plain shape."""
    used = [each for each in range(shape.partitions) if each not in shape.empty]
    dice = random.Random(f"{shape.name}/{generation}")
    return dict(Counter(partition for partition, *_ in _drawn(dice, shape, used, generation)))


def rows(shape: Shape, generation: int) -> set[tuple[int, int, int]]:
    """Return partition, offset and CRC-32 of each record, of a plain shape."""
    used = [each for each in range(shape.partitions) if each not in shape.empty]
    dice = random.Random(f"{shape.name}/{generation}")
    offsets: Counter[int] = Counter()
    found = set()
    for partition, key, value, _ in _drawn(dice, shape, used, generation):
        found.add((partition, offsets[partition], crc32(value or b"", crc32(key or b""))))
        offsets[partition] += 1
    ends = ((each, offsets[each], crc32(b"end of %d" % generation, crc32(b"end-%d" % each))) for each in used)
    return found.union(ends)


def _drawn(dice: random.Random, shape: Shape, used: list[int], generation: int) -> Iterator[Drawn]:
    """Draw the records; each generation has twice as many as the one before."""
    noise = dice.randbytes(max(4_096, *shape.sizes))
    for number in range(shape.records << generation):
        size = dice.choice(shape.sizes)
        at = dice.randrange(len(noise) - size + 1)
        # Half of it can be compressed.
        value: bytes | None = (b"%d/%d;" % (generation, number) + noise[at : at + size // 2]).ljust(size, b".")[
            : max(size, 1)
        ]
        if shape.kind == "compacted":
            key: bytes | None = b"key-%d" % dice.randrange(60)
        else:
            key = None if number % 7 == 3 else b"key-%d/%d" % (generation, number)
            value = None if number % 50 == 9 and key is not None and size < 1_000 else value
        yield dice.choice(used), key, value, FIRST_TIMESTAMP_MS + number


def _write(bootstrap: str, topic: str, shape: Shape, records: Iterator[Drawn]) -> None:
    """Write runs of records in each codec in turn; each run is acknowledged before the next."""
    writers = [Writer(bootstrap, codec, shape.batch_bytes) for codec in shape.codecs]
    for writer in itertools.cycle(writers):
        run = [*itertools.islice(records, 500 if len(writers) > 1 else 100_000)]
        if not run:
            return
        for record in run:
            writer.send(topic, *record)
        writer.flush()


def _transact(bootstrap: str, topic: str, shape: Shape, dice: random.Random, records: Iterator[Drawn]) -> None:
    """Write in transactions of three producers that overlap; about a third is aborted."""
    names = [f"{topic}-{each}" for each in range(3)]
    writers = [Writer(bootstrap, "none", shape.batch_bytes, **{"transactional.id": name}) for name in names]
    for writer in writers:
        writer.producer.init_transactions(30)
    is_open = [False] * 3
    while run := [*itertools.islice(records, dice.choice((1, 10, 60)))]:
        chosen = dice.randrange(3)
        writer = writers[chosen]
        if not is_open[chosen]:
            writer.producer.begin_transaction()
            is_open[chosen] = True
        for record in run:
            writer.send(topic, *record)
        writer.flush()
        if (end := dice.choice(("commit", "abort", "", ""))) != "":
            _end(writer.producer, end)
            is_open[chosen] = False
    for each, was_open in zip(writers, is_open, strict=True):
        if was_open:
            _end(each.producer, "commit")


def _end(producer: Producer, end: str) -> None:
    if end == "commit":
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def _wait_compacted(cluster: KafkaCluster, topic: str, shape: Shape) -> None:
    """Roll the segments by records of now, and return when reading from the start skips offsets."""
    time.sleep(1.2)
    writer = Writer(cluster.bootstrap, "none", shape.batch_bytes)
    for partition in range(shape.partitions):
        writer.send(topic, partition, b"roll", b"", FIRST_TIMESTAMP_MS + 10_000_000)
    writer.flush()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})

    def is_compacted() -> bool:
        for partition in range(shape.partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            messages = consumer.consume(50, timeout=5)
            offsets = [each.offset() for each in messages if each.error() is None]
            if not offsets or offsets[-1] == len(offsets) - 1:
                return False
        return True

    try:
        eventually(is_compacted, f"{topic} compacted", timeout_s=90)
    finally:
        consumer.close()


def _firsts(bootstrap: str, topic: str, partitions: list[int]) -> dict[int, int]:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = {TopicPartition(topic, each): OffsetSpec.earliest() for each in partitions}  # type: ignore[no-untyped-call]
    return {where.partition: done.result().offset for where, done in client.list_offsets(wanted).items()}
