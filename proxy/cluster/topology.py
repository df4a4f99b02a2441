"""The metadata of a cluster as an immutable value: brokers, topics, leaders and replicas."""

from collections.abc import Iterable, Iterator, Mapping
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
    """A broker in the cluster's metadata: node id, advertised host and port, and rack (None if it has none)."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The leader of a partition in the cluster's metadata: node id and leader epoch."""

    node_id: BrokerId
    """-1 while the partition has no leader."""
    epoch: int
    """The leader epoch; -1 if the brokers do not send it (Metadata below v7)."""


class Replicas(NamedTuple):
    """The node ids of a partition's replicas, the leader included: those online, and those of them in sync."""

    online: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    """The online replicas in the ISR."""


@attrs.frozen
class TopicInfo:
    """The metadata of a topic: name, id, leaders and replicas; or the error that brokers return for the topic."""

    name: str | None
    """None if only the id is known."""
    topic_id: TopicId | None
    """None if the brokers have no topic ids (Metadata below v10)."""
    error: int = 0
    """The error code of the topic; 0 for none."""
    leaders: Mapping[int, Leader] = attrs.field(factory=dict)
    """The leader of each partition, by the partition's number."""
    replicas: Mapping[int, Replicas] = attrs.field(factory=dict)
    """The replicas of each partition, by the partition's number."""
    _keys: dict[PartitionKey, PartitionKey] = attrs.field(factory=dict, eq=False, repr=False)

    def key(self, partition: int, *, by_id: bool) -> PartitionKey | None:
        """Return the partition's key for fetches that name the topic by its id (*by_id*), or else by its name.

        Return None if the topic's id, or name, is not known. Each call for a known partition returns the same
        object, to save memory: many clients may hold the keys of thousands of partitions.
        """
        topic = self.topic_id if by_id else self.name
        if topic is None:
            return None
        key = PartitionKey(topic, partition)
        return self._keys.setdefault(key, key) if partition in self.leaders else key


_NO_TOPIC: Final = TopicInfo(None, NO_TOPIC_ID, ErrorCode.unknown_topic_id)


@attrs.frozen
class Topology:
    """The metadata of a cluster at one time: brokers by node id, and topics by name and by id.

    It is immutable: ``with_metadata`` returns a new one for each Metadata response. A topic that did not change is
    the same object in both, so that a comparison by identity shows changes.
    """

    cluster_id: str | None = None
    brokers: Mapping[BrokerId, Broker] = attrs.field(factory=dict)
    topics: Mapping[Topic, TopicInfo] = attrs.field(factory=dict)
    """The topics by name, and by id if they have one."""
    refreshed_s: float = attrs.field(default=0.0, eq=False)
    """The time of the last refresh: of two topologies, the newer one has the later time."""

    def topic(self, topic: Topic) -> TopicInfo | None:
        """Return the metadata of the topic with this name or id; None if it is not known.

        For the zero id, return metadata with the error UNKNOWN_TOPIC_ID.
        """
        return _NO_TOPIC if topic == NO_TOPIC_ID else self.topics.get(topic)

    def id_and_leader_of(self, key: PartitionKey) -> tuple[TopicId | None, Leader | None] | None:
        """Return the topic id and the leader of a partition, each None if unknown; None if the topic is unknown."""
        info = self.topic(key.topic)
        return None if info is None else (info.topic_id, info.leaders.get(key.partition))

    def name_of(self, topic: Topic) -> str:
        """Return the topic's name, for logs and telemetry; if only its id is known, the id as text of a UUID."""
        info = self.topic(topic)
        if info is not None and info.name is not None:
            return info.name
        return topic if isinstance(topic, str) else str(UUID(bytes=topic))

    def known_names(self, topics: Iterable[Topic]) -> Iterator[str]:
        """Yield the names of *topics*; leave out the ids of topics that are not known."""
        for topic in topics:
            if isinstance(topic, str):
                yield topic
            elif (info := self.topic(topic)) is not None and info.name is not None:
                yield info.name

    def with_metadata(self, metadata: Any, now_s: float = 0.0) -> "Topology":
        """Return a new topology: this one, updated by *metadata*, the body of a Metadata response at *now_s*.

        *metadata* is a kio entity of any version. Its brokers replace all brokers. Its topics replace those of the
        same name or id, and all other topics stay. If a name has another id now, the topic was created again: the
        old id keeps an entry with the error UNKNOWN_TOPIC_ID.
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
        return Topology(getattr(metadata, "cluster_id", self.cluster_id), brokers, topics, now_s)


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
    by_partition = ((int(each.partition_index), _replicas(each)) for each in topic.partitions)
    replicas = {partition: shared.setdefault(each, each) for partition, each in by_partition}
    name = str(topic.name) if topic.name is not None else None
    identity = TopicId(topic_id.bytes) if topic_id is not None else None
    return TopicInfo(name, identity, int(topic.error_code), leaders, replicas)


def _replicas(partition: Any) -> Replicas:
    offline = set(getattr(partition, "offline_replicas", ()))  # Metadata v5
    online = tuple(BrokerId(node) for node in partition.replica_nodes if node not in offline)
    return Replicas(online, tuple(BrokerId(node) for node in partition.isr_nodes if node not in offline))
