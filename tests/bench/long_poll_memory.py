"""The memory for serving clients that request far more than there is."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.bench.frame import Expectation, Table, Way, measure
from tests.bench.load import Side, sides
from tests.bench.machine import resident_mib
from tests.bench.reader import Job
from tests.bench.stage import create_topics, fill, read
from tests.kafka.cluster import KafkaCluster

__all__ = ["run"]

_TOPICS: Final = tuple(f"long-poll-memory-{number}" for number in range(8))
"""A client each."""
_ASKED_BYTES: Final = 250_000_000
_BUDGET_MIB: Final = 256
"""The default limit of memory for all fetches."""
_MOST_BESIDE_MIB: Final = 60


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """The peak of Sidefetch's resident memory while eight clients read, 250 MB asked for by each fetch."""
    create_topics(cluster, dict.fromkeys(_TOPICS, 1))
    megabytes = 40 if quick else _ASKED_BYTES // 1_000_000
    show_progress("writing records")
    for topic in _TOPICS:
        fill(cluster, topic, 1, megabytes=megabytes)
    case = "long poll memory, eight clients that ask for 250 MB"
    with sides(cluster) as both:
        table = measure(
            f"{case}: time", "s", [_way(side, megabytes) for side in both], rounds=1, show_progress=show_progress
        )
        (peak,) = (resident_mib(side.sidefetch_pid, "VmHWM") for side in both if side.sidefetch_pid)
    most = _BUDGET_MIB + _MOST_BESIDE_MIB
    memory = Table(f"{case}: peak memory", "MiB", {"Sidefetch": [peak]})
    return [
        table,
        memory.expecting(Expectation(f"{memory.case}: {peak:.0f} MiB, at most {most}", is_met=peak <= most)),
    ]


def _way(side: Side, megabytes: int) -> Way:
    jobs = [
        Job(side.address, {topic: 1}, max_bytes=_ASKED_BYTES, partition_bytes=_ASKED_BYTES, client_id=topic)
        for topic in _TOPICS
    ]

    def once() -> float:
        began = time.monotonic()
        with ThreadPoolExecutor(len(jobs)) as at_once:
            counts = list(at_once.map(read, jobs))
        seconds = time.monotonic() - began
        least = min(count.record_bytes for count in counts)
        # A record takes more than its 1,024 bytes of value.
        assert least >= megabytes * 1_000_000 // 1024 * 1024, f"only {least} bytes of records by {side.name}"
        return seconds

    return Way(side.name, once)
