"""A minimal Kafka client that sends single requests: for creating topics, for probing, and for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from proxy.demo.broker import KEYS
from proxy.demo.messages import encode_request, read_response

__all__ = ["KafkaConnection", "connect"]

_TIMEOUT_S: Final = 20.0


class KafkaConnection:
    """A connection to a broker, on which ``call`` sends a request and returns its response.

    ``send`` and ``receive`` are the two halves of a call, so that several requests can be in flight; responses are
    received in the order of the requests.

    Raises: OSError, by each method: the broker closed the connection, or did not answer within 20 s.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._correlation_id = 0
        self._expected: list[tuple[int, int, int]] = []

    async def call(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request, wait for the response, and return its body as a message object of the library kio.

        No other response may be outstanding on the connection.

        Args:   api: its name in ``broker.KEYS``, such as ``list_offsets``.
                values: the fields of the request's body, as nested dicts; fields that are left out get a default.
        Raises: OSError: the broker closed the connection, or did not answer within 20 s.
        """
        await self.send(api, version, values)
        return await self.receive()

    async def send(self, api: str, version: int, values: Mapping[str, Any]) -> None:
        self._correlation_id += 1
        self._expected.append((KEYS[api], version, self._correlation_id))
        frame = encode_request(KEYS[api], version, self._correlation_id, "sidefetch-demo", values)
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
        """Send *frame* unchanged; it must begin with its 4-byte size prefix. Its response is for ``receive_frame``.

        Raises: ConnectionResetError: the broker closed the connection.
        """
        try:
            await self.stream.send_all(frame)
        except trio.BrokenResourceError as broken:
            raise ConnectionResetError("the broker closed the connection") from broken

    async def receive_frame(self) -> bytes | None:
        """Wait for the next frame and return it without its size prefix; None if the broker closed the connection.

        Raises: TimeoutError: there is no whole frame within 20 s.
        """
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
    """Return an async context manager for a connection to a broker, which it closes at the end.

    Args:   address: ``host:port,host:port…``: the first that accepts a connection is used.
            timeout_s: the time in which each may accept it.
    Raises: OSError: none accepts a connection; the message has the reason for each.
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
