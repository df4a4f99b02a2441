"""``sidefetch run`` as its users run it: how it starts, and how it ends."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from proxy.demo.client import connect
from proxy.demo.cluster import embedded_cluster
from tests.commands import Command, started
from tests.ports import free_port_range

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Command, str]]:
    """Sidefetch in front of a cluster, and where it listens."""
    port = free_port_range(4)
    bootstrap = f"127.0.0.1:{port}"
    options = ("--listen", bootstrap, "--broker-ports", f"{port + 1}-{port + 3}", "--grace", "60s")
    async with (
        embedded_cluster() as cluster,
        started("run", "--bootstrap-servers", cluster.bootstrap, *options) as sidefetch,
    ):
        await sidefetch.until("cluster-found")
        yield sidefetch, bootstrap


@pytest.mark.parametrize("number", SIGNALS)
async def test_the_first_signal_lets_the_clients_leave(number: signal.Signals) -> None:
    async with serving() as (sidefetch, bootstrap):
        async with connect(bootstrap) as client:
            await client.call("metadata", 5, {})
            sidefetch.signal(number)
            await sidefetch.until("draining")
            await client.call("metadata", 5, {})
        code = await sidefetch.end()

    assert code == 0, sidefetch.output
    assert "clients_left=0" in sidefetch.lines[-1]
    assert "Traceback" not in sidefetch.output


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_second_signal_ends_it_now_whoever_is_there(number: signal.Signals) -> None:
    async with serving() as (sidefetch, bootstrap), connect(bootstrap) as client:
        await client.call("metadata", 5, {})
        sidefetch.signal(number)
        await sidefetch.until("draining")
        sidefetch.signal(number)
        with trio.fail_after(5):
            code = await sidefetch.end()

    assert code == 1, sidefetch.output
    assert "ended" in sidefetch.lines[-1]
    assert "Traceback" not in sidefetch.output


async def test_a_port_that_is_taken_is_named() -> None:
    async with (
        serving() as (sidefetch, bootstrap),
        started("run", "--bootstrap-servers", "127.0.0.1:1", "--listen", bootstrap) as another,
    ):
        code = await another.end()
        sidefetch.signal(signal.SIGTERM)
        await sidefetch.end()

    assert code == 2
    assert len(another.lines) == 1
    assert bootstrap in another.lines[0]
