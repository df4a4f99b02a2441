"""Many clients of one Sidefetch: the time until all are served, the memory of each, and the CPU time of all."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.load import Side, cost_of, idle_cpu, idlers, sides
from tests.bench.machine import resident_mib
from tests.bench.reader import Job
from tests.bench.stage import create_topics, idle_topics
from tests.kafka.cluster import KafkaCluster

__all__ = ["run"]

_TOPIC: Final = {"scale": 4}
_MOST_CONNECTIONS: Final = ("--max-connections", "4000", "--max-connections-per-peer", "4000")
_SERVED: Final = Figure("until all are served", "s")
_MEMORY: Final = Figure("memory of a client", "kB")
_FEW: Final = 20
"""Clients of many partitions."""
_MOST_KB: Final = 200
_MOST_A_PARTITION_KB: Final = 0.25
_SETTLE_S: Final = 3.0


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Thousands with a few idle partitions each, directly and through Sidefetch; then few clients of thousands."""
    create_topics(cluster, _TOPIC)
    clients, seconds = (500, 5.0) if quick else (2_000, 10.0)
    sizes = (1_000,) if quick else (1_000, 10_000)
    alone = idle_cpu(cluster, seconds)

    def way(number: int) -> Callable[[], Mapping[Figure, float]]:
        def once() -> Mapping[Figure, float]:
            with sides(cluster, options=_MOST_CONNECTIONS) as both:
                return _polling(both[number], clients, cluster, seconds, alone)

        return once

    ways = {"direct": way(0), "Sidefetch": way(1)}
    case = f"{clients:,} clients of {_TOPIC['scale']} idle partitions"
    tables = list(measure_all(case, ways, rounds=1 if quick else 2, show_progress=show_progress).values())
    for size in sizes:
        topics = idle_topics(cluster, size)
        case = f"an idle client of {size:,} partitions"
        way_of_memory = {"Sidefetch": lambda topics=topics: _memory(cluster, topics)}
        measured = measure_all(case, way_of_memory, rounds=1 if quick else 2, show_progress=show_progress)[_MEMORY]
        most_kb = _MOST_KB + _MOST_A_PARTITION_KB * size
        found_kb = measured.median("Sidefetch")
        text = f"{case}: {found_kb:,.0f} kB, under {most_kb:,.0f}"
        tables.append(measured.expecting(Expectation(text, is_met=found_kb < most_kb)))
    return tables


def _polling(
    side: Side, clients: int, cluster: KafkaCluster, seconds: float, alone: float
) -> Mapping[Figure, float]:
    before_kb = _resident_kb(side)
    with idlers(Job(side.address, _TOPIC), clients) as crowd:
        time.sleep(_SETTLE_S)
        _, cost = cost_of(lambda: time.sleep(seconds), cluster, side)
        grown_kb = _resident_kb(side) - before_kb
        reported = crowd.leave()
    memory = {} if side.sidefetch_pid is None else {_MEMORY: grown_kb / clients}
    return {_SERVED: reported["served_s"], **memory, **cost.a_second(alone)}


def _memory(cluster: KafkaCluster, topics: Mapping[str, int]) -> Mapping[Figure, float]:
    """Measure the growth of memory per client after the first, which makes Sidefetch learn the partitions."""
    with sides(cluster) as (_, side):
        job = Job(side.address, topics)
        with idlers(job, 1) as first:
            time.sleep(_SETTLE_S)
            before_kb = _resident_kb(side)
            with idlers(job, _FEW) as more:
                time.sleep(_SETTLE_S)
                grown_kb = _resident_kb(side) - before_kb
                more.leave()
            first.leave()
    return {_MEMORY: grown_kb / _FEW}


def _resident_kb(side: Side) -> float:
    return 0.0 if side.sidefetch_pid is None else resident_mib(side.sidefetch_pid, "VmRSS") * 1.048576 * 1000
