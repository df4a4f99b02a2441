"""Coverage: the share of ledger rows that are present, which shows how reliable the other answers are.

``seq`` numbers the rows of a process, so each gap is a missing row. ``lost`` rows give the reason for some; rows
that a crash took from memory have no such row. Rows after the last one of a process, or before the first one that
was read, are unknown. Sampling makes no gaps, because rows that it leaves out have no number.
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
"""The result columns. ``rows``: rows present; ``lost_rows``: missing rows that a ``lost`` row reports;
``missing_rows``: missing rows without such a report; ``covered_share``: 0..1, ``rows`` / the sum of these three.
Weights: 1 / the sampling rates of exchanges and fetches."""


def coverage(ledger: LedgerFrames) -> DataFrame:
    """Return, for each cluster, the number of ledger rows that are present and missing, and the share present.

    Each process numbers its rows (``seq``), so gaps are missing rows. ``lost_rows`` are missing rows that the
    process reported in a ``lost`` row, ``missing_rows`` all others (``RESULT``). If rows were read from both files
    and a topic, a row that was lost in only one of them counts as present.
    """
    nothing = F.lit(0).cast("long")
    columns = ("cluster_id", "proxy_id", "seq")
    counted = (ledger.exchange, ledger.fetch)
    counts = [rows.select(*columns, "weight", F.lit(1).alias("rows")) for rows in counted]
    counts += [rows.select(*columns, F.lit(1).alias("rows")) for rows in (ledger.session, ledger.client)]
    counts.append(ledger.lost.select(*columns, "seq_first", F.col("count").alias("lost_rows")))
    weights = (F.min("least_weight").alias("least_weight"), F.max("most_weight").alias("most_weight"))
    # A process has one cluster, but may not know its id at first. Group by both first: that is a hash
    # aggregation, while max() of strings sorts its rows.
    proxies = (
        union_rows(counts)
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
            F.coalesce(F.sum("lost_rows"), nothing).alias("reported_rows"),
            (F.max("last") - F.min("first") + 1).alias("numbers"),
            *weights,
        )
    )
    absent = F.col("numbers") - F.col("rows")
    clusters = (
        proxies.withColumn("lost_rows", F.least("reported_rows", absent))
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
