"""Clients that the packet filter redirects to Sidefetch, in front of an embedded cluster.

A double of the kernel has their original destination; tests/transparent has a real one.
"""

import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.config import Address, DownstreamSecurity, LimitsConfig, PortRange
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.errors import ConfigError, ErrorCode
from proxy.net.app import Proxy
from proxy.net.downstream.listeners import Listeners
from proxy.net.io import logs
from proxy.net.io.logs import Log
from proxy.net.transparent import redirected
from tests.certificates import Authority
from tests.net.proxied import Proxied, ask, configured, running
from tests.ports import free_port_range

ANSWER_S = 5
SERVICE = Address("10.96.0.1", 9092)
"""An address of no broker."""

Speak = Callable[[trio.SocketStream], Awaitable[None]]


class Kernel:
    """A double of the kernel that returns the original destination of all connections, except for those to this
    listener.
    """

    def __init__(self) -> None:
        self.destination: Address | None = None

    def original_destination(self, _: object) -> Address | None:
        return self.destination


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(redirected, "original_destination", kernel.original_destination)
    return kernel


def broker(it: Proxied | EmbeddedCluster, node_id: int) -> Address:
    cluster = it.cluster if isinstance(it, Proxied) else it
    return Address(*cluster.state.addresses[node_id])


@asynccontextmanager
async def transparent(cluster: EmbeddedCluster, **sections: Any) -> AsyncIterator[Proxied]:
    """A proxy to which connections are redirected."""
    listen = (Address("127.0.0.1", free_port_range(1)),)
    config = attrs.evolve(configured(cluster.bootstrap, transparent=listen), **sections)
    async with running(cluster, config) as it:
        yield it


@asynccontextmanager
async def clustered(**sections: Any) -> AsyncIterator[Proxied]:
    """That, in front of a cluster with topic ``t``: its partitions are led by brokers 1, 2 and 3."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1], [2], [3]])
        async with transparent(cluster, **sections) as it:
            yield it


def listener(it: Proxied) -> str:
    return str(it.config.downstream.transparent[0])


@asynccontextmanager
async def client(it: Proxied, kernel: Kernel, destination: Address | None) -> AsyncIterator[KafkaConnection]:
    """One that was going to *destination*."""
    kernel.destination = destination
    async with connect(listener(it)) as connection:
        yield connection


async def listed_brokers(connection: KafkaConnection) -> set[tuple[int, str, int]]:
    """Return the brokers in this client's Metadata."""
    brokers = (await connection.call("metadata", 5, {})).brokers
    return {(each.node_id, each.host, each.port) for each in brokers}


async def errors(connection: KafkaConnection) -> list[int]:
    """Return the errors of the three partitions of ``t``; a broker serves only those that it leads."""
    response = await connection.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}))
    return [int(each.error_code) for topic in response.responses for each in topic.partitions]


def led_by(node_id: int) -> list[int]:
    return [0 if each == node_id else int(ErrorCode.not_leader_or_follower) for each in (1, 2, 3)]


async def hung_up_on(stream: trio.SocketStream) -> bool:
    """Whether that is all that becomes of it."""
    with trio.move_on_after(ANSWER_S):
        try:
            return await stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True
    return False


# -------------------------------------------------------------------------------------------- what is served


@pytest.mark.parametrize("node_id", [1, 2, 3])
async def test_connection_redirected_from_broker_is_served_as_by_that_broker(kernel: Kernel, node_id: int) -> None:
    async with clustered() as it, client(it, kernel, broker(it, node_id)) as connection:
        assert await errors(connection) == led_by(node_id)


async def test_responses_contain_real_broker_addresses_only_for_redirected_clients(kernel: Kernel) -> None:
    async with clustered() as it:
        async with client(it, kernel, broker(it, 1)) as connection, connect(it.cluster.bootstrap) as direct:
            for api, version, asked in (
                ("metadata", 5, {}),
                ("find_coordinator", 2, {"key": "g", "key_type": 0}),
                ("describe_cluster", 1, {"endpoint_type": 1}),
            ):
                assert await connection.call(api, version, asked) == await direct.call(api, version, asked)
        async with it.client() as connection:
            assert await listed_brokers(connection) == {(n, "127.0.0.1", it.port_of(n)) for n in (1, 2, 3)}


