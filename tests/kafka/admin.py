"""Operations of an operator and a producer on a cluster, to prepare and disturb it; blocking."""

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tests.kafka.ask import ask
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, known_records

__all__ = ["Admin", "Log", "eventually", "unique"]

_numbers = itertools.count(1)
_TOPIC, _BROKER = 2, 4
"""Kinds of configurable resources."""
_THROTTLED_RATE = "follower.replication.throttled.rate"
_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"


def unique(prefix: str) -> str:
    """Return a name for a topic or group that no other test has."""
    return f"{prefix}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Return once *condition* holds; it is asked ten times a second."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.1)


@attrs.frozen
class Log:
    """One replica's."""

    start: int
    high_watermark: int
    last_stable: int
    """The offset before which all transactions have ended; at most the high watermark."""


class Admin:
    """Acts on *cluster* directly. Every method returns when the running brokers agree on the outcome."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int = 2,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name; *assignment* gives each partition's node ids, leader first."""
        count = len(assignment) if assignment else partitions
        where: dict[str, Any] = (
            {"replica_assignment": list(map(list, assignment))}
            if assignment
            else {"replication_factor": replication}
        )
        topic = NewTopic(name, num_partitions=count, config=dict(config or {}), **where)
        self._client.create_topics([topic])[name].result()
        self.wait_until_known(name, count)
        return name

    def wait_until_known(self, topic: str, partitions: int) -> None:
        """Return when every running broker knows a leader of every partition."""
        eventually(
            lambda: all(len(found) == partitions for found in self._leaders_seen(topic)), f"{topic} everywhere"
        )

    def wait_until_gone(self, topic: str) -> None:
        """Return when no running broker knows *topic*."""
        eventually(lambda: not any(self._leaders_seen(topic)), f"{topic} gone")

    def delete_topic(self, name: str) -> None:
        self._client.delete_topics([name])[name].result()
        self.wait_until_gone(name)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Let the log of a partition begin at offset *before*."""
        where = TopicPartition(topic, partition, before)
        self._client.delete_records([where])[where].result()

    def leaders(self, topic: str) -> dict[int, int]:
        """Node id of the leader of each partition that has one, as the first running broker knows them."""
        return self._leaders_seen(topic)[0]

    def wait_led(self, topic: str, node_id: int) -> None:
        """Return when *node_id* leads all partitions of *topic*."""
        eventually(lambda: set(self.leaders(topic).values()) == {node_id}, f"{topic} led by {node_id}")

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make *node_id*, one of the partition's replicas and in sync, its leader."""
        (found,) = (each for each in self._metadata(self._running()[0], topic) if each.partition_index == partition)
        assert node_id in found.replica_nodes, f"{topic}-{partition} has replicas {found.replica_nodes}"
        others = [node for node in found.replica_nodes if node != node_id]
        self._order_replicas(topic, {partition: [node_id, *others]})
        these = (TopicPartitions(topic=TopicName(topic), partitions=(i32(partition),)),)
        self._expect_ok(ask(self._running()[0], ElectLeadersRequest(election_type=i8(0), topic_partitions=these)))
        eventually(
            lambda: all(found.get(partition) == node_id for found in self._leaders_seen(topic)),
            f"{topic}-{partition} led by {node_id}",
        )

    def reassign(self, topic: str, assignment: Sequence[Sequence[int]]) -> None:
        """Give each partition these replicas; return when they hold all and every broker knows them, in sync."""
        self._order_replicas(topic, dict(enumerate(assignment)))
        wanted = [set(nodes) for nodes in assignment]

        def done(address: str) -> bool:
            found = {each.partition_index: each for each in self._metadata(address, topic)}
            return all(
                set(found[partition].replica_nodes) == set(found[partition].isr_nodes) == nodes
                for partition, nodes in enumerate(wanted)
            )

        eventually(lambda: all(map(done, self._running())), f"{topic} kept by {assignment}", timeout_s=60)

    def _order_replicas(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        partitions = tuple(
            ReassignablePartition(partition_index=i32(partition), replicas=tuple(map(BrokerId, nodes)))
            for partition, nodes in assignment.items()
        )
        topics = (ReassignableTopic(name=TopicName(topic), partitions=partitions),)
        self._expect_ok(ask(self._running()[0], AlterPartitionReassignmentsRequest(topics=topics)))

    def configure_topic(self, topic: str, config: Mapping[str, str | None]) -> None:
        """Set the given options, and remove those that are None; brokers apply them within a second."""
        self._configure(_TOPIC, topic, config)

    def throttle_replication(self, topic: str, node_id: int) -> None:
        """Let *node_id* replicate next to nothing of *topic* while it is behind.

        A replica in sync is not throttled, by Kafka's rules: it has to be put behind, once it has heard of this.
        """
        replicas = ",".join(f"{partition}:{node_id}" for partition in self.leaders(topic))
        self._configure(_BROKER, str(node_id), {_THROTTLED_RATE: "1"})
        self.configure_topic(topic, {_THROTTLED_REPLICAS: replicas})

    def release_replication(self, topic: str, node_id: int) -> None:
        """Undo ``throttle_replication``."""
        self._configure(_BROKER, str(node_id), {_THROTTLED_RATE: None})
        self.configure_topic(topic, {_THROTTLED_REPLICAS: None})

    def _configure(self, kind: int, name: str, config: Mapping[str, str | None]) -> None:
        entries = tuple(
            AlterableConfig(name=key, config_operation=i8(0 if value is not None else 1), value=value)
            for key, value in config.items()
        )
        resource = AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=entries)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (answered,) = ask(self._running()[0], request).responses
        self._expect_ok(answered)

    def restore_leaders(self) -> None:
        """Give every partition back to the first of its replicas, where that is in sync."""
        self._expect_ok(ask(self._running()[0], ElectLeadersRequest(election_type=i8(0), topic_partitions=None)))

    def coordinator(self, group: str) -> int:
        """Node id of the broker that coordinates *group*, which need not exist."""

        def found() -> int:
            request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(group,))
            return int(ask(self._running()[0], request).coordinators[0].node_id)

        eventually(lambda: found() >= 0, f"a coordinator of {group}")
        return found()

    @contextlib.contextmanager
    def reading_denied(self, topic: str) -> Iterator[None]:
        """Take the right to read *topic* from who has no name, while in context; needs an authorizer."""
        rights = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", what, kind)
            for what, kind in (
                (AclOperation.READ, AclPermissionType.DENY),
                # Of a topic that ACLs speak of, nothing is allowed that they do not speak of.
                *((each, AclPermissionType.ALLOW) for each in (AclOperation.DESCRIBE, AclOperation.WRITE)),
            )
        ]
        for done in self._client.create_acls(rights).values():
            done.result()
        try:
            yield
        finally:
            everything = AclBindingFilter(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                "User:ANONYMOUS",
                "*",
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            for done in self._client.delete_acls([everything]).values():
                done.result()

    def members(self, group: str) -> int:
        """Return the number of members of *group*, from its coordinator."""
        return len(self._client.describe_consumer_groups([group])[group].result().members)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return, by partition, the committed offset of *group*, from its coordinator."""
        (asked,) = self._client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return {each.partition: each.offset for each in asked.result().topic_partitions if each.topic == topic}

    def in_sync(self, topic: str) -> dict[int, set[int]]:
        """Node ids of each partition's replicas in sync, as the first running broker knows them."""
        partitions = self._metadata(self._running()[0], topic)
        return {each.partition_index: set(each.isr_nodes) for each in partitions}

    def wait_out_of_sync(self, topic: str, node_id: int) -> None:
        """Return when *node_id* is in sync with no partition of *topic*."""
        eventually(
            lambda: not any(node_id in nodes for nodes in self.in_sync(topic).values()),
            f"{node_id} out of sync with {topic}",
        )

    def log_at(self, topic: str, partition: int, node_id: int, offset: int) -> Log:
        """What the replica at *node_id* knows of its log; *offset* must be in it or at its end: it is fetched."""
        asked = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(1))
        request = FetchRequest(
            max_wait=i32Timedelta.parse(timedelta(0)),
            min_bytes=i32(0),
            topics=(FetchTopic(topic=TopicName(topic), partitions=(asked,)),),
            forgotten_topics_data=(),
        )
        (found,) = ask(self._cluster.brokers[node_id].address, request).responses[0].partitions
        self._expect_ok(found)
        return Log(int(found.log_start_offset), int(found.high_watermark), int(found.last_stable_offset))

    def wait_without_transactions(self, topic: str, partition: int) -> None:
        """Return when the markers of all transactions are written: brokers do so after a commit is acknowledged."""
        leader = self.leaders(topic)[partition]

        def ended() -> bool:
            log = self.log_at(topic, partition, leader, 0)
            return log.last_stable == log.high_watermark

        eventually(ended, f"all transactions of {topic}-{partition} have ended")

    def wait_in_sync(self, topic: str, timeout_s: float = 60.0) -> None:
        """Return when every replica of every partition is in sync."""

        def in_sync() -> bool:
            partitions = self._metadata(self._running()[0], topic)
            return all(set(each.isr_nodes) == set(each.replica_nodes) for each in partitions)

        eventually(in_sync, f"all replicas of {topic} in sync", timeout_s)

    def produce(self, topic: str, records: Iterable[Record], *, codecs: Sequence[str] = ("none", "gzip")) -> None:
        """Produce *records* in batches of some dozens, in each of *codecs* in turn, acknowledged by all in sync.

        Raises: AssertionError: a record was refused, or got another offset than it says.
        """
        producers = [self._producer(codec) for codec in codecs]
        pending = list(records)
        for number, start in enumerate(range(0, len(pending), 250)):
            problems: list[str] = []
            producer = producers[number % len(producers)]
            for record in pending[start : start + 250]:
                producer.produce(
                    topic,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=_check(record, problems),
                )
            left = producer.flush(60)
            assert not left, f"{left} records not acknowledged in 60 s"
            assert not problems, problems[:5]

    def produce_known(self, topic: str, count: int, partitions: int, *, first: int = 0) -> list[Record]:
        """Produce ``known_records`` and return them."""
        records = known_records(count, partitions, first=first)
        self.produce(topic, records)
        return records

    def filled_topic(self, prefix: str, partitions: int, count: int = 1_000) -> tuple[str, list[Record]]:
        """Create a topic with *count* known records; return its name and them."""
        topic = self.create_topic(unique(prefix), partitions)
        return topic, self.produce_known(topic, count, partitions)

    def _producer(self, codec: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": ",".join(self._running()),
                # A broker that is stalled on purpose is given up soon, and another one asked for the producer's id.
                "socket.timeout.ms": 5_000,
                "api.version.request.timeout.ms": 3_000,
                "compression.type": codec,
                "acks": "all",
                # The expected offsets depend on the order.
                "enable.idempotence": True,
                "linger.ms": 20,
                # Several batches per partition, none larger than the clients' fetch limits.
                "batch.size": 4096,
                "log_level": 0,
            }
        )

    def _running(self) -> list[str]:
        return [self._cluster.brokers[node_id].address for node_id in self._cluster.running]

    def _leaders_seen(self, topic: str) -> list[dict[int, int]]:
        """The leaders by partition, as each running broker knows them."""
        return [
            {each.partition_index: each.leader_id for each in self._metadata(address, topic) if each.leader_id >= 0}
            for address in self._running()
        ]

    @staticmethod
    def _metadata(address: str, topic: str) -> Any:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return ask(address, request).topics[0].partitions

    @staticmethod
    def _expect_ok(response: Any) -> None:
        assert int(response.error_code) == 0, response


def _check(record: Record, problems: list[str]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            problems.append(f"{record}: {error}")
        elif message.offset() != record.offset:
            problems.append(f"{record} is at offset {message.offset()}")

    return delivered
