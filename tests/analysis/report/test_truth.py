"""The figures of a report equal the bytes that taps saw in a conversation through the real proxy."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from pyspark.sql import SparkSession

from proxy.analysis.answers.zones import Prices
from proxy.analysis.ingest import read
from proxy.analysis.report.build import report_of
from proxy.analysis.report.files import as_json
from tests.conformance.raw import dial, tapped
from tests.conformance.talking import address_of
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.tap import SeenFetch

POLLS: Final = 5
RACK: Final = "b"


def bytes_of(fetches: list[SeenFetch]) -> int:
    return sum(fetch.request_bytes + fetch.response_bytes for fetch in fetches)


def rows(report: Any, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, by column."""
    tables = [each for section in report["sections"] for each in section["tables"]]
    return next(each["rows"] for each in tables if each["name"] == table)


Report = Callable[[SparkSession, Path, Path], Awaitable[Any]]


async def here(spark: SparkSession, ledger: Path, out: Path) -> Any:
    """Make the report with the Spark session of the tests."""
    report = await trio.to_thread.run_sync(
        lambda: as_json(report_of(read(spark, str(ledger), kept=True), Prices(0.01, 0.01)))
    )
    out.write_text(report, encoding="utf-8")
    return json.loads(report)


async def by_command(_: SparkSession, ledger: Path, out: Path) -> Any:
    """Make the report with the command, as users do."""
    command = [sys.executable, "-m", "proxy", "report", str(ledger), "--out", str(out)]
    run = partial(subprocess.run, command, capture_output=True, text=True, check=False, timeout=600)
    done = await trio.to_thread.run_sync(run)
    assert (done.returncode, done.stderr) == (0, "")
    assert f" in {out}" in done.stdout
    return json.loads(out.read_text(encoding="utf-8"))


async def converse(bootstrap: str, topic: str, leaders: dict[int, int]) -> int:
    """Read each partition at its leader, and poll for more that does not come; how many bytes the records were."""
    record_bytes = 0
    for partition, node in leaders.items():
        async with dial(await address_of(bootstrap, node)) as raw:
            offset = 0
            for _ in range(POLLS):
                wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                said = {"max_wait": 20, "min_bytes": 1, "max_bytes": 1 << 20}
                topics = [{"topic": topic, "partitions": [wanted]}]
                answers = await raw.call("fetch", 4, said | {"topics": topics})
                ((answer,),) = (response.partitions for response in answers.responses)
                record_bytes += len(answer.records or b"")
                offset = answer.high_watermark
    return record_bytes


@pytest.mark.kafka
@pytest.mark.parametrize("reported", [here, pytest.param(by_command, marks=pytest.mark.long)])
async def test_its_figures_are_the_bytes_that_went_over_the_wire(
    kafka4: KafkaCluster, spark: SparkSession, tmp_path: Path, reported: Report
) -> None:
    admin = Admin(kafka4)
    topic = admin.create_topic(unique("truth"), 3)
    admin.produce_known(topic, 300, 3)
    leaders = admin.leaders(topic)
    options = ("--ledger", str(tmp_path / "ledger"), "--rack", RACK, "--upstream-max-wait", "0s")
    with kafka4.tap() as brokers:
        with tapped(brokers.bootstrap, *options) as (sidefetch, clients, bootstrap):
            record_bytes = await converse(bootstrap, topic, leaders)
            eventually(lambda: all_given_up(brokers.answered()), "the end of the sessions with brokers")
            sidefetch.process.stop(10)
        at_client, at_brokers = clients.answered(), brokers.answered()
        assert at_brokers == brokers.fetches

    report = await reported(spark, tmp_path / "ledger", tmp_path / "report.json")

    (client,) = rows(report, "savings_clients")
    assert (client["exchanges"], client["direct_bytes"]) == (3 * POLLS, bytes_of(at_client)) == totals(at_client)
    assert (client["fetches"], client["actual_bytes"]) == totals(at_brokers)
    assert client["saved_bytes"] == bytes_of(at_client) - bytes_of(at_brokers)
    pairs = rows(report, "zones_pairs")
    racks = {broker.tap_port: broker.rack for broker in kafka4.brokers.values()}
    by_rack = {rack: bytes_of([each for each in at_brokers if racks[each.port] == rack]) for rack in racks.values()}
    assert {pair["source_rack"]: pair["bytes"] for pair in pairs} == {rack: n for rack, n in by_rack.items() if n}
    assert sum(pair["record_bytes"] for pair in pairs) == record_bytes > 0
    crossed = sum(by_rack.values()) - by_rack[RACK]
    assert sum(pair["cost"] for pair in pairs) == pytest.approx(2 * 0.01 * crossed / 2**30)
    about = report["about"]
    assert (about["bad_count"], about["lost_count"], about["proxy_count"]) == (0, 0, 1)
    lines = [line for file in (tmp_path / "ledger").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert about["row_count"] == len(lines)


def totals(fetches: list[SeenFetch]) -> tuple[int, int]:
    return len(fetches), bytes_of(fetches)


def all_given_up(fetches: list[SeenFetch]) -> bool:
    """Each session that a broker has granted was closed."""
    closed = {fetch.session_id for fetch in fetches if fetch.epoch == -1}
    return {fetch.granted_id for fetch in fetches if fetch.epoch == 0} <= closed