async def test_connection_redirected_from_unknown_address_is_served_as_by_any_broker(kernel: Kernel) -> None:
    async with clustered() as it, client(it, kernel, SERVICE) as connection:
        assert await listed_brokers(connection) == {(n, *attrs.astuple(broker(it, n))) for n in (1, 2, 3)}
        assert await errors(connection) in [led_by(node_id) for node_id in (1, 2, 3)]


async def test_direct_connection_to_transparent_listener_is_served_as_by_any_broker(kernel: Kernel) -> None:
    async with clustered() as it, client(it, kernel, None) as connection:
        assert await listed_brokers(connection) == {(n, *attrs.astuple(broker(it, n))) for n in (1, 2, 3)}


async def test_a_broker_that_is_new_is_looked_for_when_a_client_goes_there(kernel: Kernel) -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1], [2], [3]])
        cluster.stop(3)
        async with transparent(cluster) as it:
            await cluster.start(3)
            async with client(it, kernel, broker(it, 3)) as connection:
                assert await errors(connection) == led_by(3)


async def test_connection_to_unknown_broker_is_closed_once_the_broker_becomes_known(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the connection ends: clients never ask a broker for its id, and would get NOT_LEADER for ever."""
    monkeypatch.setattr(redirected, "_EVERY_S", 0.05)
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1], [2], [3]])
        where = broker(cluster, 3)
        cluster.stop(3)
        async with transparent(cluster) as it:
            async with client(it, kernel, where) as early, client(it, kernel, SERVICE) as other:
                assert len(await listed_brokers(early)) == 2
                await listed_brokers(other)
                await cluster.start(3)
                async with it.client() as somebody:
                    await somebody.call("metadata", 5, {"topics": [{"name": "t"}]})
                    await fetch_of_a_new_topic(somebody, cluster)
                with trio.fail_after(ANSWER_S):
                    assert await early.receive_frame() is None
                assert len(await listed_brokers(other)) == 3
            async with client(it, kernel, where) as again:
                assert await errors(again) == led_by(3)


async def fetch_of_a_new_topic(connection: KafkaConnection, cluster: EmbeddedCluster) -> None:
    """Has a broker asked for Metadata, and so for the brokers."""
    cluster.create_topic("new")
    await connection.call("fetch", 11, ask({0: 0}, topic="new"))


async def test_an_address_of_two_brokers_is_none_of_either(kernel: Kernel) -> None:
    async with embedded_cluster() as cluster:
        for node_id in (2, 3):
            cluster.state.addresses[node_id] = cluster.state.addresses[1]
        async with transparent(cluster) as it, client(it, kernel, broker(it, 1)) as connection:
            await listed_brokers(connection)
            assert it.logged("broker-address-ambiguous")
            (line,) = it.logged("connection-redirected")
            assert not any(f"node={node_id}" in line for node_id in (1, 2, 3))


# ------------------------------------------------------------------------------------------- what passes


async def test_redirected_connection_is_closed_when_no_broker_is_reachable(kernel: Kernel) -> None:
    """Nor taken for a client of any broker: which one it means is not known before."""
    async with embedded_cluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        cluster.stop(1)
        plain = configured(cluster.bootstrap, transparent=(Address("127.0.0.1", free_port_range(1)),))
        config = attrs.evolve(plain, upstream=attrs.evolve(plain.upstream, connect_timeout_s=0.2))
        proxy = Proxy(config, Log("text", "info", io.StringIO()))
        await nursery.start(proxy.run)
        kernel.destination = broker(cluster, 1)
        async with connect(str(config.downstream.transparent[0])) as connection:
            await connection.send("metadata", 5, {})
            with trio.fail_after(ANSWER_S):
                assert await connection.receive_frame() is None
        assert proxy.counts["brokers_unavailable"] == 1
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def server(speak: Speak) -> AsyncIterator[Address]:
    """One that is no broker of ours."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), speak, 0)
        yield Address(*listeners[0].socket.getsockname()[:2])
        nursery.cancel_scope.cancel()


async def echo_at_the_end(stream: trio.SocketStream) -> None:
    """Answer when the client has sent everything: only a forwarded half-close shows that."""
    async with stream:
        heard = b"".join([chunk async for chunk in stream])
        await stream.send_all(heard.upper())


async def test_tls_passes_untouched_and_is_counted(kernel: Kernel, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    theirs = authority.issue("kafka.example")
    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secured.load_cert_chain(theirs.cert, theirs.key)

    async def speak(stream: trio.SocketStream) -> None:
        async with trio.SSLStream(stream, secured, server_side=True) as inside:
            await inside.send_all(b"you said " + await inside.receive_some())

    async with clustered() as it, server(speak) as kernel.destination:
        async with await trio.open_tcp_stream("127.0.0.1", it.config.downstream.transparent[0].port) as stream:
            trusting = ssl.create_default_context(cafile=str(authority.path))
            inside = trio.SSLStream(stream, trusting, server_hostname="kafka.example")
            await inside.send_all(b"hello")
            assert await inside.receive_some() == b"you said hello"
        assert it.proxy.counts["passed_tls"] == 1
        assert it.proxy.counts["connections"] == 0
        assert len(it.logged("connection-forwarded")) == 1


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n" * 20_000, b"hi"])
async def test_other_protocols_are_forwarded_with_half_close(kernel: Kernel, said: bytes) -> None:
    async with clustered() as it, server(echo_at_the_end) as kernel.destination:
        async with await trio.open_tcp_stream("127.0.0.1", it.config.downstream.transparent[0].port) as stream:
            await stream.send_all(said)
            await stream.send_eof()
            with trio.fail_after(ANSWER_S):
                assert b"".join([chunk async for chunk in stream]) == said.upper()
        assert it.proxy.counts["passed_other"] == 1


async def test_first_metadata_with_too_many_brokers_does_not_end_forwarded_connections(kernel: Kernel) -> None:
    log, port = io.StringIO(), free_port_range(1)
    async with embedded_cluster() as cluster, server(echo_at_the_end) as kernel.destination:
        nodes = [*cluster.brokers]
        for node in nodes:
            cluster.stop(node)
        config = configured(cluster.bootstrap, transparent=(Address("127.0.0.1", port),))
        few = PortRange(config.downstream.broker_ports.first, config.downstream.broker_ports.first + 1)
        config = attrs.evolve(config, downstream=attrs.evolve(config.downstream, broker_ports=few))
        proxy = Proxy(config, Log("text", "info", log))
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"hello, who are you?")
                with trio.fail_after(2 * ANSWER_S):
                    while not proxy.counts["passed_other"]:
                        await trio.sleep(0.01)
                    for node in nodes:
                        await cluster.start(node)
                    while " cluster-found " not in log.getvalue():
                        await trio.sleep(0.01)
                    await stream.send_eof()
                    assert await stream.receive_some() == b"HELLO, WHO ARE YOU?"
            nursery.cancel_scope.cancel()
    assert log.getvalue().count(" broker-port-missing ") == 1


async def test_shutdown_waits_for_forwarded_connections(kernel: Kernel) -> None:
    async with clustered() as it, server(echo_at_the_end) as kernel.destination:
        async with await trio.open_tcp_stream("127.0.0.1", it.config.downstream.transparent[0].port) as stream:
            await stream.send_all(b"hello, who are you?")
            with trio.fail_after(ANSWER_S):
                while not it.logged("connection-forwarded"):
                    await trio.sleep(0.01)
            it.proxy.stop()
            await trio.sleep(0.1)
            assert not it.logged("stopped")
            await stream.send_eof()
            assert await stream.receive_some() == b"HELLO, WHO ARE YOU?"
        with trio.fail_after(ANSWER_S):
            while not it.logged("stopped"):
                await trio.sleep(0.01)


async def test_connection_that_cannot_be_forwarded_is_closed(kernel: Kernel) -> None:
    async with clustered() as it:
        for destination in (Address("127.0.0.1", free_port_range(1)), None):
            kernel.destination = destination
            port = it.config.downstream.transparent[0].port
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                assert await hung_up_on(stream)
        assert len(it.logged("connection-forward-failed")) == it.proxy.counts["not_passed"] == 2


async def test_client_with_many_destinations_does_not_fill_the_log(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MOST_KEYS", 2)
    async with clustered() as it:
        for number in range(6):
            kernel.destination = Address(f"127.0.0.{number + 1}", free_port_range(1))
            port = it.config.downstream.transparent[0].port
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                assert await hung_up_on(stream)
        assert it.proxy.counts["not_passed"] == 6
        assert len(it.logged("connection-forward-failed")) == 3


async def test_our_own_connection_is_not_taken_back(kernel: Kernel) -> None:
    """Check a redirect of Sidefetch's own connection, as by rules that exempt the wrong user."""
    async with clustered() as it:
        (kernel.destination,) = it.config.downstream.transparent
        async with await trio.open_tcp_stream("127.0.0.1", kernel.destination.port) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            assert await hung_up_on(stream)
        assert it.proxy.counts["loops_refused"] == 1
        (line,) = it.logged("redirect-loop")
        assert "--uid" in line


async def test_silent_redirected_client_is_disconnected_at_handshake_timeout(kernel: Kernel) -> None:
    async with clustered(limits=LimitsConfig(handshake_timeout_s=0.2)) as it:
        kernel.destination = broker(it, 1)
        async with await trio.open_tcp_stream("127.0.0.1", it.config.downstream.transparent[0].port) as stream:
            assert await hung_up_on(stream)
        assert it.proxy.counts["limit_handshake_timeout"] == 1


async def test_where_clients_speak_tls_with_us_they_do_so_here_too(kernel: Kernel, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = authority.issue("127.0.0.1")
    security = DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(ours.key))
    async with clustered(downstream_security=security) as it:
        kernel.destination = broker(it, 2)
        stream = await trio.open_tcp_stream("127.0.0.1", it.config.downstream.transparent[0].port)
        trusting = ssl.create_default_context(cafile=str(authority.path))
        async with trio.SSLStream(stream, trusting, server_hostname="127.0.0.1", https_compatible=True) as inside:
            assert await errors(KafkaConnection(inside)) == led_by(2)
        assert it.proxy.counts["passed_tls"] == 0


# ------------------------------------------------------------------------------------------ where we listen


async def test_a_host_without_ipv6_is_listened_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.net.downstream.listeners._listening_socket", _without_ipv6)
    async with embedded_cluster(brokers=1) as cluster:
        port = free_port_range(1)
        both = (Address("::1", port), Address("127.0.0.1", port))
        async with running(cluster, configured(cluster.bootstrap, transparent=both)) as it:
            assert len(it.logged("listen-address-skipped")) == 1
            async with connect(f"127.0.0.1:{port}") as connection:
                assert len(await listed_brokers(connection)) == 1
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, configured(cluster.bootstrap, transparent=both[:1])):
                pass
    assert refused.group_contains(ConfigError, match=r"transparent: \[::1\]:\d+: this host has no IPv6;")


async def test_ipv6_address_of_another_host_is_skipped_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.net.downstream.listeners._listening_socket", _without_ipv6)
    async with embedded_cluster(brokers=1) as cluster:
        port = free_port_range(1)
        both = (Address("2001:db8::1", port), Address("127.0.0.1", port))
        async with running(cluster, configured(cluster.bootstrap, transparent=both)) as it:
            (skipped,) = it.logged("listen-address-skipped")

    assert "this host does not have this address" in skipped


@pytest.mark.parametrize("option", ["listen", "transparent"])
async def test_name_that_cannot_be_resolved_is_reported_with_its_option(option: str) -> None:
    async with embedded_cluster(brokers=1) as cluster:
        unknown = (Address("nowhere.invalid", free_port_range(1)),)
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, configured(cluster.bootstrap, **{option: unknown})):
                pass

    assert refused.group_contains(ConfigError, match=f"^{option}: nowhere.invalid:.* cannot be resolved")


_listening_socket = Listeners._listen.__globals__["_listening_socket"]


def _without_ipv6(host: str, port: int, *, is_shared: bool) -> socket.socket:
    if ":" in host:
        raise OSError(99, "Cannot assign requested address")
    opened: socket.socket = _listening_socket(host, port, is_shared=is_shared)
    return opened


async def test_transparent_port_in_use_is_reported() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        port = free_port_range(1)
        taken = (Address("127.0.0.1", port),)
        with socket.create_server(("127.0.0.1", port)), pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, configured(cluster.bootstrap, transparent=taken)):
                pass
    assert refused.group_contains(ConfigError, match=f"transparent: 127.0.0.1:{port}")
