"""A client that speaks single Kafka messages over a trio socket, and hides nothing."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from proxy.demo.batches import Batch, Record, encode_batch, split
from proxy.demo.broker import KEYS
from proxy.demo.messages import encode_request, read_response

__all__ = ["Raw", "batches_in", "dial", "value_batch"]

_TIMEOUT_S: Final = 20.0


class Raw:
    """One connection. A call waits for its answer; ``send`` and ``receive`` are its halves."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._correlation_id = 0
        self._expected: list[tuple[int, int, int]] = []

    async def call(self, api: str, version: int, said: Mapping[str, Any]) -> Any:
        """kio's response entity."""
        await self.send(api, version, said)
        return await self.receive()

    async def send(self, api: str, version: int, said: Mapping[str, Any]) -> None:
        self._correlation_id += 1
        self._expected.append((KEYS[api], version, self._correlation_id))
        await self.send_frame(encode_request(KEYS[api], version, self._correlation_id, "raw", said))

    async def receive(self) -> Any:
        key, version, correlation_id = self._expected.pop(0)
        frame = await self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        got, body = read_response(key, version, frame)
        assert got == correlation_id
        return body

    async def send_frame(self, frame: bytes) -> None:
        """Send bytes as they are; the size prefix is the caller's."""
        await self._stream.send_all(frame)

    async def receive_frame(self) -> bytes | None:
        """The next frame without its size prefix; None if the peer closed."""
        buffer = self._buffer
        with trio.fail_after(_TIMEOUT_S):
            while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
                try:
                    chunk = await self._stream.receive_some(65536)
                except trio.BrokenResourceError:
                    return None
                if not chunk:
                    return None
                buffer += chunk
        end = 4 + int.from_bytes(buffer[:4], "big")
        frame = bytes(buffer[4:end])
        del buffer[:end]
        return frame


@asynccontextmanager
async def dial(address: str) -> AsyncIterator[Raw]:
    """Connect to the first of ``host:port,host:port…``."""
    host, port = address.split(",")[0].rsplit(":", 1)
    with trio.fail_after(_TIMEOUT_S):
        stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        yield Raw(stream)


def value_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One uncompressed batch."""
    return encode_batch([Record(value, timestamp_ms=timestamp_ms) for value in values])


def batches_in(records: bytes | None) -> list[Batch]:
    """The batches of a fetch answer."""
    return list(split(records or b""))
