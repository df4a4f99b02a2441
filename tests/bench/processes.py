"""The gain of a second process on the same ports: idle full fetches, answered by one process and by two.

Each client fetches again as soon as it is answered, few partitions, so that most of the work is Sidefetch's. The
clients run in one process and need CPU time as well: on two cores, two processes cannot answer twice as many
fetches.
That takes three cores.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tests.bench.embedded import NODE, embedded, topic_name
from tests.bench.frame import Figure, Table, measure_all
from tests.bench.load import OWN_CPU, idlers
from tests.bench.machine import cpu_seconds
from tests.bench.reader import Job
from tests.bench.stage import address_of
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_FETCHES: Final = Figure("answered", "/s")
_PARTITIONS: Final = 10
_CLIENTS: Final = 16
"""So that the kernel deals some to each process, and neither ever has nothing to do."""
_SHARED: Final = ("--share-ports", "on")


def run(*, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Fetches a second of all clients together, and the CPU of all processes together."""
    with contextlib.ExitStack() as stage:
        cluster = stage.enter_context(embedded(1, _PARTITIONS))
        alone = stage.enter_context(Sidefetch(cluster.bootstrap))
        first = stage.enter_context(Sidefetch(cluster.bootstrap, options=_SHARED))
        second = stage.enter_context(Sidefetch(cluster.bootstrap, options=_SHARED, port=first.port))
        seconds = 2.0 if quick else 5.0
        ways = {
            "one process": partial(_polled, [alone], seconds),
            "two processes": partial(_polled, [first, second], seconds),
        }
        case = f"idle fetches of {_PARTITIONS} partitions, {_CLIENTS} clients"
        return list(measure_all(case, ways, rounds=2 if quick else 5, show_progress=show_progress).values())


def _polled(processes: Sequence[Sidefetch], seconds: float) -> Mapping[Figure, float]:
    def cpu_s() -> float:
        return sum(cpu_seconds(each.process.pid) for each in processes)

    job = Job(address_of(NODE, processes[0].bootstrap), {topic_name(0): _PARTITIONS}, max_wait_ms=0)
    before_s = cpu_s()
    with idlers(job, _CLIENTS) as crowd:
        time.sleep(seconds)
        heard = crowd.leave()
    took_s = heard["served_s"] + seconds
    return {_FETCHES: heard["answers"] / took_s, OWN_CPU: 1000 * (cpu_s() - before_s) / took_s}
