"""What sessions and shared waiting have saved between Sidefetch and the brokers: bytes, looks, requests.

Saved is what clients' fetches would have been directly (exchanges) less what Sidefetch's own were (fetches). It is
negative where Sidefetch asks more than its clients do, and shows so. Fetches that were never answered count with
their requests; whether the broker has looked at their partitions is not known, and taken for granted.

* **Exact** for a connection, and all that is summed up from whole connections, where nothing was converted:
  direct bytes are then those that the client has sent and was sent.
* **Modelled** (``is_modelled``) where records were converted: the direct answer is taken to be that of a broker
  that sends records as it has them. And of a topic, unless the connection read no other: requests, empty answers
  and looks are shared out among its topics by the partitions asked for (``request_share_bytes``), records by
  their bytes.
* **Estimated** (``is_sampled``) where not each exchange has a row.

Direct means: with the session that the client has with Sidefetch, if it asks for any; whether the broker had had a
slot for it is not known. What all fetches would have been without sessions is ``full_request_bytes``.
Source: the ledger's ``direct_`` columns (``proxy/telemetry/LEDGER.md``).
"""

from collections.abc import Collection
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from proxy.analysis.answers.parts import (
    CONNECTION,
    clients_of,
    finish_columns,
    ratio,
    union_rows,
    weighted,
    whole_sum,
)
from proxy.analysis.days import day_of
from proxy.analysis.frames import LedgerFrames

__all__ = ["RESULT", "Dimension", "savings"]

Dimension = Literal["day", "cluster_id", "client_id", "topic"]

RESULT: Final = (
    StructType()
    .add("day", DateType())
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("topic", StringType())
    .add("exchanges", LongType())
    .add("fetches", LongType())
    .add("direct_bytes", LongType())
    .add("actual_bytes", LongType())
    .add("saved_bytes", LongType())
    .add("saved_share", DoubleType())
    .add("record_bytes", LongType())
    .add("dropped_bytes", LongType())
    .add("full_request_bytes", LongType())
    .add("direct_looks", LongType())
    .add("actual_looks", LongType())
    .add("saved_looks", LongType())
    .add("saved_requests", LongType())
    .add("is_modelled", BooleanType())
    .add("is_sampled", BooleanType())
)
"""``direct_bytes``, ``actual_bytes``: requests and answers, records included, which mostly cancel each other out;
``record_bytes`` are those that brokers have sent, ``dropped_bytes`` what of them was of no use when it came.
``saved_share``: of the direct bytes. ``full_request_bytes``: of the clients' requests what would be about
partitions, had each named all. Looks: partitions that a broker looks at for a fetch, named or remembered, which is
what stands for its CPU time."""

_SHARED_BY_PARTITIONS: Final = (
    "exchanges",
    "fetches",
    "direct_other",
    "actual_other",
    "full_request_bytes",
    "direct_looks",
    "actual_looks",
)
_SHARED_BY_RECORDS: Final = ("direct_records", "actual_records", "dropped_bytes")
_SUMS: Final = (*_SHARED_BY_PARTITIONS, *_SHARED_BY_RECORDS)


def savings(ledger: LedgerFrames, by: Collection[Dimension] = ("day", "cluster_id")) -> DataFrame:
    """One row for each of *by*; the other dimensions are null. Null as a topic: all that were not told apart.

    Cost: exchanges and fetches are summed up by connection before they are joined, so no key is skewed: a client id
    that all share is many connections.
    """
    told = _by_connection(ledger)
    if "topic" in by:
        told = _by_topic(told, ledger.exchange)
    if "client_id" in by:
        told = told.join(clients_of(ledger).drop("software"), on=list(CONNECTION), how="left")
    flags = (F.max("is_modelled").alias("is_modelled"), F.max("is_sampled").alias("is_sampled"))
    sums = told.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS), *flags)
    return finish_columns(_saved(sums), RESULT)


