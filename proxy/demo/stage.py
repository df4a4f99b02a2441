"""The cluster of the demo: one topic of many partitions, a few of which get records continuously."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from time import time
from typing import Final, Protocol

import trio

from proxy.demo.batches import DemoRecord
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.demo.costs import FetchCost

__all__ = ["BUSY", "EVERY_S", "OWN_RACK", "PARTITIONS", "TOPIC", "Stage", "busy", "embedded_stage"]

TOPIC: Final = "readings"
PARTITIONS: Final = 1000
BUSY: Final = 10
"""The number of partitions that get records: 1 %, spread evenly, so that each broker leads some."""
EVERY_S: Final = 0.2
"""The time between two records of a busy partition."""
OWN_RACK: Final = "b"
"""The rack of the reader and Sidefetch; the brokers are in racks a, b and c, and each has all records."""
_VALUE_BYTES: Final = 100


class Stage(Protocol):
    """A running cluster with the demo's topic: bootstrap servers, texts about it, and the cost of its fetches."""

    what: str
    """A description of the cluster for users."""
    counted: str
    """The point at which the cost is counted, for users."""
    bootstrap: str

    def cost(self) -> FetchCost:
        """Return the cost of all answered fetches of clients since the start, with the bytes from each rack."""


class Embedded:
    """An embedded cluster as the ``Stage`` of the demo; its brokers count the cost of fetches."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.what = (
            f"An embedded cluster: {len(cluster.brokers)} brokers in this process's memory, not Apache Kafka."
        )
        self.counted = "by the brokers"
        self.bootstrap = cluster.bootstrap
        self._cluster = cluster

    def cost(self) -> FetchCost:
        seen = self._cluster.counters
        racks = {str(rack): number for rack, number in self._cluster.record_bytes.items()}
        return FetchCost(
            seen.fetches, seen.partitions_named, seen.fetch_request_bytes, seen.fetch_response_bytes, racks
        )


def busy() -> list[int]:
    """Return the indexes of the partitions that get records: every hundredth partition of the demo's topic."""
    return list(range(0, PARTITIONS, PARTITIONS // BUSY))


def record(number: int) -> DemoRecord:
    return DemoRecord(f"reading {number}".encode().ljust(_VALUE_BYTES), timestamp_ms=int(time() * 1000))


@asynccontextmanager
async def embedded_stage() -> AsyncIterator[Stage]:
    """Return an async context manager that runs an embedded cluster, and writes records to the demo's topic.

    The cluster is rack-aware: leaders send clients with a rack to a replica in it.
    """
    async with embedded_cluster(is_rack_aware=True) as cluster, trio.open_nursery() as nursery:
        cluster.create_topic(TOPIC, PARTITIONS, replication=3)
        nursery.start_soon(_feed, cluster)
        yield Embedded(cluster)
        nursery.cancel_scope.cancel()


async def _feed(cluster: EmbeddedCluster) -> None:
    for number in count():
        for partition in busy():
            cluster.append(TOPIC, partition, [record(number)])
            await trio.sleep(EVERY_S / BUSY)
