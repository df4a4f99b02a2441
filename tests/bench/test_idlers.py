"""A client of many, against a broker of a few bytes."""

import socket
import struct
import time

import pytest

from tests.bench.idlers import Idler, fetches
from tests.bench.reader import Job
from tests.bench.small_broker import answer, served_by

BUFFER = bytearray(20)
"""Less than an answer."""


def test_fragmented_response_counts_when_complete() -> None:
    def serve(broker: socket.socket) -> None:
        whole = answer(0, b"")
        for piece in (whole[:10], whole[10:30], whole[30:], whole):
            broker.sendall(piece)
            time.sleep(0.02)

    with served_by(serve) as address:
        idler = Idler(address)
        read = 0
        with idler.socket:
            while idler.answers < 2:
                read += idler.read(BUFFER)

    assert read == 2


@pytest.mark.parametrize("wrong", [answer(1, b""), answer(0, b"")[:12] + b"\0\x6f" + answer(0, b"")[14:], b""])
def test_invalid_response_raises_connection_error(wrong: bytes) -> None:
    with served_by(lambda broker: broker.sendall(wrong)) as address:
        idler = Idler(address)
        with idler.socket, pytest.raises(ConnectionError):
            idler.read(BUFFER)


@pytest.mark.parametrize(("own_ids", "ids"), [(False, ["x", "x", "x"]), (True, ["x-0", "x-1", "x-2"])])
def test_first_fetches_do_not_wait_and_name_the_client(own_ids: bool, ids: list[str]) -> None:
    frames = fetches(Job("h:1", {"a": 1}, client_id="x", max_wait_ms=500), 3, own_ids=own_ids)

    for client_id, (first, again) in zip(ids, frames, strict=True):
        head = struct.pack(">h", len(client_id)) + client_id.encode() + struct.pack(">i", -1)
        assert first[12:].startswith(head + struct.pack(">i", 0))
        assert again[12:].startswith(head + struct.pack(">i", 500))
