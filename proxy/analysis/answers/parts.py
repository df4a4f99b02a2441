"""Common parts of the answers' Spark queries: weighted sums, ratios, unions, and the clients of connections."""

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from proxy.analysis.frames import LedgerFrames

__all__ = [
    "CONNECTION",
    "UNKNOWN",
    "clients_of",
    "finish_columns",
    "ratio",
    "records_read_once",
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
    """Return a column: *value*, a column or its name, times the row's ``weight``, which is 1 / the sampling rate.

    A sum of it estimates the sum over all rows, including those that sampling left out of the ledger.
    """
    return (F.col(value) if isinstance(value, str) else value) * F.col("weight")


def whole_sum(value: Column) -> Column:
    """Return the column *value*, a weighted sum, rounded to a long; 0 if it is null, as a sum over no rows is.

    The result is exact up to 2^53.
    """
    return F.coalesce(F.round(value).cast("long"), F.lit(0).cast("long"))


def total(value: str | Column) -> Column:
    """Return the aggregate sum of *value* times the rows' ``weight``, rounded to a long; 0 without rows.

    *value* is a column or its name. A weight is 1 / the sampling rate, so the result estimates the sum over all
    rows, including those that sampling left out of the ledger.
    """
    return whole_sum(F.sum(weighted(value)))


def ratio(part: str | Column, of: str | Column) -> Column:
    """Return *part* / *of* as a column of doubles; null if *of* is 0, or if either is null.

    Both are columns or their names.
    """
    return F.try_divide(
        (F.col(part) if isinstance(part, str) else part).cast("double"),
        (F.col(of) if isinstance(of, str) else of).cast("double"),
    )


def _latest(name: str) -> Column:
    """Return the aggregate that is the latest value of the column *name*, by ``at_us``, null values left out."""
    return F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at_us")))


def union_rows(frames: Iterable[DataFrame]) -> DataFrame:
    """Return one frame with the rows of all *frames*, at least one, duplicates included; match columns by name.

    Columns that a frame lacks are null in its rows.
    """
    return reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), frames)


def clients_of(ledger: LedgerFrames) -> DataFrame:
    """Return the client id and the software of each connection, one row per ``proxy_id`` and ``connection_id``.

    They are the latest that are not null in the connection's exchange and client rows, because fetch rows do not
    have them. Client rows are never sampled, so that connections without exchange rows are included, too, unless
    they are open and younger than five minutes.
    """
    named = (*CONNECTION, "client_id", "software")
    rows = (ledger.exchange.select(*named, "at_us"), ledger.client.select(*named, "at_us"))
    # Group by the names first: that is a hash aggregation, while finding the latest string sorts its rows.
    names = union_rows(rows).groupBy(*named).agg(F.max("at_us").alias("at_us"))
    return names.groupBy(*CONNECTION).agg(*(_latest(name).alias(name) for name in ("client_id", "software")))


def records_read_once(ledger: LedgerFrames) -> DataFrame:
    """Return the bytes of records that clients received, by source; those that clients share count once.

    The columns are those of ``sources`` in exchange rows, ``proxy_id``, ``connection_id``, ``cluster_id``,
    ``reader_rack``, and ``bytes``, a weighted sum in the brokers' size.

    Exchange rows have the records of shared reads once for each client. Their bytes are therefore reduced, for each
    process and broker, to the record bytes of shared fetches (rows without ``connection_id``) that were not
    dropped. This concerns the connections without fetch rows of their own in a process with shared fetches: the
    others share nothing.

    Cost: one scan of the exchanges, and three of the fetches' ids.
    """
    fields = ("topic", "node", "rack", "leader_node", "leader_rack")
    sources = ledger.exchange.select(
        *CONNECTION, "cluster_id", "reader_rack", "weight", F.explode("sources").alias("source")
    )
    read = sources.groupBy(
        *CONNECTION, "cluster_id", "reader_rack", *(F.col(f"source.{name}").alias(name) for name in fields)
    ).agg(F.sum(weighted("source.bytes")).alias("bytes"))
    is_shared = F.col("connection_id").isNull()
    fetched = (
        ledger.fetch.where(is_shared)
        .groupBy("proxy_id", "node")
        .agg(F.sum(weighted(F.col("record_bytes") - F.col("dropped_bytes"))).alias("fetched"))
    )
    processes = fetched.select("proxy_id").distinct()
    alone = (
        ledger.fetch.where(~is_shared)
        .join(processes, on="proxy_id", how="left_semi")
        .select(*CONNECTION)
        .distinct()
        .withColumn("is_alone", F.lit(True))
    )
    together = read.join(processes, on="proxy_id", how="left_semi").join(
        alone, on=list(CONNECTION), how="left_anti"
    )
    delivered = together.groupBy("proxy_id", "node").agg(F.sum("bytes").alias("delivered"))
    process = Window.partitionBy("proxy_id")
    # The item for all other sources has no broker's number: its bytes came from the brokers that are not listed.
    unlisted = ratio(
        F.sum(F.when(F.col("delivered").isNull(), F.col("fetched"))).over(process),
        F.sum(F.when(F.col("fetched").isNull(), F.col("delivered"))).over(process),
    )
    part = F.coalesce(ratio("fetched", "delivered"), unlisted)
    parts = delivered.join(fetched, on=["proxy_id", "node"], how="full").select(
        "proxy_id", "node", F.least(part, F.lit(1.0)).alias("part")
    )
    known = read.join(parts, on=["proxy_id", "node"], how="left").join(alone, on=list(CONNECTION), how="left")
    once = F.when(F.col("is_alone").isNull(), F.coalesce("part", F.lit(1.0))).otherwise(1.0)
    return known.select(*CONNECTION, "cluster_id", "reader_rack", *fields, (F.col("bytes") * once).alias("bytes"))


def finish_columns(frame: DataFrame, result: StructType) -> DataFrame:
    """Return *frame* with exactly the columns of *result*, in its order and cast to its types.

    Columns that *frame* lacks are null; its other columns are dropped.
    """
    there = {name: F.col(name) for name in frame.columns}
    return frame.select(
        *(there.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in result)
    )
