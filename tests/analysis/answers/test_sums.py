"""Answers over a generated ledger, against sums over its rows one by one."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from proxy.analysis.answers.conversion import conversion
from proxy.analysis.answers.coverage import coverage
from proxy.analysis.answers.parts import union_rows
from proxy.analysis.answers.readiness import readiness
from proxy.analysis.answers.savings import savings
from proxy.analysis.answers.sessions import sessions
from proxy.analysis.answers.zones import zones
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of

MIX = FleetMix(losses=1e-2, duplicates=0, restart_h=0.2, hourly_news=400, hourly_evictions=1, hourly_resets=1)
SIDECARS = 8


def generated() -> list[Row]:
    """Return the rows of eight sidecars; two of them sampled a fourth of their exchanges and fetches."""
    rows: list[Row] = []
    for index in range(SIDECARS):
        for each in sidecar_rows(MIX, 1, index, 0.5):
            if index < 2 and each["record"] in ("exchange", "fetch"):
                each["weight"] = 4.0
            rows.append(each)
    return rows


def expected(rows: list[Row]) -> Iterator[tuple[str, float]]:
    """Return the sums that the answers must have, computed in Python."""
    inventories: dict[tuple[str, int], Row] = {}
    firsts: dict[str, int] = {}
    lasts: dict[str, int] = {}
    for each in rows:
        proxy_id, weight = each["proxy_id"], each["weight"]
        firsts.setdefault(proxy_id, each["seq_first" if each["record"] == "lost" else "seq"])
        lasts[proxy_id] = each["seq"]
        match each["record"]:
            case "exchange":
                yield (
                    "savings direct_bytes",
                    weight * (each["direct_request_bytes"] + each["direct_response_bytes"]),
                )
                yield "savings direct_looks", weight * each["direct_partition_looks"]
                yield "zones record_bytes", weight * sum(source["bytes"] for source in each["sources"])
                yield "conversion records", weight * each["converted_records"]
            case "fetch":
                yield "savings actual_bytes", weight * (each["request_bytes"] + each["response_bytes"])
                yield "savings actual_looks", weight * each["size"]
                yield "zones bytes", weight * (each["request_bytes"] + each["response_bytes"])
                is_within = each["kind"] == "incremental" and each["error"] not in (70, 71)
                yield "sessions incremental_fetches", weight * each["fetches"] * is_within
            case "session" if each["side"] == "upstream":
                yield f"sessions {each['event']}", 1
            case "client":
                inventories[proxy_id, each["connection_id"]] = each
            case "lost":
                yield "coverage lost_rows", each["count"]
        yield "coverage rows", each["record"] != "lost"
    yield "readiness requests", sum(used["requests"] for each in inventories.values() for used in each["apis"])
    yield "coverage numbers", sum(lasts[proxy_id] - first + 1 for proxy_id, first in firsts.items())


def test_answers_equal_sums_over_ledger_rows(spark: SparkSession) -> None:
    rows = generated()
    wanted: dict[str, float] = {}
    for name, value in expected(rows):
        wanted[name] = wanted.get(name, 0.0) + value
    ledger = ledger_of(spark, *rows)
    covered = coverage(ledger).withColumn("numbers", F.expr("rows + lost_rows + missing_rows"))
    asked = {
        "savings": savings(ledger, by=["day", "client_id", "topic"]),
        "zones": zones(ledger),
        "conversion": conversion(ledger),
        "sessions": sessions(ledger, by=["client_id"]).where("side = 'upstream'"),
        "readiness": readiness(ledger),
        "coverage": covered,
    }
    names = [name.split() for name in wanted]
    sums = [F.sum(F.when(F.col("answer") == answer, F.col(figure))) for answer, figure in names]
    reported = union_rows(
        frame.select(F.lit(answer).alias("answer"), *{figure for of, figure in names if of == answer})
        for answer, frame in asked.items()
    )

    (found,) = reported.agg(*sums).collect()

    assert len(wanted) == 17
    assert all(wanted.values())
    # Each row of savings is rounded by itself; the counts are far below the tolerance.
    assert dict(zip(wanted, found, strict=True)) == pytest.approx(wanted, rel=1e-4)
