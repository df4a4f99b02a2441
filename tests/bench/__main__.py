"""``python -m tests.bench [--quick] [CASE...]``: run the cases, print tables, write ``bench-TIME.json``."""

import argparse
import json
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.bench import (
    client_sessions,
    closest,
    conversion,
    convert,
    idle,
    idle_cpu,
    latency,
    long_poll_idle,
    long_poll_memory,
    long_poll_moving,
    long_poll_wake,
    processes,
    scale,
    shared,
    shared_idle,
    slow_link,
    start,
    telemetry,
    throughput,
    tls,
)
from tests.bench.deployed import deployed_python
from tests.bench.frame import Expectation, Table, as_json, render
from tests.bench.machine import cpu_model
from tests.bench.noise import observed
from tests.bench.rivals import KROXYLICIOUS, haproxy_path
from tests.bench.stage import KAFKA, brokers
from tests.checkout import commit
from tests.sidefetch import Sidefetch

_CASES: Final = {
    "idle": idle.run,
    "throughput": throughput.run,
    "latency": latency.run,
    "slow-link": slow_link.run,
    "scale": scale.run,
    "start": start.run,
    "telemetry": telemetry.run,
    "long-poll-idle": long_poll_idle.run,
    "long-poll-moving": long_poll_moving.run,
    "long-poll-wake": long_poll_wake.run,
    "long-poll-memory": long_poll_memory.run,
    "shared-consumers": shared.run_consumers,
    "shared-behind": shared.run_behind,
    "shared-idle": shared_idle.run,
    "shared-partitions": shared.run_partitions,
    "closest-wake": closest.run_wake,
    "closest-idle": closest.run_idle,
    "conversion": conversion.run,
    "conversion-memory": conversion.run_memory,
}
_WITHOUT_BROKERS: Final = {
    "client-sessions": client_sessions.run,
    "convert": convert.run,
    "idle-cpu": idle_cpu.run,
    "processes": processes.run,
    "tls": tls.run,
}
_NAMES: Final = (*_WITHOUT_BROKERS, *_CASES)
_ROOT: Final = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """0: all figures are as expected. 1: some are not."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds; figures that vary more")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(_NAMES)}; all without")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.cases) - set(_NAMES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    Sidefetch.python = deployed_python()
    started = datetime.now(UTC)
    with observed() as noise:
        tables = _measured(set(arguments.cases or _NAMES), quick=arguments.quick)
    about = {"at": started.isoformat(timespec="seconds"), "quick": arguments.quick, **_machine()}
    print(f"\n{about['cpu']}, {about['cores']} cores: {noise()}\n\n{render(tables)}")
    path = _ROOT / f"bench-{started:%Y%m%d-%H%M%S}.json"
    all_of_it = {**about, "noise": attrs.asdict(noise()), "cases": as_json(tables)}
    path.write_text(json.dumps(all_of_it, indent=2) + "\n", encoding="utf-8")
    print(f"\nevery value is in {path.name}")
    return 0 if all(e.is_met for table in tables for e in table.expectations) else 1


def _measured(chosen: Set[str], *, quick: bool) -> list[Table]:
    tables: list[Table] = []
    for name, run_alone in _WITHOUT_BROKERS.items():
        if name in chosen:
            tables += _tables(name, partial(run_alone, quick=quick, show_progress=_show_progress))
    if chosen & set(_CASES):
        _show_progress(f"starting three brokers of Kafka {KAFKA}")
        with brokers() as cluster:
            for name, run in _CASES.items():
                if name in chosen:
                    tables += _tables(name, partial(run, cluster, quick=quick, show_progress=_show_progress))
    return tables


def _tables(name: str, run: Callable[[], Sequence[Table]]) -> Sequence[Table]:
    """Return the tables of a case; if it fails, one without figures whose expectation says so."""
    try:
        return run()
    except Exception as failure:  # of any kind: the other cases are still worth their figures
        traceback.print_exc()
        first_line = str(failure).partition("\n")[0]
        return [Table(name, "", {}, (Expectation(f"{name}: was not measured: {first_line}", is_met=False),))]


def _show_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _machine() -> dict[str, object]:
    return {
        "kafka": KAFKA,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "haproxy": _first_line([path, "-v"]) if (path := haproxy_path()) else None,
        "kroxylicious": KROXYLICIOUS,
        "commit": commit(),
    }


def _first_line(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
