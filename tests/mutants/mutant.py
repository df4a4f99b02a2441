"""One mutant: read from its patch, applied to a copy of the tree, judged by the tests that it names."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Self

import attrs

__all__ = ["Mutant", "TestRun", "Verdict", "copy_tree", "judge", "read_all", "run_tests"]

_COPIED: Final = (".ci", "proxy", "tests", "pyproject.toml")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "node_modules", "target", ".*", "*.patch", "*.so")
"""What is compiled stays behind: a copy runs its own sources."""
_KILLED_BY: Final = re.compile(r"^Killed-by: +(\S+)$", re.MULTILINE)


@attrs.frozen
class Mutant:
    """A patch and the tests that must notice it."""

    name: str
    patch: Path
    meaning: str
    killers: tuple[str, ...]
    """Test ids; one without parameters stands for all of its cases, of which one must fail."""

    @classmethod
    def read(cls, patch: Path) -> Self:
        """Raises ValueError where the header tells too little."""
        header, diff, _ = patch.read_text(encoding="utf-8").partition("\n--- a/")
        killers = tuple(_KILLED_BY.findall(header))
        meaning = " ".join(_KILLED_BY.sub("", header).split())
        if not (killers and meaning and diff):
            raise ValueError(f"{patch.name}: needs a meaning, Killed-by: lines and a diff of a/... and b/...")
        return cls(patch.stem, patch, meaning, killers)

    def apply(self, tree: Path) -> str:
        """Change *tree*; what git said against it, or ``""``."""
        return self._git_apply(tree)

    def check(self, tree: Path) -> str:
        """Whether it would apply: what git says against it, or ``""``."""
        return self._git_apply(tree, "--check")

    def _git_apply(self, tree: Path, *options: str) -> str:
        # The ceiling keeps git from taking a repository around a copy for the one to patch.
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
        command = ["git", "apply", "--verbose", *options, str(self.patch.resolve())]
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr.strip()


@attrs.frozen
class TestRun:
    """What pytest told of some tests."""

    __test__ = False
    exit_code: int | None
    """None: it took too long and was ended."""
    failed: frozenset[str]
    """Ids, with their parameters."""
    output: str

    def has_failed(self, test: str) -> bool:
        """Whether *test*, or one of its cases, was told to have failed."""
        return any(failed == test or failed.startswith((f"{test}[", f"{test}::")) for failed in self.failed)


@attrs.frozen
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: Literal["killed", "hung", "survived", "stale", "unfit"]
    """``hung``: the tests did not end: noticed too. ``stale``: the patch does not apply. ``unfit``: the tests
    could not be run."""
    seconds: float
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.outcome in ("killed", "hung")


def read_all(folder: Path) -> list[Mutant]:
    """By name."""
    return [Mutant.read(patch) for patch in sorted(folder.glob("*.patch"))]


def copy_tree(root: Path, copy: Path) -> None:
    """What the tests need of *root*, as it is in the working tree now."""
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
    if refusal := mutant.apply(copy):
        return verdict("stale", refusal)
    run = run_tests(copy, mutant.killers, timeout_s=timeout_s)
    if run.exit_code is None:
        return verdict("hung", f"not done after {timeout_s:g} s")
    if run.exit_code not in (0, 1):
        return verdict("unfit", run.output.strip()[-2000:])
    missed = [killer for killer in mutant.killers if not run.has_failed(killer)]
    return verdict("survived", "not noticed by " + ", ".join(missed)) if missed else verdict("killed")
