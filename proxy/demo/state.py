"""The metadata that all brokers of the embedded cluster share: topics, partitions, leaders."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import attrs

from proxy.demo.log import PartitionLog

__all__ = ["NO_LEADER", "ClusterState", "EmbeddedPartition", "EmbeddedTopic"]

NO_LEADER = -1


@attrs.define(eq=False)
class EmbeddedPartition:
    topic: str
    topic_id: UUID
    index: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = attrs.field(factory=PartitionLog)


@attrs.define(eq=False)
class EmbeddedTopic:
    name: str
    id: UUID
    partitions: list[EmbeddedPartition]


@attrs.define(eq=False)
class ClusterState:
    """The metadata of an embedded cluster: its topics with partitions and leaders, and its running brokers.

    It also elects leaders: the first replica, in the order of the assignment, whose broker runs.
    """

    racks: dict[int, str | None]
    """The rack of every broker, by node id."""
    is_rack_aware: bool = False
    """Whether leaders name replicas in the client's rack, like Kafka's RackAwareReplicaSelector (KIP-392)."""
    alive: set[int] = attrs.field(factory=set)
    """The node ids of the running brokers."""
    addresses: dict[int, tuple[str, int]] = attrs.field(factory=dict)
    """Host and port by node id; known once a broker has been started."""
    topics: dict[str, EmbeddedTopic] = attrs.field(factory=dict)
    """Topics by name."""
    names: dict[UUID, str] = attrs.field(factory=dict)
    """Names of topics by topic id."""

    @property
    def controller(self) -> int:
        return min(self.alive, default=NO_LEADER)

    def endpoint(self, node: int) -> dict[str, Any]:
        """Return the fields for broker *node* in a response: its id (under both names in use), host, port and rack.

        Raises: KeyError: it has never been started.
        """
        host, port = self.addresses[node]
        return {"node_id": node, "broker_id": node, "host": host, "port": port, "rack": self.racks[node]}

    def name_of(self, topic_id: UUID | None) -> str | None:
        return None if topic_id is None else self.names.get(topic_id)

    def partition(self, topic: str, index: int) -> EmbeddedPartition | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def create(self, name: str, assignment: Sequence[Sequence[int]]) -> EmbeddedTopic:
        """Create topic *name*, which must not exist, with a new topic id; elect the leaders, and return the topic.

        *assignment* has the node ids of each partition's replicas, the preferred leader first.
        """
        topic_id = uuid4()
        partitions = [
            EmbeddedPartition(name, topic_id, index, tuple(replicas), NO_LEADER)
            for index, replicas in enumerate(assignment)
        ]
        for partition in partitions:
            partition.leader = self._first_alive(partition)
        topic = self.topics[name] = EmbeddedTopic(name, topic_id, partitions)
        self.names[topic_id] = name
        return topic

    def assign_replicas(self, partitions: int, replication: int) -> list[tuple[int, ...]]:
        """Return an assignment for a new topic: the node ids of the replicas of each partition.

        Replicas go round all brokers, running or not, starting after those of the topics that exist, so that
        leaders are spread evenly.
        """
        nodes = sorted(self.racks)
        first = sum(len(topic.partitions) for topic in self.topics.values())
        return [
            tuple(nodes[(first + index + replica) % len(nodes)] for replica in range(replication))
            for index in range(partitions)
        ]

    def delete(self, name: str) -> EmbeddedTopic:
        topic = self.topics.pop(name)
        del self.names[topic.id]
        return topic

    def in_sync(self, partition: EmbeddedPartition) -> tuple[int, ...]:
        return tuple(node for node in partition.replicas if node in self.alive)

    def closest(self, partition: EmbeddedPartition, rack: str) -> int:
        """Return the node id of the replica that the leader names to a client in *rack* (KIP-392).

        It is the leader itself if that is in the rack, if no running replica is, or if the cluster is not
        rack-aware; otherwise the replica in the rack with the highest node id, since all have the same records.
        """
        near = [node for node in self.in_sync(partition) if rack and self.racks[node] == rack]
        if not self.is_rack_aware or not near or partition.leader in near:
            return partition.leader
        return max(near)

    def mark_running(self, node: int) -> list[EmbeddedPartition]:
        """Note that broker *node* runs, and elect a leader for each partition without one; return these partitions.

        Their leader epochs rise by 1. A partition of which still no replica runs is returned, too.
        """
        self.alive.add(node)
        return self._elect(partition for partition in self._all() if partition.leader == NO_LEADER)

    def mark_stopped(self, node: int) -> list[EmbeddedPartition]:
        """Note that broker *node* has stopped, and elect another leader for each partition that it led.

        Returns: these partitions; their leader is now ``NO_LEADER`` if no other replica runs.
        """
        self.alive.discard(node)
        return self._elect(partition for partition in self._all() if partition.leader == node)

    def set_leader(self, partition: EmbeddedPartition, node: int) -> None:
        partition.leader = node
        partition.leader_epoch += 1

    def _all(self) -> Iterator[EmbeddedPartition]:
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    def _elect(self, leaderless: Iterable[EmbeddedPartition]) -> list[EmbeddedPartition]:
        changed = []
        for partition in leaderless:
            self.set_leader(partition, self._first_alive(partition))
            changed.append(partition)
        return changed

    def _first_alive(self, partition: EmbeddedPartition) -> int:
        return next((node for node in partition.replicas if node in self.alive), NO_LEADER)
