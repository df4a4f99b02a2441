"""Probes as a kubelet makes them, and what others may send to their port."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from proxy.config import Address, HealthConfig
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.errors import ConfigError
from proxy.net import probes
from tests.net.proxied import Proxied, configured, running
from tests.ports import free_port_range

HEAD = (
    b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: kube-probe/1.35\r\n"
    b"Accept: */*\r\nConnection: close\r\n\r\n"
)


@asynccontextmanager
async def probed(cluster: EmbeddedCluster, *, requires_broker: bool = False) -> AsyncIterator[Proxied]:
    """A proxy with a port for probes; whoever leaves has it drained."""
    health = HealthConfig(Address("127.0.0.1", free_port_range(1)), requires_broker)
    async with running(cluster, attrs.evolve(configured(cluster.bootstrap), health=health)) as it:
        yield it


def port_of(it: Proxied) -> int:
    assert it.config.health.listen is not None
    return it.config.health.listen.port


async def said(it: Proxied, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    async with await trio.open_tcp_stream("127.0.0.1", port_of(it)) as stream:
        await stream.send_all(request)
        answer = b""
        with trio.fail_after(5):
            async for chunk in stream:
                answer += chunk
    return answer


async def status(it: Proxied, path: str) -> int:
    answer = await said(it, HEAD % path.encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    assert len(body) == int(length[1])
    return int(answer.split()[1])


async def statuses(it: Proxied) -> list[int]:
    return [await status(it, path) for path in ("/startup", "/ready", "/live")]


async def test_an_outage_of_kafka_changes_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.net.topology._LOOK_S", 0.0)
    async with embedded_cluster(brokers=1) as cluster, probed(cluster) as it:
        with_kafka = await statuses(it)
        cluster.stop(1)
        for _ in range(20):
            assert await statuses(it) == with_kafka
            await trio.sleep(0.02)

    assert with_kafka == [200, 200, 200]


async def test_a_gateway_is_not_ready_while_no_broker_answers_and_is_again_when_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.net.topology._LOOK_S", 0.05)
    async with embedded_cluster(brokers=1) as cluster, probed(cluster, requires_broker=True) as it:

        async def until_ready_is(wanted: int) -> None:
            with trio.fail_after(10):
                while await status(it, "/ready") != wanted:
                    await trio.sleep(0.02)

        await until_ready_is(200)
        cluster.stop(1)
        await until_ready_is(503)
        assert [await status(it, path) for path in ("/startup", "/live")] == [200, 200]
        await cluster.start(1)
        await until_ready_is(200)


async def test_probes_of_a_gateway_ask_the_brokers_only_so_often() -> None:
    async with embedded_cluster(brokers=1) as cluster, probed(cluster, requires_broker=True) as it:
        for _ in range(30):
            await status(it, "/ready")

    assert len(it.told("topology-refreshed")) <= 2


async def test_it_is_not_ready_from_the_moment_that_it_is_to_stop_and_lives_on() -> None:
    async with embedded_cluster(brokers=1) as cluster, probed(cluster) as it, it.client(1) as client:
        await client.call("metadata", 5, {})
        it.proxy.stop()
        stopping = await statuses(it)

    assert stopping == [200, 503, 200]


async def test_before_clients_can_connect_only_liveness_is_told() -> None:
    state = probes.State(is_listening=False, is_stopping=False, reaches_broker=lambda: True)
    answers = probes.Probes(HealthConfig(), lambda: state, None)  # type: ignore[arg-type]  # nothing is logged

    found = {path: answers._answer(bytearray(HEAD % path))[0] for path in (b"/startup", b"/ready", b"/live")}

    assert found == {b"/startup": 503, b"/ready": 503, b"/live": 200}


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"HEAD /live HTTP/1.0\n\n", b"HTTP/1.1 200 "),
        (b"GET /live?verbose HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /ready HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405 "),
        (b"GET ready HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\0\0\0\x10\0\x12\0\0\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 9000, b"HTTP/1.1 431 "),
    ],
)
async def test_what_is_no_probe_is_answered_briefly(request_bytes: bytes, expected: bytes) -> None:
    async with embedded_cluster(brokers=1) as cluster, probed(cluster) as it:
        answer = await said(it, request_bytes)

    assert answer.startswith(expected)
    assert not request_bytes.startswith(b"HEAD") or answer.endswith(b"\r\n\r\n")


async def test_those_who_connect_and_say_nothing_do_not_keep_others_from_being_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster(brokers=1) as cluster, probed(cluster) as it:
        silent = [await trio.open_tcp_stream("127.0.0.1", port_of(it)) for _ in range(40)]
        answered = await statuses(it)
        with trio.fail_after(1):
            assert await silent[0].receive_some() == b""
        for each in silent:
            await each.aclose()
        monkeypatch.setattr(probes, "_TIMEOUT_S", 0.1)
        async with await trio.open_tcp_stream("127.0.0.1", port_of(it)) as slow:
            await slow.send_all(b"GET /live")
            with trio.fail_after(2):
                assert await slow.receive_some() == b""

    assert answered == [200, 200, 200]


async def test_a_port_that_is_taken_is_told() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        config = configured(cluster.bootstrap)
        taken = attrs.evolve(config, health=HealthConfig(Address("127.0.0.1", cluster_port(cluster))))
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, taken):
                pass

    assert refused.group_contains(ConfigError, match="health-listen: 127.0.0.1:")


def cluster_port(cluster: EmbeddedCluster) -> int:
    return int(cluster.bootstrap.rpartition(":")[2])
