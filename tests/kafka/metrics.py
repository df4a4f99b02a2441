"""What a broker itself counted, read over JMX: a second witness beside the tap."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.kafka.cluster import KafkaCluster
from tests.kafka.java import java_command

__all__ = ["BrokerCounts", "broker_counts"]

_PROGRAM = Path(__file__).parent / "Metrics.java"

_FETCHES = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=FetchConsumer,*"
_SESSIONS = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions,*"
_PARTITIONS = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached,*"
_EVICTIONS = "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec,*"


@attrs.frozen
class BrokerCounts:
    """One broker's figures: fetches and evictions since it started, sessions of now. Followers are no consumers."""

    consumer_fetches: int
    sessions: int
    """Followers have sessions too."""
    session_partitions: int
    evictions: int


def broker_counts(cluster: KafkaCluster) -> dict[int, BrokerCounts]:
    """Ask every running broker; a second for all.

    Source: Kafka's monitoring documentation; the cache's figures are per shard since 3.8 and summed here.
    """
    patterns = {_FETCHES: "Count", _SESSIONS: "Value", _PARTITIONS: "Value", _EVICTIONS: "Count"}
    return {node: _counts(found) for node, found in _ask(cluster, patterns).items()}


def _counts(found: Mapping[str, int]) -> BrokerCounts:
    return BrokerCounts(found[_FETCHES], found[_SESSIONS], found[_PARTITIONS], found[_EVICTIONS])


def _ask(cluster: KafkaCluster, patterns: Mapping[str, str]) -> dict[int, dict[str, int]]:
    """By node id and pattern, the sum of the attribute over all beans that match."""
    nodes = cluster.running
    command = java_command(_PROGRAM, cluster.version)
    asked = [f"{pattern}|{attribute}" for pattern, attribute in patterns.items()]
    urls = [cluster.jmx_url(node) for node in nodes]
    done = subprocess.run([*command, *urls, "--", *asked], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"no metrics:\n{done.stderr}")
    rows = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return {node: dict(zip(patterns, row, strict=True)) for node, row in zip(nodes, rows, strict=True)}
