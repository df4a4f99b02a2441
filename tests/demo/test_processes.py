"""Programs that the demo starts end with it, and say why when they fail."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from proxy.demo.client import connect
from proxy.demo.cluster import embedded_cluster
from proxy.demo.processes import DemoFailed, find_free_ports, is_serving, reader, run_program, sidefetch

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
)


async def test_a_program_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STUBBORN]
    with trio.fail_after(5):
        async with run_program(command, log=tmp_path / "log", stdout=subprocess.PIPE, kill=True) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive_some()).startswith(b"1")

    assert process.returncode == -9


async def test_program_output_is_written_to_its_log(tmp_path: Path) -> None:
    async with run_program([sys.executable, "-c", "raise SystemExit('why')"], log=tmp_path / "log") as process:
        await process.wait()

    assert (tmp_path / "log").read_text() == "why\n"


async def test_failed_reader_is_reported_with_its_output() -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(DemoFailed, match=r"exit code 1\n(.|\n)*127\.0\.0\.1"), flatten_subgroups=True
    ):
        async with reader(f"127.0.0.1:{find_free_ports(1)}", "t", 1):
            pytest.fail("there is nothing to read")


async def test_reader_reports_records_and_costs_of_its_fetches() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", partitions=30)
        async with reader(cluster.bootstrap, "t", 30) as heard:
            cluster.append("t", 7, [b"x", b"y"])
            with trio.fail_after(10):
                while heard.records < 2:
                    await trio.sleep(0.05)
            reported, counted = heard.cost, cluster.counters

    assert reported.fetches <= counted.fetches <= reported.fetches + 20
    assert reported.to_brokers / reported.fetches == pytest.approx(
        counted.fetch_request_bytes / counted.fetches, rel=0.01
    )
    assert reported.named == 10 * reported.fetches


async def test_sidefetch_without_reachable_cluster_fails_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.demo.processes._START_S", 2.0)
    with pytest.RaisesGroup(pytest.RaisesExc(DemoFailed, match="Sidefetch does not serve"), flatten_subgroups=True):
        async with sidefetch(f"127.0.0.1:{find_free_ports(1)}"):
            pytest.fail("there is nothing to serve")


async def test_connect_uses_first_reachable_broker() -> None:
    dead = find_free_ports(1)
    async with embedded_cluster(brokers=1) as cluster:
        assert await is_serving(cluster.bootstrap)
        async with connect(f"127.0.0.1:{dead},{cluster.bootstrap}") as connection:
            assert len((await connection.call("metadata", 12, {"topics": []})).brokers) == 1
    assert not await is_serving(f"127.0.0.1:{dead}")
