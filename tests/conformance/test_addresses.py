"""Brokers' real addresses never reach a client, whatever it asks: every API that can carry one, on real brokers.

``tests/wire/test_addresses.py`` proves by kio's schemas that there are no other such APIs.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.demo.client import KafkaConnection, connect
from tests.conformance.raw import value_batch
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

NOT_LEADER = 6


@pytest.fixture(scope="module")
def sidefetch(kafka4: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka4.bootstrap) as started:
        yield started


def nodes_in(value: Any) -> list[tuple[Any, ...]]:
    """(node id, host, port) of everything in an answer that has a host and a port."""
    found: list[tuple[Any, ...]] = []
    names = getattr(value, "__dataclass_fields__", {})
    if "host" in names and "port" in names:
        node_id = getattr(value, "node_id", getattr(value, "broker_id", None))
        found.append((node_id, value.host, value.port))
    for each in value if isinstance(value, tuple) else (getattr(value, name) for name in names):
        found += nodes_in(each)
    return found


def expected_nodes(sidefetch: Sidefetch, kafka: KafkaCluster) -> set[tuple[int, str, int]]:
    first = int(sidefetch.bootstrap.rpartition(":")[2]) + 1
    return {(node_id, "127.0.0.1", first + node_id) for node_id in kafka.brokers}


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_the_local_ports(version: int, sidefetch: Sidefetch, kafka4: KafkaCluster) -> None:
    async with connect(sidefetch.bootstrap) as client:
        nodes = nodes_in(await client.call("metadata", version, {}))
    assert set(nodes) == expected_nodes(sidefetch, kafka4)


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_a_local_port(version: int, sidefetch: Sidefetch, kafka4: KafkaCluster) -> None:
    expected = expected_nodes(sidefetch, kafka4)
    async with connect(sidefetch.bootstrap) as client:
        request = {"key": "group", "coordinator_keys": ["group"]}
        nodes = nodes_in(await client.call("find_coordinator", version, request))
    assert len(nodes) == 1
    assert set(nodes) <= expected | {(-1, "", -1)}


@pytest.mark.parametrize("version", range(3))
async def test_a_described_cluster_has_local_ports(
    version: int, sidefetch: Sidefetch, kafka4: KafkaCluster
) -> None:
    async with connect(sidefetch.bootstrap) as client:
        nodes = nodes_in(await client.call("describe_cluster", version, {"endpoint_type": 1}))
    assert set(nodes) == expected_nodes(sidefetch, kafka4)


@pytest.fixture(scope="module")
def led_by_one(kafka4: KafkaCluster) -> str:
    return Admin(kafka4).create_topic(unique("led-by-one"), 1, assignment=[[1, 2]])


async def to_broker(sidefetch: Sidefetch, node_id: int) -> str:
    """Return the local address of a broker; its port is open once Sidefetch has answered a Metadata request."""
    async with connect(sidefetch.bootstrap) as client:
        described = await client.call("metadata", 12, {"topics": []})
    (broker,) = (each for each in described.brokers if each.node_id == node_id)
    return f"{broker.host}:{broker.port}"


async def topic_id(client: KafkaConnection, topic: str) -> Any:
    described = await client.call("metadata", 12, {"topics": [{"name": topic}]})
    return described.topics[0].topic_id


@pytest.mark.parametrize("version", range(10, 14))
async def test_new_leader_in_produce_response_has_local_address(
    version: int, sidefetch: Sidefetch, kafka4: KafkaCluster, led_by_one: str
) -> None:
    async with connect(await to_broker(sidefetch, 2)) as client:
        identity = {"name": led_by_one, "topic_id": await topic_id(client, led_by_one)}
        data = [{**identity, "partition_data": [{"index": 0, "records": value_batch(b"lost")}]}]
        response = await client.call("produce", version, {"acks": -1, "timeout": 1000, "topic_data": data})
    assert response.responses[0].partition_responses[0].error_code == NOT_LEADER
    assert set(nodes_in(response)) == {node for node in expected_nodes(sidefetch, kafka4) if node[0] == 1}


@pytest.mark.parametrize("version", range(16, 19))
async def test_new_leader_in_fetch_response_has_local_address(
    version: int, sidefetch: Sidefetch, kafka4: KafkaCluster, led_by_one: str
) -> None:
    """A client that names its rack may read followers, so it is the broker that says who leads: by its epoch."""
    async with connect(await to_broker(sidefetch, 3)) as client:
        identity = {"topic_id": await topic_id(client, led_by_one)}
        ask = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": 0}
        request = {"topics": [{**identity, "partitions": [ask]}], "session_epoch": -1, "rack_id": "c"}
        response = await client.call("fetch", version, {**request, "max_bytes": 1000})
    assert response.responses[0].partitions[0].error_code == NOT_LEADER
    assert set(nodes_in(response)) == {node for node in expected_nodes(sidefetch, kafka4) if node[0] == 1}


async def test_the_quorum_is_described_without_the_controllers_addresses(sidefetch: Sidefetch) -> None:
    async with connect(sidefetch.bootstrap) as client:
        offered = {each.api_key: each for each in (await client.call("api_versions", 0, {})).api_keys}
    assert offered[55].max_version == 1
