"""Anomalies: hours in which a metric of a client, such as the bytes read, deviates from the client's own past.

For each client and hour, each of ``METRICS`` is compared with the same hour of the preceding weeks; if fewer than
``least_weeks`` of these have values, with all preceding hours, if at least ``LEAST_HOURS`` have values; otherwise
the hour is not judged. The usual value is the median. The spread is 1.4826 times the median absolute deviation,
which is the standard deviation of normally distributed values. Outliers in up to half of the past hours affect
neither. ``z`` is the deviation from the usual value, divided by the spread. The spread is at least a tenth of the
usual value and at least the metric's floor, because it would be 0 for a constant past, and small deviations do not
matter.

An hour without rows counts as an hour of zeros, so that a client that stops is an anomaly, too. Hence gaps in a
ledger look like stopped clients (see ``coverage``). The last hour of a cluster's ledger is incomplete and not
judged. Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers" (1993), the modified z-score.
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
    """A metric of a client with one value per hour, and the constants to judge and describe deviations."""

    says: str
    """The predicate of a sentence about the client, such as ``made %s fetches``; ``%s`` stands for the value."""
    floor: float
    """The least spread (usual deviation) of its values that is assumed, in the metric's unit, so that smaller
    deviations do not matter."""
    of_silence: int | None = 0
    """The value in an hour in which the client has no rows. None: the metric has no value then, and the hour is
    ignored."""


METRICS: Final = {
    "bytes": Metric("read %s bytes of records", 1e6),
    "fetches": Metric("made %s fetches", 60),
    "errors": Metric("received %s errors", 10),
    "converted_bytes": Metric("had %s bytes converted", 1e6),
    "sessions_lost": Metric("lost %s fetch sessions", 3),
    "wait_p99_us": Metric("waited %s us at the 99th percentile, without long polls", 10_000, None),
}
"""The metrics by name. ``bytes``: records as brokers sent them. ``sessions_lost``: Sidefetch's sessions with
brokers that were reset or evicted. ``wait_p99_us``: of client fetches with records, without the wait for new
records."""
LEAST_HOURS: Final = 24
"""The least number of past hours with values that can be compared with."""
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
"""The result columns. ``since``, ``hours``: start and length of a run of anomalous hours. All columns from ``hour``
on describe the hour of the run with the largest deviation. ``past``: the hours from which the usual value is
computed, ``same hour of the week`` or ``all hours``; ``past_hours``: their number."""

_CLIENT: Final = ("cluster_id", "client_id")


def anomalies(
    ledger: LedgerFrames,
    *,
    judged_hours: int = 24,
    most_weeks: int = 8,
    least_weeks: int = 4,
    threshold: float = 6.0,
) -> DataFrame:
    """Return one row for each run of hours in which a metric of a client was unusual, the largest deviation first.

    An hour is unusual if ``z``, the metric's deviation from its usual value in the client's past divided by the
    usual spread, is at least *threshold* or at most -*threshold*. Consecutive hours of one client and metric that
    deviate in the same direction are a run. Its row (``RESULT``) describes the hour with the largest deviation.

    Args: judged_hours: the number of hours to judge, up to the last complete one.
          most_weeks: the length of the past: the weeks before the judged hours.
          least_weeks: the least number of past values at the same hour of the week to compare with. With fewer, the
          hour is compared with all past hours; it is not judged if fewer than ``LEAST_HOURS`` of these have values.
    Cost: clients times hours times metrics, regardless of the traffic, because rows are first summed by hour. No
          key has more than about 1,400 rows, so none needs salting.
    """
    hours = _without_gaps(_hourly(ledger), _ends(ledger), judged_hours + most_weeks * _WEEK)
    values = _values(hours)
    is_past = F.col("end") - F.col("hour") > judged_hours
    judged = _judged(values.withColumn("past_value", F.when(is_past, F.col("value"))), least_weeks)
    odd = judged.where(~is_past & (F.abs("z") >= threshold))
    described = _runs(odd).select(
        *(*_CLIENT, "metric", "hours"),
        F.timestamp_micros(F.col("since") * HOUR_US).alias("since"),
        F.timestamp_micros(F.col("hour") * HOUR_US).alias("hour"),
        *("value", "usual", "spread", "z", "past", "past_hours"),
        _explanation(threshold).alias("explanation"),
    )
    return finish_columns(described.orderBy(F.desc(F.abs("z"))), RESULT)


def _runs(odd: DataFrame) -> DataFrame:
    """Return the row with the largest deviation of each run of consecutive hours, with its start and length."""
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
    """Return the metrics of each client and hour that has ledger rows; a metric without rows is null."""
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
    """Return the last hour of each cluster's ledger (``end``, in hours since 1970), which is incomplete."""
    last = F.floor(F.max("at_us") / F.lit(HOUR_US)).alias("end")
    return ledger.exchange.groupBy(F.col("cluster_id").alias("of_cluster")).agg(last)


