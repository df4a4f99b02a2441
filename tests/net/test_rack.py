"""The sources of a rack are tried in their order; their failures are logged and stop nothing."""

import io
import os
from pathlib import Path

import attrs
import pytest
import trio

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.config import RackSource, RoutingConfig
from proxy.config.rack import RackFound, RackMiss
from proxy.demo.cluster import embedded_cluster
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.rack import RackWatch, find_rack, log_rack
from tests.net.proxied import configured

NO_POD = RackMiss("kubernetes", "this is no pod of Kubernetes")


def places(*texts: str) -> RoutingConfig:
    return RoutingConfig(rack_from=tuple(map(RackSource.parse, texts)))


async def test_the_rack_that_is_given_wins_and_nothing_is_looked_for() -> None:
    routing = attrs.evolve(places("env:ZONE"), rack="given")

    assert await find_rack(routing, {"ZONE": "found"}) == RackFound("given", "--rack")


async def test_first_rack_source_with_a_value_wins(tmp_path: Path) -> None:
    file = tmp_path / "zone"
    file.write_text("from-file\n")
    here = f"file:{file}"

    assert await find_rack(places("env:ZONE", here), {"ZONE": " from-env "}) == RackFound("from-env", "env:ZONE")
    assert await find_rack(places(here, "env:ZONE"), {"ZONE": "from-env"}) == RackFound("from-file", here)
    assert await find_rack(places("env:ZONE", here), {}) == RackFound(
        "from-file", here, (RackMiss("env:ZONE", "not set"),)
    )


async def test_on_most_machines_there_is_nothing_to_find_and_nothing_to_complain_of() -> None:
    found = await find_rack(RoutingConfig(), {})

    file = RackMiss("file:/etc/podinfo/zone", "not there")
    assert found == RackFound(None, "", (RackMiss("env:TOPOLOGY_ZONE", "not set"), file, NO_POD))
    assert found.faults == ()


async def test_where_leaders_are_read_or_no_place_is_named_nothing_is_looked_for() -> None:
    leaders = await find_rack(attrs.evolve(places("env:ZONE"), replica_selector="leader"), {"ZONE": "b"})
    nowhere = await find_rack(RoutingConfig(rack_from=()), {"TOPOLOGY_ZONE": "b"})

    assert (leaders.rack, leaders.misses) == (None, ())
    assert "--replica-selector leader" in leaders.how
    assert (nowhere.rack, nowhere.misses) == (None, ())
    assert "--rack-from none" in nowhere.how


async def test_existing_file_without_rack_is_reported_as_fault(tmp_path: Path) -> None:
    labels, folder, large, binary, empty = (
        tmp_path / name for name in ("labels", "folder", "large", "bin", "empty")
    )
    labels.write_text('app="orders"\n')
    folder.mkdir()
    large.write_bytes(b"x" * 70_000)
    binary.write_bytes(b"\xff\xfe")
    empty.touch()

    found = await find_rack(places(*(f"file:{each}" for each in (labels, folder, large, binary, empty))), {})

    assert found.rack is None
    assert [miss.why for miss in found.faults] == [
        "topology.kubernetes.io/zone is not among its labels (there are 1)",
        "cannot be read: Is a directory",
        "it has more than 65536 bytes",
        "it is no text",
        "it is empty",
    ]


async def test_a_variable_that_is_no_rack_is_a_fault() -> None:
    found = await find_rack(places("env:ZONE"), {"ZONE": "a\tb"})

    (fault,) = found.faults
    assert fault.place == "env:ZONE"
    assert "no name of a rack" in fault.why


async def test_a_file_that_never_ends_does_not_hold_up_the_start(tmp_path: Path) -> None:
    fifo = tmp_path / "zone"
    os.mkfifo(fifo)
    with trio.fail_after(3):
        found = await find_rack(places(f"file:{fifo}", "env:ZONE"), {"ZONE": "b"}, limit_s=0.2)
    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))  # lets the reading thread go

    assert [miss.why for miss in found.faults] == ["no answer within 0.2 s", "no time was left"]


def log_line(found: RackFound) -> str:
    stream = io.StringIO()
    log_rack(found, Log("text", "info", stream))
    return stream.getvalue().partition(" ")[2].rstrip()


def test_rack_log_shows_the_source_or_the_attempted_sources() -> None:
    unset, wrong = RackMiss("env:A", "not set"), RackMiss("file:/z", "it is empty", "fill it")

    assert log_line(RackFound("b", "env:ZONE", (unset,))) == "info rack-found rack=b how=env:ZONE passed_over=null"
    assert log_line(RackFound("b", "env:Z", (wrong,))).endswith('passed_over="file:/z: it is empty (fill it)"')
    assert log_line(RackFound(None, "", (unset, NO_POD))).startswith(
        'info rack-unknown tried="env:A: not set; kubernetes: '
    )
    assert log_line(RackFound(None, "", (unset, wrong))).startswith(
        'warning rack-unknown tried="env:A: not set; file:/z: '
    )
    assert log_line(RackFound(None, "not looked for")) == 'info rack-unknown tried="not looked for"'


def topology(*racks: str | None) -> Topology:
    return Topology(brokers={BrokerId(n): Broker(BrokerId(n), "h", 1, rack) for n, rack in enumerate(racks)})


def test_rack_without_brokers_is_logged_once_per_change() -> None:
    stream = io.StringIO()
    watch = RackWatch("b", Log("text", "info", stream))
    seen = [
        topology(),
        topology("a", "b"),
        topology("a", "c"),
        topology("a", "c"),
        topology("c", "a", "a"),
        topology("a"),
        topology(None),
        topology("b", None),
        topology("b"),
        topology("a"),
    ]
    lines = []
    for each in seen:
        watch.check_topology(each)
        lines.append(stream.getvalue().partition(" ")[2].rstrip())
        stream.seek(0)
        stream.truncate()

    assert lines == [
        "",
        "",
        "warning no-broker-in-rack rack=b racks=a,c",
        "",
        "",
        "warning no-broker-in-rack rack=b racks=a",
        "warning no-broker-in-rack rack=b racks=null",
        "info rack-brokers-found rack=b",
        "",
        "warning no-broker-in-rack rack=b racks=a",
    ]


@pytest.mark.parametrize(("rack", "warned"), [("b", 0), ("z", 1), (None, 0)])
async def test_a_proxy_warns_of_a_rack_that_its_brokers_do_not_have(rack: str | None, warned: int) -> None:
    stream = io.StringIO()
    async with embedded_cluster() as cluster, trio.open_nursery() as nursery:
        proxy = Proxy(configured(cluster.bootstrap), Log("text", "info", stream), rack=rack)
        await nursery.start(proxy.run)
        with trio.fail_after(5):
            while "cluster-found" not in stream.getvalue():
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert stream.getvalue().count("warning no-broker-in-rack rack=z racks=a,b,c") == warned
