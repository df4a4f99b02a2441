"""A tap between clients and brokers that forwards every byte, counts them, and decodes fetch requests.

It decodes with kio, not with the proxy's codec, so that it is an independent witness. It runs in threads, for tests
of any kind::

    client --> listener --> [request frames read] --> broker
           <-- [sizes, session ids read] <----------
"""

import contextlib
import queue
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import attrs
from kio.index import load_request_schema
from kio.serial import entity_reader
from kio.static.primitive import i16

__all__ = ["SeenFetch", "Tap"]

FETCH = 1
_HEAD = 64
"""Bytes of an answer that are looked at: more than its header and the top of a Fetch answer take."""


@attrs.define
class SeenFetch:
    """One Fetch request, and its answer once that has passed."""

    port: int
    """The port of the tap, which identifies the broker."""
    connection: int
    """Numbered from 1 in the order of arrival."""
    client_id: str | None
    version: int
    session_id: int
    epoch: int
    """0 asks for a session, -1 for none; versions below 7 count as -1."""
    named: int | None
    """Partitions in the request; None below version 4, which is not read."""
    forgotten: int
    request_bytes: int
    """With the size prefix, as are all bytes here."""
    response_bytes: int = 0
    """0 while unanswered."""
    granted_id: int = 0
    """The answer's session id."""
    error: int = 0
    """The answer's top-level error code."""

    @property
    def is_incremental(self) -> bool:
        return self.session_id != 0 and self.epoch > 0


class Tap:
    """Listeners on each port of *routes* that forward to its address, while in context.

    The counts may be read at any time. An unavailable broker shows as a connection that is closed at once.
    """

    def __init__(
        self, routes: Mapping[int, tuple[str, int]], *, host: str = "127.0.0.1", delay_s: float = 0.0
    ) -> None:
        """*delay_s*: how long every byte is on its way, each way."""
        self._routes = dict(routes)
        self._host = host
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listeners: list[socket.socket] = []
        self._sockets: set[socket.socket] = set()
        self._closing = False
        self.connections = 0
        self.forget()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self._routes)

    def forget(self) -> None:
        """Count from nothing again; connections stay."""
        with self._lock:
            self.bytes_up = 0
            self.bytes_down = 0
            self.requests: Counter[tuple[int, int]] = Counter()
            self.fetches: list[SeenFetch] = []

    def answered(self) -> list[SeenFetch]:
        """The fetches that have been answered, oldest first."""
        with self._lock:
            return [fetch for fetch in self.fetches if fetch.response_bytes]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self._close)
            for port in self._routes:
                listener = socket.create_server((self._host, port))
                self._listeners.append(listener)
                self._start(self._accept, listener, port)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        with self._lock:
            self._closing = True
            for each in [*self._listeners, *self._sockets]:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for listener in self._listeners:
            listener.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name=f"tap-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._start(self._serve, client, port)

    def _serve(self, client: socket.socket, port: int) -> None:
        with client:
            try:
                broker = socket.create_connection(self._routes[port], timeout=5)
            except OSError:
                return
            with broker:
                broker.settimeout(None)
                with self._lock:
                    if self._closing:
                        return
                    self.connections += 1
                    conversation = _Conversation(self, self._lock, port, self.connections)
                    self._sockets |= {client, broker}
                for each in (client, broker):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with _sender(client, self._delay_s) as to_client, _sender(broker, self._delay_s) as to_broker:
                    backward = (broker, client, to_client, conversation.down)
                    down = threading.Thread(target=_pump, args=backward, daemon=True)
                    down.start()
                    _pump(client, broker, to_broker, conversation.up)
                    down.join()
                with self._lock:
                    self._sockets -= {client, broker}


_Send = Callable[[memoryview], None]


