"""The rows that a ledger in a folder has, for tests."""

import json
from collections import Counter
from pathlib import Path

from proxy.telemetry.ledger import Row, problems

__all__ = ["of", "total", "written"]


def written(folder: Path) -> list[Row]:
    """Return the rows of all finished files, by process and number; check each, and that none is there twice."""
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert not [problem for row in rows for problem in problems(row)]
    assert max(Counter((row["proxy_id"], row["seq"]) for row in rows).values(), default=1) == 1
    return sorted(rows, key=lambda row: (row["proxy_id"], row["seq"]))


def of(rows: list[Row], record: str) -> list[Row]:
    """Return the rows of one kind of record."""
    return [row for row in rows if row["record"] == record]


def total(rows: list[Row], column: str) -> int:
    """Return the sum of a column."""
    return sum(row[column] for row in rows)
