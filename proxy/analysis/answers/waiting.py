"""What exchanges wait for, and how long: percentiles by cause, from sketches that can be merged.

Exchanges that brought records (``with_records``) are never folded, so each is one value. Those that brought none
are polls that found nothing: their rows are runs of up to a minute, and each row is one value, the average of its
exchanges, whose tails are not in it. The two are never mixed: waiting for news that does not come is no delay.

A KLL sketch knows no weights. With one rate of sampling for all (``is_one_rate``) percentiles are estimated
without bias; with several, processes that tell more count for more. Percentiles are exact up to ``SKETCH_K`` values
and beyond that of a rank within 0.04 % of theirs, with 99 % confidence: p99.9 is one between p99.86 and p99.94.

Sketches of days, clusters or streams are merged by ``merged``; percentiles themselves cannot be.
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

__all__ = ["CAUSES", "RESULT", "SKETCH_K", "Dimension", "merged", "waiting"]

Dimension = Literal["day", "cluster_id", "client_id"]

CAUSES: Final[tuple[str, ...]] = ("total", *get_args(Cause))
"""``total`` is all the others together; of the others each is exclusive of the rest (``proxy.events.Cause``)."""
SKETCH_K: Final = 8192
"""Of KLL: a sketch takes up to some 110 kB, and 8 bytes a value as long as there are few."""
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
"""``values``: in the sketch. ``exchanges``, ``total_s``: sums of all, weighed. Microseconds an exchange. An
exchange that did not wait for a cause has waited 0 us for it."""


def waiting(
    ledger: LedgerFrames, by: Collection[Dimension] = ("day", "cluster_id"), *, sketch_k: int = SKETCH_K
) -> DataFrame:
    """One row for each of *by*, cause, and whether records were brought; the other dimensions are null.

    Args: sketch_k: 8 to 65535; less where there are many groups, such as clients: at 200 ranks are within 1.4 %.
    Cost: each row of an exchange is seven values; sketches are made where the rows are, and then merged.
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


def merged(waits: DataFrame, by: Collection[Dimension] = ()) -> DataFrame:
    """Rows that ``waiting`` has given, of several days or ledgers, as if they had been of one: as RESULT has
    them."""
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
