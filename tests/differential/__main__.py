"""``python -m tests.differential``: draw combinations, run them, report differences."""

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from tests.checkout import commit
from tests.differential.combinations import CLIENTS, Combination, draw
from tests.differential.shrink import shrink
from tests.differential.stage import Stage
from tests.differential.trial import Trial, run

_SHRINKING_LIMIT_S = 15.0
_REPEATS = 2
"""How often a combination that is only slow, or void, is run again before it counts."""


@attrs.define
class Tally:
    """The outcomes of one run."""

    combinations: int = 0
    finds: list[str] = attrs.field(factory=list)
    voids: list[str] = attrs.field(factory=list)
    repeated: int = 0
    """Combinations that were slow or void once, and passed when repeated."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: no combination was a find, and at most one in twenty void."""
    arguments = _parser().parse_args(argv)
    clients = tuple(arguments.client) or CLIENTS
    seeds = (
        [arguments.replay] if arguments.replay else _seeds(arguments.seed, arguments.first, arguments.combinations)
    )
    ends_s = time.monotonic() + arguments.minutes * 60 if arguments.minutes else float("inf")
    began_s = time.monotonic()
    tally, lock = Tally(), threading.Lock()
    with Stage(arguments.kafka) as stage, ThreadPoolExecutor(arguments.jobs) as pool:

        def judge_one(seed: str, together: str | None) -> None:
            if time.monotonic() > ends_s or (tally.finds and arguments.fail_fast):
                return
            combination = draw(seed, arguments.kafka, clients, together=together, shares=arguments.share_reads)
            trial, repeats = run_surely(stage, combination)
            smallest = None
            if trial.verdict.outcome == "find" and not arguments.no_shrink:
                smallest = _shrunk(stage, trial)
            with lock:
                _count(tally, trial, repeats)
                _print(trial, smallest, _replay(arguments, seed, together))

        if arguments.share_reads == "off":
            list(pool.map(judge_one, seeds, itertools.repeat(None)))
        else:
            for first in range(0, len(seeds), arguments.jobs):
                some = seeds[first : first + arguments.jobs]
                list(pool.map(judge_one, some, itertools.repeat(arguments.together or some[0])))
    minutes = (time.monotonic() - began_s) / 60
    print(
        f"{tally.combinations} combinations in {minutes:.1f} minutes: {len(tally.finds)} finds,"
        f" {len(tally.voids)} void, {tally.repeated} slow only once"
    )
    if arguments.report is not None and not arguments.replay:
        _report(arguments, tally, minutes)
    return 1 if tally.finds or len(tally.voids) * 20 > max(tally.combinations, 20) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--kafka", default="4.3.1", help="the brokers' version (%(default)s)")
    parser.add_argument("--combinations", type=int, default=300, help="how many are run (%(default)d)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (%(default)d)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first combination (%(default)d)")
    parser.add_argument(
        "--share-reads",
        default="off",
        choices=("off", "client-id", "principal"),
        help="as Sidefetch's option; except for off, those side by side read the same topic (%(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="combinations side by side (%(default)d)")
    parser.add_argument("--minutes", type=float, help="begin no combination after these")
    parser.add_argument("--client", action="append", default=[], choices=CLIENTS, help="only this; may be repeated")
    parser.add_argument("--replay", metavar="SEED/NUMBER", help="run this combination alone")
    parser.add_argument(
        "--together", metavar="SEED/NUMBER", help="the first of those that it was side by side with"
    )
    parser.add_argument("--fail-fast", action="store_true", help="begin no combination after the first find")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for the smallest that fails")
    parser.add_argument("--report", type=Path, help="where the figures go, beside those of other versions, as JSON")
    return parser


def _seeds(seed: int, first: int, count: int) -> list[str]:
    return [f"{seed}/{number}" for number in range(first, first + count)]


def run_surely(stage: Stage, combination: Combination) -> tuple[Trial, int]:
    """Run *combination*, again if it is only slow or void: the machine may be busy; return how often that was.

    A slow one is compared with brokers that are some milliseconds away, and with the slowest direct reader of all
    its runs: a client that got ahead in one partition may wait at its end for its whole max wait.
    """
    trial, slowest_ms = run(stage, combination), 0
    for repeat in range(_REPEATS):
        is_slow = all(each.kind == "slow" for each in trial.verdict.problems)
        if trial.verdict.outcome == "passed" or (trial.verdict.outcome == "find" and not is_slow):
            return trial, repeat
        is_distant = trial.verdict.outcome == "find" and combination.event is None
        slowest_ms = max(slowest_ms, trial.direct_ms, trial.control_ms)
        trial = run(stage, combination, is_distant=is_distant, slowest_ms=slowest_ms)
    return trial, _REPEATS


def _shrunk(stage: Stage, trial: Trial) -> Combination:
    kind = trial.verdict.problems[0].kind

    def fails(smaller: Combination) -> bool:
        verdict = run(stage, smaller, limit_s=_SHRINKING_LIMIT_S).verdict
        return verdict.outcome == "find" and any(each.kind == kind for each in verdict.problems)

    return shrink(trial.combination, fails)


def _count(tally: Tally, trial: Trial, repeats: int) -> None:
    tally.combinations += 1
    seed = trial.combination.seed
    if trial.verdict.outcome == "find":
        tally.finds.append(seed)
    else:
        tally.repeated += bool(repeats)
    if trial.verdict.outcome == "void":
        tally.voids.append(seed)


def _print(trial: Trial, smallest: Combination | None, replay: str) -> None:
    times = "/".join(f"{ms / 1000:.1f}" for ms in (trial.direct_ms, trial.control_ms, trial.side_ms))
    print(f"{trial.combination.seed} {trial.verdict.outcome} {times} s | {trial.combination}", flush=True)
    if trial.verdict.outcome != "passed":
        for problem in trial.verdict.problems[:5]:
            print(f"    {problem}", flush=True)
        for role, reading in trial.readings.items():
            if reading.heard:
                print(f"    {role} reported: {'; '.join(reading.heard)[:600]}", flush=True)
    if trial.verdict.outcome == "find":
        print(f"    again: {replay}", flush=True)
    if smallest is not None:
        print(f"    smallest: {smallest}", flush=True)


def _replay(arguments: argparse.Namespace, seed: str, together: str | None) -> str:
    clients = "".join(f" --client {each}" for each in arguments.client)
    shared = "" if together is None else f" --share-reads {arguments.share_reads} --together {together}"
    return f"python -m tests.differential --kafka {arguments.kafka}{clients}{shared} --replay {seed}"


def _report(arguments: argparse.Namespace, tally: Tally, minutes: float) -> None:
    """Add this run's figures to those of the version in the report's file."""
    path: Path = arguments.report
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    before = figures.setdefault(arguments.kafka, {"runs": []})
    run_figures = {
        "commit": commit(),
        "seed": arguments.seed,
        "first": arguments.first,
        "clients": arguments.client or "all",
        "share-reads": arguments.share_reads,
        "combinations": tally.combinations,
        "finds": sorted(tally.finds),
        "voids": sorted(tally.voids),
        "slow only once": tally.repeated,
        "minutes": round(minutes, 1),
    }
    before["runs"].append(run_figures)
    for name in ("combinations", "minutes"):
        before[name] = round(sum(each[name] for each in before["runs"]), 1)
    for name in ("finds", "voids"):
        before[name] = sum(len(each[name]) for each in before["runs"])
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
