"""Requests of all versions that Kafka 4 removed, sent to a 3.9 broker and through Sidefetch to a 4.3 broker.

The responses are equal, except for ``DIFFERENT``.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from proxy.convert.versions.table import UPGRADES
from proxy.demo.client import connect
from tests.conformance.old_versions import CONVERSATIONS, Heard, Setting, Speaker
from tests.convert.versions.old import commit, encoded, legacy_set, produce
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

ACCESS_CONTROL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a secret",
}
COORDINATED = (8, 9, 11)
PRODUCE, JOIN_GROUP = 0, 11

_Stored = list[tuple[int, int, tuple[int, int], bytes | None, bytes | None]]

_NO_ZOOKEEPER = "a broker of 3.9 without ZooKeeper has nowhere to keep them, and answers 35"
_AGE_OF_FILES = "v0 looks at when segments were last written, v1 at the times of records"
_FORGOTTEN = "brokers of 3.x do not fill it in any more: to them nothing is a default"

DIFFERENT: dict[tuple[int, int], dict[str, str]] = {
    (2, 0): {"a time before": _AGE_OF_FILES, "a time between": _AGE_OF_FILES},
    (8, 0): dict.fromkeys(("an offset", "a long metadata", "no metadata", "what is kept"), _NO_ZOOKEEPER),
    (9, 0): {"kept": _NO_ZOOKEEPER},
    (32, 0): {"set, inherited, and by default": _FORGOTTEN},
}
"""By API key, version and field: the reason why the responses rightly differ."""


@pytest.fixture(scope="module")
def kafka39() -> Iterator[KafkaCluster]:
    with KafkaCluster("3.9.2", settings=ACCESS_CONTROL) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka4() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1", settings=ACCESS_CONTROL) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka400() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.0.0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sidefetch(kafka4: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka4.bootstrap) as started:
        yield started


@pytest.fixture
def setting(kafka39: KafkaCluster, kafka4: KafkaCluster) -> Setting:
    """Create the same topics and groups in both clusters."""
    it = Setting(unique("versions"), unique("group"))
    for kafka in (kafka39, kafka4):
        admin = Admin(kafka)
        admin.create_topic(it.topic, assignment=[[1, 2], [1, 3]], config={"retention.bytes": "1000000000"})
        admin.produce_known(it.topic, 200, 2)
        admin.coordinator(it.group)
    return it


async def heard_at(address: str, key: int, version: int, setting: Setting) -> Heard:
    async with connect(address) as connection:
        return await CONVERSATIONS[key, version](Speaker(connection), setting)


def node_for(kafka: KafkaCluster, key: int, setting: Setting) -> int:
    """Return the broker that a client would ask: for groups, their coordinator."""
    return Admin(kafka).coordinator(setting.group) if key in COORDINATED else 1


@pytest.mark.parametrize(("key", "version"), CONVERSATIONS)
async def test_responses_through_sidefetch_equal_those_of_kafka_39(
    key: int, version: int, kafka39: KafkaCluster, kafka4: KafkaCluster, sidefetch: Sidefetch, setting: Setting
) -> None:
    direct = await heard_at(kafka39.brokers[node_for(kafka39, key, setting)].address, key, version, setting)
    port = sidefetch.port_of(node_for(kafka4, key, setting))
    through = await heard_at(f"127.0.0.1:{port}", key, version, setting)

    if key == PRODUCE:
        assert stored(kafka39, setting.topic) == stored(kafka4, setting.topic)
    differing = {what: (direct[what], through[what]) for what in direct if direct[what] != through[what]}
    expected = DIFFERENT.get((key, version), {})
    assert {what: both for what, both in differing.items() if what not in expected} == {}
    assert set(differing) == set(expected)


def stored(kafka: KafkaCluster, topic: str) -> _Stored:
    """Partition, offset, time and its kind, key, value, of all there is."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused", "log_level": 0})
    records: _Stored = []
    try:
        for partition in (0, 1):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition))
            while not records or records[-1][:2] != (partition, end - 1):
                message = consumer.poll(10)
                assert message is not None, f"{len(records)} records, and no more"
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                records.append((partition, offset, message.timestamp(), message.key(), message.value()))
    finally:
        consumer.close()
    return records


async def ask_produce(speaker: Speaker, topic: str, records: bytes, *, acks: int) -> tuple[int, int]:
    """Error and base offset, by Produce v1."""
    await speaker.send(PRODUCE, 1, encoded(produce.ProduceRequest_v1, acks, 10_000, [(topic, [(0, records)])]))
    if not acks:
        return 0, -1
    response = produce.ProduceResponse_v1.decode(await speaker.receive())
    ((_, ((_, error, base_offset),)),) = response.topics
    return error, base_offset


