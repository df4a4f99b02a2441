"""What several answers are made of: sums that heed the sampling, days, and who a connection belongs to."""

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
"""What tells one connection of a client from all others."""
UNKNOWN: Final = "unknown"


def weighted(value: str | Column) -> Column:
    """What *value* of a row stands for, of all those that sampling has left out."""
    return (F.col(value) if isinstance(value, str) else value) * F.col("weight")


def whole_sum(value: Column) -> Column:
    """A sum of what was weighed as a number without fractions; 0 for no rows. Exact up to 2^53."""
    return F.coalesce(F.round(value).cast("long"), F.lit(0).cast("long"))


def total(value: str | Column) -> Column:
    """An aggregate: the sum of *value* over all that was, told or not."""
    return whole_sum(F.sum(weighted(value)))


def ratio(part: str | Column, of: str | Column) -> Column:
    """Null where there is nothing to be a part of."""
    return F.try_divide(
        (F.col(part) if isinstance(part, str) else part).cast("double"),
        (F.col(of) if isinstance(of, str) else of).cast("double"),
    )


def _latest(name: str) -> Column:
    """An aggregate: what column *name* was last, nulls aside."""
    return F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at_us")))


def union_rows(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of all; a column that one of them lacks is null there."""
    return reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), frames)


def clients_of(ledger: LedgerFrames) -> DataFrame:
    """Who a connection belongs to: one row for each ``CONNECTION``, with ``client_id`` and ``software``.

    From exchanges and the inventory: fetches are not told by whom. The inventory is never sampled, so a connection
    is found even where all its exchanges were left out, unless it is younger than five minutes and goes on.
    """
    named = (*CONNECTION, "client_id", "software")
    rows = (ledger.exchange.select(*named, "at_us"), ledger.client.select(*named, "at_us"))
    # First by hash, since what finds the last of strings sorts its rows.
    names = union_rows(rows).groupBy(*named).agg(F.max("at_us").alias("at_us"))
    return names.groupBy(*CONNECTION).agg(*(_latest(name).alias(name) for name in ("client_id", "software")))


def finish_columns(frame: DataFrame, result: StructType) -> DataFrame:
    """The columns of *result*, in order and of its types; null where *frame* was not asked for one."""
    there = {name: F.col(name) for name in frame.columns}
    return frame.select(
        *(there.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in result)
    )
