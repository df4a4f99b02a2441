"""One broker of the embedded cluster, a Kafka cluster in this process: its listener, connections and counters."""

import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

import attrs
import trio

from proxy.demo.fetching import FetchHandler
from proxy.demo.groups import Groups
from proxy.demo.messages import ApiKey, ReceivedRequest, encode_response, read_request, served
from proxy.demo.requests import Handlers
from proxy.demo.state import ClusterState, EmbeddedPartition
from proxy.errors import ErrorCode
from proxy.session.downstream import FetchSessionCache

__all__ = ["API_VERSIONS", "KEYS", "Counters", "EmbeddedBroker", "VersionRange"]

VersionRange = tuple[int, int]
"""The oldest and the newest version of an API that a broker serves."""

KEYS: Final[Mapping[str, ApiKey]] = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "api_versions": 18,
    "create_topics": 19,
    "delete_topics": 20,
    "init_producer_id": 22,
    "offset_for_leader_epoch": 23,
    "describe_cluster": 60,
}
API_VERSIONS: Final[Mapping[str, VersionRange]] = {name: served(name) for name in KEYS}
"""The default versions of a broker, by API: all that the library kio has."""
_API_VERSIONS_KEY: Final = KEYS["api_versions"]
_FETCH_KEY: Final = KEYS["fetch"]
_PRODUCE_KEY: Final = KEYS["produce"]
_MAX_FRAME_BYTES: Final = 100 * 1024 * 1024


@attrs.define
class Counters:
    """Counts of a broker's connections, requests and fetch traffic, since its creation or the last ``reset``.

    Bytes of requests and responses include the 4-byte size prefix of each frame.
    """

    connections: int = 0
    fetches: int = 0
    incremental_fetches: int = 0
    """The number of ``fetches`` that are incremental: within a fetch session (KIP-227), after its first fetch."""
    fetch_request_bytes: int = 0
    fetch_response_bytes: int = 0
    record_bytes: int = 0
    """The part of ``fetch_response_bytes`` that is records."""
    partitions_named: int = 0
    """Partitions in fetch requests."""
    partitions_answered: int = 0
    """Partitions in fetch responses."""
    requests: Counter[tuple[ApiKey, int]] = attrs.field(factory=Counter)
    """Requests by API key and version."""

    @classmethod
    def total(cls, each: Iterable["Counters"]) -> "Counters":
        total = cls()
        for counters in each:
            for field in attrs.fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(counters, field.name))
        return total


class _Closed(Exception):
    """An error after which the broker closes the client's connection, such as a request that cannot be decoded."""


