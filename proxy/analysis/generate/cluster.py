"""A simulated Kafka cluster for generated ledgers: brokers, racks, topics and replicas."""

from collections.abc import Iterator, Mapping
from random import Random

import attrs

from proxy.analysis.generate.mix import FleetMix
from proxy.telemetry.ledger import SCHEMA, Row

__all__ = ["GeneratedCluster", "GeneratedPartition", "GeneratedTopic", "cluster_of"]


@attrs.frozen
class GeneratedPartition:
    """A partition of a generated topic, reduced to the node ids of its replicas."""

    replicas: tuple[int, ...]
    """Node ids; the first replica is the leader."""

    @property
    def leader(self) -> int:
        """The node id of the leader."""
        return self.replicas[0]


@attrs.frozen
class GeneratedTopic:
    """A topic of a generated cluster: its partitions, and the parameters of its simulated traffic."""

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
    """A simulated Kafka cluster: its id, the racks of its brokers, and its topics."""

    id: str
    """The ``cluster_id`` of its ledger rows."""
    racks: Mapping[int, str]
    """The rack of each broker, by node id."""
    topics: tuple[GeneratedTopic, ...]

    def nearest(self, partition: GeneratedPartition, rack: str | None) -> int:
        """Return the node id of the broker from which a reader in *rack* fetches *partition*.

        It is the first replica in that rack, or the leader if there is none or *rack* is None.
        """
        return next((node for node in partition.replicas if self.racks[node] == rack), partition.leader)

    def topology_rows(self, at_us: int) -> Iterator[Row]:
        """Yield a ledger row for each partition, with its leader, its replicas and their racks.

        The rows are those that ``sidefetch topology`` would write at *at_us* (microseconds since 1970), all
        replicas in sync.
        """
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
    """Return the simulated cluster *number*, from 0 on, with random topics.

    The same *mix* (parameters of the fleet), *seed* and *number* always give the same cluster.
    """
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
