"""Answers about a ledger in which 20 clients share fetches, compared with sums of its rows in plain Python."""

from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.answers.savings import savings
from proxy.analysis.answers.zones import Prices, zones
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.whatif.racks import racks
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

CLIENTS = 20
LARGE, SMALL = 10_000, 4_000
"""The records of two fetches: all clients get the large one, and the first five also the small one."""


def exchange(connection_id: int, record_bytes: int, wanted: int, **fields: Any) -> Row:
    """A client's fetch, which got its records from broker 1 in rack b; the leader is broker 2 in rack c."""
    where = {"topic": "t", "node": 1, "rack": "b", "leader_node": 2, "leader_rack": "c"}
    source = where | {"wanted": wanted, "bytes": record_bytes, "request_share_bytes": 20 * wanted}
    sizes = {"direct_request_bytes": 50 + 20 * wanted, "direct_response_bytes": 80 * wanted + record_bytes}
    columns = {"client_id": f"client-{connection_id}", "reader_rack": "a", "source_bytes": record_bytes}
    return row("exchange", connection_id=connection_id, sources=[source], **columns | sizes | fields)


def fetch(connection_id: int | None, record_bytes: int, **fields: Any) -> Row:
    fields = {"node": 1, "rack": "b", "client_fetches": CLIENTS} | fields
    sizes = {"request_bytes": 60, "response_bytes": 200 + record_bytes, "record_bytes": record_bytes}
    return row("fetch", connection_id=connection_id, **sizes | fields)


def shared_rows() -> list[Row]:
    """Rows of a process whose clients share two fetches; of the others, one was dropped and one had no records."""
    return [
        *(exchange(number, LARGE, wanted=1 + number % 3) for number in range(CLIENTS)),
        *(exchange(number, SMALL, wanted=1) for number in range(5)),
        fetch(None, LARGE, fetcher_id="cache-1/1-long-poll"),
        fetch(None, SMALL, fetcher_id="cache-1/1-live", client_fetches=5),
        fetch(None, LARGE, fetcher_id="cache-1/1-long-poll", client_fetches=0, dropped_bytes=LARGE),
        fetch(None, 0, fetcher_id="cache-1/1-live", client_fetches=0),
    ]


def rows_of_others() -> list[Row]:
    """Rows of a process without sharing, and of a client that shares nothing with the others of its process."""
    unshared = {"client_id": "alone", "proxy_id": "other"}
    return [
        exchange(1, 500, 1, **unshared),
        fetch(1, 600, proxy_id="other", fetcher_id="1-long-poll", client_fetches=1, dropped_bytes=100),
        exchange(99, 300, 1, client_id="own-login"),
        fetch(99, 300, fetcher_id="1-long-poll", client_fetches=1),
    ]


@pytest.fixture
def ledger(spark: SparkSession) -> LedgerFrames:
    return ledger_of(spark, *shared_rows(), *rows_of_others())


def total(rows: list[Row], record: str, *names: str) -> int:
    return sum(each[name] for each in rows if each["record"] == record for name in names)


def test_savings_count_delivered_records_for_each_client_and_fetched_ones_once(ledger: LedgerFrames) -> None:
    rows = [*shared_rows(), *rows_of_others()]

    (result,) = savings(ledger, by=["cluster_id"]).collect()

    direct_bytes = total(rows, "exchange", "direct_request_bytes", "direct_response_bytes")
    actual_bytes = total(rows, "fetch", "request_bytes", "response_bytes")
    assert (result["direct_bytes"], result["actual_bytes"]) == (direct_bytes, actual_bytes)
    assert result["saved_bytes"] == direct_bytes - actual_bytes
    assert result["record_bytes"] == 2 * LARGE + SMALL + 600 + 300
    assert result["dropped_bytes"] == LARGE + 100
    assert result["delivered_bytes"] == CLIENTS * LARGE + 5 * SMALL + 500 + 300
    assert result["delivery_ratio"] == result["delivered_bytes"] / result["record_bytes"]
    assert result["is_modelled"] is False


