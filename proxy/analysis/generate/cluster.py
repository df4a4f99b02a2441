"""A generated cluster: brokers, racks, topics and replicas."""

from collections.abc import Iterator, Mapping
from random import Random

import attrs

from proxy.analysis.generate.mix import FleetMix
from proxy.telemetry.ledger import SCHEMA, Row

__all__ = ["GeneratedCluster", "GeneratedPartition", "GeneratedTopic", "cluster_of"]


@attrs.frozen
class GeneratedPartition:
    """A generated partition."""

    replicas: tuple[int, ...]
    """Node ids; the first replica is the leader."""

    @property
    def leader(self) -> int:
        """The node id of the leader."""
        return self.replicas[0]


@attrs.frozen
class GeneratedTopic:
    """A generated topic."""

    name: str
    partitions: tuple[GeneratedPartition, ...]
    is_busy: bool
    """Whether producers write to it regularly."""
    news_bytes: int
    """The median number of record bytes in a client fetch with records of this topic."""
    record_bytes: int
    """The mean size of a record in bytes."""


@attrs.frozen
class GeneratedCluster:
    """A generated cluster."""

    id: str
    racks: Mapping[int, str]
    """The rack of each broker, by node id."""
    topics: tuple[GeneratedTopic, ...]

    def nearest(self, partition: GeneratedPartition, rack: str | None) -> int:
        """Return the node id that a reader in *rack* fetches from: a replica in that rack, else the leader."""
        return next((node for node in partition.replicas if self.racks[node] == rack), partition.leader)

    def topology_rows(self, at_us: int) -> Iterator[Row]:
        """Yield the topology rows as ``sidefetch topology`` writes them, with the time *at_us*."""
        common = {
            "record": "topology",
            "schema": SCHEMA,
            "at_us": at_us,
            "first_at_us": at_us,
            "cluster_id": self.id,
            "proxy_id": f"topology-{self.id}",
        }
        each = ((topic, number, it) for topic in self.topics for number, it in enumerate(topic.partitions))
        for seq, (topic, number, partition) in enumerate(each):
            yield common | {
                "seq": seq,
                "weight": 1.0,
                "topic": topic.name,
                "partition": number,
                "leader": partition.leader,
                "replicas": [{"node": node, "rack": self.racks[node], "in_sync": 1} for node in partition.replicas],
            }


def cluster_of(mix: FleetMix, seed: int, number: int) -> GeneratedCluster:
    """Return the cluster with this *number*, from 0 on."""
    rng = Random(f"{seed}/cluster/{number}")
    racks = {node: mix.racks[node % len(mix.racks)] for node in range(1, mix.brokers + 1)}
    topics = tuple(_topic(mix, rng, index) for index in range(mix.topics))
    return GeneratedCluster(f"generated-{seed}-{number}", racks, topics)


def _topic(mix: FleetMix, rng: Random, index: int) -> GeneratedTopic:
    replicas = min(mix.brokers, 2 if rng.random() < mix.two_replicas else 3)
    nodes = range(1, mix.brokers + 1)
    return GeneratedTopic(
        name=f"{rng.choice(('orders', 'events', 'audit', 'metrics', 'users', 'stock'))}-{index}",
        partitions=tuple(
            GeneratedPartition(tuple(rng.sample(nodes, replicas))) for _ in range(rng.choice(mix.topic_partitions))
        ),
        is_busy=rng.random() >= mix.idle_topics,
        news_bytes=int(rng.lognormvariate(8.5, 1.2)),
        record_bytes=int(rng.lognormvariate(5.5, 0.8)) + 20,
    )
