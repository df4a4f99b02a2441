"""The folding of consecutive ledger rows of fetches without records into one row.

Otherwise a client that polls twice a second would write 120 rows a minute. A *run* is the row that stands for such
rows so far. They are of the same connection, record type and fetcher, and equal in all columns whose fold is
``same``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from proxy.telemetry.ledger import RECORDS, LedgerColumn, Row
from proxy.telemetry.rows import bounded_sources

__all__ = ["LONGEST_US", "RowFolding"]

LONGEST_US: Final = 60_000_000
"""The longest time from the first row of a run to its last, in microseconds."""

_FOLDED: Final = ("exchange", "fetch")


def _names(fold: str) -> Mapping[str, tuple[str, ...]]:
    return {record: tuple(c.name for c in RECORDS[record] if c.fold == fold) for record in _FOLDED}


_SAME: Final = _names("same")
_SUM: Final = _names("sum")
_LAST: Final = _names("last")
_MERGED: Final = {record: tuple(c for c in RECORDS[record] if c.fold == "merge") for record in _FOLDED}

_RunKey = tuple[int, str, str]
"""The key of a run: the number of the connection or shared log cache, the record type, and the fetcher id (empty
for client fetches)."""


class RowFolding:
    """A buffer that folds consecutive ledger rows of fetches without records into one row, a *run*.

    Its methods return the rows that are complete, in the order in which the caller must write them. A run ends with
    a row that has records or differs in a column that cannot be summed, after a minute, or with its connection.
    """

    def __init__(self) -> None:
        self._runs: dict[_RunKey, Row] = {}

    def add(self, row: Row, number: int | None = None) -> list[Row]:
        """Return the rows to write now: the run that *row* ends, if any, and then *row* if it is not folded.

        A row without records is kept: it is added to the open run of its connection, or begins a new run. Rows of
        other types than ``exchange`` (a client fetch) and ``fetch`` (an upstream fetch) are returned at once.

        Args: number: the number for ``take_runs_of``, of the connection or shared log cache; by default the
              connection id.
        """
        if row["record"] not in _FOLDED:
            return [row]
        owner = row["connection_id"] if number is None else number
        key = (owner, row["record"], row.get("fetcher_id", ""))
        run = self._runs.get(key)
        if run is not None and _continues(run, row):
            _fold(run, row)
            return []
        finished = [] if run is None else [self._runs.pop(key)]
        if not _is_empty(row):
            return [*finished, row]
        self._runs[key] = row
        return finished

    def take_old(self, now_us: int) -> list[Row]:
        """Remove and return the runs whose first row is at least a minute (``LONGEST_US``) older than *now_us*."""
        return self._take_runs(key for key, run in self._runs.items() if now_us - run["first_at_us"] >= LONGEST_US)

    def take_runs_of(self, number: int) -> list[Row]:
        """Remove and return the open runs of a connection or shared log cache that has ended."""
        return self._take_runs(key for key in self._runs if key[0] == number)

    def finish(self) -> list[Row]:
        """Remove and return all open runs; called when the ledger is closed."""
        return self._take_runs(self._runs)

    def _take_runs(self, keys: Iterable[_RunKey]) -> list[Row]:
        return [self._runs.pop(key) for key in list(keys)]


def _is_empty(row: Row) -> bool:
    if row["record"] == "fetch":
        return not row["record_bytes"]
    return not (row["with_data"] or row["source_bytes"])


def _continues(run: Row, row: Row) -> bool:
    record = row["record"]
    return (
        _is_empty(row)
        and row["at_us"] - run["first_at_us"] <= LONGEST_US
        and all(run[name] == row[name] for name in _SAME[record])
    )


def _fold(run: Row, row: Row) -> None:
    """Add the values of *row* to *run*, column by column, as each column's ``fold`` requires."""
    record = row["record"]
    for name in _SUM[record]:
        run[name] = None if row[name] is None or run[name] is None else run[name] + row[name]
    for name in _LAST[record]:
        run[name] = row[name]
    for column in _MERGED[record]:
        if row[column.name]:
            run[column.name] = _merge_items(column, [*run[column.name], *row[column.name]])
    if record == "exchange":
        run["sources"] = bounded_sources(run["sources"])


def _merge_items(column: LedgerColumn, items: Iterable[Row]) -> list[Row]:
    """Merge the *items* of an array column that differ only in sums; keep the order of their first occurrence."""
    same = [each.name for each in column.items if each.fold == "same"]
    sums = [each.name for each in column.items if each.fold == "sum"]
    merged: dict[tuple[object, ...], Row] = {}
    for item in items:
        found = merged.setdefault(tuple(item[name] for name in same), item | dict.fromkeys(sums, 0))
        for name in sums:
            found[name] += item[name]
    return list(merged.values())
