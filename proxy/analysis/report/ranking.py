"""The first rows of a result, and all others as one: the driver gets equally little for any fleet."""

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
    """A ranking of rows with sums."""

    rows: tuple[Row, ...]
    """The first rows, the largest first."""
    count: int
    """The number of all rows, those beyond ``rows`` included."""
    rest: Row | None
    """The sums of the other rows; None if there are none."""

    def total(self, name: str) -> float:
        """Return the total of a sum over all rows."""
        rest = () if self.rest is None else (self.rest,)
        return sum(row[name] or 0 for row in (*self.rows, *rest))


def rows_of(frame: DataFrame, most: int = 1000) -> list[Row]:
    """Return the rows of a small frame, such as one of days; never more than *most*."""
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]


def summed(frame: DataFrame, by: Sequence[str], sums: Sequence[str]) -> DataFrame:
    """Return a frame with one row for each value of *by*."""
    return frame.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums))


def named(name: str | None) -> str:
    """Return the name of a client, a rack or a topic, or a text for an empty one."""
    return name or "(no name)"


def share(part: float | None, of: float | None) -> float | None:
    """Return *part* / *of*; None if either is missing."""
    return part / of if of and part is not None else None


def the_first(frame: DataFrame, by: str, sums: Sequence[str], most: int = MOST) -> Ranking:
    """Return the *most* rows with the largest *by*, and the *sums* of all others.

    Cost: two jobs over *frame*, which is cached meanwhile.
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
    """Return a table with a row for each ranked row, and one for all others.

    Args: columns: each with a function of the row; ``KeyError`` marks an unknown value of the rest.
          what:    the plural of the rows' name: the rest's first column counts them.
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
