"""The ledger of a running Sidefetch: the rows of its work, in complete files."""

import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.config import LedgerConfig
from proxy.demo.cluster import embedded_cluster
from proxy.errors import ConfigError
from proxy.events import ClientRecord, SessionRecord
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.observability.ledger import LedgerWriter
from proxy.net.observability.observers import ConnectionInfo
from tests.disks import nearly_full
from tests.net.ledger_rows import of, total, written
from tests.net.proxied import Proxied, ask, configured, running
from tests.telemetry.asked import TOPOLOGY, exchange, fetch


@attrs.define
class Kept:
    """A ledger that the test writes to."""

    ledger: LedgerWriter
    folder: Path
    log: io.StringIO
    who: ConnectionInfo = attrs.field(factory=lambda: ConnectionInfo(1, "127.0.0.1:5000", TOPOLOGY))


def ledger_in(folder: Path, **options: Any) -> Kept:
    stream = io.StringIO()
    config = LedgerConfig(folder=str(folder), **options)
    return Kept(LedgerWriter(config, "b", Log("text", "info", stream), Counter()), folder, stream)


async def test_each_record_becomes_a_row_numbered_without_a_gap(tmp_path: Path) -> None:
    kept = ledger_in(tmp_path / "made")
    async with kept.ledger.running():
        kept.ledger.observe(kept.who, exchange())
        kept.ledger.observe(kept.who, SessionRecord(1, 5, "created", 3))
        kept.ledger.observe(kept.who, fetch())
        kept.ledger.observe(kept.who, ClientRecord("app", "java 2.0.1", False, ()))
        kept.ledger.observe(kept.who, exchange())
        kept.ledger.end_connection(kept.who)

    rows = written(kept.folder)

    assert [row["record"] for row in rows] == ["exchange", "session", "fetch", "client", "exchange"]
    assert [row["seq"] for row in rows] == list(range(5))
    assert [row["software"] for row in of(rows, "exchange")] == [None, "java 2.0.1"]
    assert {row["proxy_id"] for row in rows} == {kept.ledger.proxy_id}
    assert {row["reader_rack"] for row in of(rows, "exchange")} == {"b"}


async def test_a_row_is_in_the_file_within_a_second_or_so(tmp_path: Path) -> None:
    kept = ledger_in(tmp_path)
    async with kept.ledger.running():
        kept.ledger.observe(kept.who, exchange())
        with trio.fail_after(1.5):
            while not any(path.stat().st_size for path in tmp_path.iterdir()):
                await trio.sleep(0.01)


async def test_only_exchanges_and_fetches_are_sampled(tmp_path: Path) -> None:
    kept = ledger_in(tmp_path, sample=0.1)
    async with kept.ledger.running():
        for _ in range(1000):
            kept.ledger.observe(kept.who, exchange())
            kept.ledger.observe(kept.who, fetch())
            kept.ledger.observe(kept.who, SessionRecord(1, 5, "created", 3))

    rows = written(tmp_path)

    assert len(of(rows, "session")) == 1000
    assert {row["weight"] for row in of(rows, "session")} == {1.0}
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    for record in ("exchange", "fetch"):
        assert sum(row["weight"] for row in of(rows, record)) == pytest.approx(1000, rel=0.5)


async def test_missing_ledger_folder_blocks_nothing_and_dropped_rows_are_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    kept = ledger_in(folder, memory_bytes=64 * 1024)
    shutil.rmtree(folder)
    async with kept.ledger.running():
        for _ in range(1000):
            kept.ledger.observe(kept.who, exchange())
        with trio.fail_after(3):
            while "ledger-write-failed" not in kept.log.getvalue():
                await trio.sleep(0.01)
        folder.mkdir()
        kept.ledger.observe(kept.who, exchange())
        last = kept.ledger.rows

    rows = written(folder)

    (lost,) = of(rows, "lost")
    assert (lost["reason"], lost["seq_first"], lost["count"]) == ("full", 0, lost["seq_last"] + 1)
    assert [row["seq"] for row in rows] == list(range(lost["seq_last"], last))
    assert kept.ledger.lost_rows == lost["count"] > 0
    assert "remedy=" in kept.log.getvalue()


