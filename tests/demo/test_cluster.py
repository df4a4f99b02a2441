"""Real clients work with the embedded cluster as with a real one."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest
import trio

from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from tests.clients.conversation import Client
from tests.kafka.records import by_partition, sendable_records

PYTHON_CLIENTS = ("aiokafka", "kafka-python", "librdkafka")
OTHER_CLIENTS = [pytest.param(name, marks=pytest.mark.kafka) for name in ("kafkajs", "java")]  # Node, Java

T = TypeVar("T")


async def blocking(call: Callable[..., T], *args: object) -> T:
    """Run one of the client's commands beside the cluster."""
    return await trio.to_thread.run_sync(partial(call, *args))


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster() as cluster:
        yield cluster


@pytest.fixture(params=[*PYTHON_CLIENTS, *OTHER_CLIENTS])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(request.param) as client:
        yield client


async def test_a_client_writes_and_reads_by_assignment_and_in_a_group(
    cluster: EmbeddedCluster, client: Client
) -> None:
    records = sendable_records(200, partitions=3)
    await blocking(client.create_topic, cluster.bootstrap, "t", 3)
    acknowledged = await blocking(client.produce, cluster.bootstrap, "t", records)
    offsets = await blocking(client.offsets, cluster.bootstrap, "t")
    assigned = await blocking(client.read, cluster.bootstrap, "t", range(3), len(records))
    half = await blocking(client.read_in_group, cluster.bootstrap, "t", "g", len(records) // 2)
    await blocking(client.restart)
    rest = await blocking(client.read_in_group, cluster.bootstrap, "t", "g", len(records) - len(half))
    await blocking(client.delete_topic, cluster.bootstrap, "t")

    assert sorted(acknowledged) == sorted((each.partition, each.offset) for each in records)
    assert offsets == {0: (0, 67), 1: (0, 67), 2: (0, 66)}
    assert by_partition(assigned) == by_partition(records)
    assert by_partition(half + rest) == by_partition(records)
    assert "t" not in cluster.state.topics


async def test_client_continues_after_leader_change_and_broker_stop(
    cluster: EmbeddedCluster, client: Client
) -> None:
    records = sendable_records(300, partitions=3)
    cluster.create_topic("t", assignment=[[1, 2], [2, 3], [3, 1]])
    await blocking(client.produce, cluster.bootstrap, "t", records[:150])

    cluster.move_leader("t", 0, 2)
    await blocking(client.produce, cluster.bootstrap, "t", records[150:])
    cluster.stop(3)
    read = await blocking(client.read, cluster.bootstrap, "t", range(3), len(records))

    assert by_partition(read) == by_partition(records)


async def test_seeded_records_are_read(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t")
    for number in range(5):
        cluster.append("t", 0, [b"%d" % number, b"again"])
    with Client("librdkafka") as client:
        read = await blocking(client.read, cluster.bootstrap, "t", [0], 10)

    assert [each.value for each in read[:4]] == [b"0", b"again", b"1", b"again"]
    assert [each.offset for each in read] == list(range(10))


async def test_names_are_taken_once(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t")

    with pytest.raises(ValueError, match="exists"):
        cluster.create_topic("t")
    with pytest.raises(KeyError):
        cluster.append("t", 1, [b"x"])


async def test_racks_and_partitions_are_spread_evenly() -> None:
    async with embedded_cluster(brokers=4) as cluster:
        topic = cluster.create_topic("t", partitions=8, replication=2)

        assert cluster.state.racks == {1: "a", 2: "b", 3: "c", 4: "a"}
        assert [partition.leader for partition in topic.partitions] == [1, 2, 3, 4] * 2
        assert topic.partitions[3].replicas == (4, 1)
