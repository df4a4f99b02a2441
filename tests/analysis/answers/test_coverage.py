from pyspark.sql import SparkSession

from proxy.analysis.answers.coverage import coverage
from tests.analysis.rows import ledger_of, row


def test_rows_without_a_number_are_lost_or_missing(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        row("exchange", seq=5, weight=4.0),
        row("fetch", seq=6),
        row("lost", seq=9, seq_first=7, seq_last=9, count=3),
        row("session", seq=12, cluster_id=None),
        row("client", seq=0, proxy_id="another"),
        row("lost", seq=1, seq_first=0, seq_last=1, count=2, proxy_id="another"),  # in files, but not in the topic
        row("fetch", seq=1, proxy_id="another"),
        row("lost", seq=7, seq_first=4, seq_last=7, count=4, proxy_id="third", cluster_id="far"),
    )

    far, near = sorted(coverage(ledger).collect(), key=lambda each: each["proxies"])

    assert near.asDict() == {
        "cluster_id": "cluster",
        "proxies": 2,
        "rows": 5,
        "lost_rows": 3,
        "missing_rows": 2,
        "covered_share": 0.5,
        "least_weight": 1.0,
        "most_weight": 4.0,
    }
    assert (far["cluster_id"], far["rows"], far["lost_rows"], far["covered_share"]) == ("far", 0, 4, 0.0)
