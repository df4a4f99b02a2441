"""``sidefetch run`` as its users run it: how it starts, and how it ends."""

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from proxy.demo.client import connect
from proxy.demo.cluster import embedded_cluster
from tests.commands import Command, started
from tests.ports import free_port_range

ROOT = Path(__file__).parents[2]
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@asynccontextmanager
async def serving(*more: str, env: Mapping[str, str] | None = None) -> AsyncIterator[tuple[Command, str]]:
    """Sidefetch in front of a cluster, and where it listens."""
    port = free_port_range(4)
    bootstrap = f"127.0.0.1:{port}"
    options = ("--listen", bootstrap, "--broker-ports", f"{port + 1}-{port + 3}", "--grace", "60s", *more)
    async with (
        embedded_cluster() as cluster,
        started("run", "--bootstrap-servers", cluster.bootstrap, *options, env=env) as sidefetch,
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
    assert "shutdown-forced" in sidefetch.lines[-1]
    assert "Traceback" not in sidefetch.output


async def test_a_port_that_is_taken_is_named() -> None:
    async with (
        serving() as (sidefetch, bootstrap),
        started(
            *("run", "--bootstrap-servers", "127.0.0.1:1", "--listen", bootstrap, "--log-level", "warning")
        ) as another,
    ):
        code = await another.end()
        sidefetch.signal(signal.SIGTERM)
        await sidefetch.end()

    assert code == 2
    assert len(another.lines) == 1
    assert bootstrap in another.lines[0]


async def is_bypassed(bootstrap: str) -> bool:
    """Return whether a client gets a fetch session: brokers grant it, Sidefetch is configured not to."""
    async with connect(bootstrap) as client:
        asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": 0}
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        response = await client.call(
            "fetch", 11, {**asked, "topics": [{"topic": "not-there", "partitions": [part]}]}
        )
        return bool(response.session_id)


async def test_settings_are_read_again_on_a_hang_up_and_wrong_ones_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sidefetch.toml"
    file.write_text('bypass = "client:another"')

    async with serving("--config", str(file), "--client-sessions", "0") as (sidefetch, bootstrap):

        async def hang_up(text: str, until: str) -> str:
            before = len(sidefetch.lines)
            file.write_text(text)
            sidefetch.signal(signal.SIGHUP)
            await sidefetch.until_again(until)
            return "\n".join(sidefetch.lines[before:])

        assert not await is_bypassed(bootstrap)
        reported = await hang_up(
            'bypass = "client:sidefetch-demo"\n[upstream]\nshare-reads-except = "topic:t"\n[log]\nlevel = "debug"',
            "settings-reloaded",
        )
        assert "changed=share-reads-except,log-level,bypass" in reported
        assert "share_reads_except=topic:t" in reported
        assert await is_bypassed(bootstrap)
        for wrong in ('bypass = "everybody"', "bypass = [", 'bypass = ""\nbypas = ""'):
            assert file.name in await hang_up(wrong, "settings-rejected")
            assert await is_bypassed(bootstrap)
        reported = await hang_up('bypass = ""\nverify = 1\n[log]\nformat = "json"', "restart-required")
        assert "options=log-format,verify" in reported
        assert not await is_bypassed(bootstrap)
        file.write_text('bypass = "all"\n[log]\nlevel = "error"')
        sidefetch.signal(signal.SIGHUP)
        with trio.fail_after(10):
            while not await is_bypassed(bootstrap):
                await trio.sleep(0.05)
        file.unlink()
        sidefetch.signal(signal.SIGHUP)
        await sidefetch.until_again("No such file")
        sidefetch.signal(signal.SIGTERM)
        assert await sidefetch.end() == 0

    assert "stopping" not in sidefetch.output
    assert "Traceback" not in sidefetch.output


async def test_full_disk_under_log_does_not_stop_sidefetch() -> None:
    port = free_port_range(4)
    bootstrap = f"127.0.0.1:{port}"
    command = [*(sys.executable, "-m", "proxy", "run"), *("--listen", bootstrap, "--log-level", "debug")]
    with Path("/dev/full").open("wb") as full:
        async with embedded_cluster() as cluster, trio.open_nursery() as nursery:
            more = ["--bootstrap-servers", cluster.bootstrap, "--broker-ports", f"{port + 1}-{port + 3}"]
            run = partial(trio.run_process, [*command, *more], stderr=full, check=False, cwd=ROOT)
            sidefetch: trio.Process = await nursery.start(run)
            with trio.fail_after(20):
                while not await answers(bootstrap):
                    await trio.sleep(0.05)
            assert await answers(bootstrap)
            sidefetch.send_signal(signal.SIGTERM)
            with trio.fail_after(10):
                code = await sidefetch.wait()

    assert code == 0


async def answers(bootstrap: str) -> bool:
    try:
        async with connect(bootstrap, timeout_s=1) as client:
            return bool((await client.call("metadata", 5, {})).brokers)
    except OSError:
        return False


async def test_the_rack_is_found_before_anybody_is_served() -> None:
    async with serving(env={"TOPOLOGY_ZONE": "nowhere"}) as (sidefetch, _):
        await sidefetch.until("no-broker-in-rack")
        sidefetch.signal(signal.SIGTERM)
        await sidefetch.end()

    assert "info rack-found rack=nowhere how=env:TOPOLOGY_ZONE" in sidefetch.lines[0]
    (warned,) = [line for line in sidefetch.lines if "no-broker-in-rack" in line]
    assert "warning no-broker-in-rack rack=nowhere racks=a,b,c" in warned
