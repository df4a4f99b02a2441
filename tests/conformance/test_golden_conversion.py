"""Kafka 3.9's own conversions, down and up, against ours of the same bytes; Sidefetch itself has no part in it."""

import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import pytest

from proxy.convert import ConversionTarget, Converted, DownConversion, NothingForClient, to_batches
from proxy.errors import BadRecords
from proxy.wire.records import Codec, entries
from tests.convert.logs import Record, batch, entry_sizes, message, messages_of, records_of, wrapper
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.transactions import Transactors, planned

pytestmark = pytest.mark.kafka

NOW_MS = int(time.time() * 1000)
VERSIONS = {0: 0, 2: 1, 3: 1}
"""By version of Fetch, the magic of a broker's responses."""
MAX_BYTES = 10_000_000


class LeaderConnection:
    """A connection to the leader of a topic's only partition, for one request at a time."""

    def __init__(self, connection: socket.socket, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhihs", api_key, version, 1, 1, b"g") + body
        self._connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._take(4))[0]
        return self._take(size)[4:]

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            some = self._connection.recv(size - len(taken))
            assert some, "the broker has hung up"
            taken += some
        return bytes(taken)

    @property
    def _named(self) -> bytes:
        name = self._topic.encode()
        return struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, 0)

    def produce(self, version: int, records: bytes) -> int:
        """The error code."""
        transactional_id = struct.pack(">h", -1) if version >= 3 else b""
        body = (
            transactional_id
            + struct.pack(">hi", -1, 30_000)
            + self._named
            + struct.pack(">i", len(records))
            + records
        )
        answer = self._ask(0, version, body)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(self._topic) + 4 + 4)
        return int(error)

    def fetch(self, version: int, offset: int, max_bytes: int = MAX_BYTES) -> tuple[int, bytes]:
        """Error and records."""
        body = struct.pack(">iii", -1, 0, 1)
        body += struct.pack(">i", max_bytes) * (version >= 3) + struct.pack(">b", 0) * (version >= 4)
        body += self._named + struct.pack(">qi", offset, max_bytes)
        answer = self._ask(1, version, body)
        at = (4 if version >= 1 else 0) + 4 + 2 + len(self._topic) + 4
        _, error, _ = struct.unpack_from(">ihq", answer, at)
        at += 14 + (8 + 4 if version >= 4 else 0)  # last stable offset; no aborted transactions
        (size,) = struct.unpack_from(">i", answer, at)
        return error, answer[at + 4 : at + 4 + max(size, 0)]


@contextmanager
def connected(cluster: KafkaCluster, admin: Admin, topic: str) -> Iterator[LeaderConnection]:
    broker = cluster.brokers[admin.leaders(topic)[0]]
    with socket.create_connection((broker.host, broker.port), timeout=30) as connection:
        yield LeaderConnection(connection, topic)


@pytest.fixture(scope="module")
def admin39(kafka39: KafkaCluster) -> Admin:
    return Admin(kafka39)


def some_records(chance: random.Random, first: int, count: int) -> list[Record]:
    found = []
    for index in range(count):
        key = chance.choice([None, b"", b"key-%d" % index])
        value = chance.choice([None, b"", chance.randbytes(20), b"text " * chance.randrange(100)])
        headers = ((b"h", chance.choice([None, b"x"])),) if chance.random() < 0.3 else ()
        found.append(Record(first + index, NOW_MS + chance.randrange(-5000, 5000), key, value, headers))
    return found


def shape(message_set: bytes) -> list[tuple[int, ...]]:
    """Offset, attributes and time of each complete entry, wrappers not opened."""
    return [
        (each.last_offset, each.magic, each.attributes, each.max_ms) for each in entries(memoryview(message_set))
    ]


def without_repetition(message_set: bytes) -> bytes:
    """Kafka sends the first messages twice where a marker stands before them: it forgets to have passed that."""
    kept, last = b"", -1
    for each in entries(memoryview(message_set)):
        if each.last_offset > last:
            kept += message_set[each.at : each.end]
            last = each.last_offset
    return kept


