"""The broker at an address, with names that the tests resolve."""

import io
import socket
from typing import Any

import pytest
import trio
import trio.testing

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.config import Address, UpstreamConfig
from proxy.net.io.logs import Log
from proxy.net.transparent.destinations import Destinations
from proxy.net.upstream.topology import TopologyService

ONE, TWO = BrokerId(1), BrokerId(2)
V4, V6 = "10.0.0.1", "fd00::1"


class Names(trio.abc.HostnameResolver):
    """A resolver with given addresses, which counts its calls."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}
        self.asked = 0

    async def getaddrinfo(self, host: bytes | None, port: Any, *_: Any) -> Any:
        self.asked += 1
        assert host is not None
        addresses = self.of.get(host.decode(), [])
        if not addresses:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port or 0)) for each in addresses]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError("nobody asks for names")


class Cluster(TopologyService):
    """One whose brokers are those of the test."""

    def __init__(self) -> None:
        super().__init__(UpstreamConfig((Address("kafka", 9092),)), Log("text", "info", io.StringIO()))
        self.coming: dict[BrokerId, Address] = {}
        self.asked = 0

    def is_of(self, brokers: dict[BrokerId, Address]) -> None:
        self.topology = Topology("c", {n: Broker(n, each.host, each.port, None) for n, each in brokers.items()})

    async def refresh_brokers(self) -> None:
        self.asked += 1
        self.is_of({n: Address(each.host, each.port) for n, each in self.topology.brokers.items()} | self.coming)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def asked_of(cluster: Cluster, names: Names, log: io.StringIO | None = None) -> Destinations:
    trio.socket.set_custom_hostname_resolver(names)
    reported = Log("text", "info", log or io.StringIO())
    return Destinations(cluster, refresh_s=1, log=reported, on_resolved=lambda: None)


async def test_broker_is_found_at_all_addresses_of_its_host_name(cluster: Cluster, names: Names) -> None:
    cluster.is_of({ONE: Address("one", 9092), TWO: Address("two", 9093)})
    names.of = {"one": [V4, V6], "two": [V4]}
    it = await asked_of(cluster, names)

    assert await it.node_at(Address(V4, 9092)) == ONE
    assert await it.node_at(Address(V6, 9092)) == ONE
    assert await it.node_at(Address(V4, 9093)) == TWO
    assert (names.asked, cluster.asked) == (2, 0)


async def test_unresolvable_host_name_does_not_affect_other_brokers(cluster: Cluster, names: Names) -> None:
    cluster.is_of({ONE: Address("one", 9092), TWO: Address("." * 3, 9092)})
    names.of = {"one": [V4]}
    it = await asked_of(cluster, names)

    assert await it.node_at(Address(V4, 9092)) == ONE


async def test_a_broker_that_has_moved_is_found_where_it_is(
    cluster: Cluster, names: Names, autojump_clock: trio.testing.MockClock
) -> None:
    """Check a pod that was restarted: its name is the same, and its old address may now be another's."""
    assert autojump_clock.rate == 0
    cluster.is_of({ONE: Address("one", 9092), TWO: Address("two", 9092)})
    names.of = {"one": [V4], "two": ["10.0.0.2"]}
    it = await asked_of(cluster, names)
    assert await it.node_at(Address(V4, 9092)) == ONE

    names.of = {"one": ["10.0.0.3"], "two": [V4]}
    assert await it.node_at(Address("10.0.0.3", 9092)) == ONE
    assert await it.node_at(Address(V4, 9092)) == TWO
    names.of = {"one": [V4], "two": ["10.0.0.3"]}
    await trio.sleep(6)
    assert await it.node_at(Address(V4, 9092)) == ONE


async def test_former_addresses_are_kept_when_host_names_stop_resolving(
    cluster: Cluster, names: Names, autojump_clock: trio.testing.MockClock
) -> None:
    assert autojump_clock.rate == 0
    cluster.is_of({ONE: Address("one", 9092)})
    names.of = {"one": [V4]}
    it = await asked_of(cluster, names)
    assert await it.node_at(Address(V4, 9092)) == ONE
    names.of = {}
    for _ in range(2):
        await trio.sleep(6)
        assert await it.node_at(Address(V4, 9092)) == ONE


async def test_many_that_go_to_new_addresses_at_once_share_a_look_that_takes_long(
    cluster: Cluster, names: Names, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that connections do not wait for each other in turn while no broker answers."""
    assert autojump_clock.rate == 0
    monkeypatch.setattr(Cluster, "refresh_brokers", lambda _: trio.sleep_forever())
    cluster.is_of({ONE: Address("one", 9092)})
    it = await asked_of(cluster, names)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for last in range(50):
            nursery.start_soon(it.node_at, Address(f"10.96.0.{last}", 9092))

    assert trio.current_time() - began_s <= 2


async def test_host_names_are_resolved_again_after_30_s_while_a_client_address_is_unknown(
    cluster: Cluster, names: Names, autojump_clock: trio.testing.MockClock
) -> None:
    assert autojump_clock.rate == 0
    cluster.is_of({ONE: Address("one", 9092)})
    it = await asked_of(cluster, names)
    assert await it.node_at(Address(V4, 9092)) is None
    names.of = {"one": [V4]}
    await it.refresh(any_unknown=True)
    assert it.find_known(Address(V4, 9092)) is None
    await trio.sleep(31)
    await it.refresh(any_unknown=False)
    assert it.find_known(Address(V4, 9092)) is None
    await it.refresh(any_unknown=True)
    assert it.find_known(Address(V4, 9092)) == ONE


async def test_unknown_address_requests_new_topology_at_most_every_5_s(
    cluster: Cluster, names: Names, autojump_clock: trio.testing.MockClock
) -> None:
    assert autojump_clock.rate == 0
    cluster.is_of({ONE: Address("one", 9092)})
    it = await asked_of(cluster, names)
    for _ in range(10):
        assert await it.node_at(Address("10.96.0.1", 9092)) is None
    assert cluster.asked == 1
    await trio.sleep(6)
    cluster.coming = {TWO: Address("two", 9092)}
    names.of = {"two": ["10.96.0.1"]}

    assert await it.node_at(Address("10.96.0.1", 9092)) == TWO
    assert cluster.asked == 2


async def test_broker_addresses_in_responses_are_used_when_topology_is_empty(
    cluster: Cluster, names: Names
) -> None:
    names.of = {"one": [V4], "kafka": ["10.0.0.9"]}
    it = await asked_of(cluster, names)
    cluster.record_address(-1000, "kafka", 9092)
    cluster.record_address(ONE, "one", 9092)

    assert await it.node_at(Address(V4, 9092)) == ONE
    assert await it.node_at(Address("10.0.0.9", 9092)) is None


async def test_address_shared_by_two_brokers_is_ambiguous_and_logged(cluster: Cluster, names: Names) -> None:
    cluster.is_of({ONE: Address("one", 9092), TWO: Address("two", 9092)})
    names.of = {"one": [V4], "two": [V4, V6]}
    log = io.StringIO()
    it = await asked_of(cluster, names, log)

    assert await it.node_at(Address(V4, 9092)) is None
    assert await it.node_at(Address(V6, 9092)) == TWO
    assert cluster.asked == 0
    assert "broker-address-ambiguous" in log.getvalue()
