"""Conversion: clients whose records Sidefetch converts to older formats, and the cost in CPU time and bytes.

Only responses whose records were converted to an older format (``converted_to``) count; ``readiness`` also covers
clients that use an old version but received no records. A ledger row has sums over one response, so the topic is
known only if all records of the response are of one topic.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from proxy.analysis.answers.parts import CONNECTION, finish_columns, ratio, total
from proxy.analysis.frames import LedgerFrames

__all__ = ["RESULT", "conversion"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("software", StringType())
    .add("fetch_version", LongType())
    .add("converted_to", LongType())
    .add("topic", StringType())
    .add("connections", LongType())
    .add("exchanges", LongType())
    .add("records", LongType())
    .add("in_bytes", LongType())
    .add("out_bytes", LongType())
    .add("padding_bytes", LongType())
    .add("cpu_s", DoubleType())
    .add("waited_s", DoubleType())
    .add("padding_share", DoubleType())
    .add("expansion", DoubleType())
    .add("cpu_s_per_gb", DoubleType())
)
"""The result columns. ``topic``: null if a response had records of several topics, or of topics that the ledger
combines. ``connections``: number of connections with converted records. ``in_bytes``: records as brokers store
them, compressed or not; ``out_bytes``: records after conversion, without padding; ``padding_bytes``: padding,
because the declared size was larger than needed. ``padding_share``: padding as a share of the delivered bytes.
``expansion``: ``out_bytes`` / ``in_bytes``. ``cpu_s``: CPU time of the conversion threads; ``cpu_s_per_gb``: per
1e9 ``in_bytes``. ``waited_s``: total time that client fetches waited for conversion."""

_GB: Final = 1e9
_SECOND_US: Final = 1e6


def conversion(ledger: LedgerFrames) -> DataFrame:
    """Return the amount and the cost of record conversion, one row for each client, target format and topic.

    More exactly, a row is for a cluster, client id, software, Fetch version, target format and topic; the topic is
    null for responses with records of several topics, or of topics that the ledger combines. A row has numbers of
    connections, client fetches and records, bytes before and after, padding, CPU time, and the time that fetches
    waited (``RESULT``). Clients without converted records have no row.
    """
    converted = ledger.exchange.where(F.col("converted_in_bytes") > 0).withColumn("topic", _only_topic())
    by = ["cluster_id", "client_id", "software", "fetch_version", "converted_to", "topic"]
    sums = {
        "exchanges": "exchanges",
        "records": "converted_records",
        "in_bytes": "converted_in_bytes",
        "out_bytes": "converted_out_bytes",
        "padding_bytes": "padding_bytes",
        "cpu_us": "conversion_cpu_us",
        "convert_us": "convert_us",
    }
    by_connection = converted.groupBy(*by, *CONNECTION).agg(
        *(total(column).alias(name) for name, column in sums.items())
    )
    clients = by_connection.groupBy(*by).agg(
        F.count("*").alias("connections"), *(F.sum(name).alias(name) for name in sums)
    )
    return finish_columns(
        clients.select(
            "*",
            (F.col("cpu_us") / _SECOND_US).alias("cpu_s"),
            (F.col("convert_us") / _SECOND_US).alias("waited_s"),
            ratio("padding_bytes", F.col("out_bytes") + F.col("padding_bytes")).alias("padding_share"),
            ratio("out_bytes", "in_bytes").alias("expansion"),
            ratio(F.col("cpu_us") / _SECOND_US, F.col("in_bytes") / _GB).alias("cpu_s_per_gb"),
        ),
        RESULT,
    )


def _only_topic() -> Column:
    """Return the topic of all records of a response; null if there are several or it is unknown."""
    read = F.filter("sources", lambda source: source["bytes"] > 0)
    topics = F.array_distinct(F.transform(read, lambda source: source["topic"]))
    return F.when(F.size(topics) == 1, F.try_element_at(topics, F.lit(1)))