async def test_full_disk_blocks_nothing_and_dropped_ledger_rows_are_recorded(tmp_path: Path) -> None:
    with nearly_full(tmp_path, 64 * 1024) as make_room:
        kept = ledger_in(tmp_path, memory_bytes=64 * 1024)
        async with kept.ledger.running():
            for _ in range(600):
                kept.ledger.observe(kept.who, exchange())
                await trio.sleep(0.001)
            with trio.fail_after(3):
                while "ledger-write-failed" not in kept.log.getvalue():
                    await trio.sleep(0.01)
            make_room()

        rows = written(tmp_path)

    reported = {seq for row in of(rows, "lost") for seq in range(row["seq_first"], row["seq_last"] + 1)}
    there = {row["seq"] for row in of(rows, "exchange")}
    assert reported
    assert reported | there == set(range(600))
    assert not reported & there


async def test_files_are_finished_by_size_while_rows_come(tmp_path: Path) -> None:
    kept = ledger_in(tmp_path, file_bytes=64 * 1024, max_bytes=1024**2)
    async with kept.ledger.running():
        for _ in range(300):
            kept.ledger.observe(kept.who, exchange())
        with trio.fail_after(3):
            while len(written(tmp_path)) < 200:
                await trio.sleep(0.01)

    assert [row["seq"] for row in written(tmp_path)] == list(range(300))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 70 * 1024


async def test_oldest_ledger_files_are_deleted_first_and_recorded_as_lost(tmp_path: Path) -> None:
    kept = ledger_in(tmp_path, file_bytes=64 * 1024, max_bytes=192 * 1024)
    async with kept.ledger.running():
        for _ in range(1000):
            kept.ledger.observe(kept.who, exchange())

    rows = written(tmp_path)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 192 * 1024
    lost = of(rows, "lost")
    assert {row["reason"] for row in lost} == {"max-size"}
    covered = {seq for row in rows for seq in range(row.get("seq_first", 0) or row["seq"], row["seq"] + 1)}
    assert covered >= set(range(min(covered), 1000))


@pytest.mark.parametrize("obstacle", ["file", "parent"])
def test_ledger_folder_that_cannot_be_created_is_reported_at_startup(tmp_path: Path, obstacle: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" if obstacle == "file" else tmp_path / "file" / "below"
    config = attrs.evolve(configured("127.0.0.1:1"), ledger=LedgerConfig(folder=str(path)))

    with pytest.raises(ConfigError, match=r"ledger: .* cannot be created"):
        Proxy(config, Log("text", "info", io.StringIO()))


async def test_ledger_is_disabled_by_default() -> None:
    proxy = Proxy(configured("127.0.0.1:1"), Log("text", "info", io.StringIO()))

    assert proxy.outputs.ledger is None


# ----------------------------------------------------------------------------------------- through a proxy


async def read_some(it: Proxied, polls: int = 6) -> None:
    """Records, then polls that bring nothing, by one client."""
    async with it.client(1) as client:
        it.cluster.append("t", 0, [b"record"] * 10)
        await client.call("fetch", 4, ask({0: 0, 1: 0, 2: 0}))
        for _ in range(polls):
            await client.call("fetch", 4, ask({0: 10, 1: 0, 2: 0}))


async def test_fetch_rows_match_the_counters_of_the_brokers(tmp_path: Path) -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), ledger=LedgerConfig(folder=str(tmp_path)))
        async with running(cluster, config, upstream_max_wait_s=0, rack="b") as it:
            await read_some(it)
            it.proxy.stop()
            with trio.fail_after(5):
                while not it.logged("ledger-closed"):
                    await trio.sleep(0.01)
        counters = cluster.counters

    fetches = of(written(tmp_path), "fetch")

    assert total(fetches, "record_bytes") == counters.record_bytes > 0
    assert total(fetches, "fetches") == counters.fetches
    assert fetches[-1]["epoch_last"] == -1
    assert len(fetches) < total(fetches, "fetches")
    assert {row["cluster_id"] for row in fetches} != {None}


async def test_the_last_rows_are_those_of_the_sessions_that_end_with_it(tmp_path: Path) -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), ledger=LedgerConfig(folder=str(tmp_path)), grace_s=0)
        async with running(cluster, config, upstream_max_wait_s=0) as it, it.client(1) as client:
            for _ in range(3):
                await client.call("fetch", 4, ask({0: 0}))
            it.proxy.stop()
            with trio.fail_after(5):
                while not it.logged("ledger-closed"):
                    await trio.sleep(0.01)

    sessions = of(written(tmp_path), "session")

    assert [row["event"] for row in sessions] == ["created", "closed"]
    assert sessions[1]["created_us"] is not None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
