"""Requests to the admin server: valid, invalid, too large, too slow."""

import io
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import Address, AdminConfig
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.errors import ConfigError
from proxy.net.io.http import HttpRequest, HttpResponse, HttpServer
from proxy.net.io.logs import Log
from proxy.net.observability import admin
from proxy.net.observability.admin import LIMITS
from tests.net.administered import administered, port_of, said, statuses
from tests.net.proxied import configured, running


def limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Replace bounds of admin servers that start from now on."""
    monkeypatch.setattr(admin, "LIMITS", attrs.evolve(LIMITS, **limits))


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"HEAD /livez HTTP/1.0\n\n", b"HTTP/1.1 200 "),
        (b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET /livez HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),  # RFC 9112, 3.2: HTTP/1.1 needs a Host field
        (b"GET /favicon.ico HTTP/1.0\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /readyz HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405 "),
        (b"POST /readyz HTTP/1.0\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, b"HTTP/1.1 413 "),
        (b"GET readyz HTTP/1.0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nHost: a/b@c:99999999\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.0\r\nno field\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.0\r\nA: b\rc\r\n\r\n", b"HTTP/1.1 400 "),
        (b"TRACE /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET http://elsewhere/livez HTTP/1.0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\0\0\0\x10\0\x12\0\0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 9000, b"HTTP/1.1 431 "),
    ],
)
async def test_valid_and_malformed_http_requests_get_right_status(request_bytes: bytes, expected: bytes) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        answer = await said(it, request_bytes)

    assert answer.startswith(expected)
    assert not request_bytes.startswith(b"HEAD") or answer.endswith(b"\r\n\r\n")


async def test_silent_http_connections_are_closed_and_do_not_block_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        silent = [await trio.open_tcp_stream("127.0.0.1", port_of(it)) for _ in range(40)]
        answered = await statuses(it)
        with trio.fail_after(1):
            assert await silent[0].receive_some() == b""
        for each in silent:
            await each.aclose()
    limited(monkeypatch, request_s=0.1)
    async with (
        embedded_cluster(brokers=1) as cluster,
        administered(cluster) as it,
        await trio.open_tcp_stream("127.0.0.1", port_of(it)) as slow,
    ):
        await slow.send_all(b"GET /livez")
        with trio.fail_after(2):
            assert await slow.receive_some() == b""

    assert answered == [200, 200, 200]


async def test_admin_port_in_use_is_reported() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        config = configured(cluster.bootstrap)
        taken = attrs.evolve(config, admin=AdminConfig(Address("127.0.0.1", cluster_port(cluster))))
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, taken):
                pass

    assert refused.group_contains(ConfigError, match="admin-listen: 127.0.0.1:")


def cluster_port(cluster: EmbeddedCluster) -> int:
    return int(cluster.bootstrap.rpartition(":")[2])


@given(st.binary(max_size=300))
def test_any_bytes_get_a_response_or_an_end(sent: bytes) -> None:
    async def converse() -> list[str]:
        log = io.StringIO()
        server = HttpServer(_echo_host, LIMITS, Log("text", "debug", log))
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(server.run, [listener])
            with trio.move_on_after(2):
                async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
                    await stream.send_all(sent + b"\r\n\r\n")
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
            nursery.cancel_scope.cancel()
        return log.getvalue().splitlines()

    assert not [line for line in trio.run(converse) if "unhandled-exception" in line]


async def _echo_host(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, request.host.encode())


@pytest.mark.parametrize(
    ("field", "host"),
    [
        (b"localhost:8080", b"localhost"),
        (b"[::1]:80", b"[::1]"),
        (b"127.0.0.1", b"127.0.0.1"),
        (b"evil.example:9080", b"evil.example"),
        (b"", b""),
    ],
)
async def test_the_host_is_read_without_its_port(field: bytes, host: bytes) -> None:
    server = HttpServer(_echo_host, LIMITS, Log("text", "debug", io.StringIO()))
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(server.run, [listener])
        async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: " + field + b"\r\nConnection: close\r\n\r\n")
            response = b""
            async for chunk in stream:
                response += chunk
        nursery.cancel_scope.cancel()

    assert response.partition(b"\r\n\r\n")[2] == host


async def test_a_connection_carries_several_requests() -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        embedded_cluster(brokers=1) as cluster,
        administered(cluster) as it,
        await trio.open_tcp_stream("127.0.0.1", port_of(it)) as stream,
    ):
        for _ in range(3):
            await stream.send_all(request)
            with trio.fail_after(5):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_slow_http_readers_do_not_block_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, request_s=0.3)
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        slow = [await trio.open_tcp_stream("127.0.0.1", port_of(it)) for _ in range(10)]
        for each in slow:
            await each.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await statuses(it) == [200, 200, 200]
        await trio.sleep(0.5)
        assert await statuses(it) == [200, 200, 200]
        for each in slow:
            await each.aclose()
