"""The summary of a run: skipped tests and their reasons, of which only allowed ones are accepted.

``python -m tests.summary RESULTS ALLOWED``: pytest's JUnit file, and a file of regular expressions.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import attrs

__all__ = ["Skip", "Summary", "main", "read_allowed", "read_results"]


@attrs.frozen
class Skip:
    """A test that was collected and not run, or not to its end."""

    test: str
    reason: str


@attrs.frozen
class Summary:
    """The result of a run. Errors in fixtures and in collection count as failures."""

    passed: int
    failed: int
    skips: tuple[Skip, ...]

    def refused(self, allowed: Sequence[re.Pattern[str]]) -> list[Skip]:
        """The skips whose reason no pattern matches in full."""
        return [skip for skip in self.skips if not any(pattern.fullmatch(skip.reason) for pattern in allowed)]


def read_results(results: str) -> Summary:
    """Read the text of a JUnit file. A test that fails and then fails again in its teardown is one failure."""
    verdicts: dict[str, str] = {}
    skips: list[Skip] = []
    for case in ElementTree.fromstring(results).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            verdicts[name] = "failed"
        elif (skipped := case.find("skipped")) is not None:
            verdicts.setdefault(name, "skipped")
            skips.append(Skip(name, " ".join((skipped.get("message") or "no reason given").split())))
        else:
            verdicts.setdefault(name, "passed")
    counts = list(verdicts.values())
    return Summary(counts.count("passed"), counts.count("failed"), tuple(skips))


def read_allowed(text: str) -> list[re.Pattern[str]]:
    """Read one pattern a line; empty lines and those that begin with # say nothing."""
    return [re.compile(line) for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def main(results: Path, allowed: Path) -> int:
    """Print the summary; return 0 if nothing failed, something passed, and every skip is allowed."""
    summary = read_results(results.read_text(encoding="utf-8"))
    refused = summary.refused(read_allowed(allowed.read_text(encoding="utf-8")))
    print("\nNot run:" if summary.skips else "\nNot run: nothing.")
    for skip in summary.skips:
        print(f"  {'NOT ALLOWED  ' if skip in refused else ''}{skip.test}: {skip.reason}")
    if refused:
        print(f"{len(refused)} skipped for a reason that {allowed} does not list.")
    print(f"{summary.passed} passed, {summary.failed} failed, {len(summary.skips)} skipped")
    return int(bool(summary.failed or refused or not summary.passed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
