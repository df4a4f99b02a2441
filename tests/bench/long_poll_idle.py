"""The requests of a full-fetch consumer of idle partitions at its broker while it stays."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.load import BROKER_CPU, BYTES, FETCHES, Side, cost_of, followers, idle_cpu, sides
from tests.bench.reader import Job
from tests.bench.stage import NODE, idle_topics, read
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts

__all__ = ["run"]

_MOST_FETCHES: Final = 0.2
_MOST_BYTES: Final = 50
_MOST_CPU: Final = 0.2
"""The largest CPU time of the broker, relative to a direct client."""
_CPU_TOLD_AT: Final = 5_000
"""Partitions: with fewer, ticks of the clock are too coarse for a ratio."""
_SESSION_S: Final = 15.0
"""For the session: it may be made after the first long wait."""
_SETTLE_S: Final = 2.0
_WARM_UP_FETCHES: Final = 100


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """A second and broker, once its session is made: fetches, bytes, CPU; and Sidefetch's own CPU."""
    sizes = (100, 1_000) if quick else (100, 1_000, 5_000, 10_000)
    seconds = 8.0 if quick else 30.0
    idle_topics(cluster, sizes[-1])
    with sides(cluster) as both:
        show_progress("warming up")  # the brokers' JVMs compile their code
        for side in both:
            topics = idle_topics(cluster, sizes[-1])
            read(Job(side.address, topics, fetches=_WARM_UP_FETCHES, max_wait_ms=20))
        time.sleep(_SETTLE_S)
        alone = idle_cpu(cluster, seconds)
        baseline = Table("long poll idle: CPU of the broker, nobody there", "ms/s", {"idle": [1000 * alone]})
        return [
            baseline,
            *(
                table
                for size in sizes
                for table in _at(size, idle_topics(cluster, size), both, cluster, seconds, alone, show_progress)
            ),
        ]


def _at(
    size: int,
    topics: Mapping[str, int],
    both: list[Side],
    cluster: KafkaCluster,
    seconds: float,
    alone: float,
    show_progress: Callable[[str], None],
) -> list[Table]:
    def way(side: Side) -> Callable[[], Mapping[Figure, float]]:
        def once() -> Mapping[Figure, float]:
            without = broker_counts(cluster, [NODE])[NODE].sessions
            with followers([Job(side.address, topics)]) as consumer:
                if side.sidefetch_pid is not None:
                    _wait_for_session(cluster, without)
                time.sleep(_SETTLE_S)
                _, cost = cost_of(lambda: time.sleep(seconds), cluster, side)
                heard = consumer.finish()
            assert heard.records == 0, f"{heard.records} records in idle partitions"
            time.sleep(_SETTLE_S)
            return cost.a_second(alone)

        return once

    case = f"long poll idle, {size:,} partitions"
    tables = measure_all(case, {side.name: way(side) for side in both}, rounds=1, show_progress=show_progress)
    for figure, most in ((FETCHES, _MOST_FETCHES), (BYTES, _MOST_BYTES)):
        most_seen = max(tables[figure].values["Sidefetch"])
        text = f"{case}: {most_seen:.3g} {figure.unit} {figure.name} through Sidefetch, at most {most:g}"
        tables[figure] = tables[figure].expecting(Expectation(text, is_met=most_seen <= most))
    if size == _CPU_TOLD_AT:
        ratio = tables[BROKER_CPU].ratio("Sidefetch")
        text = f"{case}: CPU of the broker {ratio:.2f} of direct, at most {_MOST_CPU:g}"
        tables[BROKER_CPU] = tables[BROKER_CPU].expecting(Expectation(text, is_met=ratio <= _MOST_CPU))
    return list(tables.values())


def _wait_for_session(cluster: KafkaCluster, without: int) -> None:
    """Return when the broker has more sessions than *without*, or after a timeout, which the figures show."""
    deadline = time.monotonic() + _SESSION_S
    while broker_counts(cluster, [NODE])[NODE].sessions <= without and time.monotonic() < deadline:
        time.sleep(0.5)
