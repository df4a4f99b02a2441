"""A broker of a few bytes, for the tests of the clients here: Fetch v11, of one partition of topic ``a``."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

__all__ = ["answer", "asked_offset", "empty_batch", "served_by", "take"]


def answer(correlation_id: int, records: bytes, *, partition: int = 0) -> bytes:
    body = struct.pack(">iihii", correlation_id, 0, 0, 0, 1) + struct.pack(">h1si", 1, b"a", 1)
    body += struct.pack(">ihqqqiii", partition, 0, 9, 9, 0, -1, -1, len(records)) + records
    return struct.pack(">i", len(body)) + body


def empty_batch(base: int, delta: int, time_us: int = 0) -> bytes:
    """Return a batch's header alone, of the offsets *base* to *base* + *delta*."""
    return struct.pack(">qiibIhiq", base, 61 - 12, 0, 2, 0, 0, delta, time_us) + bytes(26)


def take(broker: socket.socket) -> bytes:
    """One request, whole; nothing once the client has gone."""
    head = broker.recv(4, socket.MSG_WAITALL)
    return broker.recv(int.from_bytes(head), socket.MSG_WAITALL) if head else b""


def asked_offset(request: bytes) -> int:
    """Return the offset in a fetch of one partition."""
    (offset,) = struct.unpack_from(">q", request, len(request) - 26)
    assert isinstance(offset, int)
    return offset


@contextlib.contextmanager
def served_by(serve: Callable[[socket.socket], None], connections: int = 1) -> Iterator[str]:
    """The address of a broker that treats so many connections so, one after another."""

    def accept(listener: socket.socket) -> None:
        for _ in range(connections):
            broker, _ = listener.accept()
            with broker:
                serve(broker)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=accept, args=(listener,))
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        serving.join(10)