class EmbeddedBroker:
    """A Kafka broker in this process: ``serve`` starts it, ``stop`` ends it, and it can be started again.

    Its counters and settings last from one start to the next; its fetch sessions do not.
    """

    def __init__(
        self,
        node: int,
        state: ClusterState,
        groups: Groups,
        changed: Callable[[EmbeddedPartition], None],
        *,
        slots: int,
        session_ids: Callable[[], int],
        versions: Mapping[str, VersionRange],
        producer_ids: Iterator[int] | None = None,
    ) -> None:
        self.node = node
        self.counters = Counters()
        self.sessions = FetchSessionCache(slots, session_ids)
        self.versions: dict[str, VersionRange] = {**API_VERSIONS, **versions}
        """The versions that are served, by API; changes take effect with the next request."""
        self.fetcher = FetchHandler(node, state, self.sessions)
        self._new_sessions = partial(FetchSessionCache, slots, session_ids)
        self._names = {key: name for name, key in KEYS.items()}
        self._scope: trio.CancelScope | None = None
        self._ended: trio.Event | None = None
        handlers = Handlers(node, state, changed, producer_ids or count(1000))
        groups_of = groups.at(node)
        self._answers: dict[str, Callable[[ReceivedRequest], Any]] = {
            "produce": handlers.produce,
            "list_offsets": handlers.list_offsets,
            "metadata": handlers.metadata,
            "find_coordinator": handlers.find_coordinator,
            "create_topics": handlers.create_topics,
            "delete_topics": handlers.delete_topics,
            "init_producer_id": handlers.init_producer_id,
            "offset_for_leader_epoch": handlers.offset_for_leader_epoch,
            "describe_cluster": handlers.describe_cluster,
            "api_versions": self._api_versions,
            "offset_commit": groups_of.offset_commit,
            "offset_fetch": groups_of.offset_fetch,
        }
        self._waits: dict[str, Callable[[ReceivedRequest], Awaitable[Any]]] = {
            "fetch": self._fetch,
            "join_group": groups_of.join,
            "sync_group": groups_of.sync,
            "heartbeat": groups_of.heartbeat,
            "leave_group": groups_of.leave,
        }

    async def serve(self, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve clients on *port* of 127.0.0.1, or on a free port if it is 0, until ``stop`` or cancellation.

        ``task_status`` gets the actual port once the broker listens. If a stopped ``serve`` has not ended yet, wait
        for that first, because the port is in use until then. The broker begins without fetch sessions.
        """
        if self._ended is not None:
            await self._ended.wait()  # the port is still in use until then
        self._ended = trio.Event()
        self.sessions = self.fetcher.sessions = self._new_sessions()
        try:
            with trio.CancelScope() as self._scope:
                (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
                async with trio.open_nursery() as nursery:
                    task_status.started(listener.socket.getsockname()[1])
                    await trio.serve_listeners(self._serve_client, [listener], handler_nursery=nursery)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Cancel the running ``serve``, which then closes the listener and every connection.

        The call does not wait for that. It has no effect if the last ``serve`` has ended.

        Raises: AssertionError: ``serve`` was never called.
        """
        assert self._scope is not None
        self._scope.cancel()

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        self.counters.connections += 1
        try:
            async with stream:
                frames = _Frames(stream)
                while (frame := await frames.next()) is not None:
                    answer = await self._answer(frame)
                    if answer:
                        await stream.send_all(answer)
        except (_Closed, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _answer(self, frame: bytes) -> bytes:
        """Return the response frame; empty for a produce request with acks 0, which has no response.

        Raises: _Closed: a broker would close the connection instead.
        """
        if len(frame) < 8:
            raise _Closed
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        name = self._names.get(key)
        if name is None:
            raise _Closed
        self.counters.requests[(key, version)] += 1
        oldest, newest = self.versions[name]
        if not oldest <= version <= newest:
            if key != _API_VERSIONS_KEY:
                raise _Closed
            only = [{"api_key": key, "min_version": oldest, "max_version": newest}]
            refusal = {"error_code": ErrorCode.unsupported_version, "api_keys": only}
            return encode_response(key, 0, correlation_id, refusal)
        try:
            request = read_request(frame)
        except Exception as malformed:
            raise _Closed from malformed
        if key == _FETCH_KEY:
            self.counters.fetch_request_bytes += len(frame) + 4
        said = self._answers[name](request) if name in self._answers else await self._waits[name](request)
        if key == _PRODUCE_KEY and request.body.acks == 0:
            if any(p.get("error_code") for topic in said["responses"] for p in topic["partition_responses"]):
                raise _Closed
            return b""
        answer = encode_response(key, version, correlation_id, said)
        if key == _FETCH_KEY:
            self.counters.fetch_response_bytes += len(answer)
            self.counters.partitions_answered += sum(len(topic["partitions"]) for topic in said["responses"])
            self.counters.record_bytes += sum(
                len(partition["records"]) for topic in said["responses"] for partition in topic["partitions"]
            )
        return answer

    async def _fetch(self, request: ReceivedRequest) -> dict[str, Any]:
        body = request.body
        self.counters.fetches += 1
        self.counters.incremental_fetches += request.version >= 7 and body.session_epoch > 0
        self.counters.partitions_named += sum(len(topic.partitions) for topic in body.topics)
        return await self.fetcher.fetch(request)

    def _api_versions(self, request: ReceivedRequest) -> dict[str, Any]:  # noqa: ARG002
        keys = [
            # Kafka 4 reports 0 for Produce without serving it: otherwise librdkafka would stop compressing.
            {"api_key": KEYS[name], "min_version": 0 if name == "produce" else oldest, "max_version": newest}
            for name, (oldest, newest) in self.versions.items()
        ]
        return {"api_keys": keys}


class _Frames:
    """A reader that splits the bytes of a client's connection into frames, without their size prefix."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """Wait for the next frame and return it; None when the client has closed the connection.

        Raises: _Closed: the frame's size is negative or above 100 MiB.
        """
        buffer = self._buffer
        while True:
            if len(buffer) >= 4:
                size = int.from_bytes(buffer[:4], "big", signed=True)
                if not 0 <= size <= _MAX_FRAME_BYTES:
                    raise _Closed
                if len(buffer) >= 4 + size:
                    frame = bytes(memoryview(buffer)[4 : 4 + size])
                    del buffer[: 4 + size]
                    return frame
            chunk = await self._stream.receive_some(256 * 1024)
            if not chunk:
                return None
            buffer += chunk
