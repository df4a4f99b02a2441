"""The first rows of an answer, and all others as one: what comes to the driver is as small for any fleet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from proxy.analysis.report.model import ReportColumn, ReportTable, Value
from proxy.analysis.report.words import plural

__all__ = ["MOST", "Ranking", "Row", "named", "rows_of", "share", "summed", "table_of", "the_first"]

Row = Mapping[str, Any]
MOST: Final = 10


@attrs.frozen
class Ranking:
    """Of rows with sums."""

    rows: tuple[Row, ...]
    """The largest first."""
    count: int
    """Of all, those that are not here included."""
    rest: Row | None
    """The sums of those; None where all are here."""

    def total(self, name: str) -> float:
        """Of a sum, over all rows."""
        rest = () if self.rest is None else (self.rest,)
        return sum(row[name] or 0 for row in (*self.rows, *rest))


def rows_of(frame: DataFrame, most: int = 1000) -> list[Row]:
    """Of a frame that is small by itself, such as one of days; never more than *most*."""
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]


def summed(frame: DataFrame, by: Sequence[str], sums: Sequence[str]) -> DataFrame:
    """One row for each of *by*."""
    return frame.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums))


def named(name: str | None) -> str:
    """Of a client, a rack or a topic that may have none."""
    return name or "(no name)"


def share(part: float | None, of: float | None) -> float | None:
    """None where there is nothing to be a part of."""
    return part / of if of and part is not None else None


def the_first(frame: DataFrame, by: str, sums: Sequence[str], most: int = MOST) -> Ranking:
    """The *most* rows with the largest *by*, and the *sums* of all others.

    Cost: two jobs over *frame*, which is kept meanwhile.
    """
    kept = frame.persist()
    try:
        totals = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums]
        whole = kept.agg(F.count("*").alias("_count"), *totals).collect()[0].asDict()
        rows = rows_of(kept.orderBy(F.col(by).desc_nulls_last()), most)
    finally:
        kept.unpersist()
    rest = {name: whole[name] - sum(row[name] or 0 for row in rows) for name in sums}
    return Ranking(tuple(rows), whole["_count"], rest if whole["_count"] > len(rows) else None)


def table_of(
    name: str,
    title: str,
    ranking: Ranking,
    columns: Iterable[tuple[ReportColumn, Callable[[Row], Value]]],
    what: str,
    note: str = "",
) -> ReportTable:
    """A row each; the last one is that of all others.

    Args: columns: each with how a row's value is found; of the rest, ``KeyError`` is for not known.
          what:    what the rows are, in the plural: the rest's first column counts them.
    """
    columns = list(columns)
    rows: list[tuple[Value, ...]] = [tuple(value(row) for _, value in columns) for row in ranking.rows]
    if ranking.rest is not None:
        others = plural(ranking.count - len(ranking.rows), f"other {what}", f"other {what}")
        rows.append((others, *(_or_none(value, ranking.rest) for _, value in columns[1:])))
    return ReportTable(
        name, title, tuple(column for column, _ in columns), tuple(rows), ranking.rest is not None, note
    )


def _or_none(value: Callable[[Row], Value], row: Row) -> Value:
    try:
        return value(row)
    except KeyError:
        return None
