"""The queries of a report, on a few rows made by hand; other tests check the sums themselves."""

from pyspark.sql import SparkSession

from proxy.analysis.answers.zones import Prices
from proxy.analysis.ingest import IngestResult
from proxy.analysis.lines import BAD_ROWS
from proxy.analysis.report.build import query_results, write_report
from tests.analysis.rows import ledger_of, row

OLD = {"client_id": "till", "software": "speaks as Kafka 0.9", "connection_id": 1}
SOURCE = {
    "topic": "sales",
    "node": 2,
    "rack": "b",
    "leader_node": 2,
    "leader_rack": "b",
    "wanted": 3,
    "bytes": 4000,
    "request_share_bytes": 90,
}
ROWS = (
    row(
        "exchange",
        **OLD,
        fetch_version=1,
        reader_rack="a",
        with_data=1,
        response_bytes=4600,
        direct_request_bytes=100,
        direct_response_bytes=5000,
        source_bytes=4000,
        delivered_bytes=4500,
        converted_in_bytes=4000,
        converted_out_bytes=4400,
        converted_records=40,
        padding_bytes=100,
        conversion_cpu_us=700,
        converted_to=0,
        sources=[SOURCE],
        total_us=3000,
        broker_us=2000,
        convert_us=1000,
        seq=0,
    ),
    row("fetch", connection_id=1, fetcher_id="2-live", fetcher="live", rack="b", node=2, kind="full", seq=1)
    | {"request_bytes": 120, "response_bytes": 4300, "record_bytes": 4000, "size": 3, "session_id": 7},
    row("session", side="upstream", node=2, fetcher_id="2-live", session_id=7, event="created", seq=2),
    row("session", side="upstream", node=2, fetcher_id="2-live", session_id=7, event="evicted", seq=3),
    row("client", **OLD, apis=[{"key": 1, "version": 1, "upgraded_to": 17, "requests": 9, "bytes": 900}], seq=4),
    row("lost", reason="full", count=5, seq_first=5, seq_last=9, seq=9),
    row(
        "topology", proxy_id="topology", topic="sales", leader=2, replicas=[{"node": 2, "rack": "b", "in_sync": 1}]
    ),
)


def test_report_sections_have_values_of_ledger_rows(spark: SparkSession) -> None:
    bad = spark.createDataFrame([("{", "cut off", "a.jsonl")], BAD_ROWS)

    found = query_results(IngestResult(ledger_of(spark, *ROWS), bad), Prices(0.01, 0.02))

    about = found.about
    assert (about.proxy_count, about.row_count, about.bad_count, about.lost_count) == (1, 7, 1, 5)
    (breaking,) = found.readiness.breaking.rows
    assert (breaking["client_id"], breaking["connections"], found.readiness.client_count) == ("till", 1, 1)
    assert found.readiness.breaking_bytes == found.readiness.client_bytes == 5500
    (converted,) = found.conversion.by_client.rows
    assert (converted["client_id"], converted["records"], converted["padding_bytes"]) == ("till", 40, 100)
    assert (found.zones.crossing_bytes, found.zones.inner_bytes, found.zones.closest_bytes) == (4420, 0, 0)
    assert found.zones.cost == 4420 * 0.03 / 2**30
    assert (found.sessions.of_brokers("created"), found.sessions.of_brokers("evicted")) == (1, 1)
    assert any("till" in each.title + each.why for each in write_report(found).advice)
