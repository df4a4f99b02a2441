"""The costs that an upgrade ends, on rows made by hand."""

from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from proxy.analysis.whatif.upgrade import RESULT, upgrade
from tests.analysis.rows import columns, ledger_of, row

OLD: dict[str, Any] = {"client_id": "billing", "software": "speaks as Kafka 0.9", "connection_id": 1}
NEW: dict[str, Any] = {"client_id": "shop", "software": "apache-kafka-java 4.3.1", "connection_id": 2}


def used(key: int, version: int, upgraded_to: int, requests: int) -> dict[str, int]:
    return {"key": key, "version": version, "upgraded_to": upgraded_to, "requests": requests, "bytes": 0}


def upgraded(spark: SparkSession, **fields: Any) -> dict[str, SparkRow]:
    converted = {"converted_in_bytes": 1000, "conversion_cpu_us": 7, "padding_bytes": 5}
    frame = upgrade(
        ledger_of(
            spark,
            row("exchange", **OLD, **converted, with_data=2, named=50, answered=50, wanted=50, weight=2.0),
            row("exchange", **OLD, exchanges=10, named=500, answered=500, wanted=500),
            row("exchange", **NEW, client_session_id=5, exchanges=10, wanted=500),
            row("client", seq=1, **OLD, apis=[used(1, 1, 18, 5), used(3, 0, 0, 1)]),
            row("client", seq=2, **OLD, apis=[used(1, 1, 18, 12), used(2, 0, 1, 3), used(3, 0, 0, 1)]),
            row("client", seq=3, **NEW, apis=[used(1, 11, 18, 10)]),
        ),
        **fields,
    )
    assert columns(frame.schema) == columns(RESULT)
    return {each["client_id"]: each for each in frame.collect()}


def test_conversions_upgrades_and_full_fetches_are_reported_by_client(spark: SparkSession) -> None:
    clients = upgraded(spark)

    old = clients["billing"]
    assert old["is_upgraded"]
    assert (old["converted_bytes"], old["conversion_cpu_us"], old["padding_bytes"]) == (2000, 14, 10)
    assert old["upgraded_requests"] == 15
    assert (old["full_fetches"], old["named_partitions"], old["answered_partitions"]) == (12, 596, 596)
    assert [clients["shop"][name] for name in RESULT.names[4:]] == [0] * 7


def test_upgraded_clients_are_selected_by_name_or_software(spark: SparkSession) -> None:
    by_name = upgraded(spark, client_ids=["shop"])
    by_software = upgraded(spark, software=["speaks as Kafka 0.9"])

    assert {name: each["is_upgraded"] for name, each in by_name.items()} == {"billing": False, "shop": True}
    assert {name: each["is_upgraded"] for name, each in by_software.items()} == {"billing": True, "shop": False}


def test_full_fetches_stay_with_clients_that_keep_no_sessions(spark: SparkSession) -> None:
    assert upgraded(spark, keeps_sessions=False)["billing"]["full_fetches"] == 0