@contextlib.contextmanager
def _sender(sink: socket.socket, delay_s: float) -> Iterator[_Send]:
    """Return a function that sends to *sink* at once, or so much later without holding up other data."""
    if not delay_s:
        yield sink.sendall
        return
    late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def send_late() -> None:
        with contextlib.suppress(OSError):
            while (each := late.get())[1]:
                time.sleep(max(each[0] - time.monotonic(), 0.0))
                sink.sendall(each[1])

    thread = threading.Thread(target=send_late, daemon=True)
    thread.start()
    try:
        yield lambda data: late.put((time.monotonic() + delay_s, bytes(data)))
    finally:
        late.put((0.0, b""))
        thread.join()


def _pump(source: socket.socket, sink: socket.socket, send: _Send, look: Callable[[memoryview], None]) -> None:
    """Forward until either end goes, then break both: Kafka knows no half-closed connections."""
    buffer = memoryview(bytearray(1 << 18))
    with contextlib.suppress(OSError):
        while count := source.recv_into(buffer):
            look(buffer[:count])
            send(buffer[:count])
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class _Frames:
    """Cuts a byte stream into frames, of which it keeps at most *limit* bytes each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = bytearray()
        self._kept = bytearray()
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[bytes, int]]:
        """Yield (start of the frame, its whole size with the prefix) for each frame that *data* completes."""
        while data:
            if len(self._size) < 4:
                taken = 4 - len(self._size)
                self._size += data[:taken]
                data = data[taken:]
                if len(self._size) == 4:
                    (self._left,) = struct.unpack(">i", self._size)
            else:
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                self._kept += part[: self._limit - len(self._kept)]
            if len(self._size) == 4 and self._left == 0:
                total = struct.unpack(">i", self._size)[0] + 4
                yield bytes(self._kept), total
                self._size.clear()
                self._kept.clear()


class _Conversation:
    """The messages of one connection, counted by its tap."""

    def __init__(self, tap: Tap, lock: threading.Lock, port: int, number: int) -> None:
        self._tap, self._lock, self._port, self._number = tap, lock, port, number
        self._up, self._down = _Frames(limit=1 << 24), _Frames(limit=_HEAD)
        self._unanswered: deque[tuple[int, SeenFetch]] = deque()

    def up(self, data: memoryview) -> None:
        """Look at bytes of requests, before they are forwarded: an answer never comes before its request."""
        with self._lock:
            self._tap.bytes_up += len(data)
            for frame, size in self._up.feed(data):
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                self._tap.requests[key, version] += 1
                if key == FETCH:
                    fetch = _read_fetch(frame, version, self._port, self._number, size)
                    self._tap.fetches.append(fetch)
                    self._unanswered.append((correlation_id, fetch))

    def down(self, data: memoryview) -> None:
        """Look at bytes of answers; the connection's fetches are answered in their order."""
        with self._lock:
            self._tap.bytes_down += len(data)
            for frame, size in self._down.feed(data):
                (correlation_id,) = struct.unpack_from(">i", frame)
                if self._unanswered and self._unanswered[0][0] == correlation_id:
                    _, fetch = self._unanswered.popleft()
                    fetch.response_bytes = size
                    if fetch.version >= 7:
                        # correlation id, tags from version 12, throttle time; then the session id
                        at = 4 + (fetch.version >= 12) + 4
                        fetch.error, fetch.granted_id = struct.unpack_from(">hi", frame, at)


def _read_fetch(frame: bytes, version: int, port: int, connection: int, size: int) -> SeenFetch:
    at = 8
    (length,) = struct.unpack_from(">h", frame, at)
    at += 2
    client_id = None if length < 0 else frame[at : at + length].decode()
    at += max(length, 0)
    seen = SeenFetch(port, connection, client_id, version, 0, -1, None, 0, size)
    if version < 4:
        return seen
    at += version >= 12  # the header's tags: none in any client known
    request: Any
    request, _ = entity_reader(load_request_schema(FETCH, i16(version)))(frame, at)
    seen.named = sum(len(topic.partitions) for topic in request.topics)
    if version >= 7:
        seen.session_id, seen.epoch = request.session_id, request.session_epoch
        seen.forgotten = sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    return seen
