"""Generate the ledger rows of one simulated sidecar."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from math import inf
from random import Random
from typing import Any

from proxy.analysis.generate.cluster import GeneratedCluster, cluster_of
from proxy.analysis.generate.connection import GeneratedConnection, GeneratedReading, GeneratedSource
from proxy.analysis.generate.mix import ClientKind, FleetMix
from proxy.telemetry.ledger import SCHEMA, Row

__all__ = ["sidecar_rows"]

_HOUR_US = 3_600_000_000
_cluster = lru_cache(maxsize=16)(cluster_of)


def sidecar_rows(mix: FleetMix, seed: int, index: int, hours: float) -> Iterator[Row]:
    """Yield the ledger rows that the simulated sidecar *index* writes in *hours* hours, in the order of ``seq``.

    The time begins at ``mix.start_us``. Some rows are replaced by a ``lost`` row, and some appear twice
    (``FleetMix.losses``, ``FleetMix.duplicates``). The same arguments give the same rows.

    Args: mix: the parameters of the fleet.
          seed: of the fleet's random numbers.
          index: the sidecar's number, from 0 on.
    Cost: about 20 us per row, and memory for a few rows of each connection.
    """
    rng = Random(f"{seed}/sidecar/{index}")
    cluster = _cluster(mix, seed, index % mix.clusters)
    kind = rng.choices(mix.kinds, [each.share for each in mix.kinds])[0]
    common = {
        "schema": SCHEMA,
        "cluster_id": cluster.id,
        "proxy_id": f"{kind.name}-{index:06}-{rng.getrandbits(32):08x}",
        "seq": -1,
        "weight": 1.0,
    }
    end_us = mix.start_us + int(hours * _HOUR_US)
    streams = _connections(mix, rng, cluster, kind, common, end_us)
    rows = heapq.merge(*streams, key=lambda row: int(row["at_us"]))
    return _numbered(mix, Random(f"{seed}/losses/{index}"), rows, common)


def _connections(
    mix: FleetMix, rng: Random, cluster: GeneratedCluster, kind: ClientKind, common: Row, end_us: int
) -> Iterator[Iterator[Row]]:
    """Yield one stream of rows for each broker that leads partitions of the client.

    A stream has the rows of the client's successive connections to that broker.
    """
    rack = None if rng.random() < mix.without_rack else rng.choice(mix.racks)
    client = {"client_id": f"{kind.name}-app-{rng.randrange(400)}", "software": kind.software}
    odd_from_us = inf
    if rng.random() < mix.odd:
        odd_from_us = mix.start_us + 0.9 * (end_us - mix.start_us)
    numbers = count(1)
    for node, sources in sorted(_sources(mix, rng, cluster, rack).items()):
        is_busy = any(source.topic.is_busy for source in sources)
        hourly = mix.hourly_news * rng.lognormvariate(0, 1.0) * (1.0 if is_busy else 0.02)
        reading = GeneratedReading(mix, kind, node, sources, client, rack, hourly, odd_from_us)
        yield _one_after_the_other(reading, Random(rng.getrandbits(64)), common, numbers, end_us)


def _one_after_the_other(
    reading: GeneratedReading, rng: Random, common: Row, numbers: Iterator[int], end_us: int
) -> Iterator[Row]:
    start_us = reading.mix.start_us + rng.randrange(2_000_000)
    while start_us < end_us:
        until_us = start_us + int(rng.expovariate(1 / reading.mix.restart_h) * _HOUR_US) + 1_000_000
        connection = GeneratedConnection(reading, rng, {**common, "connection_id": next(numbers)}, start_us)
        yield from connection.rows(min(until_us, end_us), is_closed=until_us < end_us)
        start_us = until_us + rng.randint(1_000_000, 5_000_000)


def _sources(
    mix: FleetMix, rng: Random, cluster: GeneratedCluster, rack: str | None
) -> Mapping[int, tuple[GeneratedSource, ...]]:
    """Return the sources of a client's topics, chosen at random, by the leader's node id."""
    wanted = min(rng.choice(mix.client_topics), len(cluster.topics))
    by_leader: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for topic in rng.sample(range(len(cluster.topics)), wanted):
        for partition in cluster.topics[topic].partitions:
            by_leader[partition.leader][topic, cluster.nearest(partition, rack)] += 1
    return {
        leader: tuple(
            GeneratedSource(cluster.topics[topic], node, cluster.racks[node], cluster.racks[leader], partitions)
            for (topic, node), partitions in sorted(counts.items())
        )
        for leader, counts in by_leader.items()
    }


def _numbered(mix: FleetMix, rng: Random, rows: Iterable[Row], common: Mapping[str, Any]) -> Iterator[Row]:
    """Yield *rows* with their ``seq`` set, some of them twice, and ``lost`` rows in place of lost ones."""
    first, last = 0, -1
    for seq, row in enumerate(rows):
        row["seq"] = seq
        if last < seq and rng.random() < mix.losses:
            first, last = seq, seq + rng.randrange(50)
        if last < seq:
            yield row
            if rng.random() < mix.duplicates:
                yield row
        elif last == seq:
            loss = {"record": "lost", "at_us": row["at_us"], "first_at_us": row["at_us"], "reason": "full"}
            yield {**common, **loss, "seq": seq, "count": seq - first + 1, "seq_first": first, "seq_last": seq}
