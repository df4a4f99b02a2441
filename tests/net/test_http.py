"""What may be sent to the port for whoever runs Sidefetch."""

import time

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import Address, AdminConfig
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.errors import ConfigError
from proxy.net.io import http
from proxy.net.io.http import HttpRequest, HttpResponse, read_request
from tests.net.administered import administered, port_of, said, statuses
from tests.net.proxied import configured, running


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"HEAD /livez HTTP/1.0\n\n", b"HTTP/1.1 200 "),
        (b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET /favicon.ico HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /readyz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405 "),
        (b"GET readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nHost: a/b@c:99999999\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nno field\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nA: b\rc\r\n\r\n", b"HTTP/1.1 400 "),
        (b"TRACE /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET http://elsewhere/livez HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\0\0\0\x10\0\x12\0\0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 9000, b"HTTP/1.1 431 "),
    ],
)
async def test_what_is_no_request_is_answered_briefly(request_bytes: bytes, expected: bytes) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        answer = await said(it, request_bytes)

    assert answer.startswith(expected)
    assert not request_bytes.startswith(b"HEAD") or answer.endswith(b"\r\n\r\n")


async def test_those_who_connect_and_say_nothing_do_not_keep_others_from_being_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        silent = [await trio.open_tcp_stream("127.0.0.1", port_of(it)) for _ in range(40)]
        answered = await statuses(it)
        with trio.fail_after(1):
            assert await silent[0].receive_some() == b""
        for each in silent:
            await each.aclose()
        monkeypatch.setattr(http, "_TIMEOUT_S", 0.1)
        async with await trio.open_tcp_stream("127.0.0.1", port_of(it)) as slow:
            await slow.send_all(b"GET /livez")
            with trio.fail_after(2):
                assert await slow.receive_some() == b""

    assert answered == [200, 200, 200]


async def test_a_port_that_is_taken_is_told() -> None:
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
def test_any_bytes_are_a_request_or_refused(head: bytes) -> None:
    assert isinstance(read_request(head + b"\r\n\r\n", "127.0.0.1"), HttpRequest | HttpResponse)


@pytest.mark.parametrize("filling", [b" ", b"\t", b"a", b":", b"a:", b"\r", b"x \t"])
def test_no_head_takes_long_to_read(filling: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nA:" + (filling * 8000)[:8000] + b"x\r\n\r\n"
    began_s = time.process_time()
    read_request(head, "127.0.0.1")

    assert time.process_time() - began_s < 0.05


def test_the_host_is_told_without_its_port() -> None:
    def host(said: bytes) -> str:
        request = read_request(b"GET / HTTP/1.1\r\nHost: " + said + b"\r\n\r\n", "127.0.0.1")
        assert isinstance(request, HttpRequest)
        return request.host

    assert [host(said) for said in (b"localhost:8080", b"[::1]:80", b"127.0.0.1", b"evil.example:9080", b"")] == [
        "localhost",
        "[::1]",
        "127.0.0.1",
        "evil.example",
        "",
    ]


async def test_who_reads_its_answer_slowly_is_left_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT_S", 0.3)
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        slow = [await trio.open_tcp_stream("127.0.0.1", port_of(it)) for _ in range(10)]
        for each in slow:
            await each.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert await statuses(it) == [200, 200, 200]
        await trio.sleep(0.5)
        assert await statuses(it) == [200, 200, 200]
        for each in slow:
            await each.aclose()
