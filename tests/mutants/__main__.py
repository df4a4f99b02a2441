"""Changes that break the code, each of which must make tests fail: ``python -m tests.mutants [NAME...]``.

``rules`` has a mutant for each important rule of the protocol; those of the log cache begin with l1 to l17.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant, Verdict, copy_tree, judge, read_all, run_tests

_ROOT: Final = Path(__file__).parents[2]
_AT_ONCE: Final = 2
_TIMEOUT_S: Final = 120.0
"""The timeout of one pytest run; the named tests take a second or two, and ten with Spark."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: every mutant was noticed. 1: one was not, or could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names; without any, all")
    chosen = tuple(parser.parse_args(argv).names)
    rules = read_all(Path(__file__).parent / "rules")
    mutants = [mutant for mutant in rules if not chosen or mutant.name.startswith(chosen)]
    if not mutants:
        print("no such mutant")
        return 1
    with tempfile.TemporaryDirectory(prefix="sidefetch-mutants-") as folder:
        if problem := _unmutated(mutants, Path(folder) / "unmutated"):
            print(problem)
            return 1
        return _report(_judge_all(mutants, Path(folder)))


def _unmutated(mutants: Sequence[Mutant], copy: Path) -> str:
    """Return the failure of the named tests on the unchanged code or its copy, or ``""``."""
    copy.mkdir()
    copy_tree(_ROOT, copy)
    where = "import proxy.errors, sys; sys.exit(not proxy.errors.__file__.startswith(sys.argv[1]))"
    if subprocess.run([sys.executable, "-c", where, str(copy)], cwd=copy, check=False).returncode != 0:
        return f"the tests would not import the copy in {copy}"
    killers = sorted({killer for mutant in mutants for killer in mutant.killers})
    run = run_tests(copy, killers, timeout_s=_TIMEOUT_S * 2)
    return "" if run.exit_code == 0 else f"the tests named do not pass on the code as it is:\n{run.output}"


def _judge_all(mutants: Sequence[Mutant], folder: Path) -> list[Verdict]:
    def one(mutant: Mutant) -> Verdict:
        with tempfile.TemporaryDirectory(dir=folder) as copy:
            verdict = judge(mutant, _ROOT, Path(copy), timeout_s=_TIMEOUT_S)
        print(f"{verdict.outcome:8} {verdict.seconds:5.1f} s  {mutant.name}: {mutant.meaning}", flush=True)
        return verdict

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, mutants))


def _report(verdicts: Sequence[Verdict]) -> int:
    bad = [verdict for verdict in verdicts if not verdict.is_good]
    for verdict in bad:
        print(f"\n{verdict.outcome}: {verdict.mutant.name}\n{verdict.detail}")
    print(f"\n{len(verdicts) - len(bad)} of {len(verdicts)} mutants were noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
