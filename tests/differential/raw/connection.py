"""A blocking connection that sends any request in any version and reads responses when the test wants them."""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import attrs

from tests.differential.raw.messages import Apis, Values, decode_response, encode_request

__all__ = ["BrokenConversationError", "Connection"]


class BrokenConversationError(Exception):
    """The peer closed the connection, did not answer in time, or answered something else than it was asked."""


@attrs.frozen
class _Sent:
    key: int
    version: int
    correlation_id: int


class Connection:
    """Closed when its context ends."""

    def __init__(self, address: str, client_id: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._sent: list[_Sent] = []
        self._correlation_id = 0
        self._versions: Mapping[int, tuple[int, int]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, key: int, version: int, values: Values) -> None:
        try:
            self._socket.sendall(self._encode(key, version, values))
        except OSError as error:
            raise BrokenConversationError(f"request {key} v{version} could not be sent: {error}") from error

    @contextlib.contextmanager
    def pipelined(self, requests: Iterable[tuple[int, int, Values]]) -> Iterator[None]:
        """Send requests, while in context, whether or not responses are read in the meantime."""
        frames = [self._encode(*each) for each in requests]

        def send() -> None:
            with contextlib.suppress(OSError):  # ``receive`` reports it
                for frame in frames:
                    self._socket.sendall(frame)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        yield
        thread.join()

    def _encode(self, key: int, version: int, values: Values) -> bytes:
        self._correlation_id += 1
        frame = encode_request(key, version, self._correlation_id, self._client_id, values)
        self._sent.append(_Sent(key, version, self._correlation_id))
        return struct.pack(">i", len(frame)) + frame

    def receive(self, timeout_s: float = 30.0) -> Values:
        """Return the body of the next response."""
        sent = self._sent.pop(0)
        frame = self._frame(sent, time.monotonic() + timeout_s)
        try:
            correlation_id, values, _ = decode_response(sent.key, sent.version, frame)
        except (ValueError, IndexError, struct.error) as error:
            raise BrokenConversationError(f"unreadable response to {sent}: {error!r} {frame[:80].hex()}") from error
        if correlation_id != sent.correlation_id:
            raise BrokenConversationError(f"response {correlation_id} to request {sent}")
        return values

    def ask(self, key: int, version: int, values: Values, timeout_s: float = 30.0) -> Values:
        self.send(key, version, values)
        return self.receive(timeout_s)

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return the oldest and the newest version of each API, as the peer says; asked once."""
        if self._versions is None:
            said = self.ask(Apis.API_VERSIONS, 0, {})["api_keys"]
            versions = {each["api_key"]: (each["min_version"], each["max_version"]) for each in said}
            if versions[Apis.LIST_OFFSETS][0]:
                # Kafka 4 names Produce versions that it does not serve, for old librdkafka (KAFKA-18659).
                versions[Apis.PRODUCE] = (3, versions[Apis.PRODUCE][1])
            self._versions = versions
        return self._versions

    def _frame(self, sent: _Sent, deadline: float) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4, sent, deadline))
        return self._exactly(size, sent, deadline)

    def _exactly(self, size: int, sent: _Sent, deadline: float) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            # A timeout of the socket would hold for who sends at the same time, too.
            ready, _, _ = select.select([self._socket], (), (), max(deadline - time.monotonic(), 0))
            if not ready:
                raise BrokenConversationError(f"no response to {sent} in time")
            try:
                count = self._socket.recv_into(view)
            except OSError as error:
                raise BrokenConversationError(f"no response to {sent}: {error}") from error
            if not count:
                raise BrokenConversationError(f"the peer closed the connection instead of answering {sent}")
            view = view[count:]
        return bytes(data)
