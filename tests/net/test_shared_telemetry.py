"""Clients that share reads, as the ledger and the metrics of a running proxy count them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import attrs
import pytest
import trio

from proxy.config import Address, AdminConfig, LedgerConfig
from proxy.demo.cluster import embedded_cluster
from proxy.telemetry.ledger import Row
from tests.net.administered import answer_to, state_of
from tests.net.consumers import fetched
from tests.net.ledger_rows import of, total, written
from tests.net.proxied import Proxied, configured, running
from tests.ports import free_port_range

Mode = Literal["off", "client-id", "principal"]
CLIENTS = 20
VALUES = [b"x" * 1000] * 10


@asynccontextmanager
async def sharing(folder: Path, mode: Mode = "principal") -> AsyncIterator[Proxied]:
    """A proxy with ``--share-reads`` *mode* and a ledger in *folder*; it has stopped at the end."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1, 2, 3]])
        config = configured(cluster.bootstrap)
        upstream = attrs.evolve(config.upstream, share_reads=mode)
        admin = AdminConfig(Address("127.0.0.1", free_port_range(1)))
        ledger = LedgerConfig(folder=str(folder))
        config = attrs.evolve(config, upstream=upstream, ledger=ledger, admin=admin, grace_s=1)
        async with running(cluster, config, rack="b") as it:
            yield it
            it.proxy.stop()
            with trio.fail_after(10):
                while not it.logged("ledger-closed"):
                    await trio.sleep(0.01)


async def read_once(it: Proxied, client_id: str, offset: int, max_wait: int) -> int:
    """Return the bytes of records of one fetch on a connection of its own."""
    async with it.client(1) as connection:
        body = await fetched(connection, client_id, {0: offset}, 4, max_wait=max_wait)
        return len(body.responses[0].partitions[0].records or b"")


async def read_by_all(it: Proxied) -> list[int]:
    """Have 20 clients wait for the same records; return the bytes that each of them gets."""
    sizes: list[int] = []

    async def read(number: int) -> None:
        sizes.append(await read_once(it, f"client-{number}", 0, 10_000))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(read, number)
            while len(it.proxy.clients) < CLIENTS:
                await trio.sleep(0.01)
            await trio.sleep(0.5)  # until all of them wait for one long poll
            it.cluster.append("t", 0, VALUES)
    return sizes


def with_kept_records(rows: list[Row]) -> list[Row]:
    """The fetches whose records logs took; others bring records of a log that another fetcher fills meanwhile."""
    return [row for row in of(rows, "fetch") if row["record_bytes"] > row["dropped_bytes"]]


async def test_fetch_that_clients_share_has_one_row_without_a_client(tmp_path: Path) -> None:
    async with sharing(tmp_path) as it:
        sizes = await read_by_all(it)
        from_brokers = it.cluster.counters

    rows = written(tmp_path)
    (row,) = with_kept_records(rows)

    assert len(set(sizes)) == 1
    assert row["record_bytes"] == sizes[0]
    assert row["connection_id"] is None
    assert row["client_fetches"] == CLIENTS
    assert (row["node"], row["rack"], row["cluster_id"] is not None) == (1, "a", True)
    assert {each["connection_id"] for each in of(rows, "fetch")} == {None}
    assert {each["fetcher_id"].split("/")[1] for each in of(rows, "fetch")} <= {
        f"1-{kind}" for kind in ("long-poll", "live", "catch-up")
    }
    assert total(of(rows, "fetch"), "record_bytes") == from_brokers.record_bytes


async def test_rows_of_client_fetches_attribute_shared_records_to_their_clients(tmp_path: Path) -> None:
    async with sharing(tmp_path) as it:
        sizes = await read_by_all(it)

    delivered = {row["client_id"]: row["source_bytes"] for row in of(written(tmp_path), "exchange")}

    assert delivered == {f"client-{number}": sizes[0] for number in range(CLIENTS)}


async def test_fetch_without_sharing_keeps_the_row_of_its_connection(tmp_path: Path) -> None:
    async with sharing(tmp_path, "off") as it:
        it.cluster.append("t", 0, VALUES)
        for number in range(2):
            await read_once(it, f"client-{number}", 0, 1_000)
        async with it.client(1) as idle:
            await fetched(idle, "idle", {0: 10}, 4, max_wait=50)
            it.cluster.append("t", 0, VALUES)  # answers the long poll while no client fetch waits
            with trio.fail_after(5):
                while it.reads[-1].record_bytes == 0:
                    await trio.sleep(0.01)

    rows = written(tmp_path)

    connections = {row["connection_id"] for row in of(rows, "exchange")}
    assert len(connections) == 3
    assert {row["connection_id"] for row in of(rows, "fetch")} == connections
    assert {row["fetcher_id"] for row in of(rows, "fetch")} <= {"1-long-poll", "1-live", "1-catch-up"}
    assert [row["client_fetches"] for row in of(rows, "fetch")] == [row["fetches"] for row in of(rows, "fetch")]


@pytest.mark.parametrize("mode", ["client-id", "principal"])
async def test_fetcher_ids_of_shared_caches_are_unique_in_the_process(tmp_path: Path, mode: Mode) -> None:
    async with sharing(tmp_path, mode) as it:
        it.cluster.append("t", 0, VALUES)
        for client_id in ("one", "other"):
            await read_once(it, client_id, 0, 1_000)

    caches = {row["fetcher_id"].split("/")[0] for row in of(written(tmp_path), "fetch")}

    assert len(caches) == (2 if mode == "client-id" else 1)


async def test_metrics_and_page_have_bytes_from_brokers_and_bytes_delivered(tmp_path: Path) -> None:
    async with sharing(tmp_path) as it:
        sizes = await read_by_all(it)
        state = await state_of(it)
        from_brokers = it.cluster.counters.record_bytes
        metrics = (await answer_to(it, "/metrics"))[2]

    shared = {
        direction: float(value)
        for direction, value in re.findall(
            r'^sidefetch_shared_records_io_bytes_total{.*direction="(\w+)".*} (\S+)$', metrics, re.MULTILINE
        )
    }
    assert shared == {"fetched": from_brokers, "delivered": sum(sizes)}
    total = state["total"]
    assert (total["shared_fetched_bytes"], total["shared_delivered_bytes"]) == (from_brokers, sum(sizes))
    assert total["crossed_bytes"] == total["record_bytes"] == from_brokers  # the broker is in another rack
    assert (state["share_reads"], state["delivery_ratio"]) == (
        "principal",
        pytest.approx(sum(sizes) / from_brokers, abs=1e-3),
    )
    talk_bytes = total["client_talk_bytes"] - total["broker_talk_bytes"]
    assert total["saved_bytes"] == talk_bytes + sum(sizes) - from_brokers


async def test_page_has_no_shared_bytes_without_sharing(tmp_path: Path) -> None:
    async with sharing(tmp_path, "off") as it:
        it.cluster.append("t", 0, VALUES)
        await read_once(it, "client", 0, 1_000)
        state = await state_of(it)

    assert (state["share_reads"], state["delivery_ratio"]) == ("off", None)
    assert state["total"]["record_bytes"] > 0
    assert (state["total"]["shared_fetched_bytes"], state["total"]["shared_delivered_bytes"]) == (0, 0)
