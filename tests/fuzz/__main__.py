"""``python -m tests.fuzz``: the long form. Each target in processes of its own; figures go to a file.

A process that dies, or is silent for too long, leaves the input that it was reading in ``build/fuzz``, as does one
that finds something. Run such an input again with ``--replay TARGET FILE``.
"""

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from proxy.convert import kernel
from tests.checkout import commit
from tests.fuzz import conversations, harness, targets

_ROOT: Final = Path(__file__).parents[2]
_FINDS: Final = _ROOT / "build" / "fuzz"
_FIGURES: Final = Path(__file__).with_name("figures.json")
_TARGETS: Final = {each.name: each for each in (*targets.TARGETS, *conversations.TARGETS)}
_PART: Final = 200_000
"""Inputs of one process: then another takes over, with another seed."""
_SILENCE_S: Final = 1800.0
_ADDRESS_SPACE: Final = 4 << 30
_SIZE_BYTES: Final = 4


@attrs.frozen
class _Part:
    target: str
    seed: int
    inputs: int


def main(argv: Sequence[str] | None = None) -> int:
    """0: nothing was found. 1: something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000, help="of all targets together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new process begins after so many")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--seed", type=int, default=None, help="to have the same inputs again")
    parser.add_argument("--figures", type=Path, default=None, help=f"add them to this file: {_FIGURES}")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="read one input and nothing else")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(_TARGETS)}; all without")
    arguments = parser.parse_args(argv)
    if arguments.part:
        return _run_part(*arguments.part)
    if arguments.replay:
        name, file = arguments.replay
        print(harness.try_one(_TARGETS[name], Path(file).read_bytes()))
        return 0
    if unknown := set(arguments.targets) - set(_TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    chosen = [each for each in _TARGETS.values() if not arguments.targets or each.name in arguments.targets]
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    parts = _parts(chosen, arguments.inputs, seed)
    started, started_s = datetime.now(UTC), time.monotonic()
    with ThreadPoolExecutor(arguments.processes) as pool:
        judged = list(pool.map(partial(_judged, until_s=started_s + arguments.seconds), parts))
    ran = [each for each in judged if isinstance(each, harness.Ran)]
    finds = [each for each in judged if isinstance(each, str)]
    figures: dict[str, Any] = {
        "commit": commit(),
        "at": started.isoformat(timespec="seconds"),
        "seed": seed,
        "seconds": round(time.monotonic() - started_s),
        "python": platform.python_version(),
        "kernel": "compiled" if kernel.is_compiled else "interpreted",
        "inputs": sum(each.inputs for each in ran),
        "finds": len(finds),
        "targets": {each.name: _summed(each.name, ran) for each in chosen},
    }
    print(json.dumps(figures, indent=2))
    if arguments.figures is not None:
        _add(figures, arguments.figures)
    return 1 if finds else 0


def _add(run: dict[str, Any], path: Path) -> None:
    """Add a run to the runs in the file, and to their sum."""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    runs.append(run)
    text = json.dumps({"inputs": sum(each["inputs"] for each in runs), "runs": runs}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def _parts(chosen: Sequence[harness.Target], inputs: int, seed: int) -> list[_Part]:
    """In an order in which every target has its turn soon."""
    weights = sum(each.weight for each in chosen)
    parts: list[tuple[int, _Part]] = []
    for target in chosen:
        left = round(inputs * target.weight / weights)
        number = 0
        while left > 0:
            parts.append((number, _Part(target.name, seed + len(parts), min(left, _PART))))
            left -= _PART
            number += 1
    return [part for _, part in sorted(parts, key=lambda each: each[0])]


def _judged(part: _Part, until_s: float) -> harness.Ran | str | None:
    if time.monotonic() >= until_s:
        return None
    with tempfile.NamedTemporaryFile(prefix="sidefetch-fuzz-") as current:
        reported, why = _in_a_process(part, current.name)
        if reported is not None:
            print(
                f"{reported.target}: {reported.inputs} inputs in {reported.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            return reported
        _FINDS.mkdir(parents=True, exist_ok=True)
        noted = Path(current.name).read_bytes()
        size = int.from_bytes(noted[:_SIZE_BYTES])
        kept = _FINDS / f"{part.target}-{part.seed}"
        kept.write_bytes(noted[_SIZE_BYTES : _SIZE_BYTES + size])
    found = f"{part.target}: {why}\nthe input is in {kept}"
    print(found, file=sys.stderr, flush=True)
    return found


def _in_a_process(part: _Part, current: str) -> tuple[harness.Ran | None, str]:
    command = [sys.executable, "-m", "tests.fuzz", "--part", part.target, str(part.seed), str(part.inputs), current]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SILENCE_S, check=False, cwd=_ROOT)
    except subprocess.TimeoutExpired:
        return None, f"silent for {_SILENCE_S:g} s"
    if done.returncode != 0:
        return None, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    return harness.Ran(**json.loads(done.stdout)), ""


def _run_part(name: str, seed: str, inputs: str, current: str) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ran = harness.run(_TARGETS[name], seed=int(seed), inputs=int(inputs), current=Path(current))
    print(json.dumps(attrs.asdict(ran)))
    return 0


def _summed(name: str, ran: Sequence[harness.Ran]) -> dict[str, object]:
    some = [each for each in ran if each.target == name]
    return {
        "inputs": sum(each.inputs for each in some),
        "seconds": round(sum(each.seconds for each in some)),
        "refused": sum(each.refused for each in some),
        "outcomes": max((each.outcomes for each in some), default=0),
        "traced": sum(each.traced for each in some),
        "most_new_kib": max((each.most_new_kib for each in some), default=0),
        "slowest_cpu_ms": max((each.slowest_cpu_ms for each in some), default=0),
    }


if __name__ == "__main__":
    sys.exit(main())
