"""An embedded Kafka cluster: several brokers on loopback, in this process, in memory.

async with embedded_cluster(brokers=3) as cluster:
    cluster.create_topic("readings", partitions=12, replication=3)
    cluster.append("readings", 0, [DemoRecord(b"20.5")])
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
    """A running Kafka cluster in this process, with the brokers 1 to n; ``embedded_cluster`` creates and ends it.

    Its methods change topics, records and brokers directly, without Kafka requests.
    """

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
        """The bootstrap servers for clients: ``host:port`` of every broker, running or not, with commas."""
        return ",".join(f"{host}:{port}" for host, port in self.state.addresses.values())

    @property
    def counters(self) -> Counters:
        """A new ``Counters`` with the sums of all brokers' counters: requests, fetches, bytes."""
        return Counters.total(broker.counters for broker in self.brokers.values())

    @property
    def record_bytes(self) -> dict[str | None, int]:
        """The bytes of records in the brokers' fetch responses, by the broker's rack (None for brokers without)."""
        sizes: dict[str | None, int] = dict.fromkeys(self.state.racks.values(), 0)
        for node, broker in self.brokers.items():
            sizes[self.state.racks[node]] += broker.counters.record_bytes
        return sizes

    @property
    def sessions(self) -> int:
        """The number of fetch sessions (KIP-227) that clients have at the running brokers."""
        return sum(len(self.brokers[node].sessions) for node in self.state.alive)

    def reset_counters(self) -> None:
        for broker in self.brokers.values():
            broker.counters = Counters()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> EmbeddedTopic:
        """Create a topic, which all brokers serve at once, and return it.

        Args:   partitions, replication: the number of partitions, and of replicas of each; ignored if *assignment*
                    is given.
                assignment: the node ids of each partition's replicas, the preferred leader first; by default,
                    replicas are spread over the brokers.
        Raises: ValueError: the topic exists.
        """
        if name in self.state.topics:
            raise ValueError(f"topic {name} exists")
        return self.state.create(name, assignment or self.state.assign_replicas(partitions, replication))

    def delete_topic(self, name: str) -> None:
        for partition in self.state.delete(name).partitions:
            self.wake(partition)

    def recreate_topic(self, name: str) -> EmbeddedTopic:
        """Delete topic *name* and create it again, without records, with a new topic id and the same replicas."""
        former = self.state.topics[name]
        self.delete_topic(name)
        return self.create_topic(name, assignment=[partition.replicas for partition in former.partitions])

    def partition(self, topic: str, index: int) -> EmbeddedPartition:
        found = self.state.partition(topic, index)
        if found is None:
            raise KeyError((topic, index))
        return found

    def append(self, topic: str, index: int, records: Iterable[DemoRecord | bytes]) -> int:
        """Append *records* to partition *index* of *topic* as one uncompressed batch; return the first offset.

        Bytes become a record with this value and no key. Fetches that wait for the partition read it again.
        """
        each = [record if isinstance(record, DemoRecord) else DemoRecord(record) for record in records]
        return self.append_batches(topic, index, encode_batch(each))

    def append_batches(self, topic: str, index: int, batches: bytes) -> int:
        """Append encoded record batches to partition *index* of *topic*; return the offset of the first record.

        The partition's next offsets and its leader epoch are written into the batches; otherwise they stay
        unchanged. Fetches that wait for the partition read it again.

        Raises: BadBatch: *batches* cannot be decoded.
        """
        partition = self.partition(topic, index)
        offsets = [partition.log.append(batch, partition.leader_epoch) for batch in split_batches(batches)]
        self.wake(partition)
        return offsets[0]

    def trim(self, topic: str, index: int, offset: int) -> None:
        """Raise the log start offset of a partition to *offset*, as retention does when it deletes old records.

        A lower *offset* has no effect. Fetches that wait for the partition read it again.
        """
        partition = self.partition(topic, index)
        partition.log.trim(offset)
        self.wake(partition)

    def move_leader(self, topic: str, index: int, node: int) -> None:
        """Make broker *node* the leader of partition *index* of *topic*, and raise the leader epoch by 1.

        Raises: ValueError: the broker has no replica of the partition, or does not run.
        """
        partition = self.partition(topic, index)
        if node not in self.state.in_sync(partition):
            raise ValueError(f"broker {node} has no replica of {topic}-{index}, or is down")
        self.state.set_leader(partition, node)
        self.wake(partition)

    def wake(self, partition: EmbeddedPartition) -> None:
        """Make the fetches that wait for *partition*, at any broker, read it again; called after each change."""
        for broker in self.brokers.values():
            broker.fetcher.wake(partition)

    async def start(self, node: int) -> None:
        """Start broker *node* on the port that it had before, and return once it listens; no effect if it runs.

        Partitions without a leader get one if the broker has a replica.
        """
        if node in self.state.alive:
            return
        _, port = self.state.addresses.get(node, ("", 0))
        port = await self._nursery.start(self.brokers[node].serve, port)
        self.state.addresses[node] = ("127.0.0.1", port)
        for partition in self.state.mark_running(node):
            self.wake(partition)

    def stop(self, node: int) -> None:
        """Stop broker *node* as if it crashed: its connections break and its fetch sessions are lost.

        Its partitions get another replica as the leader, or none if no other runs. No effect if it does not run.
        """
        if node not in self.state.alive:
            return
        self.brokers[node].stop()
        for partition in self.state.mark_stopped(node):
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
    """Return an async context manager that runs a cluster, on loopback ports that the system chooses.

    Args:  brokers: the number of brokers.
           racks: assigned to the brokers in turn.
           slots: the most fetch sessions that each broker keeps.
           versions: oldest and newest version that all brokers serve, by API (``{"fetch": (4, 12)}``); by default,
               all that kio has. ``cluster.brokers[node].versions`` changes it for one broker, at any time.
           seed: the seed of the random fetch session ids; with it, they are the same in every run.
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
