"""On Kafka 4 through Sidefetch, clients since 0.8 do all that they did on 3.9; directly, most of them cannot."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Final, Literal

import attrs
import pytest
from confluent_kafka import Producer
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tests.clients.conversation import Client, ClientFailed, Task
from tests.conformance.matrix import CODECS, DIRECTLY_ON_39, MATRIX, THROUGH_SIDEFETCH, Entry, Way
from tests.kafka.admin import Admin, unique
from tests.kafka.ask import ask
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import FIRST_TIMESTAMP_MS, Record, by_partition, known_records, sendable_records
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

TimestampType = Literal["CreateTime", "LogAppendTime"]
RECORDS: Final = 200
"""In each partition of a log: several fetches of several batches."""
TRANSACTION: Final = 5
"""Records of a transaction; its marker takes an offset of its own."""
_ATTRIBUTES_END: Final = 23
"""Within a record batch; the codec is in the lowest bits of the second of the two bytes before."""
SILENCE_S: Final = 10.0
"""A client that has said nothing for so long will never read the topic; where it can, it takes a second."""
HEARD_S: Final = 60.0
"""One of which the README says that it reads, or raises, is given so long to."""


class Logs:
    """Topics of one cluster with a partition for each of some codecs, made when they are first asked for."""

    def __init__(self, cluster: KafkaCluster, reference: Client) -> None:
        self._cluster, self._reference, self._admin = cluster, reference, Admin(cluster)
        self.of = cache(self._make)

    @cached_property
    def shortened(self) -> str:
        """A topic with two partitions of ten records, of which the second has lost four."""
        topic = self._admin.create_topic(unique("shortened"), 2)
        self._admin.produce_known(topic, 20, 2)
        self._admin.delete_records(topic, 1, before=4)
        return topic

    @cached_property
    def long(self) -> tuple[str, list[Record]]:
        """More than a client can have been given when it has read a tenth."""
        return self._admin.filled_topic("long", 3, 6_000)

    def _make(self, codecs: tuple[str, ...], timestamps: TimestampType) -> tuple[str, list[Record]]:
        """The topic, and its records as a client of today reads them."""
        config = {"message.timestamp.type": timestamps}
        topic = self._admin.create_topic(unique("log"), len(codecs), config=config)
        produced = known_records(RECORDS * len(codecs), len(codecs))
        with ThreadPoolExecutor() as pool:  # a producer takes a second to begin
            for done in [
                pool.submit(self._admin.produce, topic, records, codecs=[codecs[partition]])
                for partition, records in by_partition(produced).items()
            ]:
                done.result()
        if timestamps == "CreateTime":
            return topic, produced
        read = self._reference.read(self._cluster.bootstrap, topic, range(len(codecs)), len(produced))
        assert [attrs.evolve(record, timestamp_ms=0) for record in sorted(read, key=_place)] == [
            attrs.evolve(record, timestamp_ms=0) for record in sorted(produced, key=_place)
        ]
        assert min(record.timestamp_ms for record in read) > max(record.timestamp_ms for record in produced)
        return topic, read


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


@attrs.frozen
class Side:
    """A cluster, the bootstrap address of its clients, and its logs."""

    way: Way
    cluster: KafkaCluster
    bootstrap: str
    logs: Logs


@pytest.fixture(scope="module", params=[pytest.param(DIRECTLY_ON_39, marks=pytest.mark.long), THROUGH_SIDEFETCH])
def side(request: pytest.FixtureRequest, programs: Callable[[str], Client]) -> Iterator[Side]:
    way: Way = request.param
    cluster: KafkaCluster = request.getfixturevalue("kafka39" if way == DIRECTLY_ON_39 else "kafka4")
    with ExitStack() as stack:
        bootstrap = cluster.bootstrap
        if way == THROUGH_SIDEFETCH:
            bootstrap = stack.enter_context(Sidefetch(cluster.bootstrap)).bootstrap
        yield Side(way, cluster, bootstrap, Logs(cluster, programs("librdkafka")))


def program(entry: Entry) -> str:
    return entry.program


@pytest.fixture(params=MATRIX, ids=program)
def entry(request: pytest.FixtureRequest) -> Entry:
    entry: Entry = request.param
    return entry


@pytest.fixture
def client(entry: Entry, programs: Callable[[str], Client]) -> Client:
    return programs(entry.program)


@pytest.mark.each_once
@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_reads_every_codec_by_assignment(
    entry: Entry, client: Client, side: Side, timestamps: TimestampType
) -> None:
    readable = entry.codecs(side.way)
    # Clients without assignment read all partitions.
    held = CODECS if "snappy" in readable else readable
    topic, produced = side.logs.of(held, timestamps)
    partitions = [held.index(codec) for codec in readable]
    expected = [entry.seen(record) for record in produced if record.partition in partitions]

    read = client.read(side.bootstrap, topic, partitions, len(expected))

    assert by_partition(read) == by_partition(expected)


@pytest.mark.in_turn
def test_group_consumer_resumes_from_committed_offsets_after_restart(
    entry: Entry, client: Client, side: Side
) -> None:
    if side.way == DIRECTLY_ON_39 and entry.keeps_offsets_in_zookeeper:
        pytest.skip("Kafka 3.9 has no ZooKeeper to keep offsets in")
    topic, produced = side.logs.long
    group = unique("group")

    first = list(client.read_in_group(side.bootstrap, topic, group, len(produced) // 10))
    client.restart()
    second = client.read_in_group(side.bootstrap, topic, group, len(produced) - len(first))

    assert len(produced) // 10 <= len(first) < len(produced)
    assert by_partition(first + second) == by_partition([entry.seen(record) for record in produced])


def test_log_start_and_end_offsets_are_returned(client: Client, side: Side) -> None:
    assert client.offsets(side.bootstrap, side.logs.shortened) == {0: (0, 10), 1: (4, 10)}


@pytest.mark.parametrize("entry", [entry for entry in MATRIX if entry.makes_topics], ids=program, indirect=True)
def test_makes_a_topic_and_removes_it(client: Client, side: Side) -> None:
    admin = Admin(side.cluster)
    topic = unique("made")

    client.create_topic(side.bootstrap, topic, partitions=3)
    admin.wait_until_known(topic, partitions=3)
    client.delete_topic(side.bootstrap, topic)
    admin.wait_until_gone(topic)


@pytest.mark.in_turn
def test_client_waits_behind_transaction_marker_for_next_record(entry: Entry, client: Client, side: Side) -> None:
    if side.way == DIRECTLY_ON_39 and entry.magic < 2:
        pytest.skip("Kafka 3.9 sends old formats records twice at a marker, or what never ends")
    admin = Admin(side.cluster)
    topic = admin.create_topic(unique("transactions"))
    produced = in_transactions(side.cluster, topic, 3)

    whole = {"partitions": [0], "count": len(produced) + 1, "isolation": "read_uncommitted"}
    reading = client.begin("read", side.bootstrap, topic, **whole)
    reading.wait_for(len(produced))
    time.sleep(0.7)  # it asks again where the last marker is, at least once
    produced.append(Record(0, produced[-1].offset + 2, FIRST_TIMESTAMP_MS, b"last", b"of all"))
    admin.produce(topic, produced[-1:])
    read = reading.wait(20)

    assert read == [entry.seen(record) for record in produced]


def in_transactions(cluster: KafkaCluster, topic: str, count: int) -> list[Record]:
    """Produce so many transactions to the only partition, every other one aborted; return all their records."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    produced: list[Record] = []
    for number in range(count):
        producer.begin_transaction()
        for offset in range(number * (TRANSACTION + 1), number * (TRANSACTION + 1) + TRANSACTION):
            record = Record(0, offset, FIRST_TIMESTAMP_MS + offset, b"key-%d" % offset, b"value-%d" % offset)
            producer.produce(topic, record.value, record.key, partition=0, timestamp=record.timestamp_ms)
            produced.append(record)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return produced


