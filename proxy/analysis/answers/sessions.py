"""Fetch sessions: their lifetimes, why they end, the share of fetches in sessions, and clients that waste slots.

The answer covers both sides (``side``): Sidefetch's sessions with brokers, and clients' sessions with Sidefetch.
Session rows are never sampled, so their counts are exact; fetches may be sampled. A broker reports an eviction only
in the response to the next fetch, so a lifetime ends then. If a connection is lost, the ledger has no end of its
session, which the next session replaces.

Sessions of followers, and of clients without Sidefetch, take slots, too, but the ledger does not have them.
"""

from collections.abc import Collection
from typing import Final, Literal

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
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
    total,
    union_rows,
)
from proxy.analysis.days import day_of
from proxy.analysis.frames import LedgerFrames
from proxy.errors import ErrorCode
from proxy.session.slots import EVICTION_S

__all__ = ["RESULT", "Dimension", "events_by_client", "sessions"]

Dimension = Literal["day", "cluster_id", "node", "client_id"]

_REASON: Final = StructType().add("event", StringType()).add("reason", StringType()).add("sessions", LongType())
_COUNTED: Final = ("created", "refused", "evicted", "reset", "closed")
RESULT: Final = (
    StructType()
    .add("day", DateType())
    .add("cluster_id", StringType())
    .add("side", StringType())
    .add("node", LongType())
    .add("client_id", StringType())
    .add("created", LongType())
    .add("refused", LongType())
    .add("evicted", LongType())
    .add("reset", LongType())
    .add("closed", LongType())
    .add("reasons", ArrayType(_REASON))
    .add("mean_partitions", DoubleType())
    .add("median_life_s", DoubleType())
    .add("short_lives", LongType())
    .add("fetches", LongType())
    .add("incremental_fetches", LongType())
    .add("hit_ratio", DoubleType())
    .add("is_thrashing", BooleanType())
)
"""The result columns. ``reasons``: the number of sessions for each event and reason. ``mean_partitions``: of
created sessions. Lifetimes are known for sessions whose start and end are in the ledger; ``short_lives``: the
number of lifetimes below the 120 s for which brokers protect a session from eviction, and so keep its slot from
others. ``hit_ratio``: the share of fetches that are incremental. ``is_thrashing``: many sessions were created, and
at least half of the lifetimes are that short."""

_ENDS: Final = ("evicted", "reset", "closed")
_SESSION: Final = ("proxy_id", "side", "node", "session_id")
_SECOND_US: Final = 1e6
_NOT_IN_SESSION: Final = (
    int(ErrorCode.fetch_session_id_not_found),
    int(ErrorCode.invalid_fetch_session_epoch),
    int(ErrorCode.fetch_session_topic_id_error),
)
"""Error codes by which a broker rejects the session of a fetch; such a response has no records."""


def sessions(
    ledger: LedgerFrames, by: Collection[Dimension] = ("cluster_id", "node"), *, many: int = 10
) -> DataFrame:
    """Return counts, lifetimes and reasons of ended fetch sessions, and the share of fetches that are incremental.

    There is one row for each combination of the dimensions in *by* and of the side: ``upstream`` for Sidefetch's
    sessions with brokers, ``client`` for clients' sessions with Sidefetch. The columns of other dimensions are null
    (``RESULT``).

    Args: many: the least number of created sessions for ``is_thrashing``, which marks rows with many sessions of
          which at least half ended within 120 s and so wasted slots of the session cache.
    """
    keys = ["side", *by]
    events = events_by_client(ledger) if "client_id" in by else ledger.session
    events = _with_lives(events.withColumn("day", day_of("at_us")))
    is_short = F.col("life_s") < EVICTION_S
    counted = events.groupBy(*keys).agg(
        *(F.count_if(F.col("event") == name).alias(name) for name in _COUNTED),
        F.avg(F.when(F.col("event") == "created", F.col("partitions"))).alias("mean_partitions"),
        F.percentile_approx("life_s", 0.5).alias("median_life_s"),
        F.count_if(is_short).alias("short_lives"),
    )
    parts = [counted, _reasons(events, keys), _fetches(ledger, keys)]
    names = sorted({name for part in parts for name in part.columns} - set(keys))
    all_of_it = union_rows(parts).groupBy(*keys).agg(*(F.any_value(name, True).alias(name) for name in names))
    is_thrashing = (F.col("created") >= many) & (F.coalesce("median_life_s", F.lit(EVICTION_S)) < EVICTION_S)
    rated = all_of_it.withColumn("hit_ratio", ratio("incremental_fetches", "fetches")).withColumn(
        "is_thrashing", F.coalesce(is_thrashing, F.lit(False))
    )
    return finish_columns(rated.fillna(0, [*_COUNTED, "short_lives", "fetches", "incremental_fetches"]), RESULT)