def _by_connection(ledger: LedgerFrames) -> DataFrame:
    """One row for each connection and day, of what was and what would have been, weighed."""
    full = F.aggregate("sources.request_share_bytes", F.lit(0).cast("long"), lambda one, other: one + other)
    exchanges = _told(
        ledger.exchange,
        {
            "exchanges": F.col("exchanges"),
            "direct_records": F.col("source_bytes"),
            "direct_other": F.col("direct_request_bytes") + F.col("direct_response_bytes") - F.col("source_bytes"),
            "full_request_bytes": full,
            "direct_looks": F.col("direct_partition_looks"),
        },
        is_modelled=F.col("converted_in_bytes") > 0,
    )
    fetches = _told(
        ledger.fetch,
        {
            "fetches": F.col("fetches"),
            "actual_records": F.col("record_bytes"),
            "dropped_bytes": F.col("dropped_bytes"),
            "actual_other": F.col("request_bytes") + F.col("response_bytes") - F.col("record_bytes"),
            "actual_looks": F.col("size"),
        },
        is_modelled=F.lit(False),
    )
    told = union_rows((exchanges, fetches)).groupBy(*CONNECTION, "day", "cluster_id")
    return told.agg(
        *(F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _SUMS),
        F.max("is_modelled").alias("is_modelled"),
        F.max("is_sampled").alias("is_sampled"),
    )


def _told(rows: DataFrame, values: dict[str, Column], *, is_modelled: Column) -> DataFrame:
    return rows.select(
        *CONNECTION,
        "cluster_id",
        day_of("at_us").alias("day"),
        *(weighted(value).alias(name) for name, value in values.items()),
        is_modelled.alias("is_modelled"),
        (F.col("weight") != 1).alias("is_sampled"),
    )


def _by_topic(told: DataFrame, exchange: DataFrame) -> DataFrame:
    """*told*, shared out among the topics that each connection has asked for on that day."""
    key = [*CONNECTION, "day"]
    sources = exchange.select(
        *CONNECTION, day_of("at_us").alias("day"), "weight", F.explode("sources").alias("source")
    ).groupBy(*key, F.col("source.topic").alias("topic"))
    asked = sources.agg(
        F.sum(weighted("source.request_share_bytes")).alias("asked"),
        F.sum(weighted("source.bytes")).alias("brought"),
    )
    all_topics = Window.partitionBy(*key)
    # What nobody has asked for, or been brought, on that day is shared out alike.
    asked_share = F.coalesce(ratio("asked", F.sum("asked").over(all_topics)), 1 / F.count("*").over(all_topics))
    shares = asked.withColumn("by_partitions", asked_share).withColumn(
        "by_records", F.coalesce(ratio("brought", F.sum("brought").over(all_topics)), asked_share)
    )
    shared = told.join(shares, on=key, how="left")
    by_partitions, by_records = (F.coalesce(name, F.lit(1.0)) for name in ("by_partitions", "by_records"))
    return shared.select(
        *key,
        "cluster_id",
        "topic",
        *((F.col(name) * by_partitions).alias(name) for name in _SHARED_BY_PARTITIONS),
        *((F.col(name) * by_records).alias(name) for name in _SHARED_BY_RECORDS),
        (F.col("is_modelled") | (by_partitions < 1)).alias("is_modelled"),
        "is_sampled",
    )


def _saved(sums: DataFrame) -> DataFrame:
    rounded = sums.select(
        *(name for name in sums.columns if name not in _SUMS),
        *(whole_sum(F.col(name)).alias(name) for name in ("exchanges", "fetches", "full_request_bytes")),
        *(whole_sum(F.col(name)).alias(name) for name in ("dropped_bytes", "direct_looks", "actual_looks")),
        whole_sum(F.col("direct_other") + F.col("direct_records")).alias("direct_bytes"),
        whole_sum(F.col("actual_other") + F.col("actual_records")).alias("actual_bytes"),
        whole_sum(F.col("actual_records")).alias("record_bytes"),
    )
    return (
        rounded.withColumn("saved_bytes", F.col("direct_bytes") - F.col("actual_bytes"))
        .withColumn("saved_share", ratio("saved_bytes", "direct_bytes"))
        .withColumn("saved_looks", F.col("direct_looks") - F.col("actual_looks"))
        .withColumn("saved_requests", F.col("exchanges") - F.col("fetches"))
    )
