"""How much of what was to be written down is there: what every other answer is to be trusted by.

``seq`` counts the rows of a process, so a number without a row is a row that is missing. Of some a ``lost`` row
tells why; what a crash took from memory is told by nobody. What came after a process's last row is not known of,
nor what was before the first one that is here. Sampling loses nothing: rows that were left out have no number.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from proxy.analysis.answers.parts import finish_columns, ratio, union_rows
from proxy.analysis.frames import LedgerFrames

__all__ = ["RESULT", "coverage"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("proxies", LongType())
    .add("rows", LongType())
    .add("lost_rows", LongType())
    .add("missing_rows", LongType())
    .add("covered_share", DoubleType())
    .add("least_weight", DoubleType())
    .add("most_weight", DoubleType())
)
"""``lost_rows`` are told, ``missing_rows`` are not there and nobody tells why; ``covered_share``: 0..1, rows that
are there of all three. Weights: 1 / the rates at which exchanges and fetches were sampled."""


def coverage(ledger: LedgerFrames) -> DataFrame:
    """One row for each cluster. Where the same rows were read from files and from a topic, what is lost in one and
    there in the other counts as there."""
    nothing = F.lit(0).cast("long")
    columns = ("cluster_id", "proxy_id", "seq")
    counted = (ledger.exchange, ledger.fetch)
    told = [rows.select(*columns, "weight", F.lit(1).alias("rows")) for rows in counted]
    told += [rows.select(*columns, F.lit(1).alias("rows")) for rows in (ledger.session, ledger.client)]
    told.append(ledger.lost.select(*columns, "seq_first", F.col("count").alias("lost_rows")))
    weights = (F.min("least_weight").alias("least_weight"), F.max("most_weight").alias("most_weight"))
    # A process has one cluster, but may not know its id at first. By hash first: the greatest string needs a sort.
    proxies = (
        union_rows(told)
        .withColumns({"least_weight": F.col("weight"), "most_weight": F.col("weight")})
        .groupBy("proxy_id", "cluster_id")
        .agg(
            F.sum("rows").alias("rows"),
            F.sum("lost_rows").alias("lost_rows"),
            F.max("seq").alias("last"),
            F.min(F.least("seq", "seq_first")).alias("first"),
            *weights,
        )
        .groupBy("proxy_id")
        .agg(
            F.max("cluster_id").alias("cluster_id"),
            F.coalesce(F.sum("rows"), nothing).alias("rows"),
            F.coalesce(F.sum("lost_rows"), nothing).alias("told"),
            (F.max("last") - F.min("first") + 1).alias("numbers"),
            *weights,
        )
    )
    absent = F.col("numbers") - F.col("rows")
    clusters = (
        proxies.withColumn("lost_rows", F.least("told", absent))
        .groupBy("cluster_id")
        .agg(
            F.count("*").alias("proxies"),
            F.sum("rows").alias("rows"),
            F.sum("lost_rows").alias("lost_rows"),
            F.sum(absent - F.col("lost_rows")).alias("missing_rows"),
            F.sum("numbers").alias("numbers"),
            *weights,
        )
    )
    return finish_columns(clusters.withColumn("covered_share", ratio("rows", "numbers")), RESULT)
