"""TLS handshakes with clients: a storm of them, and those that are begun and never ended, harm nobody else."""

import io
import re
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.config import DownstreamSecurity, LimitsConfig
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.net.downstream import handshakes
from proxy.net.downstream.handshakes import TlsHandshakes
from proxy.net.downstream.limits import LimitLog
from proxy.net.io.logs import Log
from proxy.net.io.tls import server_context
from tests.certificates import Authority
from tests.net.proxied import Proxied, configured, running
from tests.net.tls_clients import client, read, trusting

HALF_OPEN = 300
"""The number of handshakes that never end, of each kind."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def with_places(places: int, authority: Authority) -> AsyncIterator[Proxied]:
    """A proxy that makes so many handshakes at once."""
    ours = authority.issue("127.0.0.1", file="sidefetch")
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(
            configured(cluster.bootstrap),
            downstream_security=DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(ours.key)),
            limits=LimitsConfig(max_handshakes=places),
        )
        async with running(cluster, config) as it:
            yield it


async def is_served(it: Proxied, authority: Authority) -> bool:
    async with client(it, trusting(authority)) as connection:
        answer: Any = await read(connection)
        return int(answer.error_code) == 0


def hello() -> bytes:
    """Return the first message of a TLS client."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = ssl.create_default_context().wrap_bio(received, sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client_end.do_handshake()
    return sent.read()


async def begun(it: Proxied, stack: AsyncExitStack, first: bytes, count: int = HALF_OPEN) -> list[KafkaConnection]:
    """Open *count* connections that send *first* and nothing after that."""
    connections = [await stack.enter_async_context(it.client(1)) for _ in range(count)]
    for each in connections:
        await each.send_frame(first)
    return connections


@pytest.mark.parametrize("places", [1, 32])
async def test_client_is_served_beside_hundreds_of_half_open_connections_of_its_host(
    places: int, authority: Authority
) -> None:
    async with with_places(places, authority) as it, AsyncExitStack() as stack:
        for first in (b"", hello()[:100], hello()):
            await begun(it, stack, first)
        with trio.fail_after(5):
            assert await is_served(it, authority)
        assert it.proxy.counts["handshakes_failed"] == 0


async def test_handshake_that_does_not_end_in_time_is_aborted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "_LONGEST_S", 0.4)
    async with with_places(2, authority) as it, AsyncExitStack() as stack:
        for first in (b"", hello()[:100], hello()):
            (half_open,) = await begun(it, stack, first, 1)
            with trio.fail_after(5):
                while await half_open.receive_frame() is not None:
                    pass
        assert it.proxy.counts["handshakes_failed"] == 3
        assert "the TLS handshake timed out" in it.logged("client-tls-failed")[0]


class Turns(trio.abc.Instrument):
    """Counts the steps of handshakes in each turn of the event loop."""

    def __init__(self) -> None:
        self.steps = [0]

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        self.steps.append(0)


@pytest.mark.parametrize(("long_s", "is_logged"), [(0.0, True), (60.0, False)])
async def test_a_storm_is_computed_in_turns_and_logged_once_if_clients_wait_long(
    long_s: float, is_logged: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "_LONG_WAIT_S", long_s)
    turns, lines, count = Turns(), io.StringIO(), 20
    log = Log("text", "info", lines)

    class CountingSocket(ssl.SSLSocket):
        def do_handshake(self, *arguments: Any) -> None:
            turns.steps[-1] += 1
            super().do_handshake(*arguments)

    ours = authority.issue("127.0.0.1", file="sidefetch")
    tls = server_context(DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(ours.key)), log)
    assert tls is not None
    tls.value.sslsocket_class = CountingSocket
    counts: Counter[str] = Counter()
    both = TlsHandshakes(2, tls, LimitLog(counts, log))
    pairs = [socket.socketpair() for _ in range(count)]

    async def shake_hands(server_end: socket.socket) -> None:
        with pytest.raises(OSError, match=r"EOF"):
            await both.run_handshake(trio.SocketStream(trio.socket.from_stdlib_socket(server_end)), "127.0.0.1:1")

    for _, client_end in pairs:
        client_end.sendall(hello())
        client_end.shutdown(socket.SHUT_WR)
    trio.lowlevel.add_instrument(turns)
    async with trio.open_nursery() as nursery:
        for server_end, _ in pairs:
            nursery.start_soon(shake_hands, server_end)
    trio.lowlevel.remove_instrument(turns)
    for _, client_end in pairs:
        client_end.close()

    assert max(turns.steps) == 2
    assert sum(turns.steps) == count
    assert (counts["limit_max_handshakes"] > 0) is is_logged
    assert lines.getvalue().count(" limit-reached ") == is_logged


async def test_handshake_that_ends_while_it_waits_for_others_is_logged(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "_LONGEST_S", 0.3)
    monkeypatch.setattr(handshakes, "_LONG_WAIT_S", 0.2)
    lines = io.StringIO()
    log = Log("text", "info", lines)
    ours = authority.issue("127.0.0.1", file="sidefetch")
    tls = server_context(DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(ours.key)), log)
    assert tls is not None
    all_handshakes = TlsHandshakes(1, tls, LimitLog(Counter(), log))
    await all_handshakes._places.acquire_on_behalf_of("another handshake")
    server_end, client_end = socket.socketpair()
    with client_end:
        client_end.sendall(hello())
        with pytest.raises(trio.TooSlowError):
            await all_handshakes.run_handshake(
                trio.SocketStream(trio.socket.from_stdlib_socket(server_end)), "127.0.0.1:1"
            )

    assert re.search(r'limit=max-handshakes client=127.0.0.1:1 reason="it has waited 0\.[2-9] s', lines.getvalue())
