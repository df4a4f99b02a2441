"""Several proxies on the same ports, as processes that share them are: the kernel deals the connections."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio

from proxy.config import Address, AdminConfig, Config, PortRange
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.errors import ConfigError, ErrorCode
from tests.net.proxied import Proxied, ask, configured, running
from tests.ports import free_port_range

MANY = 40
"""Connections: that one of two proxies gets none of them by chance is not to be expected in 10^11 runs."""


@asynccontextmanager
async def sharing() -> AsyncIterator[tuple[Proxied, Proxied]]:
    """Two of them, in front of one cluster with topic ``t``."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = configured(cluster.bootstrap, share_ports=True)
        async with running(cluster, config) as one, running(cluster, config) as another:
            yield one, another


def served(*both: Proxied) -> list[int]:
    return [each.proxy.counts["connections"] for each in both]


@asynccontextmanager
async def client_of(it: Proxied) -> AsyncIterator[KafkaConnection]:
    """At broker 1: one connection after another until the kernel has chosen *it*."""
    (before,) = served(it)
    while True:
        async with it.client(1) as client:
            await client.call("api_versions", 0, {})
            if served(it) != [before]:
                yield client
                return


async def ask_often(through: Proxied, node_id: int | None) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(MANY):
            client = await stack.enter_async_context(through.client(node_id))
            await client.call("api_versions", 0, {})


@pytest.mark.parametrize("node_id", [None, 1])
async def test_connections_to_a_port_are_dealt_to_all_that_share_it(node_id: int | None) -> None:
    async with sharing() as both:
        for each in both:
            await each.listening(1)
        await ask_often(both[0], node_id)

        assert sum(served(*both)) == MANY
        assert all(served(*both))


async def test_processes_with_shared_ports_advertise_the_same_broker_ports() -> None:
    async with sharing() as both:
        reported = set()
        while not all(served(*both)):
            async with both[0].client() as client:
                brokers = (await client.call("metadata", 5, {})).brokers
            reported.add(frozenset((broker.node_id, broker.port) for broker in brokers))

    assert reported == {frozenset((node, both[0].port_of(node)) for node in (1, 2, 3))}


async def test_session_of_another_process_is_not_found_and_a_new_one_is_granted() -> None:
    async with sharing() as (one, another):
        for each in (another, one):
            async with client_of(each) as client:
                granted = await client.call("fetch", 11, ask({0: 0}, session_epoch=0))
        async with client_of(another) as client:
            on = ask({}, session_id=granted.session_id, session_epoch=1)
            lost = await client.call("fetch", 11, on)
            anew = await client.call("fetch", 11, ask({0: 0}, session_epoch=0))

    assert lost.error_code == ErrorCode.fetch_session_id_not_found
    assert (anew.error_code, anew.session_id > 0) == (ErrorCode.none, True)


@pytest.mark.parametrize("is_shared", [(False, False), (True, False), (False, True)])
async def test_port_sharing_requires_share_ports_in_both_processes(is_shared: tuple[bool, bool]) -> None:
    async with embedded_cluster(brokers=1) as cluster:
        config = configured(cluster.bootstrap)
        first, second = (
            attrs.evolve(config, downstream=attrs.evolve(config.downstream, share_ports=each)) for each in is_shared
        )
        async with running(cluster, first):
            with pytest.raises(ExceptionGroup) as refused:
                async with running(cluster, second):
                    pass
    listen = config.downstream.listen[0]
    assert refused.group_contains(ConfigError, match=rf"listen: {listen} on 127\.0\.0\.1: the port is taken")


async def test_the_port_for_whoever_runs_it_is_not_shared() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        admin = AdminConfig(Address("127.0.0.1", free_port_range(1)))
        config = attrs.evolve(configured(cluster.bootstrap, share_ports=True), admin=admin)
        async with running(cluster, config):
            with pytest.raises(ExceptionGroup) as refused:
                async with running(cluster, config):
                    await trio.sleep(10)
    assert refused.group_contains(ConfigError, match=f"admin-listen: {admin.listen} cannot be listened on")


def with_two_ports(bootstrap: str) -> Config:
    """For brokers 0 and 1."""
    config = configured(bootstrap, share_ports=True)
    first = config.downstream.broker_ports.first
    return attrs.evolve(
        config, downstream=attrs.evolve(config.downstream, broker_ports=PortRange(first, first + 1))
    )


async def test_a_broker_whose_id_does_not_fit_is_named_at_the_start() -> None:
    async with embedded_cluster(brokers=2) as cluster:
        config = with_two_ports(cluster.bootstrap)
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, config):
                await trio.sleep(10)
    port = config.downstream.broker_ports.first + 2
    assert refused.group_contains(
        ConfigError, match=f"broker-ports: broker 2 .* it is {port} or none; accepted: a range"
    )


async def test_late_broker_without_port_is_logged_and_omitted_from_metadata() -> None:
    async with embedded_cluster(brokers=2) as cluster:
        cluster.stop(2)
        async with running(cluster, with_two_ports(cluster.bootstrap)) as it, it.client(1) as client:
            await cluster.start(2)
            brokers = (await client.call("metadata", 5, {})).brokers

    assert [broker.node_id for broker in brokers] == [1]
    (reported,) = it.logged("broker-port-missing")
    assert "broker 2 finds no port" in reported
