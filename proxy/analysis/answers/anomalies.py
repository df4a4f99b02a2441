"""Clients that have left their own past: hours in which one did what it does not do at such an hour.

Of each client and hour, some metrics (``METRICS``) are held against the same hour of the weeks before; where fewer
than ``least_weeks`` of them are told, against all of its hours before, at least ``LEAST_HOURS``; where there are
fewer, nothing is said. What is usual is the median, and the spread is 1.4826 times the median of the distances from
it, which for normal values is the standard deviation: half of the past may be as odd as it likes and will not move
either. ``z`` is the distance from usual in spreads. A past that never varied has no spread, so none is taken for
less than a tenth of what is usual, or than the metric's floor: what is too small to be worth a look.

An hour without a row is an hour of zeros: a client that falls silent has left its past, too. Hence holes in a
ledger look like silence (see ``coverage``). The last hour of a cluster's ledger is not over, and not judged.
Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers" (1993), the modified z-score.
"""

from typing import Final

import attrs
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructType, TimestampType

from proxy.analysis.answers.parts import finish_columns, total, union_rows
from proxy.analysis.answers.sessions import events_by_client
from proxy.analysis.days import HOUR_US
from proxy.analysis.frames import LedgerFrames

__all__ = ["LEAST_HOURS", "METRICS", "RESULT", "Metric", "anomalies"]


@attrs.frozen
class Metric:
    """Something that is told of a client for each hour."""

    says: str
    """In a sentence about the client; its figure stands for %s."""
    floor: float
    """The least spread."""
    of_silence: int | None = 0
    """Its value in an hour without rows; None for none, and then that hour is left out."""


METRICS: Final = {
    "bytes": Metric("read %s bytes of records", 1e6),
    "fetches": Metric("made %s fetches", 60),
    "errors": Metric("was answered with %s errors", 10),
    "converted_bytes": Metric("had %s bytes converted", 1e6),
    "sessions_lost": Metric("lost %s fetch sessions", 3),
    "wait_p99_us": Metric("waited %s us at the 99th percentile, polling aside", 10_000, None),
}
"""``sessions_lost``: Sidefetch's with brokers, reset or evicted. ``wait_p99_us``: of exchanges with records."""
LEAST_HOURS: Final = 24
_WEEK: Final = 168
_TENTH: Final = 0.1
_TO_DEVIATION: Final = 1.4826

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("metric", StringType())
    .add("since", TimestampType())
    .add("hours", LongType())
    .add("hour", TimestampType())
    .add("value", DoubleType())
    .add("usual", DoubleType())
    .add("spread", DoubleType())
    .add("z", DoubleType())
    .add("past", StringType())
    .add("past_hours", LongType())
    .add("explanation", StringType())
)
"""``since``, ``hours``: of the run; all else is told of the one ``hour`` of it that was farthest from usual.
``past``: what was usual is taken from ``past_hours`` hours, the ``same hour of the week`` or ``all hours``."""

_CLIENT: Final = ("cluster_id", "client_id")


def anomalies(
    ledger: LedgerFrames,
    *,
    judged_hours: int = 24,
    most_weeks: int = 8,
    least_weeks: int = 4,
    threshold: float = 6.0,
) -> DataFrame:
    """One row for each client, metric and run of hours with a ``z`` of *threshold* or more, all up or all down.

    A run is told by the hour of it that was farthest from usual; the farthest run comes first.

    Args: judged_hours: how many, up to the last one that is over; the *most_weeks* before them are the past.
    Cost: clients times hours times metrics, whatever the traffic: rows are summed up by hour first, so that a
          client id that everybody has is as small as all others. No key has more than some 1,400 rows, and none
          is salted.
    """
    hours = _without_gaps(_hourly(ledger), _ends(ledger), judged_hours + most_weeks * _WEEK)
    values = _values(hours)
    is_past = F.col("end") - F.col("hour") > judged_hours
    judged = _judged(values.withColumn("past_value", F.when(is_past, F.col("value"))), least_weeks)
    odd = judged.where(~is_past & (F.abs("z") >= threshold))
    told = _runs(odd).select(
        *(*_CLIENT, "metric", "hours"),
        F.timestamp_micros(F.col("since") * HOUR_US).alias("since"),
        F.timestamp_micros(F.col("hour") * HOUR_US).alias("hour"),
        *("value", "usual", "spread", "z", "past", "past_hours"),
        _explanation(threshold).alias("explanation"),
    )
    return finish_columns(told.orderBy(F.desc(F.abs("z"))), RESULT)


def _runs(odd: DataFrame) -> DataFrame:
    """The row that is farthest from usual of each run of hours without a gap, how many they are, and since when."""
    way = F.signum("z").alias("way")
    in_order = Window.partitionBy(*_CLIENT, "metric", way).orderBy("hour")
    run = (F.col("hour") - F.row_number().over(in_order)).alias("run")
    return (
        odd.select("*", way, run)
        .groupBy(*_CLIENT, "metric", "way", "run")
        .agg(
            F.min("hour").alias("since"),
            F.count("*").alias("hours"),
            F.max_by(
                F.struct(*(name for name in odd.columns if name not in (*_CLIENT, "metric"))), F.abs("z")
            ).alias("worst"),
        )
        .select(*_CLIENT, "metric", "since", "hours", "worst.*")
    )


def _hour() -> Column:
    return F.floor(F.col("at_us") / F.lit(HOUR_US)).alias("hour")