def same(broker: LeaderConnection, offset: int, *, zstd: Codec | None = None) -> int:
    """Compare Kafka's answers at *offset* with ours; how many messages these had."""
    error, source = broker.fetch(4, offset)
    assert error == 0
    compared = 0
    for version, magic in VERSIONS.items():
        error, kafkas = broker.fetch(version, offset)
        conversion = DownConversion(
            memoryview(source), offset, ConversionTarget(magic, zstd=zstd, lz4_magic0=Codec.LZ4)
        )
        outcome = conversion.begin()
        ours = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))
        held = without_repetition(kafkas[: sum(entry_sizes(kafkas))])
        if isinstance(outcome, NothingForClient):
            assert (error, held) == (0, b""), "Kafka has only the beginning of a message that never ends"
            continue
        assert error == 0
        assert isinstance(outcome, Converted)
        # Kafka commits to the size before it converts, and cuts the records that do not fit.
        whole = ours[: sum(entry_sizes(ours))]
        assert messages_of(held) == messages_of(whole)[: len(messages_of(held))]
        assert shape(held) == shape(whole)[: len(shape(held))]
        assert len(held) <= len(whole)
        if not any(each.codec for each in messages_of(held)):
            assert whole.startswith(held)
        compared += len(messages_of(held))
    return compared


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_one_codec(kafka39: KafkaCluster, admin39: Admin, codec: Codec, time_type: str) -> None:
    topic = admin39.create_topic(unique("golden"), config={"message.timestamp.type": time_type})
    chance = random.Random(codec)
    with connected(kafka39, admin39, topic) as broker:
        for _ in range(8):
            assert broker.produce(8, batch(some_records(chance, 0, chance.randrange(1, 60)), codec=codec)) == 0

        assert sum(same(broker, offset) for offset in (0, 1, 7, 30, 50)) > 300


def test_all_codecs_in_one_log(kafka39: KafkaCluster, admin39: Admin) -> None:
    topic = admin39.create_topic(unique("golden"))
    chance = random.Random(5)
    with connected(kafka39, admin39, topic) as broker:
        for codec in chance.choices([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4], k=24):
            assert broker.produce(8, batch(some_records(chance, 0, chance.randrange(1, 30)), codec=codec)) == 0

        assert sum(same(broker, offset) for offset in range(0, 200, 23)) > 1000


def test_zstd_ends_a_set_and_is_refused_at_its_beginning(kafka39: KafkaCluster, admin39: Admin) -> None:
    topic = admin39.create_topic(unique("golden"))
    chance = random.Random(6)
    with connected(kafka39, admin39, topic) as broker:
        assert broker.produce(8, batch(some_records(chance, 0, 5), codec=Codec.GZIP)) == 0
        assert broker.produce(8, batch(some_records(chance, 0, 5), codec=Codec.ZSTD)) == 0
        assert broker.produce(8, batch(some_records(chance, 0, 5))) == 0

        assert same(broker, 0) == 3 * 5
        for version in VERSIONS:
            assert broker.fetch(version, 5)[0] == 76
        assert same(broker, 10) == 3 * 5


def test_transactions_and_their_markers(kafka39: KafkaCluster, admin39: Admin) -> None:
    # Their records are years older than the markers, and no fetch goes beyond a segment.
    topic = admin39.create_topic(unique("golden"), config={"segment.ms": str(2**62)})
    Transactors(kafka39.bootstrap, topic).carry_out(planned(25, 1))
    admin39.wait_without_transactions(topic, 0)
    with connected(kafka39, admin39, topic) as broker:
        _, source = broker.fetch(4, 0)
        markers = [each.base_offset for each in entries(memoryview(source)) if each.is_control]
        assert markers
        compared = [same(broker, offset) for offset in [0, 1, *markers[:3], markers[-1]]]

    assert compared[-1] == 0  # behind the last marker there is nothing
    assert compared[0] > 100


