"""Savings: bytes, requests and broker work that Sidefetch avoids, compared with clients that fetch directly.

The saving is the traffic that the client fetches would have caused without Sidefetch (direct, from exchange rows)
less the actual traffic of the upstream fetches (fetch rows). It is negative if Sidefetch requests more than its
clients. An upstream fetch without a response counts with its request, and its partitions as examined, which is not
certain.

* **Exact** for a connection, and for sums of whole connections, if nothing was converted: the direct bytes are then
  those that the client sent and received.
* **Modelled** (``is_modelled``) if records were converted: the direct response is assumed to be that of a broker
  that sends its records unconverted. Also for a topic, unless the connection read no other: requests, empty
  responses and examined partitions are divided among its topics by the requested partitions
  (``request_share_bytes``), records by their bytes.
* **Modelled**, by client and by topic, where clients share fetches: see below.
* **Estimated** (``is_sampled``) if not every exchange has a row.

Where clients share fetches (``--share-reads``), direct traffic has the records once for each client, since each
would have fetched them, and actual traffic has them once. The rows of shared fetches have no connection. Their
traffic is divided, for each process and day, among the connections without fetch rows of their own: records by the
bytes that the clients received, all else by the partitions that they requested. Nothing is counted twice, so that
the rows of an answer sum up to the whole, but for rounding.

Direct traffic assumes the fetch session that the client has with Sidefetch, if it uses any; whether the broker
would have had a slot for it is unknown. ``full_request_bytes`` is the size of the requests without any sessions.
Source: the ledger's ``direct_`` columns (``proxy/telemetry/LEDGER.md``).
"""

from collections.abc import Collection
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window, WindowSpec
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
    .add("delivered_bytes", LongType())
    .add("delivery_ratio", DoubleType())
    .add("full_request_bytes", LongType())
    .add("direct_looks", LongType())
    .add("actual_looks", LongType())
    .add("saved_looks", LongType())
    .add("saved_requests", LongType())
    .add("is_modelled", BooleanType())
    .add("is_sampled", BooleanType())
)
"""The result columns. ``exchanges``: client fetches; ``fetches``: upstream fetches. ``direct_bytes``,
``actual_bytes``: requests and responses, including records, which are mostly the same in both unless clients share
fetches. ``record_bytes``: records that brokers sent; ``dropped_bytes``: of these, records that no client needed.
``delivered_bytes``: records that clients received, in the brokers' size; ``delivery_ratio``: ``delivered_bytes`` /
``record_bytes``, above 1 only where clients share fetches. ``saved_share``: share of the direct bytes.
``full_request_bytes``: bytes of the partitions in the clients' requests, if each named all of them. Looks:
partitions that a broker examines for a fetch, named or remembered; they stand for its CPU time."""

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
_OF_FETCHES_BY_PARTITIONS: Final = ("fetches", "actual_other", "actual_looks")
_OF_FETCHES_BY_RECORDS: Final = ("actual_records", "dropped_bytes")
_SUMS: Final = (*_SHARED_BY_PARTITIONS, *_SHARED_BY_RECORDS)


def savings(ledger: LedgerFrames, by: Collection[Dimension] = ("day", "cluster_id")) -> DataFrame:
    """Return the traffic that client fetches would have caused directly, the actual traffic, and the difference.

    There is one row for each combination of the dimensions in *by*; the columns of other dimensions are null. Each
    row compares bytes, requests and ``looks``, the partitions that a broker examines for a fetch (``RESULT``). With
    the dimension ``topic``, a null topic combines those that the ledger does not list separately.

    Cost: exchanges and fetches are summed by connection before the join, so that no key is skewed: a client id that
          all clients share has many connections.
    """
    traffic = _by_connection(ledger)
    if {"client_id", "topic"} & set(by):
        traffic = _attributed(traffic)
    if "topic" in by:
        traffic = _by_topic(traffic, ledger.exchange)
    if "client_id" in by:
        traffic = traffic.join(clients_of(ledger).drop("software"), on=list(CONNECTION), how="left")
    flags = (F.max("is_modelled").alias("is_modelled"), F.max("is_sampled").alias("is_sampled"))
    sums = traffic.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS), *flags)
    return finish_columns(_saved(sums), RESULT)


