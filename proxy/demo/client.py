"""A client that sends single Kafka messages: for creating topics, for probing, and for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from proxy.demo.broker import KEYS
from proxy.demo.messages import encode_request, read_response

__all__ = ["KafkaConnection", "connect"]

_TIMEOUT_S: Final = 20.0


class KafkaConnection:
    """One connection to one broker. A call waits for its response; ``send`` and ``receive`` are its halves.

    Raises: OSError: the broker closed the connection, or did not answer within 20 s.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._correlation_id = 0
        self._expected: list[tuple[int, int, int]] = []

    async def call(self, api: str, version: int, said: Mapping[str, Any]) -> Any:
        """Send a request and return the response as kio's entity."""
        await self.send(api, version, said)
        return await self.receive()

    async def send(self, api: str, version: int, said: Mapping[str, Any]) -> None:
        self._correlation_id += 1
        self._expected.append((KEYS[api], version, self._correlation_id))
        frame = encode_request(KEYS[api], version, self._correlation_id, "sidefetch-demo", said)
        await self.send_frame(frame)

    async def receive(self) -> Any:
        key, version, correlation_id = self._expected.pop(0)
        frame = await self.receive_frame()
        if frame is None:
            raise ConnectionResetError("the broker closed the connection")
        got, body = read_response(key, version, frame)
        assert got == correlation_id, f"answer {got} to request {correlation_id}"
        return body

    async def send_frame(self, frame: bytes) -> None:
        """Send bytes unchanged; they must include the size prefix."""
        try:
            await self.stream.send_all(frame)
        except trio.BrokenResourceError as broken:
            raise ConnectionResetError("the broker closed the connection") from broken

    async def receive_frame(self) -> bytes | None:
        """Return the next frame without its size prefix; None if the peer closed the connection."""
        buffer = self._buffer
        with trio.move_on_after(_TIMEOUT_S) as timeout:
            while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
                try:
                    chunk = await self.stream.receive_some(65536)
                except trio.BrokenResourceError:
                    return None
                if not chunk:
                    return None
                buffer += chunk
        if timeout.cancelled_caught:
            raise TimeoutError(f"no answer within {_TIMEOUT_S:g} s")
        end = 4 + int.from_bytes(buffer[:4], "big")
        frame = bytes(buffer[4:end])
        del buffer[:end]
        return frame


@asynccontextmanager
async def connect(address: str, timeout_s: float = _TIMEOUT_S) -> AsyncIterator[KafkaConnection]:
    """Connect to the first of ``host:port,host:port…`` that accepts a connection.

    Raises: OSError: none does.
    """
    problems = []
    for each in address.split(","):
        host, port = each.rsplit(":", 1)
        stream = None
        with trio.move_on_after(timeout_s):
            try:
                stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
            except OSError as error:
                problems.append(f"{each}: {error}")
        if stream is not None:
            async with stream:
                yield KafkaConnection(stream)
            return
        if len(problems) == 0 or not problems[-1].startswith(each):
            problems.append(f"{each}: no connection within {timeout_s:g} s")
    raise ConnectionRefusedError("; ".join(problems))
