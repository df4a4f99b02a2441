"""A cluster that never was: brokers, racks, topics and who has which replica."""

from collections.abc import Iterator, Mapping
from random import Random

import attrs

from proxy.analysis.generate.mix import FleetMix
from proxy.telemetry.ledger import SCHEMA, Row

__all__ = ["GeneratedCluster", "GeneratedPartition", "GeneratedTopic", "cluster_of"]


@attrs.frozen
class GeneratedPartition:
    """The first of its replicas leads."""

    replicas: tuple[int, ...]

    @property
    def leader(self) -> int:
        return self.replicas[0]


@attrs.frozen
class GeneratedTopic:
    name: str
    partitions: tuple[GeneratedPartition, ...]
    is_busy: bool
    news_bytes: int
    """What an exchange gets of it that gets anything; the median."""
    record_bytes: int
    """The mean size of a record."""


@attrs.frozen
class GeneratedCluster:
    id: str
    racks: Mapping[int, str]
    """By node id."""
    topics: tuple[GeneratedTopic, ...]

    def nearest(self, partition: GeneratedPartition, rack: str | None) -> int:
        """The replica that a reader in *rack* reads: its own rack's, or the leader."""
        return next((node for node in partition.replicas if self.racks[node] == rack), partition.leader)

    def topology_rows(self, at_us: int) -> Iterator[Row]:
        """As ``sidefetch topology`` writes them."""
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
    """The one with this *number*, from 0 on."""
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
