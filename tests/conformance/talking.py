"""Conversations with a broker, directly and through Sidefetch."""

import dataclasses
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition

from proxy.demo.client import KafkaConnection, connect
from tests.kafka.admin import eventually, unique
from tests.kafka.cluster import KafkaCluster

__all__ = [
    "ALLOWED",
    "PARTITIONS",
    "TRANSACTIONS",
    "Side",
    "address_of",
    "ask",
    "identity_of",
    "plain",
    "produce_transactions",
]

ALLOWED: Final = {
    "session_id": "a number of the side's own; test_client_sessions checks sessions",
    "throttle_time": "tells what happened, not what was asked",
    "node_endpoints": "brokers are elsewhere through Sidefetch; test_addresses looks at these",
}


PARTITIONS: Final = 3


TRANSACTIONS: Final = 4


@attrs.frozen
class Side:
    """One of the two ways to the same topic."""

    raw: KafkaConnection
    version: int

    async def fetch(self, asks: list[dict[str, Any]], topic: dict[str, Any], **options: Any) -> Any:
        named = [{**topic, "partitions": asks}] if asks else []
        request = {
            "max_wait": 20,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": named,
            **options,
        }
        return await self.raw.call("fetch", self.version, request)


def plain(value: Any) -> Any:
    """Return an entity as a dictionary, without the fields that may differ."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {each.name: plain(getattr(value, each.name)) for each in fields if each.name not in ALLOWED}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value


def ask(partition: int, offset: int, *, max_bytes: int = 1 << 20, epoch: int = -1) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
        "current_leader_epoch": epoch,
    }


def produce_transactions(kafka: KafkaCluster, topic: str) -> None:
    """In every partition: records that are committed, records that are aborted, and so on; until all are there."""
    after = [end + 2 * TRANSACTIONS for end in _ends(kafka, topic)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("conversation")})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, key=b"key", value=b"value %d" % number, partition=partition)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    eventually(lambda: _ends(kafka, topic) == after, "the last markers are replicated")


def _ends(kafka: KafkaCluster, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions]
    finally:
        consumer.close()


async def address_of(bootstrap: str, node_id: int) -> str:
    async with connect(bootstrap) as raw:
        for broker in (await raw.call("metadata", 12, {})).brokers:
            if broker.node_id == node_id:
                return f"{broker.host}:{broker.port}"
    raise AssertionError(f"no broker {node_id}")


async def identity_of(kafka: KafkaCluster, topic: str) -> dict[str, Any]:
    async with connect(await address_of(kafka.bootstrap, 1)) as raw:
        described = (await raw.call("metadata", 12, {"topics": [{"name": topic}]})).topics[0]
    return {"topic": topic, "topic_id": described.topic_id}
