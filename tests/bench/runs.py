"""Runs of the benchmark, made by hand."""

from collections.abc import Mapping
from typing import Any

__all__ = ["LOOPS", "case", "run_of"]

LOOPS = {"median_ms": 20.04, "p95_ms": 21.0, "most_ms": 33.0}


def case(name: str, unit: str, ways: Mapping[str, float], *missed: str) -> dict[str, Any]:
    return {
        "case": name,
        "unit": unit,
        "ways": {way: {"median": median} for way, median in ways.items()},
        "expectations": [{"text": text, "is_met": False} for text in missed],
    }


def run_of(*cases: dict[str, Any], **more: object) -> dict[str, Any]:
    about = {
        "at": "2026-03-01T10:00:00+00:00",
        "quick": False,
        "kafka": "4.3.1",
        "python": "3.11.2",
        "system": "Linux x86_64",
        "cpu": "A CPU",
        "cores": 2,
        "haproxy": "HAProxy version 2.6.12-1 2026/01/02 - https://haproxy.org/",
        "kroxylicious": "0.12.0",
        "commit": "abc",
        "noise": {"before": LOOPS, "after": LOOPS, "steal": 0.0125},
    }
    return {**about, **more, "cases": cases}
