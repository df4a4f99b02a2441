"""A TCP relay between brokers and their clients that forwards every byte and counts the cost of fetches.

Real brokers do not report the bytes of their fetches; they can be configured to advertise the relay's address
instead of their own.
"""

import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from proxy.demo.costs import FetchCost
from proxy.wire.fetch import read_request, read_response, request_layout
from proxy.wire.headers import read_request_header

__all__ = ["Tap", "tap"]

_FETCH: Final = 1
_CHUNK_BYTES: Final = 256 * 1024
_MOST_KEPT_BYTES: Final = 1 << 24
"""The size of the largest frame whose records are counted; no demo sends a larger one."""


class _Frames:
    """A splitter of a stream of bytes into frames; it keeps at most the first *keep_bytes* of each."""

    def __init__(self, *, keep_bytes: int) -> None:
        self._keep = keep_bytes
        self._prefix = bytearray()
        self._kept = bytearray()
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[bytes, int]]:
        """Yield (the start of the frame, its size with the prefix) for each frame that *data* completes."""
        while data:
            if len(self._prefix) < 4:
                taken = 4 - len(self._prefix)
                self._prefix += data[:taken]
                data = data[taken:]
                if len(self._prefix) == 4:
                    self._left = int.from_bytes(self._prefix, "big")
            else:
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                self._kept += part[: self._keep - len(self._kept)]
            if len(self._prefix) == 4 and self._left == 0:
                frame, size = bytes(self._kept), int.from_bytes(self._prefix, "big") + 4
                self._prefix.clear()
                self._kept.clear()
                yield frame, size


@attrs.define
class Tap:
    """Counts of the answered fetches that passed a relay: requests, partitions named in them, and bytes both ways.

    They are updated with each response. Bytes of requests and responses include the 4-byte size prefix of frames.
    """

    fetches: int = 0
    named: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    record_bytes: Counter[int] = attrs.field(factory=Counter)
    """Bytes of records in the responses, by the broker's port."""

    @property
    def cost(self) -> FetchCost:
        return FetchCost(self.fetches, self.named, self.request_bytes, self.response_bytes)


class _Conversation:
    """A relayed connection whose fetches are counted; their responses are found by a queue of correlation ids."""

    def __init__(self, tap: Tap, port: int) -> None:
        self._tap = tap
        self._port = port
        self._up = _Frames(keep_bytes=_MOST_KEPT_BYTES)
        self._down = _Frames(keep_bytes=_MOST_KEPT_BYTES)
        self._in_flight: deque[tuple[int, int, int, int]] = deque()

    def count_requests(self, data: memoryview) -> None:
        for frame, size in self._up.feed(data):
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            if key == _FETCH:
                request = read_request(*read_request_header(frame))
                stride = request_layout(request.version).stride
                named = sum(len(section.entries) // stride for section in request.sections)
                self._in_flight.append((correlation_id, request.version, size, named))

    def count_responses(self, data: memoryview) -> None:
        for frame, size in self._down.feed(data):
            if self._in_flight and self._in_flight[0][0] == int.from_bytes(frame[:4], "big", signed=True):
                _, version, request_bytes, named = self._in_flight.popleft()
                self._tap.fetches += 1
                self._tap.named += named
                self._tap.request_bytes += request_bytes
                self._tap.response_bytes += size
                if size <= _MOST_KEPT_BYTES:
                    self._tap.record_bytes[self._port] += read_response(version, frame).record_bytes


@asynccontextmanager
async def tap(routes: Mapping[int, int]) -> AsyncIterator[Tap]:
    """Return an async context manager that relays connections on loopback and counts the fetches in them.

    Its value has the counts, which are updated until it ends.

    Args:  routes: the broker's port by the port to listen on.
    """
    seen = Tap()

    async def serve(client: trio.SocketStream, port: int) -> None:
        async with client:
            try:
                broker = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                return
            async with broker, trio.open_nursery() as both:
                talk = _Conversation(seen, port)
                both.start_soon(_pump, client, broker, talk.count_requests, both.cancel_scope)
                both.start_soon(_pump, broker, client, talk.count_responses, both.cancel_scope)

    async with trio.open_nursery() as nursery:
        for port, target in routes.items():
            listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")

            async def handle(client: trio.SocketStream, target: int = target) -> None:
                await serve(client, target)

            nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield seen
        nursery.cancel_scope.cancel()


async def _pump(
    source: trio.SocketStream,
    sink: trio.SocketStream,
    look: Callable[[memoryview], None],
    scope: trio.CancelScope,
) -> None:
    """Forward bytes from *source* to *sink*, after a call of *look* with them, until either end closes.

    Then cancel *scope*, which holds both directions: Kafka has no half-closed connections.
    """
    try:
        while chunk := await source.receive_some(_CHUNK_BYTES):
            look(memoryview(chunk))
            await sink.send_all(chunk)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()
