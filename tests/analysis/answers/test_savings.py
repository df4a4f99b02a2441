from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from proxy.analysis.answers.savings import savings
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

DAY_US = 86_400_000_000


def exchange(connection_id: int = 1, request: int = 100, response: int = 1_000, **fields: Any) -> Row:
    directly = {"direct_request_bytes": request, "direct_response_bytes": response}
    return row("exchange", connection_id=connection_id, client_id="billing", **directly | fields)


def fetch(connection_id: int = 1, request: int = 40, response: int = 900, **fields: Any) -> Row:
    return row("fetch", connection_id=connection_id, request_bytes=request, response_bytes=response, **fields)


def source(topic: str | None, wanted: int, record_bytes: int) -> Row:
    of_nobody = {"node": 1, "rack": None, "leader_node": 1, "leader_rack": None}
    return of_nobody | {
        "topic": topic,
        "wanted": wanted,
        "bytes": record_bytes,
        "request_share_bytes": wanted * 20,
    }


def test_saved_bytes_are_direct_bytes_minus_actual_bytes(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        exchange(at_us=DAY_US, exchanges=3, direct_partition_looks=30, sources=[source("t", 30, 0)]),
        fetch(at_us=DAY_US + 1, fetches=2, size=20, record_bytes=800, dropped_bytes=9),
        exchange(connection_id=2, request=50, response=50, at_us=2 * DAY_US - 1, converted_in_bytes=1),
        fetch(connection_id=2, request=70, response=230, at_us=2 * DAY_US),
    )

    first, second = sorted(savings(ledger).collect(), key=lambda each: each["day"])

    assert first.asDict() == {
        "day": date(1970, 1, 2),
        "cluster_id": "cluster",
        "client_id": None,
        "topic": None,
        "exchanges": 4,
        "fetches": 2,
        "direct_bytes": 1_200,
        "actual_bytes": 940,
        "saved_bytes": 260,
        "saved_share": 260 / 1_200,
        "record_bytes": 800,
        "dropped_bytes": 9,
        "delivered_bytes": 0,
        "delivery_ratio": 0.0,
        "full_request_bytes": 600,
        "direct_looks": 30,
        "actual_looks": 20,
        "saved_looks": 10,
        "saved_requests": 2,
        "is_modelled": True,
        "is_sampled": False,
    }
    assert (second["saved_bytes"], second["saved_share"]) == (-300, None)  # where more was asked, it shows
    assert second["is_modelled"] is False


def test_fetches_belong_to_the_client_of_their_connection(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        exchange(weight=10.0),
        fetch(weight=10.0),
        fetch(proxy_id="another", connection_id=1, request=1, response=2),
        row("client", proxy_id="another", connection_id=1, client_id="search", at_us=1),
        row("client", proxy_id="another", connection_id=1, client_id=None, at_us=2),
        fetch(connection_id=9, request=0, response=7),
    )

    saved = {each["client_id"]: each for each in savings(ledger, by=["client_id"]).collect()}

    assert {client: each["saved_bytes"] for client, each in saved.items()} == {
        "billing": 1_600,
        "search": -3,
        None: -7,
    }
    assert (saved["billing"]["is_sampled"], saved["search"]["is_sampled"]) == (True, False)


def test_a_topic_has_its_records_and_its_partitions_share_of_all_else(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        # 100 bytes of requests and 300 of answers beside 700 of records, which were sent directly and actually.
        exchange(source_bytes=700, sources=[source("busy", 1, 700), source("idle", 2, 0), source(None, 1, 0)]),
        fetch(request=40, response=760, record_bytes=700),
        exchange(connection_id=2, request=30, response=20, sources=[source("idle", 1, 0)]),
        exchange(connection_id=3, request=8, response=0),
    )

    saved = {each["topic"]: each for each in savings(ledger, by=["topic"]).collect()}

    assert {topic: (each["direct_bytes"], each["actual_bytes"]) for topic, each in saved.items()} == {
        "busy": (100 + 700, 25 + 700),
        "idle": (200 + 50, 50),
        None: (100 + 8, 25),
    }
    assert saved["busy"]["is_modelled"] is True
    assert sum(each["saved_bytes"] for each in saved.values()) == 1_100 + 50 + 8 - 800


def test_a_topic_that_is_alone_on_its_connections_is_exact(spark: SparkSession) -> None:
    ledger = ledger_of(spark, exchange(sources=[source("t", 5, 100)]), fetch())

    (alone,) = savings(ledger, by=["topic", "client_id"]).collect()

    assert (alone["topic"], alone["client_id"], alone["saved_bytes"]) == ("t", "billing", 160)
    assert alone["is_modelled"] is False