@pytest.mark.parametrize("codec", [0, 1])
async def test_a_large_set_arrives_in_order_in_several_batches(
    codec: int, kafka4: KafkaCluster, sidefetch: Sidefetch, setting: Setting
) -> None:
    """Produce data that does not compress, so that it needs several batches."""
    dice = random.Random(7)
    values = [dice.randbytes(1000) for _ in range(3000)]
    sets = [legacy_set(0, [(-1, None, value) for value in some], codec) for some in (values, values[:1])]
    async with connect(f"127.0.0.1:{sidefetch.port_of(1)}") as connection:
        speaker = Speaker(connection)
        for records in sets:
            await ask_produce(speaker, setting.topic, records, acks=0)
        acknowledged = [await ask_produce(speaker, setting.topic, records, acks=-1) for records in sets]

    assert acknowledged == [(0, 100 + 3001), (0, 100 + 6001)]
    written = [value for partition, offset, _, _, value in stored(kafka4, setting.topic) if not partition]
    assert written[100:] == [*values, values[0]] * 2


async def test_corrupt_produce_with_acks_0_closes_connection(
    kafka39: KafkaCluster, sidefetch: Sidefetch, setting: Setting
) -> None:
    plain = legacy_set(0, [(-1, b"k", b"v")])
    for address in (kafka39.brokers[1].address, f"127.0.0.1:{sidefetch.port_of(1)}"):
        async with connect(address) as connection:
            speaker = Speaker(connection)
            await ask_produce(speaker, setting.topic, plain[:-1] + b"!", acks=0)
            assert await speaker.is_hung_up_on()


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param(0, marks=pytest.mark.long), 1])
async def test_members_join_at_brokers_of_4_0_0_which_alone_do_not_serve_them(
    version: int, kafka400: KafkaCluster
) -> None:
    """It needs three more brokers: 4.0.1 has the versions again (KAFKA-19444)."""
    setting = Setting("t", unique("group"))
    with Sidefetch(kafka400.bootstrap) as sidefetch:
        port = sidefetch.port_of(Admin(kafka400).coordinator(setting.group))
        heard = await heard_at(f"127.0.0.1:{port}", JOIN_GROUP, version, setting)

    with pytest.raises(ConnectionResetError):
        await heard_at(kafka400.brokers[1].address, JOIN_GROUP, version, setting)
    assert (heard["joined"][0], heard["refused"]) == (0, 25)


async def test_offsets_survive_their_coordinator(setting: Setting) -> None:
    """On brokers of their own, since one is killed."""
    with KafkaCluster("4.3.1") as kafka, Sidefetch(kafka.bootstrap) as sidefetch:
        admin = Admin(kafka)
        admin.create_topic(setting.topic, assignment=[[1, 2, 3], [1, 2, 3]])
        coordinator = admin.coordinator(setting.group)
        elsewhere = coordinator % 3 + 1
        async with connect(f"127.0.0.1:{sidefetch.port_of(elsewhere)}") as connection:
            speaker = Speaker(connection)
            assert await commit_v0(speaker, setting, 5) == 0
            kafka.kill(coordinator)
            with trio.fail_after(60):
                while await commit_v0(speaker, setting, 6):
                    await trio.sleep(0.2)
            assert await committed_v0(speaker, setting) == 6


async def commit_v0(speaker: Speaker, setting: Setting, at: int) -> int:
    """The error."""
    body = encoded(commit.OffsetCommitRequest_v0, setting.group, [(setting.topic, [(0, at, "m")])])
    response = commit.OffsetCommitResponse_v0.decode(await speaker.ask(8, 0, body))
    ((_, ((_, error),)),) = response.topics
    return int(error)


async def committed_v0(speaker: Speaker, setting: Setting) -> int:
    """The offset."""
    body = encoded(commit.OffsetFetchRequest_v0, setting.group, [(setting.topic, [0])])
    response = commit.OffsetFetchResponse_v0.decode(await speaker.ask(9, 0, body))
    ((_, ((_, offset, _, error),)),) = response.topics
    assert not error
    return int(offset)


def test_conversations_cover_every_upgrade() -> None:
    assert {each for each, upgrade in UPGRADES.items() if upgrade.steps} == set(CONVERSATIONS)


@pytest.mark.each_once
@pytest.mark.parametrize("node_id", [1, 2, 3])
@pytest.mark.parametrize(("key", "version"), [(8, 0), (8, 1), (9, 0)])
async def test_offsets_are_kept_by_way_of_any_broker(
    key: int, version: int, node_id: int, kafka4: KafkaCluster, sidefetch: Sidefetch, setting: Setting
) -> None:
    coordinator = node_for(kafka4, key, setting)
    at_it = await heard_at(f"127.0.0.1:{sidefetch.port_of(coordinator)}", key, version, setting)

    def kept(responses: Heard) -> Any:
        return {name: found for name, found in responses.items() if name not in ("what is kept", "committed")}

    assert kept(await heard_at(f"127.0.0.1:{sidefetch.port_of(node_id)}", key, version, setting)) == kept(at_it)