def _without_gaps(hourly: DataFrame, ends: DataFrame, hours: int) -> DataFrame:
    """Return a row for each client and each of the last *hours* complete hours, from the client's first hour on.

    Metrics are null in hours without ledger rows.
    """
    known = hourly.groupBy(*_CLIENT, "hour").agg(*(F.max(name).alias(name) for name in METRICS))
    same_cluster = F.col("cluster_id").eqNullSafe(F.col("of_cluster"))
    over = known.join(F.broadcast(ends), on=same_cluster, how="inner").where(F.col("hour") < F.col("end"))
    following = F.lead("hour").over(Window.partitionBy(*_CLIENT).orderBy("hour"))
    since = F.greatest(F.col("hour"), F.col("end") - hours)
    gaps = over.withColumn("until", F.coalesce(following, F.col("end"))).where(F.col("until") > since)
    every = gaps.withColumn("each", F.explode(F.sequence(since, F.col("until") - 1)))
    is_own_hour = F.col("each") == F.col("hour")
    return every.select(
        *_CLIENT,
        "end",
        F.col("each").alias("hour"),
        *(F.when(is_own_hour, F.col(name)).alias(name) for name in METRICS),
    )


def _values(hours: DataFrame) -> DataFrame:
    """Return a row for each client, hour and metric, without those that have no value."""
    metrics = [
        F.struct(
            F.lit(name).alias("metric"),
            F.coalesce(name, F.lit(metric.of_silence)).cast("double").alias("value"),
            F.lit(metric.floor).cast("double").alias("floor"),
            F.lit(metric.says).alias("says"),
        )
        for name, metric in METRICS.items()
    ]
    values = hours.select(*_CLIENT, "hour", "end", F.inline(F.array(*metrics)))
    return values.where(F.col("value").isNotNull())


def _judged(values: DataFrame, least_weeks: int) -> DataFrame:
    """Return *values* with the usual value, the spread and ``z`` of each, without rows whose past is too short."""
    client = (*_CLIENT, "metric")
    of_the_week = _usual(values, "week", *client, F.pmod("hour", F.lit(_WEEK)))
    of_all = _usual(of_the_week, "all", *client)
    has_weeks = F.col("week_hours") >= least_weeks
    chosen = of_all.withColumns(
        {
            "past": F.when(has_weeks, "same hour of the week").otherwise("all hours"),
            "past_hours": F.when(has_weeks, F.col("week_hours")).otherwise(F.col("all_hours")),
            "usual": F.when(has_weeks, F.col("week_usual")).otherwise(F.col("all_usual")),
            "usual_spread": F.when(has_weeks, F.col("week_spread")).otherwise(F.col("all_spread")),
        }
    )
    spread = F.greatest(F.col("usual_spread"), F.col("usual") * _TENTH, F.col("floor"))
    return (
        chosen.where(has_weeks | (F.col("all_hours") >= LEAST_HOURS))
        .withColumn("spread", spread)
        .withColumn("z", (F.col("value") - F.col("usual")) / F.col("spread"))
    )


def _usual(values: DataFrame, name: str, *same: str | Column) -> DataFrame:
    """Add the count, median and spread of the past values that agree in *same*, as columns prefixed with *name*."""
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
        F.coalesce("client_id", F.lit("A client without client id, or several that share a fetch,")),
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
        F.lit(" ± "),
        figure("spread"),
        F.format_string(" (median of %d earlier hours, ", F.col("past_hours")),
        F.col("past"),
        F.format_string("): z = %.1f; the threshold is %.1f.", F.col("z"), F.lit(threshold)),
    )