def test_records_produced_in_every_codec_are_read_by_current_client(
    entry: Entry, client: Client, side: Side, programs: Callable[[str], Client]
) -> None:
    partitions = len(entry.writes)
    topic = Admin(side.cluster).create_topic(unique("produced"), assignment=[[1, 2]] * partitions)
    records = [entry.seen(record) for record in sendable_records(50 * partitions, partitions)]

    for partition, sent in by_partition(records).items():
        acknowledged = client.produce(side.bootstrap, topic, sent, codec=entry.writes[partition])
        assert sorted(acknowledged) == [(record.partition, record.offset) for record in sent]
    read = programs("librdkafka").read(side.cluster.bootstrap, topic, range(partitions), len(records))

    assert by_partition(read) == by_partition(records)
    assert tuple(codec_of(side.cluster, topic, partition) for partition in range(partitions)) == entry.writes


def codec_of(cluster: KafkaCluster, topic: str, partition: int) -> str:
    """The codec of the first batch of a partition that broker 1 leads."""
    asked = FetchPartition(partition=i32(partition), fetch_offset=i64(0), partition_max_bytes=i32(1))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=i32(1),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    (answered,) = ask(cluster.brokers[1].address, request).responses[0].partitions
    return CODECS[answered.records[_ATTRIBUTES_END - 1] & 7]


