"""Connections to brokers that are none, or go at the worst moment."""

import socket
import struct

import pytest
import trio

from proxy.config import Address
from proxy.errors import BrokerProtocolError, BrokerUnavailable
from proxy.net.brokers import connect, open_broker

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


async def test_a_connection_that_is_reset_as_soon_as_it_is_made_is_a_broker_that_cannot_be_had(
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


async def test_a_server_that_speaks_another_protocol_is_no_broker() -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\xff\xfb\x01\xff")  # as a frame's size, negative

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = Address("127.0.0.1", listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greet, listeners)
        with pytest.raises(BrokerProtocolError):
            await open_broker(address, client_id=None, connect_timeout_s=1)
        nursery.cancel_scope.cancel()
