"""The wire forwards bytes, and executes its faults."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.ports import free_ports
from tests.soak.wire import Weather, Wire

LARGE = bytes(range(256)) * 4096
"""1 MiB."""


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Start the wire in front of an echo server."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with Wire({port: server.getsockname()}, seed=1) as wire:
            yield wire
        server.shutdown(socket.SHUT_RDWR)


def _echo(server: socket.socket) -> None:
    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(65536):
                client.sendall(data)

    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


def connected(wire: Wire) -> socket.socket:
    host, _, port = wire.bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def said(client: socket.socket, data: bytes) -> float:
    """Send it, expect it back; return how long that took."""
    began_s = time.monotonic()
    threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
    got = bytearray()
    while len(got) < len(data):
        chunk = client.recv(65536)
        assert chunk, f"closed after {len(got)} bytes"
        got += chunk
    assert got == data
    return time.monotonic() - began_s


def test_it_passes_all_bytes_both_ways(wire: Wire) -> None:
    with connected(wire) as client:
        said(client, LARGE)


def test_latency_is_of_both_directions(wire: Wire) -> None:
    with connected(wire) as client, wire.weather(Weather(latency_s=0.1)):
        assert 0.2 <= said(client, b"x") < 1


def test_bandwidth_is_capped(wire: Wire) -> None:
    with connected(wire) as client, wire.weather(Weather(bytes_per_s=2**21)):
        assert said(client, LARGE) >= 0.5


def test_stalled_bytes_are_forwarded_after_stall(wire: Wire) -> None:
    with connected(wire) as client:
        with wire.weather(Weather(is_stalled=True)):
            client.sendall(b"x")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
        client.settimeout(5)
        assert client.recv(1) == b"x"


def test_a_connection_that_is_cut_is_reset_in_the_midst(wire: Wire) -> None:
    weather = wire.weather(Weather(cut_after_bytes=100_000))
    with connected(wire) as other:
        said(other, b"x")
        with weather, connected(wire) as client, pytest.raises((ConnectionError, AssertionError)):
            said(client, LARGE)
        said(other, b"x")
    assert wire.reset_count == 1


def test_all_connections_are_reset(wire: Wire) -> None:
    with connected(wire) as one, connected(wire) as other:
        for each in (one, other):
            said(each, b"x")
        wire.reset()
        for each in (one, other):
            with pytest.raises(ConnectionResetError):
                each.recv(1)


def test_half_open_connection_stays_silent_while_new_connection_works(wire: Wire) -> None:
    with connected(wire) as dead:
        said(dead, b"x")
        with wire.deaf(), connected(wire) as client:
            dead.sendall(b"x")
            said(client, b"x")
            dead.settimeout(0.2)
            with pytest.raises(TimeoutError):
                dead.recv(1)
        with pytest.raises(ConnectionResetError):
            dead.recv(1)


def test_a_broker_that_is_away_shows_as_a_connection_that_is_closed_at_once() -> None:
    port, nobody = free_ports(2)
    with Wire({port: ("127.0.0.1", nobody)}) as wire, connected(wire) as client:
        assert client.recv(1) == b""
