"""Common parts of the answers: weighted sums, ratios, unions, and the clients of connections."""

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from proxy.analysis.frames import LedgerFrames

__all__ = [
    "CONNECTION",
    "UNKNOWN",
    "clients_of",
    "finish_columns",
    "ratio",
    "total",
    "union_rows",
    "weighted",
    "whole_sum",
]

CONNECTION: Final = ("proxy_id", "connection_id")
"""The columns that identify a client connection."""
UNKNOWN: Final = "unknown"
"""The name of a rack that the ledger does not know."""


def weighted(value: str | Column) -> Column:
    """Return *value* times the row's ``weight``, which estimates it for the rows that sampling left out, too."""
    return (F.col(value) if isinstance(value, str) else value) * F.col("weight")


def whole_sum(value: Column) -> Column:
    """Return a weighted sum, rounded to a long; 0 if it is null (no rows). Exact up to 2^53."""
    return F.coalesce(F.round(value).cast("long"), F.lit(0).cast("long"))


def total(value: str | Column) -> Column:
    """Return the aggregate sum of *value*, weighted for sampling."""
    return whole_sum(F.sum(weighted(value)))


def ratio(part: str | Column, of: str | Column) -> Column:
    """Return *part* / *of* as a double; null if *of* is 0."""
    return F.try_divide(
        (F.col(part) if isinstance(part, str) else part).cast("double"),
        (F.col(of) if isinstance(of, str) else of).cast("double"),
    )


def _latest(name: str) -> Column:
    """Return the aggregate of the latest value of column *name* that is not null."""
    return F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at_us")))


def union_rows(frames: Iterable[DataFrame]) -> DataFrame:
    """Return the rows of all *frames*; columns that a frame lacks are null in its rows."""
    return reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), frames)


def clients_of(ledger: LedgerFrames) -> DataFrame:
    """Return the client of each connection: one row per ``CONNECTION``, with ``client_id`` and ``software``.

    They come from exchange and client rows, because fetch rows do not have them. Client rows are never sampled, so
    a connection without exchange rows is found, too, unless it is open and younger than five minutes.
    """
    named = (*CONNECTION, "client_id", "software")
    rows = (ledger.exchange.select(*named, "at_us"), ledger.client.select(*named, "at_us"))
    # Group by the names first: that is a hash aggregation, while finding the latest string sorts its rows.
    names = union_rows(rows).groupBy(*named).agg(F.max("at_us").alias("at_us"))
    return names.groupBy(*CONNECTION).agg(*(_latest(name).alias(name) for name in ("client_id", "software")))


def finish_columns(frame: DataFrame, result: StructType) -> DataFrame:
    """Return *frame* with the columns of *result*, in its order and types; those that *frame* lacks are null."""
    there = {name: F.col(name) for name in frame.columns}
    return frame.select(
        *(there.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in result)
    )
