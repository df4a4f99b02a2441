"""Clients and brokers that send tagged fields that Sidefetch does not know (KIP-482), over sockets."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from proxy.demo import messages as demo_messages
from proxy.wire import messages
from tests.conformance.raw import value_batch
from tests.net.proxied import ask, proxied
from tests.wire.unknown_tags import with_unknown_tags


@pytest.fixture(autouse=True)
def _unknown_tags_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the embedded brokers and the client send unknown tags in every flexible struct, and skip them."""

    def entity_writer(_: Any) -> Callable[[io.BytesIO, Any], object]:
        return lambda buffer, entity: buffer.write(with_unknown_tags(entity))

    def entity_reader(kind: Any) -> Callable[[bytes, int], tuple[Any, int]]:
        def read(frame: bytes, at: int) -> tuple[Any, int]:
            entity, end = messages.read_entity(kind, frame, at)
            return entity, end - at

        return read

    monkeypatch.setattr(demo_messages, "entity_writer", entity_writer)
    monkeypatch.setattr(demo_messages, "entity_reader", entity_reader)


async def test_client_and_broker_with_unknown_tags_are_served() -> None:
    async with proxied() as it, it.client(1) as client:
        software = {"client_software_name": "newer", "client_software_version": "9"}
        versions = await client.call("api_versions", 4, software)
        metadata = await client.call("metadata", 12, {"topics": [{"name": "t"}]})
        coordinator = await client.call("find_coordinator", 4, {"coordinator_keys": ["g"], "key_type": 0})
        partition = {"index": 0, "records": value_batch(b"value")}
        topics = [{"name": "t", "partition_data": [partition]}]
        produced = await client.call("produce", 10, {"acks": 1, "timeout": 1000, "topic_data": topics})
        fetched = await client.call("fetch", 12, ask({0: 0}))

    assert int(versions.error_code) == 0
    assert {broker.host for broker in metadata.brokers} == {"127.0.0.1"}
    assert {broker.port for broker in metadata.brokers} == {it.port_of(node) for node in (1, 2, 3)}
    assert coordinator.coordinators[0].port in {it.port_of(node) for node in (1, 2, 3)}
    assert int(produced.responses[0].partition_responses[0].error_code) == 0
    assert b"value" in bytes(fetched.responses[0].partitions[0].records)
