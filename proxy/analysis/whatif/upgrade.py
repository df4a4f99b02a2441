"""With these clients upgraded: which conversions, lifted requests and full fetches go.

An upgraded client reads the records that brokers have and speaks versions that they serve, so that nothing is
converted or lifted for it any more. Its full fetches go, too, if what it becomes keeps sessions: Kafka's own
clients do since 1.1, librdkafka and what is made of it do not.

All of it is told as it was: what an upgraded client would read otherwise, faster or more of it, nobody knows.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from proxy.analysis.answers.parts import CONNECTION, finish_columns, total, union_rows
from proxy.analysis.answers.readiness import SERVED_FROM
from proxy.analysis.frames import LedgerFrames

__all__ = ["RESULT", "upgrade"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("software", StringType())
    .add("is_upgraded", BooleanType())
    .add("converted_bytes", LongType())
    .add("conversion_cpu_us", LongType())
    .add("padding_bytes", LongType())
    .add("lifted_requests", LongType())
    .add("full_fetches", LongType())
    .add("named_partitions", LongType())
    .add("answered_partitions", LongType())
)
"""A row for each client: what it causes now, which goes if it ``is_upgraded``. ``full_fetches``: of its own, and
the partitions that these have named, and were answered about, without records."""

_SUMS: Final = RESULT.names[4:]
_CLIENT: Final = ("cluster_id", "client_id", "software")


def upgrade(
    ledger: LedgerFrames,
    *,
    client_ids: Collection[str] = (),
    software: Collection[str] = (),
    keeps_sessions: bool = True,
) -> DataFrame:
    """Clients are upgraded that have one of *client_ids*, or are one of *software*; all of them if both are empty.

    *keeps_sessions*: whether what they become does; if not, their full fetches are not told.
    """
    is_upgraded = _one_of("client_id", client_ids) | _one_of("software", software)
    if not client_ids and not software:
        is_upgraded = F.lit(True)
    sums = union_rows((_read(ledger, keeps_sessions=keeps_sessions), _lifted(ledger)))
    by_client = sums.groupBy(*_CLIENT).agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS))
    return finish_columns(by_client.withColumn("is_upgraded", is_upgraded), RESULT)


def _one_of(column: str, values: Collection[str]) -> Column:
    return F.coalesce(F.col(column).isin(*values), F.lit(False))


def _read(ledger: LedgerFrames, *, keeps_sessions: bool) -> DataFrame:
    is_full = (F.col("client_session_id") == 0) & F.lit(keeps_sessions)

    def of_full(value: Column) -> Column:
        return total(F.when(is_full, value).otherwise(0))

    return ledger.exchange.groupBy(*_CLIENT).agg(
        total("converted_in_bytes").alias("converted_bytes"),
        total("conversion_cpu_us").alias("conversion_cpu_us"),
        total("padding_bytes").alias("padding_bytes"),
        of_full(F.col("exchanges")).alias("full_fetches"),
        of_full(F.col("named") - F.col("with_data")).alias("named_partitions"),
        of_full(F.col("answered") - F.col("with_data")).alias("answered_partitions"),
    )


def _lifted(ledger: LedgerFrames) -> DataFrame:
    """Requests in versions that Kafka 4 does not serve: of each connection the last row has their sums."""
    last = ledger.client.groupBy(*CONNECTION).agg(
        *(F.max_by(name, "seq").alias(name) for name in (*_CLIENT, "apis"))
    )
    lifted = F.filter("apis", _is_lifted)
    requests = F.aggregate(lifted, F.lit(0).cast("long"), lambda before, each: before + each["requests"])
    return last.groupBy(*_CLIENT).agg(F.sum(requests).alias("lifted_requests"))


def _is_lifted(used: Column) -> Column:
    old = [(used["key"] == key) & (used["version"] < first) for key, first in SERVED_FROM.items()]
    return F.exists(F.array(*old), lambda each: each)
