"""The time from Sidefetch's start until it serves."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.machine import cpu_seconds
from tests.bench.stage import NODE, address_of
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_READY: Final = Figure("until it says that it listens", "s")
_ANSWERS: Final = Figure("until its first answer", "s")
_ENDS: Final = Figure("until it ends", "s")
_CPU: Final = Figure("CPU until then", "s")
_MOST_S: Final = 0.5
_GIVEN_UP_S: Final = 30.0
_AGAIN_S: Final = 0.005


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure ten starts, and for comparison those of an empty Python program."""
    ways = {"Sidefetch": lambda: _start(cluster.bootstrap), "python -c pass": _nothing}
    measured = measure_all("start", ways, rounds=5 if quick else 10, show_progress=show_progress)
    answers = measured[_ANSWERS]
    found_s = answers.median("Sidefetch")
    text = f"{answers.case}: {found_s:.2f} s, under {_MOST_S:g}"
    measured[_ANSWERS] = answers.expecting(Expectation(text, is_met=found_s < _MOST_S))
    return list(measured.values())


def _start(bootstrap: str) -> Mapping[Figure, float]:
    sidefetch = Sidefetch(bootstrap)
    with ThreadPoolExecutor(1) as beside:
        began_s = time.monotonic()
        answered = beside.submit(_answered, sidefetch.bootstrap)
        with sidefetch:
            ready_s = time.monotonic()
            answered_s = answered.result()
            cpu_s = cpu_seconds(sidefetch.process.pid)
    return {_READY: ready_s - began_s, _ANSWERS: answered_s - began_s, _CPU: cpu_s}


def _answered(bootstrap: str) -> float:
    """Return the time of the first Metadata response."""
    deadline = time.monotonic() + _GIVEN_UP_S
    while True:
        try:
            address_of(NODE, bootstrap)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)
        else:
            return time.monotonic()


def _nothing() -> Mapping[Figure, float]:
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return {_ENDS: time.monotonic() - began_s}
