"""What-if question: conversions, upgraded requests and full fetches that end if some clients are upgraded.

An upgraded client reads the brokers' record format and uses API versions that they serve, so Sidefetch no longer
converts records or upgrades requests for it. Its full fetches end, too, if the new client uses fetch sessions:
Kafka's Java client does since 1.1, librdkafka and the clients based on it do not.

The figures assume that an upgraded client reads as before; it might read faster, or other data.
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
    .add("upgraded_requests", LongType())
    .add("full_fetches", LongType())
    .add("named_partitions", LongType())
    .add("answered_partitions", LongType())
)
"""The result columns, with a row for each client: the costs that it causes now, which end if it ``is_upgraded``.
``upgraded_requests``: requests in versions that Kafka 4 does not serve. ``full_fetches``: the client's full
fetches; ``named_partitions``, ``answered_partitions``: partitions without records in these requests and in the
responses."""

_SUMS: Final = RESULT.names[4:]
_CLIENT: Final = ("cluster_id", "client_id", "software")


def upgrade(
    ledger: LedgerFrames,
    *,
    client_ids: Collection[str] = (),
    software: Collection[str] = (),
    keeps_sessions: bool = True,
) -> DataFrame:
    """Return the costs of each client that would end with an upgrade, and whether the client is to be upgraded.

    The costs are converted bytes, CPU time and padding, requests in versions that Kafka 4 does not serve, and
    fetches outside sessions (``RESULT``). A client is a cluster, client id and software.

    Args: client_ids, software: the clients to upgrade: those with one of these client ids or software names; all
          clients if both are empty.
          keeps_sessions: whether clients use fetch sessions once upgraded; if not, their full fetches do not end
          and count as 0.
    """
    is_upgraded = _one_of("client_id", client_ids) | _one_of("software", software)
    if not client_ids and not software:
        is_upgraded = F.lit(True)
    sums = union_rows((_read(ledger, keeps_sessions=keeps_sessions), _upgraded_requests(ledger)))
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


def _upgraded_requests(ledger: LedgerFrames) -> DataFrame:
    """Return each client's requests in versions that Kafka 4 does not serve, summed over its connections."""
    last = ledger.client.groupBy(*CONNECTION).agg(
        *(F.max_by(name, "seq").alias(name) for name in (*_CLIENT, "apis"))
    )
    upgraded = F.filter("apis", _needs_upgrade)
    requests = F.aggregate(upgraded, F.lit(0).cast("long"), lambda before, each: before + each["requests"])
    return last.groupBy(*_CLIENT).agg(F.sum(requests).alias("upgraded_requests"))


def _needs_upgrade(used: Column) -> Column:
    old = [(used["key"] == key) & (used["version"] < first) for key, first in SERVED_FROM.items()]
    return F.exists(F.array(*old), lambda each: each)