@attrs.frozen
class Row:
    """The README's entry for a client."""

    on_39: str
    directly: str
    through: str


def readme_rows() -> dict[str, Row]:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("a test holds it against real clients -->\n")
    table, end, _ = rest.partition("<!-- end -->")
    assert end
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.strip().splitlines()[2:]]
    return {title: Row(on_39, directly, through) for title, _, on_39, directly, through in cells}


@pytest.fixture(scope="module")
def fates(kafka4: KafkaCluster, programs: Callable[[str], Client]) -> Mapping[str, str]:
    """Return the result of each client on Kafka 4 itself, in the README's words."""
    logs = Logs(kafka4, programs("librdkafka"))
    plain, produced = logs.of(("none", "gzip"), "CreateTime")
    packed, _ = logs.of(("zstd",), "CreateTime")
    with ExitStack() as running:
        clients = {entry: running.enter_context(Client(entry.program)) for entry in MATRIX}
        reading = {
            entry: client.begin("read", kafka4.bootstrap, plain, partitions=[0, 1], count=len(produced))
            for entry, client in clients.items()
        }
        fates = until_heard(reading)
        served = {
            entry: clients[entry].begin("read", kafka4.bootstrap, packed, partitions=[0], count=RECORDS)
            for entry, fate in fates.items()
            if fate == "yes" and "zstd" in entry.reads
        }
        refused = {entry: "yes, but not zstd" for entry, fate in until_heard(served).items() if fate != "yes"}
    return {entry.title: fate for entry, fate in (fates | refused).items()}


def until_heard(reading: Mapping[Entry, Task]) -> dict[Entry, str]:
    """Return the result of each after a while: "yes", "no: polls for ever", or "no:" and its error."""
    fates: dict[Entry, str] = {}
    rows, began = readme_rows(), time.monotonic()

    def has_waited_enough(entry: Entry) -> bool:
        said = rows[entry.title].directly
        return time.monotonic() - began > (SILENCE_S if said == "no: polls for ever" else HEARD_S)

    while waiting := [entry for entry in reading.keys() - fates.keys() if not has_waited_enough(entry)]:
        time.sleep(0.05)
        for entry in waiting:
            try:
                reading[entry].poll()
            except ClientFailed as failed:
                fates[entry] = f"no: {failed}"
            else:
                if reading[entry].is_done:
                    fates[entry] = "yes"
    return {entry: fates.get(entry, "no: polls for ever") for entry in reading}


def test_readme_lists_every_client_of_matrix_as_served() -> None:
    said = {title: row.through for title, row in readme_rows().items()}

    assert said == {entry.title: "yes" for entry in MATRIX}


def test_readme_lists_codecs_that_client_cannot_read_on_kafka_39() -> None:
    def read_on_39(entry: Entry) -> str:
        missing = [codec for codec in entry.reads if codec not in entry.reads_on_39]
        return f"yes, but not {' and '.join(missing)}" if missing else "yes"

    said = {title: row.on_39 for title, row in readme_rows().items()}

    assert said == {entry.title: read_on_39(entry) for entry in MATRIX}


@pytest.mark.long
@pytest.mark.parametrize("entry", MATRIX, ids=program)
def test_fares_on_kafka_4_itself_as_the_readme_says(entry: Entry, fates: Mapping[str, str]) -> None:
    said, found = readme_rows()[entry.title].directly, fates[entry.title]

    quoted = re.fullmatch(r"no: `(.+)`", said)

    assert quoted[1] in found if quoted else found == said, found
