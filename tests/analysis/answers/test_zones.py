import pytest
from pyspark.sql import SparkSession

from proxy.analysis.answers.zones import Prices, zones
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

GB = 2**30


def source(rack: str | None, leader_rack: str | None, record_bytes: int) -> Row:
    nodes = {"topic": "t", "node": 1, "leader_node": 2, "wanted": 1, "request_share_bytes": 20}
    return nodes | {"rack": rack, "leader_rack": leader_rack, "bytes": record_bytes}


def test_zones_reports_bytes_and_cost_by_rack_pair(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        row("exchange", reader_rack="a", sources=[source("a", "b", 3 * GB), source("b", "b", GB)], weight=2.0),
        row("exchange", reader_rack="a", sources=[source("a", "a", 5), source(None, None, 7)]),
        row("exchange", reader_rack="a", sources=[source("b", "c", 1), source("c", None, 1)]),
        row("fetch", rack="a", request_bytes=GB, response_bytes=3 * GB),
        row("fetch", rack="b", request_bytes=GB, response_bytes=GB, weight=2.0),
        row("fetch", rack="a", request_bytes=1, response_bytes=1, proxy_id="of nobody"),
    )
    cheap = Prices(of_pairs={("a", "b"): 0.5, ("a", "a"): 0.25})

    rows = {(each["source_rack"], each["reader_rack"]): each for each in zones(ledger).collect()}
    cheaper = {(each["source_rack"], each["reader_rack"]): each for each in zones(ledger, cheap).collect()}

    assert {pair: (each["bytes"], each["record_bytes"], each["is_crossing"]) for pair, each in rows.items()} == {
        ("a", "a"): (4 * GB, 6 * GB + 5, False),
        ("b", "a"): (4 * GB, 2 * GB + 1, True),
        ("c", "a"): (0, 1, True),
        ("unknown", "a"): (0, 7, None),
        ("a", "unknown"): (2, 0, None),
    }
    assert {pair: each["closest_bytes"] for pair, each in rows.items()} == {
        ("a", "a"): 6 * GB,
        ("b", "a"): 1,  # neither here nor where its leader is: nothing is gained
        ("c", "a"): 0,
        ("unknown", "a"): 0,
        ("a", "unknown"): 0,
    }
    a_a, b_a = ("a", "a"), ("b", "a")
    assert [rows[a_a]["cost"], rows[a_a]["closest_saved"]] == [0, pytest.approx(6 * 0.02)]
    assert [rows[b_a]["cost"], rows[b_a]["closest_saved"]] == [pytest.approx(4 * 0.02), 0]
    assert [cheaper[a_a]["cost"], cheaper[a_a]["closest_saved"]] == pytest.approx([4 * 0.25, 6 * (0.5 - 0.25)])
    assert cheaper[b_a]["cost"] == pytest.approx(4 * 0.5)


def test_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="out_per_gb"):
        Prices(out_per_gb=-0.01)
