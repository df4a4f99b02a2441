"""An immutable view of a cluster: brokers, topics, leaders, replicas. Every metadata update makes a new one."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NewType
from uuid import UUID

import attrs

from proxy.errors import ErrorCode
from proxy.wire.fetch import UNKNOWN, PartitionKey, Topic, TopicId

__all__ = ["NO_LEADER", "NO_TOPIC_ID", "Broker", "BrokerId", "Leader", "Replicas", "TopicInfo", "Topology"]

BrokerId = NewType("BrokerId", int)
NO_LEADER = BrokerId(-1)
NO_TOPIC_ID = TopicId(bytes(16))
"""The zero id, which no topic has (Kafka's ``Uuid.ZERO_UUID``)."""


@attrs.frozen
class Broker:
    """A broker as the cluster advertises it."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The leader of a partition."""

    node_id: BrokerId
    """-1 while the partition has no leader."""
    epoch: int
    """The leader epoch; -1 if the brokers do not send it (Metadata below v7)."""


class Replicas(NamedTuple):
    """The replicas of a partition, with its leader."""

    online: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


@attrs.frozen
class TopicInfo:
    """The metadata of a topic, or the error that the brokers have for it."""

    name: str | None
    topic_id: TopicId | None
    """None if the brokers have no topic ids (Metadata below v10)."""
    error: int = 0
    leaders: Mapping[int, Leader] = attrs.field(factory=dict)
    """The leader of each partition."""
    replicas: Mapping[int, Replicas] = attrs.field(factory=dict)
    """The replicas of each partition."""
    _keys: dict[PartitionKey, PartitionKey] = attrs.field(factory=dict, eq=False, repr=False)

    def key(self, partition: int, *, by_id: bool) -> PartitionKey | None:
        """Return the key of a partition in requests by topic id, or by name; None if the topic has no such name.

        All clients share the object, because each may hold the keys of thousands of partitions.
        """
        topic = self.topic_id if by_id else self.name
        if topic is None:
            return None
        key = PartitionKey(topic, partition)
        return self._keys.setdefault(key, key) if partition in self.leaders else key


_NO_TOPIC: Final = TopicInfo(None, NO_TOPIC_ID, ErrorCode.unknown_topic_id)


@attrs.frozen
class Topology:
    """A view of the cluster.

    A topic that did not change between two views is the same object in both, so that identity shows a change.
    """

    cluster_id: str | None = None
    brokers: Mapping[BrokerId, Broker] = attrs.field(factory=dict)
    topics: Mapping[Topic, TopicInfo] = attrs.field(factory=dict)
    """The topics by name, and by id if they have one."""

    def topic(self, topic: Topic) -> TopicInfo | None:
        """Return the metadata of a topic, by its name or id; None if it is not known."""
        return _NO_TOPIC if topic == NO_TOPIC_ID else self.topics.get(topic)

    def led(self, key: PartitionKey) -> tuple[TopicId | None, Leader | None] | None:
        """Return the topic id and the leader of a partition; None if the topic is not known."""
        info = self.topic(key.topic)
        return None if info is None else (info.topic_id, info.leaders.get(key.partition))

    def name_of(self, topic: Topic) -> str:
        """Return the name of a topic for people; its id as text if the name is not known."""
        info = self.topic(topic)
        if info is not None and info.name is not None:
            return info.name
        return topic if isinstance(topic, str) else str(UUID(bytes=topic))

    def refreshed(self, metadata: Any) -> "Topology":
        """Return this view, updated by a Metadata response (a kio entity of any version).

        The brokers are those of the response; topics that it does not name stay. A topic that has another id now
        replaces the old one, and the old id becomes unknown.
        """
        topics = dict(self.topics)
        for each in metadata.topics:
            info = _topic_info(each)
            for name in _names(info):
                known = topics.get(name)
                if known is not None and known == info:
                    info = known
                elif known is not None and known.topic_id == info.topic_id:
                    info = attrs.evolve(info, keys=known._keys)
                elif known is not None and known.topic_id != info.topic_id and known.topic_id is not None:
                    topics[known.topic_id] = TopicInfo(known.name, known.topic_id, ErrorCode.unknown_topic_id)
            for name in _names(info):
                topics[name] = info
        brokers = {
            BrokerId(each.node_id): Broker(
                BrokerId(each.node_id), each.host, each.port, getattr(each, "rack", None)
            )
            for each in metadata.brokers
        }
        return Topology(getattr(metadata, "cluster_id", self.cluster_id), brokers, topics)


def _names(info: TopicInfo) -> list[Topic]:
    return [name for name in (info.name, info.topic_id) if name is not None]


def _topic_info(topic: Any) -> TopicInfo:
    topic_id = getattr(topic, "topic_id", None)
    leaders = {
        int(each.partition_index): Leader(BrokerId(each.leader_id), getattr(each, "leader_epoch", UNKNOWN))
        for each in topic.partitions
    }
    # Many partitions of a topic have the same replicas, and share one object.
    shared: dict[Replicas, Replicas] = {}
    told = ((int(each.partition_index), _replicas(each)) for each in topic.partitions)
    replicas = {partition: shared.setdefault(each, each) for partition, each in told}
    name = str(topic.name) if topic.name is not None else None
    identity = TopicId(topic_id.bytes) if topic_id is not None else None
    return TopicInfo(name, identity, int(topic.error_code), leaders, replicas)


def _replicas(partition: Any) -> Replicas:
    offline = set(getattr(partition, "offline_replicas", ()))  # Metadata v5
    online = tuple(BrokerId(node) for node in partition.replica_nodes if node not in offline)
    return Replicas(online, tuple(BrokerId(node) for node in partition.isr_nodes if node not in offline))
