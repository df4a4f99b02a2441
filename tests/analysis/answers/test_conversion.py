from typing import Any

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.answers.conversion import conversion
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row


def source(topic: str | None, record_bytes: int, node: int = 1) -> Row:
    racks = {"rack": None, "leader_rack": None, "wanted": 1, "request_share_bytes": 20}
    return racks | {"topic": topic, "node": node, "leader_node": node, "bytes": record_bytes}


def answer(*sources: Row, **fields: Any) -> Row:
    converted = {
        "converted_in_bytes": 1_000,
        "converted_out_bytes": 1_500,
        "converted_records": 10,
        "padding_bytes": 500,
        "conversion_cpu_us": 2_000,
        "convert_us": 3_000,
    }
    speaks = {"client_id": "old", "software": "Sarama", "fetch_version": 2, "converted_to": 1}
    return row("exchange", sources=list(sources), **speaks | converted | fields)


def test_conversion_costs_are_summed_by_client_and_topic(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        answer(source("t", 400, node=1), source("t", 600, node=2), source("u", 0)),
        answer(source("t", 1_000), connection_id=2, weight=3.0),
        answer(source("t", 400), source("u", 600)),
        answer(source(None, 1_000), converted_to=0),
        row("exchange", client_id="new", source_bytes=10),
    )

    rows = {(each["topic"], each["converted_to"]): each for each in conversion(ledger).collect()}

    assert {key: (each["connections"], each["exchanges"]) for key, each in rows.items()} == {
        ("t", 1): (2, 4),
        (None, 1): (1, 1),
        (None, 0): (1, 1),
    }
    assert rows["t", 1].asDict() == {
        "cluster_id": "cluster",
        "client_id": "old",
        "software": "Sarama",
        "fetch_version": 2,
        "converted_to": 1,
        "topic": "t",
        "connections": 2,
        "exchanges": 4,
        "records": 40,
        "in_bytes": 4_000,
        "out_bytes": 6_000,
        "padding_bytes": 2_000,
        "cpu_s": 0.008,
        "waited_s": 0.012,
        "padding_share": 0.25,
        "expansion": 1.5,
        "cpu_s_per_gb": pytest.approx(2_000),
    }