def events_by_client(ledger: LedgerFrames) -> DataFrame:
    """Return the ledger's session rows, events of fetch sessions, with the ``client_id`` of the session's client.

    Session rows have no client id; it is taken from a fetch in the session. If there is none, as for refused
    sessions and those of fetches that clients share, it is the client id of the process if all its connections have
    the same one, else null.
    """
    clients = clients_of(ledger).drop("software")
    of_sessions = {
        "upstream": ledger.fetch.select(*CONNECTION, "node", "session_id"),
        "client": ledger.exchange.select(
            *CONNECTION, F.col("node_id").alias("node"), F.col("client_session_id").alias("session_id")
        ),
    }
    asked_in = union_rows(rows.withColumn("side", F.lit(side)) for side, rows in of_sessions.items())
    connections = asked_in.where(F.col("session_id") != 0).groupBy(*_SESSION).agg(F.max("connection_id"))
    owners = connections.toDF(*_SESSION, "connection_id").join(clients, on=list(CONNECTION), how="inner")
    only = F.when(F.min("client_id") == F.max("client_id"), F.min("client_id"))
    processes = clients.groupBy("proxy_id").agg(only.alias("only_client_id"))
    return (
        ledger.session.join(owners.drop("connection_id"), on=list(_SESSION), how="left")
        .join(processes, on="proxy_id", how="left")
        .withColumn("client_id", F.coalesce("client_id", "only_client_id"))
        .drop("only_client_id")
    )


def _with_lives(events: DataFrame) -> DataFrame:
    """Return *events* with ``life_s``: the lifetime of the session in seconds for events that end it, else null."""
    created_us = F.max(F.when(F.col("event") == "created", F.col("at_us"))).over(Window.partitionBy(*_SESSION))
    is_end = F.col("event").isin(*_ENDS) & (F.col("session_id") != 0)
    life_us = F.col("at_us") - F.coalesce("created_us", created_us)
    return events.withColumn("life_s", F.when(is_end, life_us / _SECOND_US))


def _reasons(events: DataFrame, by: Collection[str]) -> DataFrame:
    counted = events.where(F.col("reason").isNotNull()).groupBy(*by, "event", "reason")
    listed = F.sort_array(F.collect_list(F.struct("event", "reason", "sessions")))
    return counted.agg(F.count("*").alias("sessions")).groupBy(*by).agg(listed.alias("reasons"))


def _fetches(ledger: LedgerFrames, by: Collection[str]) -> DataFrame:
    """Return the numbers of fetches and of incremental fetches, which are those in an established session."""
    in_session = (F.col("kind") == "incremental") & ~F.col("error").isin(*_NOT_IN_SESSION)
    # Without fetches that close a session.
    asking = ledger.fetch.where((F.col("kind") != "sessionless") | (F.col("size") > 0))
    upstream = asking.withColumns({"side": F.lit("upstream"), "is_incremental": in_session})
    in_clients = (F.col("client_session_epoch") > 0) & (F.col("client_session_id") != 0)
    clientside = ledger.exchange.withColumns({"side": F.lit("client"), "is_incremental": in_clients})
    clientside = clientside.withColumnsRenamed({"exchanges": "fetches", "node_id": "node"})
    if "client_id" in by:
        columns = [name for name in by if name != "client_id"]
        of_clients = _summed(upstream, [*columns, *CONNECTION]).join(
            clients_of(ledger), on=list(CONNECTION), how="left"
        )
    else:
        of_clients = _summed(upstream, by)
    both = union_rows((of_clients, _summed(clientside, by))).groupBy(*by)
    return both.agg(*(F.sum(name).alias(name) for name in ("fetches", "incremental_fetches")))


def _summed(rows: DataFrame, by: Collection[str]) -> DataFrame:
    incremental = F.when(F.col("is_incremental"), F.col("fetches"))
    sums = rows.withColumn("day", day_of("at_us")).groupBy(*by)
    return sums.agg(total("fetches").alias("fetches"), total(incremental).alias("incremental_fetches"))