def set_of(records: Sequence[Record], magic: int, codec: Codec) -> bytes:
    if codec:
        return wrapper(records, magic, codec)
    return b"".join(message(each, magic) for each in records)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_message_set_is_converted_to_same_batch_as_by_kafka_39(
    kafka39: KafkaCluster, admin39: Admin, version: int, magic: int, codec: Codec
) -> None:
    topic = admin39.create_topic(unique("golden"))
    chance = random.Random(version)
    sent = some_records(chance, 0, 40)
    if magic == 0:
        sent = [attrs.evolve(each, time_ms=-1) for each in sent]
    message_set = set_of(sent, magic, codec)
    (ours,) = to_batches(memoryview(message_set), max_batch_bytes=1_000_000)
    with connected(kafka39, admin39, topic) as broker:
        assert broker.produce(version, message_set) == 0
        assert broker.produce(8, bytes(ours)) == 0
        _, log = broker.fetch(4, 0)

    kafkas, sent_on = entries(memoryview(log))
    theirs = [attrs.evolve(each, offset=each.offset + len(sent)) for each in records_of(log[: kafkas.end])]
    assert records_of(log[kafkas.end :]) == theirs
    fields = ("attributes", "base_ms", "max_ms", "producer_id", "records")
    assert [getattr(kafkas, each) for each in fields] == [getattr(sent_on, each) for each in fields]
    if not codec:
        assert log[kafkas.at + 21 : kafkas.end] == log[sent_on.at + 21 :]


@pytest.mark.parametrize(
    "message_set",
    [
        message(Record(0), 0) + message(Record(0, NOW_MS), 1),
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, inner=b""),
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, inner=message(Record(0), 0)),
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, inner=wrapper([Record(0, NOW_MS)], 1, Codec.GZIP)),
        message(Record(0, NOW_MS, None, None), 1, codec=Codec.GZIP),
        message(Record(0, NOW_MS, None, b"x"), 1, codec=Codec.ZSTD),
        message(Record(0, NOW_MS), 1)[:-1] + b"\1",
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, inner=message(Record(0, NOW_MS), 1)[:-1] + b"\1"),
        message(Record(0, NOW_MS), 1)[:8] + struct.pack(">i", 13) + message(Record(0, NOW_MS), 1)[12:],
    ],
    ids=[
        "magics",
        "nothing inside",
        "magic inside",
        "nested",
        "null",
        "zstd",
        "checksum",
        "inner checksum",
        "size",
    ],
)
def test_sets_that_brokers_refuse_are_refused(kafka39: KafkaCluster, admin39: Admin, message_set: bytes) -> None:
    topic = admin39.create_topic(unique("golden"))
    with connected(kafka39, admin39, topic) as broker:
        error = broker.produce(2, message_set)

    with pytest.raises(BadRecords) as caught:
        to_batches(memoryview(message_set), max_batch_bytes=1_000_000)
    assert int(caught.value.code) == error


@pytest.mark.parametrize(
    "message_set",
    [
        message(Record(0, NOW_MS), 1) + message(Record(0, NOW_MS), 1)[:-1],
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, inner=message(Record(0, NOW_MS), 1) + b"\0\0\0"),
        message(Record(0, NOW_MS), 1, is_append_time=True),
        wrapper([Record(0, NOW_MS)], 1, Codec.GZIP, append_ms=NOW_MS),
    ],
    ids=["cut off", "cut off inside", "append time", "append time of a wrapper"],
)
def test_odd_sets_that_brokers_take_become_the_same_batch(
    kafka39: KafkaCluster, admin39: Admin, message_set: bytes
) -> None:
    topic = admin39.create_topic(unique("golden"))
    (ours,) = to_batches(memoryview(message_set), max_batch_bytes=1_000_000)
    with connected(kafka39, admin39, topic) as broker:
        assert broker.produce(2, message_set) == 0
        _, log = broker.fetch(4, 0)

    assert records_of(log) == records_of(bytes(ours))
    assert log[21:61] == bytes(ours)[21:61]
