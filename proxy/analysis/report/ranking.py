"""Rankings of query results: the first rows, and the sums of all others, so that the driver collects few rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from proxy.analysis.report.model import ReportColumn, ReportTable, Value
from proxy.analysis.report.words import plural

__all__ = ["MOST", "Ranking", "Row", "display_name", "rank_rows", "rows_of", "share", "sum_by", "table_of"]

Row = Mapping[str, Any]
"""A result row, by column name."""
MOST: Final = 10


@attrs.frozen
class Ranking:
    """The first rows of a query result, ordered by one column, and the sums over all other rows."""

    rows: tuple[Row, ...]
    """The first rows, the largest first."""
    count: int
    """The number of all rows, those beyond ``rows`` included."""
    rest: Row | None
    """The sums over the other rows, by column; None if there are no others."""

    def total(self, name: str) -> float:
        """Return the sum of the column *name* over all rows, those beyond ``rows`` included.

        Null values count as 0. *name* must be one of the summed columns.
        """
        rest = () if self.rest is None else (self.rest,)
        return sum(row[name] or 0 for row in (*self.rows, *rest))


def rows_of(frame: DataFrame, most: int = 1000) -> list[Row]:
    """Collect the rows of a small frame, such as one row per day, as dictionaries; at most *most* of them.

    Nested rows are dictionaries, too. Further rows are ignored.
    """
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]


def sum_by(frame: DataFrame, by: Sequence[str], sums: Sequence[str]) -> DataFrame:
    """Return *frame* grouped by the columns *by*, with the sums of the columns *sums* and no other columns."""
    return frame.groupBy(*by).agg(*(F.sum(name).alias(name) for name in sums))


def display_name(name: str | None) -> str:
    """Return the name of a client, rack or topic for display; ``(no name)`` if it is None or empty."""
    return name or "(no name)"


def share(part: float | None, of: float | None) -> float | None:
    """Return *part* / *of*; None if either is None, or if *of* is 0."""
    return part / of if of and part is not None else None


def rank_rows(frame: DataFrame, by: str, sums: Sequence[str], most: int = MOST) -> Ranking:
    """Return the *most* rows of *frame* with the largest values of column *by*, and the sums of all others.

    Rows with a null *by* come last.

    Args: sums: the columns to sum over the other rows.
    Cost: two Spark jobs over *frame*, which is cached meanwhile.
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
    """Return a report table with one row for each first row of *ranking*, and a last one for all others, if any.

    Args: name: the name of the table in JSON and CSV.
          columns: the columns, each with a function from a result row to the cell. The functions also get the sums
          of the other rows; if one raises ``KeyError`` for them, that cell is empty.
          what: the plural noun for rows, such as ``clients``: the last row begins with ``5 other clients``.
          note: a remark below the table.
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
