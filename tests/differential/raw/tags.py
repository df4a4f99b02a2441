"""A relay that puts unknown tagged fields into brokers' responses, as newer brokers may (KIP-482)."""

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from tests.differential.raw.messages import TagSection, decode_response, is_flexible_response, varint

__all__ = ["TagRelay", "with_unknown_tags"]

_TAG: Final = 5_000
_VALUE: Final = b"unknown"


def with_unknown_tags(key: int, version: int, frame: bytes) -> bytes:
    """Return a response of a flexible version with one more tagged field in every structure; others as they are."""
    if not is_flexible_response(key, version):
        return frame
    _, _, sections = decode_response(key, version, frame)
    pieces: list[bytes] = []
    at = 0
    for section in _in_order(sections):
        pieces += [frame[at : section.start], varint(section.count + 1), frame[section.first : section.end]]
        pieces.append(varint(_TAG) + varint(len(_VALUE)) + _VALUE)
        at = section.end
    return b"".join([*pieces, frame[at:]])


def _in_order(sections: list[TagSection]) -> list[TagSection]:
    """Return the sections that are in no other one: the sizes of tagged fields stay as they are."""
    found: list[TagSection] = []
    for section in sorted(sections, key=lambda each: (each.start, -each.end)):
        if not found or section.start >= found[-1].end:
            found.append(section)
    return found


class TagRelay:
    """Listen on each port of *routes* and forward to its address, while in context."""

    def __init__(self, routes: Mapping[int, tuple[str, int]]) -> None:
        self._routes = dict(routes)
        self._sockets: list[socket.socket] = []
        self.changed = 0
        """Responses that got unknown tags."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._routes)

    def __enter__(self) -> Self:
        for port, address in self._routes.items():
            listener = socket.create_server(("127.0.0.1", port))
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=(listener, address), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket, address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                broker = socket.create_connection(address, timeout=5)
                broker.settimeout(None)
                self._sockets += [client, broker]
                sent: deque[tuple[int, int, int]] = deque()
                threading.Thread(target=self._forward, args=(client, broker, sent), daemon=True).start()
                threading.Thread(target=self._backward, args=(broker, client, sent), daemon=True).start()

    def _forward(self, client: socket.socket, broker: socket.socket, sent: deque[tuple[int, int, int]]) -> None:
        with _both_ended(client, broker):
            while (frame := _read_frame(client)) is not None:
                sent.append(struct.unpack_from(">hhi", frame))
                broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _backward(self, broker: socket.socket, client: socket.socket, sent: deque[tuple[int, int, int]]) -> None:
        with _both_ended(client, broker):
            while (frame := _read_frame(broker)) is not None:
                (correlation_id,) = struct.unpack_from(">i", frame)
                # Requests without responses (acks 0) are passed over.
                while (request := sent.popleft())[2] != correlation_id:
                    pass
                changed = with_unknown_tags(request[0], request[1], frame)
                self.changed += changed != frame
                client.sendall(struct.pack(">i", len(changed)) + changed)


@contextlib.contextmanager
def _both_ended(*both: socket.socket):  # type: ignore[no-untyped-def]
    """Break both connections when one ends."""
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        for each in both:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _read_frame(source: socket.socket) -> bytes | None:
    head = _exactly(source, 4)
    return None if head is None else _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(min(size - len(data), 1 << 18))
        if not piece:
            return None
        data += piece
    return bytes(data)