def test_shared_fetches_are_attributed_to_clients_by_received_bytes(ledger: LedgerFrames) -> None:
    rows = shared_rows()
    of_client: dict[str, Fraction] = {}
    fetched, delivered = total(rows, "fetch", "record_bytes"), total(rows, "exchange", "source_bytes")
    talk_bytes = total(rows, "fetch", "request_bytes", "response_bytes") - fetched
    wanted = sum(each["sources"][0]["wanted"] for each in rows if each["record"] == "exchange")
    for each in rows:
        if each["record"] == "exchange":
            paid = Fraction(each["source_bytes"] * fetched, delivered)
            paid += Fraction(each["sources"][0]["wanted"] * talk_bytes, wanted)
            of_client[each["client_id"]] = of_client.get(each["client_id"], Fraction()) + paid

    found = {each["client_id"]: each for each in savings(ledger, by=["client_id"]).collect()}

    assert set(found) == {*of_client, "alone", "own-login"}
    for client_id, paid in of_client.items():
        assert found[client_id]["actual_bytes"] == pytest.approx(float(paid), abs=1), client_id
        assert found[client_id]["is_modelled"] is True
    assert (found["alone"]["actual_bytes"], found["alone"]["is_modelled"]) == (60 + 200 + 600, False)
    assert (found["own-login"]["actual_bytes"], found["own-login"]["is_modelled"]) == (60 + 200 + 300, False)


@pytest.mark.parametrize("dimension", ["client_id", "topic"])
def test_savings_of_clients_and_topics_sum_up_to_those_of_the_whole(ledger: LedgerFrames, dimension: Any) -> None:
    (whole,) = savings(ledger, by=["cluster_id"]).collect()

    parts = savings(ledger, by=[dimension]).collect()

    for name in ("direct_bytes", "actual_bytes", "saved_bytes", "record_bytes", "delivered_bytes", "fetches"):
        assert sum(each[name] for each in parts) == pytest.approx(whole[name], abs=len(parts)), name
    assert None not in {each[dimension] for each in parts}


def test_shared_fetches_without_client_fetches_stay_without_a_client(spark: SparkSession) -> None:
    ledger = ledger_of(spark, fetch(None, LARGE))

    (result,) = savings(ledger, by=["client_id"]).collect()

    assert (result["client_id"], result["actual_bytes"]) == (None, 260 + LARGE)


def test_shared_records_cross_racks_once(ledger: LedgerFrames) -> None:
    rows = [*shared_rows(), *rows_of_others()]

    (pair,) = zones(ledger, Prices(0.01, 0.0, 1, {("a", "c"): 0.03})).collect()

    assert (pair["source_rack"], pair["reader_rack"], pair["is_crossing"]) == ("b", "a", True)
    assert pair["bytes"] == total(rows, "fetch", "request_bytes", "response_bytes")
    assert pair["record_bytes"] == pair["closest_bytes"] == LARGE + SMALL + 500 + 300
    assert pair["cost"] == pytest.approx(pair["bytes"] * 0.01)
    assert pair["closest_saved"] == pytest.approx(pair["closest_bytes"] * (0.03 - 0.01))


def test_sources_that_are_not_listed_have_the_fetches_of_brokers_that_are_not_listed(spark: SparkSession) -> None:
    unlisted = {"topic": None, "node": -1, "rack": None, "leader_node": -1, "leader_rack": None}
    others = [
        row(
            "exchange",
            connection_id=number,
            sources=[unlisted | {"wanted": 1, "bytes": 600, "request_share_bytes": 0}],
        )
        for number in range(4)
    ]
    rows = [exchange(number, 400, 1) for number in range(4)]
    ledger = ledger_of(spark, *rows, *others, fetch(None, 400), fetch(None, 600, node=2))

    found = {each["source_rack"]: each["record_bytes"] for each in zones(ledger).collect()}

    assert (found["b"], found["unknown"]) == (400, 600)


def test_whatif_racks_counts_shared_records_once(ledger: LedgerFrames) -> None:
    (result,) = racks(ledger).collect()

    assert (result["reader_rack"], result["bytes"]) == ("a", LARGE + SMALL + 500 + 300)
    assert result["crossing_bytes"] == result["bytes"]
