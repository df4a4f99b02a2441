"""How steady the machine is: the same work, again and again, on all cores at once; and what its host took away."""

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import attrs

from tests.bench.frame import percentile

__all__ = ["Loops", "Noise", "observed", "stolen_share"]

_TIMES: Final = 50
_TURNS: Final = 1_400_000
"""The iterations of a loop, which takes some 20 ms."""


@attrs.frozen
class Loops:
    """The durations of the same loop in milliseconds, over all cores."""

    median_ms: float
    p95_ms: float
    most_ms: float

    @classmethod
    def of(cls, each_ms: Sequence[float]) -> "Loops":
        return cls(statistics.median(each_ms), percentile(each_ms, 95), max(each_ms))

    def __str__(self) -> str:
        return f"{self.median_ms:.3g} ms, 95 % within {self.p95_ms:.3g} ms, at most {self.most_ms:.3g} ms"


@attrs.frozen
class Noise:
    """The noise of one run."""

    before: Loops
    after: Loops
    steal: float
    """Share of the processors' time that the host gave to others, 0 to 1."""

    def __str__(self) -> str:
        return f"a loop took {self.before} before, {self.after} after; {self.steal:.2%} of the CPU was stolen"


@contextlib.contextmanager
def observed() -> Iterator[Callable[[], Noise]]:
    """Run loops before and after the context; the yielded object has the result of both afterwards."""
    found: list[Noise] = []
    before, at_first = _loops(), _stat()
    yield lambda: found[0]
    found.append(Noise(before, _loops(), stolen_share(at_first, _stat())))


def stolen_share(before: str, after: str) -> float:
    """Return the share of processor time that the host took between two readings of ``/proc/stat``."""
    since, until = (list(map(int, stat.partition("\n")[0].split()[1:9])) for stat in (before, after))
    ticks = [to - at for at, to in zip(since, until, strict=True)]
    return ticks[-1] / max(sum(ticks), 1)


def _stat() -> str:
    return Path("/proc/stat").read_text(encoding="ascii")


def _loops() -> Loops:
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        return Loops.of([each for found in pool.map(_timed, [_TIMES] * cores) for each in found])


def _timed(times: int) -> list[float]:
    """Milliseconds of each of so many loops, after one that does not count."""
    found = []
    for _ in range(1 + times):
        began = time.perf_counter()
        for _ in range(_TURNS):
            pass
        found.append(1000 * (time.perf_counter() - began))
    return found[1:]
