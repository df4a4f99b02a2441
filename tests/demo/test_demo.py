"""``sidefetch demo`` and ``sidefetch try``, as their users run them."""

import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from tests.commands import started

WAYS = ("directly", "through Sidefetch")


def table(lines: list[str], way: str) -> list[str]:
    """The last row of a way to read."""
    return [line for line in lines if line.strip().startswith(way)][-1].split()


def own_rack_percent(lines: list[str]) -> list[int]:
    """Return the share of bytes from the reader's rack, both ways."""
    start = lines.index("Bytes of records, by the rack that they came from (the reader is in rack b):") + 2
    assert re.split(" {2,}", lines[start].strip()) == ["rack a", "rack b", "rack c", "from rack b"]
    return [int(table(lines[start:], way)[-2]) for way in WAYS]


async def test_demo_reports_savings_and_exits() -> None:
    # Settings of the one who runs it must not reach the Sidefetch that it shows.
    async with started("demo", "--seconds", "4", env={"SIDEFETCH_LISTEN": "nonsense"}) as demo:
        code = await demo.end()

    assert code == 0, demo.output
    assert "embedded cluster" in demo.lines[0]
    assert "not Apache Kafka" in demo.lines[0]
    (shown,) = [line for line in demo.lines if line.startswith("Shown: ")]
    assert shown.startswith("Shown: reading through Sidefetch costs")
    assert "times fewer bytes" in shown
    assert re.fullmatch(r"  reading directly +the broker hangs up at ListOffsets v0", demo.lines[-2])
    assert re.fullmatch(r"  reading through Sidefetch +reads \d+ messages", demo.lines[-1])
    shown_rows = demo.lines[: demo.lines.index(shown)]
    direct, through = (table(shown_rows, way) for way in WAYS)
    assert int(direct[-1]) > 10  # records
    assert int(through[-1]) > 10
    directly, through_sidefetch = own_rack_percent(demo.lines)
    assert 10 <= directly <= 60
    assert through_sidefetch == 100
    assert await demo.left_running() == []


@pytest.mark.each_once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("while_it", ["directly", "through Sidefetch"])
async def test_a_demo_that_is_ended_leaves_nothing_running(number: signal.Signals, while_it: str) -> None:
    async with started("demo", env={"DEMO_SECONDS": "6"}) as demo:
        await demo.until(while_it)
        demo.signal(number)
        code = await demo.end()

    assert code == 128 + number, demo.output
    assert "Traceback" not in demo.output
    assert await demo.left_running() == []


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3", "4"])
async def test_the_demo_shows_the_same_on_real_brokers(version: str) -> None:
    async with started("demo", "--seconds", "6", "--kafka", version) as demo:
        code = await demo.end()

    assert code == 0, demo.output
    assert f"Apache Kafka {version}." in demo.output
    assert "times fewer bytes" in demo.output
    directly, through = own_rack_percent(demo.lines)
    assert directly <= 60
    assert through >= 90
    assert re.fullmatch(r"  reading through Sidefetch +reads \d+ messages", demo.lines[-1])
    assert await demo.left_running() == []


async def test_real_brokers_without_java_are_refused_in_a_sentence(tmp_path: Path) -> None:
    async with started("demo", "--kafka", "4", env={"PATH": str(tmp_path)}) as demo:
        code = await demo.end()

    assert code == 1
    assert demo.lines == ["sidefetch: real brokers need Java 17 or newer and Maven; not found: java, mvn"]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster() as cluster:
        cluster.create_topic("idle", partitions=300)
        yield cluster


async def test_try_reads_the_users_topic_both_ways_and_changes_nothing(cluster: EmbeddedCluster) -> None:
    arguments = ["--bootstrap-servers", cluster.bootstrap, "--topic", "idle", "--seconds", "5"]
    # Settings for clients and probes of another Sidefetch must not affect the one of the demo.
    env = {"SIDEFETCH_LISTEN_SASL_FILE": "/nowhere", "SIDEFETCH_ADMIN_LISTEN": cluster.bootstrap.split(",")[0]}
    async with started("try", *arguments, env=env) as trial:
        code = await trial.end()

    assert code == 0, trial.output
    assert "300 partitions" in trial.lines[0]
    assert trial.lines[-1].startswith("No records came in")
    assert trial.lines[-2].startswith("Shown: reading through Sidefetch costs")
    assert "fewer bytes" in trial.lines[-2]
    counted = cluster.counters
    direct, through = (table(trial.lines, way) for way in WAYS)
    named = [int(row[row.index("s") + 2].replace(",", "")) for row in (direct, through)]
    assert sum(named) <= counted.partitions_named <= sum(named) + 900  # those sent after the last row
    assert cluster.sessions == 0
    assert not cluster.groups.groups
    assert not {key for key, _ in counted.requests} & {0, 8, 11, 19, 20}
    assert await trial.left_running() == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--rack", "b"], "100 % of the bytes of records came from rack b, where this is (by --rack)."),
        (["--rack", "b", "--replica-selector", "leader"], "0 % of the bytes of records came from rack b,"),
        ([], "Leaders were read both ways (which rack this is in is not known; see sidefetch check)."),
    ],
)
async def test_try_reports_rack_that_served_records(options: list[str], expected: str) -> None:
    async with embedded_cluster(is_rack_aware=True) as cluster, trio.open_nursery() as nursery:
        cluster.create_topic("busy", assignment=[[1, 2, 3]])

        async def feed() -> None:
            while True:
                cluster.append("busy", 0, [b"record"])
                await trio.sleep(0.05)

        nursery.start_soon(feed)
        arguments = ["--bootstrap-servers", cluster.bootstrap, "--topic", "busy", "--seconds", "3"]
        async with started("try", *arguments, *options) as trial:
            code = await trial.end()
        nursery.cancel_scope.cancel()

    assert code == 0, trial.output
    assert trial.lines[-1].startswith(expected)


async def test_try_refuses_an_unknown_topic_in_a_sentence(cluster: EmbeddedCluster) -> None:
    async with started("try", "--bootstrap-servers", cluster.bootstrap, "--topic", "nope") as trial:
        code = await trial.end()

    assert (code, trial.lines) == (1, ["sidefetch: the cluster has no topic 'nope'"])


async def test_try_refuses_a_topic_without_leaders(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("alone", assignment=[[3]])
    cluster.stop(3)

    async with started("try", "--bootstrap-servers", cluster.bootstrap, "--topic", "alone") as trial:
        code = await trial.end()

    assert (code, trial.lines) == (1, ["sidefetch: topic 'alone': 1 of 1 partitions have no leader"])


async def test_try_refuses_logins_of_clients_which_there_are_none_of(cluster: EmbeddedCluster) -> None:
    arguments = ["--bootstrap-servers", cluster.bootstrap, "--topic", "idle", "--upstream-sasl", "client"]
    async with started("try", *arguments) as trial:
        code = await trial.end()

    assert code == 2
    assert "upstream-sasl: client" in trial.output


async def test_try_fails_if_no_broker_is_reachable() -> None:
    async with started("try", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t") as trial:
        code = await trial.end()

    assert code == 1
    assert trial.output.startswith("sidefetch: no broker answers: 127.0.0.1:1")
    assert len(trial.lines) == 1
