"""The counters of a broker itself, read over JMX: a second witness beside the tap."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.kafka.cluster import KafkaCluster
from tests.kafka.java import java_command

__all__ = ["BrokerCounts", "broker_counts", "record_bytes_out"]

_PROGRAM = Path(__file__).parent / "Metrics.java"

_FETCHES = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=FetchConsumer,*"
_SESSIONS = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions,*"
_PARTITIONS = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached,*"
_EVICTIONS = "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec,*"
_RECORD_BYTES = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec"
_SOCKETS = "kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=*"


@attrs.frozen
class BrokerCounts:
    """One broker's figures: fetches and evictions since it started, sessions of now. Followers are no consumers."""

    consumer_fetches: int
    sessions: int
    """Followers have sessions too."""
    session_partitions: int
    evictions: int
    client_bytes: int
    """Both ways, of all requests that came in by the listener for clients, since the broker started."""
    client_bytes_sent: int
    """The part of ``client_bytes`` that the broker sent."""


def broker_counts(cluster: KafkaCluster, node_ids: Sequence[int] = ()) -> dict[int, BrokerCounts]:
    """Ask these brokers, without any every running one; a second for all.

    Source: Kafka's monitoring documentation; the cache's figures are per shard since 3.8 and summed here.
    """
    asked = (
        f"{_FETCHES}|Count",
        f"{_SESSIONS}|Value",
        f"{_PARTITIONS}|Value",
        f"{_EVICTIONS}|Count",
        f"{_SOCKETS}|incoming-byte-total",
        f"{_SOCKETS}|outgoing-byte-total",
    )
    return {
        node: BrokerCounts(fetches, sessions, partitions, evictions, up + down, down)
        for node, (fetches, sessions, partitions, evictions, up, down) in _ask(
            cluster, node_ids or cluster.running, asked
        ).items()
    }


def record_bytes_out(cluster: KafkaCluster, *topics: str) -> dict[int, int]:
    """Return, by node id, the bytes of records that each running broker sent to consumers since its start.

    Without *topics*, those of all topics. Replication is counted elsewhere. A broker that has sent nothing of a
    topic has
    no bean of it; nor, in brokers of 4.3, has one that has lost its last replica of it, sometimes for good.
    Source: BrokerTopicMetrics, BytesOutPerSec.
    """
    asked = [f"{_RECORD_BYTES},topic={topic}|Count" for topic in topics] or [f"{_RECORD_BYTES}|Count"]
    return {node: sum(counts) for node, counts in _ask(cluster, cluster.running, asked).items()}


def _ask(cluster: KafkaCluster, nodes: Sequence[int], asked: Sequence[str]) -> dict[int, list[int]]:
    """Return, by node id, for each ``PATTERN|ATTRIBUTE`` the sum over all matching beans."""
    command = java_command(_PROGRAM, cluster.version)
    urls = [cluster.jmx_url(node) for node in nodes]
    done = subprocess.run([*command, *urls, "--", *asked], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"no metrics:\n{done.stderr}")
    rows = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return dict(zip(nodes, rows, strict=True))
