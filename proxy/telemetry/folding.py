"""Folding of runs of rows without records into one row: a client that polls would write 120 of them a minute."""

from collections.abc import Iterable, Mapping
from typing import Final

from proxy.telemetry.ledger import RECORDS, LedgerColumn, Row
from proxy.telemetry.rows import bounded_sources

__all__ = ["LONGEST_US", "RowFolding"]

LONGEST_US: Final = 60_000_000
"""The longest time from the first row of a run to its last."""

_FOLDED: Final = ("exchange", "fetch")


def _names(fold: str) -> Mapping[str, tuple[str, ...]]:
    return {record: tuple(c.name for c in RECORDS[record] if c.fold == fold) for record in _FOLDED}


_SAME: Final = _names("same")
_SUM: Final = _names("sum")
_LAST: Final = _names("last")
_MERGED: Final = {record: tuple(c for c in RECORDS[record] if c.fold == "merge") for record in _FOLDED}

_RunKey = tuple[int, str, str]
"""The connection, the record type, and the lane of fetches."""


class RowFolding:
    """The open runs of all connections; each row comes out once, alone or in a run, after those before it."""

    def __init__(self) -> None:
        self._runs: dict[_RunKey, Row] = {}

    def add(self, row: Row) -> list[Row]:
        """Return the rows that *row* completes: itself, too, unless it continues a run or may begin one."""
        if row["record"] not in _FOLDED:
            return [row]
        key = (row["connection_id"], row["record"], row.get("lane_id", ""))
        run = self._runs.get(key)
        if run is not None and _goes_on(run, row):
            _fold(run, row)
            return []
        finished = [] if run is None else [self._runs.pop(key)]
        if not _is_empty(row):
            return [*finished, row]
        self._runs[key] = row
        return finished

    def over(self, now_us: int) -> list[Row]:
        """Return the runs that have reached the longest duration."""
        return self._end(key for key, run in self._runs.items() if now_us - run["first_at_us"] >= LONGEST_US)

    def left(self, connection_id: int) -> list[Row]:
        """Return the runs of a connection that has ended."""
        return self._end(key for key in self._runs if key[0] == connection_id)

    def finish(self) -> list[Row]:
        """Return all runs."""
        return self._end(self._runs)

    def _end(self, keys: Iterable[_RunKey]) -> list[Row]:
        return [self._runs.pop(key) for key in list(keys)]


def _is_empty(row: Row) -> bool:
    if row["record"] == "fetch":
        return not row["record_bytes"]
    return not (row["with_data"] or row["source_bytes"])


def _goes_on(run: Row, row: Row) -> bool:
    record = row["record"]
    return (
        _is_empty(row)
        and row["at_us"] - run["first_at_us"] <= LONGEST_US
        and all(run[name] == row[name] for name in _SAME[record])
    )


def _fold(run: Row, row: Row) -> None:
    """Fold *row* into *run*."""
    record = row["record"]
    for name in _SUM[record]:
        run[name] = None if row[name] is None or run[name] is None else run[name] + row[name]
    for name in _LAST[record]:
        run[name] = row[name]
    for column in _MERGED[record]:
        if row[column.name]:
            run[column.name] = _merged(column, [*run[column.name], *row[column.name]])
    if record == "exchange":
        run["sources"] = bounded_sources(run["sources"])


def _merged(column: LedgerColumn, items: Iterable[Row]) -> list[Row]:
    """Merge items that differ only in sums, in the order of their first occurrence."""
    same = [each.name for each in column.items if each.fold == "same"]
    sums = [each.name for each in column.items if each.fold == "sum"]
    merged: dict[tuple[object, ...], Row] = {}
    for item in items:
        found = merged.setdefault(tuple(item[name] for name in same), item | dict.fromkeys(sums, 0))
        for name in sums:
            found[name] += item[name]
    return list(merged.values())
