"""One mutant: read from its file, applied to a copy of the tree, judged by the tests that it names."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Self

import attrs

__all__ = ["Change", "Mutant", "TestRun", "Verdict", "copy_tree", "judge", "read_all", "run_tests"]

_COPIED: Final = (".ci", "proxy", "tests", "pyproject.toml")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "node_modules", "target", ".*", "*.so")
"""Compiled files are not copied: a copy runs its own sources."""


@attrs.frozen
class Change:
    """Whole lines of one file, and the lines that replace them."""

    file: str
    """Relative to the root of the tree."""
    old: str
    new: str

    def problem(self, tree: Path) -> str:
        """Return why the change cannot be applied to *tree*, or ``""``."""
        path = tree / self.file
        if not path.is_file():
            return f"{self.file}: no such file"
        _, count = self._replace(path.read_text(encoding="utf-8"))
        return "" if count == 1 else f"{self.file}: these lines occur {count} times, and must once:\n{self.old}"

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        text, _ = self._replace(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")

    def _replace(self, text: str) -> tuple[str, int]:
        """Return *text* with the new lines, and how often it had the old ones."""
        return re.subn(f"^{re.escape(self.old)}", lambda _: self.new, text, flags=re.MULTILINE)


@attrs.frozen
class Mutant:
    """Changes that break the code, and the tests that must notice it."""

    name: str
    meaning: str
    killers: tuple[str, ...]
    """Test ids; one without parameters stands for all of its cases, of which one must fail."""
    changes: tuple[Change, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raise ValueError if *path* lacks a meaning, a test or a change, or is not TOML."""
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        meaning, killers = fields.get("meaning", ""), tuple(fields.get("killed_by", ()))
        changes = tuple(Change(**each) for each in fields.get("change", ()))
        if not (meaning and killers and changes):
            raise ValueError(f"{path.name}: needs meaning, killed_by and [[change]]")
        return cls(path.stem, meaning, killers, changes)

    def problem(self, tree: Path) -> str:
        """Return why the mutant cannot be tried on *tree*, or ``""``: lines or tests that are not there."""
        problems = [change.problem(tree) for change in self.changes]
        for killer in self.killers:
            path, _, test = killer.partition("::")
            name = test.rpartition("::")[2].partition("[")[0]
            is_there = (tree / path).is_file() and f"def {name}(" in (tree / path).read_text(encoding="utf-8")
            problems.append("" if is_there else f"{killer}: no such test")
        return "\n".join(filter(None, problems))

    def apply(self, tree: Path) -> None:
        """Change the files of *tree*, in which the mutant has no ``problem``."""
        for change in self.changes:
            change.apply(tree)


@attrs.frozen
class TestRun:
    """The result of a pytest run of some tests."""

    __test__ = False
    exit_code: int | None
    """None: it took too long and was ended."""
    failed: frozenset[str]
    """Ids, with their parameters."""
    output: str

    def has_failed(self, test: str) -> bool:
        """Return whether *test*, or one of its cases, has failed."""
        return any(failed == test or failed.startswith((f"{test}[", f"{test}::")) for failed in self.failed)


@attrs.frozen
class Verdict:
    """The verdict on a mutant."""

    mutant: Mutant
    outcome: Literal["killed", "hung", "survived", "stale", "unfit"]
    """``hung``: the tests did not end: noticed too. ``stale``: the lines or the tests are not there any more.
    ``unfit``: the tests could not be run."""
    seconds: float
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.outcome in ("killed", "hung")


def read_all(folder: Path) -> list[Mutant]:
    """Return the mutants of *folder*, by name."""
    return [Mutant.read(path) for path in sorted(folder.glob("*.toml"))]


def copy_tree(root: Path, copy: Path) -> None:
    """Copy the files of *root* that the tests need, as they are in the working tree."""
    for name in _COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=_LEFT_OUT)
        elif (root / name).exists():
            shutil.copy(root / name, copy / name)


def run_tests(tree: Path, tests: Sequence[str], *, timeout_s: float) -> TestRun:
    """Run *tests* on the code of *tree*, whatever else is installed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", *tests]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environ, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return TestRun(None, frozenset(), "")
    failed = re.findall(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return TestRun(done.returncode, frozenset(failed), done.stdout + done.stderr)


def judge(mutant: Mutant, root: Path, copy: Path, *, timeout_s: float) -> Verdict:
    """Copy *root* to the empty folder *copy*, break it, run the tests named."""
    began = time.monotonic()

    def verdict(outcome: Literal["killed", "hung", "survived", "stale", "unfit"], detail: str = "") -> Verdict:
        return Verdict(mutant, outcome, time.monotonic() - began, detail)

    copy_tree(root, copy)
    if problem := mutant.problem(copy):
        return verdict("stale", problem)
    mutant.apply(copy)
    run = run_tests(copy, mutant.killers, timeout_s=timeout_s)
    if run.exit_code is None:
        return verdict("hung", f"not done after {timeout_s:g} s")
    if run.exit_code not in (0, 1):
        return verdict("unfit", run.output.strip()[-2000:])
    missed = [killer for killer in mutant.killers if not run.has_failed(killer)]
    return verdict("survived", "not noticed by " + ", ".join(missed)) if missed else verdict("killed")
