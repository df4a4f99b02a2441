"""An embedded Kafka cluster: several brokers on loopback, in this process, in memory.

async with embedded_cluster(brokers=3) as cluster:
    cluster.create_topic("readings", partitions=12, replication=3)
    cluster.append("readings", 0, [Record(b"20.5")])
    ...  # any Kafka client, at cluster.bootstrap
"""

import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import trio

from proxy.demo.batches import DemoRecord, encode_batch, split_batches
from proxy.demo.broker import API_VERSIONS, Counters, EmbeddedBroker, VersionRange
from proxy.demo.groups import Groups
from proxy.demo.state import ClusterState, EmbeddedPartition, EmbeddedTopic
from proxy.session.slots import MAX_SESSION_ID

__all__ = ["API_VERSIONS", "DemoRecord", "EmbeddedCluster", "VersionRange", "embedded_cluster"]

_RACKS: Final = ("a", "b", "c")


class EmbeddedCluster:
    """Brokers 1 to n; created by ``embedded_cluster``."""

    def __init__(
        self,
        nursery: trio.Nursery,
        brokers: int,
        racks: Sequence[str | None],
        slots: int,
        versions: Mapping[str, VersionRange],
        seed: int | None,
        is_rack_aware: bool,
    ) -> None:
        self._nursery = nursery
        nodes = range(1, brokers + 1)
        self.state = ClusterState({node: racks[(node - 1) % len(racks)] for node in nodes}, is_rack_aware)
        self.groups = Groups(self.state)
        dice = random.Random(seed)
        producer_ids = count(1000)
        self.brokers = {
            node: EmbeddedBroker(
                node,
                self.state,
                self.groups,
                self.wake,
                slots=slots,
                session_ids=lambda: dice.randint(1, MAX_SESSION_ID),
                versions=versions,
                producer_ids=producer_ids,
            )
            for node in nodes
        }

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, running or not."""
        return ",".join(f"{host}:{port}" for host, port in self.state.addresses.values())

    @property
    def counters(self) -> Counters:
        """The sums over all brokers."""
        return Counters.total(broker.counters for broker in self.brokers.values())

    @property
    def record_bytes(self) -> dict[str | None, int]:
        """The bytes of records in fetch responses, by the brokers' rack."""
        told: dict[str | None, int] = dict.fromkeys(self.state.racks.values(), 0)
        for node, broker in self.brokers.items():
            told[self.state.racks[node]] += broker.counters.record_bytes
        return told

    @property
    def sessions(self) -> int:
        """The number of fetch sessions of the running brokers."""
        return sum(len(self.brokers[node].sessions) for node in self.state.alive)

    def reset_counters(self) -> None:
        for broker in self.brokers.values():
            broker.counters.reset()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> EmbeddedTopic:
        """Create a topic, at once on all brokers.

        Args: assignment: the replicas of each partition, leader first; by default, spread over the brokers.
        """
        if name in self.state.topics:
            raise ValueError(f"topic {name} exists")
        return self.state.create(name, assignment or self.state.spread(partitions, replication))

    def delete_topic(self, name: str) -> None:
        for partition in self.state.delete(name).partitions:
            self.wake(partition)

    def recreate_topic(self, name: str) -> EmbeddedTopic:
        """Delete a topic and create it again, empty, with another id and the same assignment."""
        former = self.state.topics[name]
        self.delete_topic(name)
        return self.create_topic(name, assignment=[partition.replicas for partition in former.partitions])

    def partition(self, topic: str, index: int) -> EmbeddedPartition:
        found = self.state.partition(topic, index)
        if found is None:
            raise KeyError((topic, index))
        return found

    def append(self, topic: str, index: int, records: Iterable[DemoRecord | bytes]) -> int:
        """Store records as one uncompressed batch; return the offset of the first."""
        each = [record if isinstance(record, DemoRecord) else DemoRecord(record) for record in records]
        return self.append_batches(topic, index, encode_batch(each))

    def append_batches(self, topic: str, index: int, batches: bytes) -> int:
        """Store batches unchanged but for offsets and leader epoch; return the offset of the first record."""
        partition = self.partition(topic, index)
        offsets = [partition.log.append(batch, partition.leader_epoch) for batch in split_batches(batches)]
        self.wake(partition)
        return offsets[0]

    def trim(self, topic: str, index: int, offset: int) -> None:
        """Drop the records before *offset*, as retention does."""
        partition = self.partition(topic, index)
        partition.log.trim(offset)
        self.wake(partition)

    def move_leader(self, topic: str, index: int, node: int) -> None:
        """Make another replica the leader, in the next epoch."""
        partition = self.partition(topic, index)
        if node not in self.state.in_sync(partition):
            raise ValueError(f"broker {node} has no replica of {topic}-{index}, or is down")
        self.state.lead(partition, node)
        self.wake(partition)

    def wake(self, partition: EmbeddedPartition) -> None:
        """Have waiting fetches of this partition read again."""
        for broker in self.brokers.values():
            broker.fetcher.wake(partition)

    async def start(self, node: int) -> None:
        """Start a broker, on the port that it had before."""
        if node in self.state.alive:
            return
        _, port = self.state.addresses.get(node, ("", 0))
        port = await self._nursery.start(self.brokers[node].serve, port)
        self.state.addresses[node] = ("127.0.0.1", port)
        for partition in self.state.up(node):
            self.wake(partition)

    def stop(self, node: int) -> None:
        """Stop a broker like a crash: its connections break, its sessions are lost."""
        if node not in self.state.alive:
            return
        self.brokers[node].stop()
        for partition in self.state.down(node):
            self.wake(partition)


@asynccontextmanager
async def embedded_cluster(
    brokers: int = 3,
    *,
    racks: Sequence[str | None] = _RACKS,
    slots: int = 1000,
    versions: Mapping[str, VersionRange] | None = None,
    seed: int | None = None,
    is_rack_aware: bool = False,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster on loopback ports that the system chooses, for as long as the context lasts.

    Args:  racks: assigned to the brokers in turn.
           slots: the most fetch sessions of each broker.
           versions: oldest and newest version that all brokers serve, by API (``{"fetch": (4, 12)}``); by default,
               all that kio has. ``cluster.brokers[node].versions`` changes it for one broker, at any time.
           seed: for session ids that are the same in every run.
           is_rack_aware: leaders send clients with a rack to a replica in it, if there is one (KIP-392).
    """
    async with trio.open_nursery() as nursery:
        cluster = EmbeddedCluster(nursery, brokers, racks, slots, versions or {}, seed, is_rack_aware)
        nursery.start_soon(cluster.groups.run)
        for node in cluster.brokers:
            await cluster.start(node)
        try:
            yield cluster
        finally:
            nursery.cancel_scope.cancel()
