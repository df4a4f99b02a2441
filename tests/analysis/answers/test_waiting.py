from pyspark.sql import SparkSession

from proxy.analysis.answers.waiting import CAUSES, merge_waits, waiting
from tests.analysis.rows import ledger_of, row

DAY_US = 86_400_000_000


def test_waits_are_grouped_by_cause_and_can_be_merged_over_days(spark: SparkSession) -> None:
    busy = [
        row("exchange", at_us=(each % 2) * DAY_US, with_data=1, total_us=each + 5, broker_us=each, write_us=5)
        for each in range(1_000)
    ]
    idle = [
        row("exchange", exchanges=100, total_us=50_000_000, poll_us=50_000_000, weight=2.0),
        row("exchange", exchanges=1, total_us=0, poll_us=0),
    ]
    by_day = waiting(ledger_of(spark, *busy, *idle)).cache()

    daily = {(each["day"].day, each["cause"], each["with_records"]): each for each in by_day.collect()}
    rows = {(each["cause"], each["with_records"]): each for each in merge_waits(by_day).collect()}
    by_day.unpersist()

    assert set(rows) == {(cause, with_records) for cause in CAUSES for with_records in (True, False)}
    broker = rows["broker", True]
    assert [broker[name] for name in ("p50_us", "p90_us", "p99_us", "p999_us")] == [499, 899, 989, 998]
    assert (broker["exchanges"], broker["values"], broker["total_s"]) == (1_000, 1_000, 0.4995)
    assert broker["is_one_rate"] is True
    assert (rows["write", True]["p50_us"], rows["budget", True]["p999_us"]) == (5, 0)
    assert rows["total", True]["p50_us"] == 504
    assert (daily[1, "broker", True]["p50_us"], daily[2, "broker", True]["p50_us"]) == (498, 499)

    polls = rows["poll", False]
    assert (polls["exchanges"], polls["values"], polls["p50_us"], polls["p99_us"]) == (201, 2, 0, 500_000)
    assert polls["total_s"] == 100.0
    assert polls["is_one_rate"] is False
