from typing import Any

from pyspark.sql import SparkSession

from proxy.analysis.answers.readiness import SERVED_FROM, readiness
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

PRODUCE, FETCH, METADATA, JOIN_GROUP = 0, 1, 3, 11


def used(key: int, version: int, requests: int = 1, size: int = 100, upgraded_to: int | None = None) -> Row:
    upgraded = version if upgraded_to is None else upgraded_to
    return {"key": key, "version": version, "upgraded_to": upgraded, "requests": requests, "bytes": size}


def client(client_id: str | None, *apis: Row, **fields: Any) -> Row:
    return row("client", client_id=client_id, software="some 1.0", apis=list(apis), **fields)


def test_served_from_equals_minimum_versions_of_kafka_4() -> None:
    # The ranges of ApiVersions responses of Kafka 4.3 and 4.4; for Produce, the versions that they serve.
    expected = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1}
    assert {key: SERVED_FROM[key] for key in expected} == expected
    assert set(SERVED_FROM) - set(expected) == {38, 39, 40, 41}
    assert JOIN_GROUP not in SERVED_FROM


def test_those_that_break_come_first_by_their_traffic(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        client("old", used(FETCH, 3, 1), seq=1, connection_id=1),
        client("old", used(FETCH, 3, 7, 700, upgraded_to=4), used(METADATA, 0, 1, 50), seq=2, connection_id=1),
        client("old", used(FETCH, 3, 2, 200, upgraded_to=4), seq=3, connection_id=2),
        row("exchange", connection_id=2, client_id="old", response_bytes=1_000, weight=2.0),
        client(None, used(PRODUCE, 2), used(FETCH, 4), used(JOIN_GROUP, 0), seq=4, connection_id=3),
        client("new", used(FETCH, 18, 1, 10**9), seq=5, connection_id=4),
    )

    rows = readiness(ledger).collect()

    assert [(each["client_id"], each["client_bytes"], each["api_key"], each["breaks"]) for each in rows] == [
        ("old", 2_950, FETCH, True),
        ("old", 2_950, METADATA, False),
        (None, 300, PRODUCE, True),
        (None, 300, FETCH, False),
        (None, 300, JOIN_GROUP, False),
        ("new", 10**9, FETCH, False),
    ]
    assert rows[0].asDict() == {
        "cluster_id": "cluster",
        "client_id": "old",
        "software": "some 1.0",
        "client_breaks": True,
        "client_bytes": 2_950,
        "api_key": FETCH,
        "api": "Fetch",
        "version": 3,
        "upgraded_to": 4,
        "breaks": True,
        "why": "Kafka 4 serves Fetch from v4 on, not v3 (KIP-896); clients of this version cannot read its records"
        " (KIP-724)",
        "connections": 2,
        "requests": 9,
        "request_bytes": 900,
    }
    assert rows[1]["api"] == "Metadata"
    assert [each["why"] for each in rows if not each["breaks"]] == [None] * 4
