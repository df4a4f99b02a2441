"""Connections to brokers that are none, or go at the worst moment."""

import io
import socket
import struct

import pytest
import trio
from kio.schema.metadata.v4.request import MetadataRequest

from proxy.config import Address
from proxy.demo.cluster import embedded_cluster
from proxy.errors import BrokerProtocolError, BrokerUnavailable
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.upstream import brokers
from proxy.net.upstream.brokers import connect, open_broker

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


async def test_tcp_keepalive_detects_vanished_broker_within_a_minute() -> None:
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        frames = await connect(Address("127.0.0.1", listening.getsockname()[1]), connect_timeout_s=1)
        with frames:
            assert isinstance(frames._socket, socket.socket)
            idle_s, between_s, probes = (frames._socket.getsockopt(socket.IPPROTO_TCP, each) for each in options)
            assert frames._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle_s + between_s * probes < 60


async def test_connection_that_is_reset_at_once_means_that_the_broker_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dial = trio.open_tcp_stream

    async def dial_and_be_reset(host: str, port: int) -> trio.SocketStream:
        stream = await dial(host, port)
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        accepted.close()
        return stream

    monkeypatch.setattr(trio, "open_tcp_stream", dial_and_be_reset)
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(BrokerUnavailable):
        await connect(Address("127.0.0.1", listening.getsockname()[1]), connect_timeout_s=1)


@pytest.mark.parametrize(
    ("greeting", "as_size"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", 0x15030100),  # TLS: an alert
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0x48545450),
        (b"\xff\xfb\x01\xff", -0x4FE01),  # Telnet
    ],
)
async def test_a_server_that_speaks_another_protocol_is_no_broker(greeting: bytes, as_size: int) -> None:
    """And is not given the memory that its first bytes would stand for."""

    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(greeting)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = Address("127.0.0.1", listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greet, listeners)
        with pytest.raises(BrokerProtocolError, match=f"frame size {as_size} "):
            await open_broker(address, client_id=None, connect_timeout_s=1)
        nursery.cancel_scope.cancel()


async def test_response_without_memory_budget_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded_cluster(brokers=1) as cluster:
        cluster.create_topic("t" * 200, 1)
        address = Address.parse(cluster.bootstrap)
        monkeypatch.setattr(brokers, "_MAX_UNBUDGETED_BYTES", 200)
        log = Log("text", "info", io.StringIO())
        for budget in (None, Budget(1 << 20, log)):
            connection = await open_broker(address, client_id=None, connect_timeout_s=1, budget=budget)
            with connection.frames:
                request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
                if budget is not None:
                    assert (await connection.send_request(request)).topics
                    continue
                with pytest.raises(BrokerProtocolError, match=r": frame size \d+ is not within 0\.\.200$"):
                    await connection.send_request(request)


@pytest.mark.parametrize("host", [".", "a" * 70, "é..x", "\0", ""])
async def test_a_host_that_no_name_can_be_is_a_broker_that_cannot_be_had(host: str) -> None:
    """Check that a malformed address of one broker, from another broker's Metadata, does not end Sidefetch."""
    with pytest.raises(BrokerUnavailable):
        await connect(Address(host, 9092), connect_timeout_s=1)


@pytest.mark.parametrize("port", [-1, 0, 70_000, 2**31 - 1])
async def test_a_port_that_is_none_is_a_broker_that_cannot_be_had(port: int) -> None:
    with pytest.raises(BrokerUnavailable):
        await connect(Address("127.0.0.1", port), connect_timeout_s=1)
