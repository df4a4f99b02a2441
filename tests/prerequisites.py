"""Tools that some tests need: without them a test is skipped by hand, and fails where CI is set."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

__all__ = ["Tool", "require"]

_CHECK = Path(__file__).resolve().parents[1] / ".ci" / "prerequisites"


@cache
def _lacking(tool: str) -> str:
    """Return the problem with *tool* in one line; empty if there is none."""
    done = subprocess.run([str(_CHECK), tool], capture_output=True, text=True, check=False)
    return " ".join(done.stderr.split()) if done.returncode else ""


Tool = Literal[
    "java",
    "maven",
    "node",
    "go",
    "c",
    "openssl",
    "linux-x86-64",
    "chromium",
    "prometheus",
    "root",
    "containers",
    "librdkafka",
    "nftables",
    "namespaces",
]


def require(*tools: Tool) -> None:
    """Go on if the machine has all *tools*; the script that ``make test`` begins with decides."""
    missing = [lack for lack in map(_lacking, tools) if lack]
    if missing:
        reason = "; ".join(missing)
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
