"""Waiting: percentiles of the time that client fetches wait, by cause, from sketches that can be merged.

Fetches with records (``with_records``) are never folded, so each is one value. Fetches without records are long
polls that found none: a row is a run of up to a minute, and is one value, the average of its fetches, which hides
outliers. The two are never mixed, because waiting for records that do not arrive is no delay.

A KLL sketch has no weights. If all rows have the same sampling rate (``is_one_rate``), the percentiles are
unbiased; otherwise processes with a higher rate count for more. Percentiles are exact up to ``SKETCH_K`` values.
Beyond that their rank is within 0.04 % of the requested one, with 99 % confidence: p99.9 is between p99.86 and
p99.94.

``merge_waits`` merges the sketches of days, clusters or streams; percentiles themselves cannot be merged.
Source: Apache DataSketches, KllHelper.getNormalizedRankError.
"""

from collections.abc import Collection
from typing import Final, Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from proxy.analysis.answers.parts import finish_columns, total
from proxy.analysis.days import day_of
from proxy.analysis.frames import LedgerFrames
from proxy.events import Cause

__all__ = ["CAUSES", "RESULT", "SKETCH_K", "Dimension", "merge_waits", "waiting"]

Dimension = Literal["day", "cluster_id", "client_id"]

CAUSES: Final[tuple[str, ...]] = ("total", *get_args(Cause))
"""The causes of waiting (``proxy.events.Cause``), which do not overlap, and ``total``, which is their sum."""
SKETCH_K: Final = 8192
"""The parameter k of KLL: a sketch takes up to about 110 kB; with few values, 8 bytes per value."""
_SECOND_US: Final = 1e6
_PERCENTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}

RESULT: Final = (
    StructType()
    .add("day", DateType())
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("cause", StringType())
    .add("with_records", BooleanType())
    .add("exchanges", LongType())
    .add("values", LongType())
    .add("total_s", DoubleType())
    .add("p50_us", LongType())
    .add("p90_us", LongType())
    .add("p99_us", LongType())
    .add("p999_us", LongType())
    .add("is_one_rate", BooleanType())
    .add("least_weight", DoubleType())
    .add("most_weight", DoubleType())
    .add("sketch", BinaryType())
)
"""The result columns. ``exchanges``: client fetches; ``total_s``: their waiting time; both are weighted sums.
``values``: number of values in the sketch. Percentiles are microseconds per client fetch, which counts as 0 us for
a cause that it did not wait for. ``least_weight``, ``most_weight``: of the rows."""


def waiting(
    ledger: LedgerFrames, by: Collection[Dimension] = ("day", "cluster_id"), *, sketch_k: int = SKETCH_K
) -> DataFrame:
    """Return the time that client fetches waited, by cause: totals, percentiles and mergeable KLL sketches.

    There is one row for each combination of the dimensions in *by*, the cause (``CAUSES``), and whether the fetches
    returned records (``with_records``). The columns of other dimensions are null (``RESULT``).

    Args: sketch_k: the size parameter of KLL, 8 to 65535. Use a small one for many groups, such as clients: with
          200, the ranks of percentiles are within 1.4 %.
    Cost: each exchange row yields seven values; the executors build sketches of their rows, which are then merged.
    """
    causes = [F.struct(F.lit(cause).alias("cause"), F.col(f"{cause}_us").alias("us")) for cause in CAUSES]
    waits = ledger.exchange.select(
        day_of("at_us").alias("day"),
        "cluster_id",
        "client_id",
        "exchanges",
        "weight",
        ((F.col("with_data") > 0) | (F.col("source_bytes") > 0)).alias("with_records"),
        F.explode(F.array(*causes)).alias("wait"),
    )
    each_us = F.round(F.col("wait.us") / F.greatest("exchanges", F.lit(1))).cast("long")
    sketched = waits.groupBy(*by, F.col("wait.cause").alias("cause"), "with_records").agg(
        total("exchanges").alias("exchanges"),
        (total("wait.us") / _SECOND_US).alias("total_s"),
        F.min("weight").alias("least_weight"),
        F.max("weight").alias("most_weight"),
        F.kll_sketch_agg_bigint(each_us, sketch_k).alias("sketch"),
    )
    return _read(sketched)


def merge_waits(waits: DataFrame, by: Collection[Dimension] = ()) -> DataFrame:
    """Merge result rows of ``waiting``, such as those of several days, and compute percentiles of the union.

    The result has the same columns, with one row for each combination of the dimensions in *by*, the cause and
    ``with_records``. Totals are added; percentiles come from the merged sketches.
    """
    together = waits.groupBy(*by, "cause", "with_records").agg(
        F.sum("exchanges").alias("exchanges"),
        F.sum("total_s").alias("total_s"),
        F.min("least_weight").alias("least_weight"),
        F.max("most_weight").alias("most_weight"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    return _read(together)


def _read(sketched: DataFrame) -> DataFrame:
    percentiles = F.kll_sketch_get_quantile_bigint("sketch", F.array(*map(F.lit, _PERCENTILES.values())))
    read = sketched.withColumns(
        {
            "values": F.kll_sketch_get_n_bigint("sketch"),
            "is_one_rate": F.col("least_weight") == F.col("most_weight"),
            "percentiles": percentiles,
        }
    )
    return finish_columns(read.withColumns({name: _item(index) for index, name in enumerate(_PERCENTILES)}), RESULT)


def _item(index: int) -> Column:
    return F.col("percentiles")[index]
