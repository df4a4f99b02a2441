"""Who has records converted, and what that takes: CPU seconds, padding, and records that grow.

Of answers whose records were converted to an older format (``converted_to``); a client that speaks an old
version and was sent nothing is told of by ``readiness``. A row of the ledger has the sums of one answer, so a
topic is told only where the answer had records of no other.
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
"""``topic``: null where an answer had records of several, or of some that were not told apart. ``connections``:
that are told of. ``in_bytes``: as brokers have the records, compressed or not; ``out_bytes``: as the client can
use them, to which ``padding_bytes`` were added that were declared and not needed. ``padding_share``: of what
was sent. ``expansion``: out for one in. ``cpu_s``: of the threads that converted; a gigabyte is 1e9 of
``in_bytes``. ``waited_s``: for how long exchanges have waited for it."""

_GB: Final = 1e9
_SECOND_US: Final = 1e6


def conversion(ledger: LedgerFrames) -> DataFrame:
    """One row for each client, by what it is, what it speaks, and the topic."""
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
    """Of an answer: the topic that all its records are of, or null."""
    read = F.filter("sources", lambda source: source["bytes"] > 0)
    topics = F.array_distinct(F.transform(read, lambda source: source["topic"]))
    return F.when(F.size(topics) == 1, F.try_element_at(topics, F.lit(1)))