def _hourly(ledger: LedgerFrames) -> DataFrame:
    """A row for each client and hour with anything told: its metrics, null for none."""
    errors = F.aggregate("errors.n", F.lit(0).cast("long"), lambda one, other: one + other)
    delay_us = F.when(F.col("with_data") > 0, F.col("total_us") - F.col("poll_us"))
    read = ledger.exchange.groupBy(*_CLIENT, _hour()).agg(
        total("source_bytes").alias("bytes"),
        total("exchanges").alias("fetches"),
        total(errors).alias("errors"),
        total("converted_in_bytes").alias("converted_bytes"),
        F.percentile_approx(delay_us, 0.99).alias("wait_p99_us"),
    )
    is_lost = (F.col("side") == "upstream") & F.col("event").isin("reset", "evicted")
    lost = events_by_client(ledger).where(is_lost).groupBy(*_CLIENT, _hour())
    return union_rows((read, lost.agg(F.count("*").alias("sessions_lost"))))


def _ends(ledger: LedgerFrames) -> DataFrame:
    """Of each cluster: the hour that is not over."""
    last = F.floor(F.max("at_us") / F.lit(HOUR_US)).alias("end")
    return ledger.exchange.groupBy(F.col("cluster_id").alias("of_cluster")).agg(last)


def _without_gaps(hourly: DataFrame, ends: DataFrame, hours: int) -> DataFrame:
    """A row for each client and each of the last *hours* that were over, from its first one on."""
    known = hourly.groupBy(*_CLIENT, "hour").agg(*(F.max(name).alias(name) for name in METRICS))
    same_cluster = F.col("cluster_id").eqNullSafe(F.col("of_cluster"))
    over = known.join(F.broadcast(ends), on=same_cluster, how="inner").where(F.col("hour") < F.col("end"))
    following = F.lead("hour").over(Window.partitionBy(*_CLIENT).orderBy("hour"))
    since = F.greatest(F.col("hour"), F.col("end") - hours)
    gaps = over.withColumn("until", F.coalesce(following, F.col("end"))).where(F.col("until") > since)
    every = gaps.withColumn("each", F.explode(F.sequence(since, F.col("until") - 1)))
    told = F.col("each") == F.col("hour")
    return every.select(
        *_CLIENT, "end", F.col("each").alias("hour"), *(F.when(told, F.col(name)).alias(name) for name in METRICS)
    )


def _values(hours: DataFrame) -> DataFrame:
    """A row for each metric."""
    told = [
        F.struct(
            F.lit(name).alias("metric"),
            F.coalesce(name, F.lit(metric.of_silence)).cast("double").alias("value"),
            F.lit(metric.floor).cast("double").alias("floor"),
            F.lit(metric.says).alias("says"),
        )
        for name, metric in METRICS.items()
    ]
    values = hours.select(*_CLIENT, "hour", "end", F.inline(F.array(*told)))
    return values.where(F.col("value").isNotNull())


def _judged(values: DataFrame, least_weeks: int) -> DataFrame:
    """*values* with what is usual, for those with enough of a past."""
    client = (*_CLIENT, "metric")
    of_the_week = _usual(values, "week", *client, F.pmod("hour", F.lit(_WEEK)))
    of_all = _usual(of_the_week, "all", *client)
    has_weeks = F.col("week_hours") >= least_weeks
    chosen = of_all.withColumns(
        {
            "past": F.when(has_weeks, "same hour of the week").otherwise("all hours"),
            "past_hours": F.when(has_weeks, F.col("week_hours")).otherwise(F.col("all_hours")),
            "usual": F.when(has_weeks, F.col("week_usual")).otherwise(F.col("all_usual")),
            "told_spread": F.when(has_weeks, F.col("week_spread")).otherwise(F.col("all_spread")),
        }
    )
    spread = F.greatest(F.col("told_spread"), F.col("usual") * _TENTH, F.col("floor"))
    return (
        chosen.where(has_weeks | (F.col("all_hours") >= LEAST_HOURS))
        .withColumn("spread", spread)
        .withColumn("z", (F.col("value") - F.col("usual")) / F.col("spread"))
    )


def _usual(values: DataFrame, name: str, *same: str | Column) -> DataFrame:
    """Of the past values that have *same*: how many, their median, and their spread about it."""
    alike = Window.partitionBy(*same)
    usual = values.withColumns(
        {
            f"{name}_hours": F.count("past_value").over(alike),
            f"{name}_usual": F.median("past_value").over(alike),
        }
    )
    distance = F.abs(F.col("past_value") - F.col(f"{name}_usual"))
    return usual.withColumn(f"{name}_spread", F.median(distance).over(alike) * _TO_DEVIATION)


def _explanation(threshold: float) -> Column:
    def figure(name: str) -> Column:
        return F.format_string("%,.0f", F.col(name))

    return F.concat(
        F.coalesce("client_id", F.lit("What has no client id")),
        F.lit(" "),
        F.replace("says", F.lit("%s"), figure("value")),
        F.format_string(
            " in the hour from %s %02d:00 UTC",
            F.date_from_unix_date(F.floor(F.col("hour") / 24).cast("int")).cast("string"),
            F.pmod("hour", F.lit(24)),
        ),
        F.when(F.col("hours") > 1, F.format_string(", one of %d such hours in a row", "hours")).otherwise(""),
        F.lit(". Usual is "),
        figure("usual"),
        F.lit(", give or take "),
        figure("spread"),
        F.format_string(" (median of %d hours before, ", F.col("past_hours")),
        F.col("past"),
        F.format_string("): z = %.1f, where %.1f is odd.", F.col("z"), F.lit(threshold)),
    )