def _by_connection(ledger: LedgerFrames) -> DataFrame:
    """Return one row for each connection, day and cluster, with the weighted sums of direct and actual traffic."""
    full = F.aggregate("sources.request_share_bytes", F.lit(0).cast("long"), lambda one, other: one + other)
    exchanges = _weighted_rows(
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
    fetches = _weighted_rows(
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
    traffic = union_rows((exchanges, fetches)).groupBy(*CONNECTION, "day", "cluster_id")
    return traffic.agg(
        *(F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _SUMS),
        F.max("is_modelled").alias("is_modelled"),
        F.max("is_sampled").alias("is_sampled"),
    )


def _weighted_rows(rows: DataFrame, values: dict[str, Column], *, is_modelled: Column) -> DataFrame:
    return rows.select(
        *CONNECTION,
        "cluster_id",
        day_of("at_us").alias("day"),
        *(weighted(value).alias(name) for name, value in values.items()),
        is_modelled.alias("is_modelled"),
        (F.col("weight") != 1).alias("is_sampled"),
    )


def _attributed(traffic: DataFrame) -> DataFrame:
    """Return *traffic* with the traffic of shared fetches divided among the connections that can have caused it.

    These are the connections of the same process, day and cluster without fetches of their own. If there are none,
    the traffic stays without a connection.
    """
    process = Window.partitionBy("proxy_id", "day", "cluster_id")
    is_shared = F.col("connection_id").isNull()
    is_reader = ~is_shared & (F.col("fetches") == 0)
    readers = F.sum(is_reader.cast("long")).over(process)
    by_partitions = F.coalesce(_share_of("full_request_bytes", is_reader, process), 1 / readers)
    by_records = F.coalesce(_share_of("direct_records", is_reader, process), by_partitions)
    shares = dict.fromkeys(_OF_FETCHES_BY_PARTITIONS, by_partitions) | dict.fromkeys(
        _OF_FETCHES_BY_RECORDS, by_records
    )
    of_shared = {
        name: F.coalesce(F.sum(F.when(is_shared, F.col(name))).over(process), F.lit(0.0)) for name in shares
    }
    added = {name: F.when(is_reader, of_shared[name] * share).otherwise(0.0) for name, share in shares.items()}
    is_divided = is_reader & (readers > 1) & F.max(is_shared).over(process)
    return (
        traffic.select(
            *(F.col(name) for name in traffic.columns if name not in (*added, "is_modelled")),
            *((F.col(name) + each).alias(name) for name, each in added.items()),
            (F.col("is_modelled") | is_divided).alias("is_modelled"),
            (is_shared & (readers > 0)).alias("is_given_away"),
        )
        .where(~F.col("is_given_away"))
        .drop("is_given_away")
    )


def _share_of(name: str, is_counted: Column, among: WindowSpec) -> Column:
    """Return the share of a row in the sum of the column *name* over the counted rows of the window *among*."""
    counted = F.when(is_counted, F.col(name))
    return ratio(counted, F.sum(counted).over(among))


def _by_topic(traffic: DataFrame, exchange: DataFrame) -> DataFrame:
    """Return *traffic*, sums by connection, day and cluster, divided among the connection's topics of that day."""
    key = [*CONNECTION, "day"]
    sources = exchange.select(
        *CONNECTION, day_of("at_us").alias("day"), "weight", F.explode("sources").alias("source")
    ).groupBy(*key, F.col("source.topic").alias("topic"))
    asked = sources.agg(
        F.sum(weighted("source.request_share_bytes")).alias("asked"),
        F.sum(weighted("source.bytes")).alias("brought"),
    )
    all_topics = Window.partitionBy(*key)
    # Without requested partitions, or without records, on that day the topics get equal shares.
    asked_share = F.coalesce(ratio("asked", F.sum("asked").over(all_topics)), 1 / F.count("*").over(all_topics))
    shares = asked.withColumn("by_partitions", asked_share).withColumn(
        "by_records", F.coalesce(ratio("brought", F.sum("brought").over(all_topics)), asked_share)
    )
    shared = traffic.join(shares, on=key, how="left")
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
        whole_sum(F.col("direct_records")).alias("delivered_bytes"),
    )
    return (
        rounded.withColumn("saved_bytes", F.col("direct_bytes") - F.col("actual_bytes"))
        .withColumn("saved_share", ratio("saved_bytes", "direct_bytes"))
        .withColumn("delivery_ratio", ratio("delivered_bytes", "record_bytes"))
        .withColumn("saved_looks", F.col("direct_looks") - F.col("actual_looks"))
        .withColumn("saved_requests", F.col("exchanges") - F.col("fetches"))
    )
