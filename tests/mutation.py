"""Mutation scores of the pure packages, by mutmut: ``python -m tests.mutation [PACKAGE[/MODULE]...]``.

mutmut rather than cosmic-ray: it runs only the tests that reach the mutated function, in a fork of a process that
has imported pytest, Hypothesis and the tests. cosmic-ray starts pytest once per mutant. That process runs no test
itself, because caches that tests have filled would hide mutants.

The tests are those of the package's folder and ``_OTHER_TESTS``. A run mutates a copy of the tree in
``build/mutation``.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.mutants.mutant import copy_tree

_ROOT: Final = Path(__file__).parents[1]
_MUTMUT: Final = _ROOT / ".cache" / "mutation" / "bin" / "mutmut"
_RECORDED: Final = ("session", "cluster", "wire", "sasl/users")
"""The packages and modules in the table of ``tests/README.md``."""
_OTHER_TESTS: Final = {"cluster": ["tests/relay/test_closest_replica.py"]}
"""Tests of a package outside its own folder."""
_MEMORY_BYTES: Final = 4 << 30
"""The address space of one run, because mutants of loops and sizes can allocate without bound."""
_CONFIG: Final = r"""
[mutmut]
source_paths = proxy
only_mutate =
  proxy/{path}.py
  proxy/{path}/*
do_not_mutate = proxy/convert/kernel.py
do_not_mutate_patterns =
  ^\s*raise\b
  \b_corrupt\(
also_copy = .ci
pytest_add_cli_args_test_selection =
  {tests}
pytest_add_cli_args =
  -p
  no:cacheprovider
process_isolation = forkserver
timeout_multiplier = 5.0
"""
"""The settings of mutmut; it does not mutate docstrings, annotations and decorated functions either."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: every package was run. 1: the tests of one do not pass, or mutmut failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PACKAGE[/MODULE]", default=_RECORDED, help="below proxy")
    return max(_run(path) for path in parser.parse_args(argv).paths)


def _run(path: str) -> int:
    """Run all mutants of the package or module *path*, print its score, and write the survivors to a file."""
    package, began = path.partition("/")[0], time.monotonic()
    folder = _ROOT / "build" / "mutation" / path.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_tree(_ROOT, folder)
    for compiled in _ROOT.glob("proxy/convert/*.so"):
        shutil.copy(compiled, folder / "proxy" / "convert")
    tests = "\n  ".join([f"tests/{package}", *_OTHER_TESTS.get(package, ())])
    (folder / "setup.cfg").write_text(_CONFIG.format(path=path, tests=tests))
    print(f"{path}: see {folder.relative_to(_ROOT)}/log", flush=True)
    with (folder / "log").open("w") as log:
        if _mutmut(folder, "run", "--max-children", "1", stdout=log) != 0:
            print(f"{path}: mutmut failed")
            return 1
        _mutmut(folder, "export-cicd-stats", stdout=log)
    survivors = folder / "survivors"
    with survivors.open("w") as names:
        _mutmut(folder, "results", stdout=names)
    counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text())
    noticed = counts["killed"] + counts["timeout"]
    print(
        f"{path}: {counts['total']} mutants, {counts['killed']} killed, {counts['survived']} survived, "
        f"{counts['timeout']} timeouts, {counts['total'] - noticed - counts['survived']} not reached or not run, "
        f"score {100 * noticed / counts['total']:.1f} %, {(time.monotonic() - began) / 60:.1f} minutes; "
        f"names: {survivors.relative_to(_ROOT)}",
        flush=True,
    )
    return 0


def _mutmut(folder: Path, *arguments: str, stdout: IO[str]) -> int:
    """Run mutmut with the packages of this environment, but without its link to the tree."""
    environ = os.environ | {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SIDEFETCH_HYPOTHESIS": "unshrunk",
    }
    return subprocess.run(
        [_MUTMUT, *arguments],
        cwd=folder,
        env=environ,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES)),
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
