"""Fetch responses in any version: decoding of brokers' responses, and encoding of the parts of those to clients."""

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, NamedTuple

import attrs

from proxy.wire.endpoints import Endpoint, read_endpoints, replace_tagged_endpoints, write_endpoints
from proxy.wire.fetch.types import IDS_VERSION, UNKNOWN, Topic, read_topic, write_count, write_topic
from proxy.wire.primitives import Cursor, write_tags

_I32: Final = struct.Struct(">i")
_BEFORE_TOPICS: Final = 4 + 2 + 4
"""The size of throttle time, error and session id."""


class PartitionReply(NamedTuple):
    """One partition of a Fetch response: error, offsets, records and more; absent fields are -1 or None."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    aborted: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset) of each aborted transaction; None under read_uncommitted."""
    preferred_read_replica: int = UNKNOWN
    records: bytes | memoryview = b""
    """A view of the frame; empty if records are null."""
    diverging_epoch: tuple[int, int] | None = None
    """The diverging epoch and its end offset; None if nothing diverges."""
    current_leader: tuple[int, int] | None = None
    """The leader's node id and leader epoch; None if the response does not have them."""


def erroneous(partition: int, error: int) -> PartitionReply:
    """Return the response of a partition with an error: no records, and unknown offsets."""
    return PartitionReply(partition, error, UNKNOWN, UNKNOWN, UNKNOWN, ())


_ONLY_ERROR: Final = erroneous(0, 0)[2:]
"""The fields of a partition that has only an error, from the high watermark on."""


@attrs.frozen
class FetchResponse:
    """A broker's decoded Fetch response, with partitions by topic.

    Fields of the response that its version lacks are 0 or empty; those of a partition are -1 or None, see
    ``PartitionReply``.
    """

    correlation_id: int
    throttle_ms: int
    error: int
    session_id: int
    topics: tuple[tuple[Topic, tuple[PartitionReply, ...]], ...]
    """The partitions of each topic, in the order of the response."""
    endpoints: tuple[Endpoint, ...]
    """The addresses of new leaders (v16 and later)."""

    @property
    def redirects(self) -> bool:
        """Whether any partition has a preferred read replica (KIP-392), to be read instead of the leader."""
        return any(reply.preferred_read_replica != UNKNOWN for _, replies in self.topics for reply in replies)

    @property
    def record_bytes(self) -> int:
        """The size in bytes of the records of all partitions together."""
        return sum(len(reply.records) for _, replies in self.topics for reply in replies)


@attrs.frozen
class ResponseLayout:
    """The encoding of Fetch responses in one version, part by part: header, topics, partitions, end.

    A *quiet* partition has no error and no records, and therefore a fixed size of ``stride`` bytes.
    """

    version: int
    flexible: bool
    by_id: bool
    quiet: struct.Struct
    quiet_tail: tuple[int, ...]
    """The fields of a quiet partition behind its offsets, under read_uncommitted."""
    committed_tail: tuple[int, ...]
    """The same fields under read_committed: an empty array of aborted transactions instead of null."""

    @property
    def stride(self) -> int:
        return self.quiet.size

    def pack_quiet(
        self, into: bytearray | memoryview, index: int, partition: int, offsets: tuple[int, ...], *, committed: bool
    ) -> None:
        """Encode a partition without error or records as item *index* of *into*, whose items have equal sizes.

        Args:
            partition: the partition's id.
            offsets: high watermark, last stable offset and log start offset; those that the version lacks are
                left out.
            committed: whether the isolation level is read_committed: the array of aborted transactions is then
                empty, otherwise null.
        """
        tail = self.committed_tail if committed else self.quiet_tail
        self.quiet.pack_into(into, index * self.stride, partition, 0, *offsets[: self._offsets], *tail)

    def quiet_offsets(self, written: bytearray | memoryview, index: int) -> tuple[int, ...]:
        """Decode the offsets of item *index* of *written*, which ``pack_quiet`` has encoded.

        They are the high watermark, the last stable offset (from v4 on) and the log start offset (from v5 on).
        """
        return self.quiet.unpack_from(written, index * self.stride)[2 : 2 + self._offsets]

    @property
    def _offsets(self) -> int:
        return 3 if self.version >= 5 else 2 if self.version >= 4 else 1

    def header(self, correlation_id: int, throttle_ms: int, error: int, topics: int, session_id: int = 0) -> bytes:
        """Encode the start of a response up to its first topic, without the frame's size.

        *error* is the top-level error, and *topics* the number of topics that follow. Fields that the version lacks
        are left out.
        """
        parts = [_I32.pack(correlation_id)]
        if self.flexible:
            parts.append(b"\0")
        if self.version >= 1:
            parts.append(_I32.pack(throttle_ms))
        if self.version >= 7:
            parts.append(struct.pack(">hi", error, session_id))
        parts.append(write_count(topics, flexible=self.flexible))
        return b"".join(parts)

    def topic(self, topic: Topic, partitions: int) -> bytes:
        named = write_topic(topic, flexible=self.flexible)
        return named + write_count(partitions, flexible=self.flexible)

    @property
    def topic_end(self) -> bytes:
        return b"\0" if self.flexible else b""

    def partition(self, reply: PartitionReply, record_bytes: int) -> tuple[bytes, bytes]:
        """Encode a partition without its records, as the bytes before and the bytes behind them.

        The caller must send *record_bytes* bytes of records between the two parts; ``reply.records`` is ignored.
        """
        if not record_bytes and reply[2:] == _ONLY_ERROR:
            unknown = (UNKNOWN,) * self._offsets
            return self.quiet.pack(reply.partition, reply.error, *unknown, *self.committed_tail), b""
        parts = [struct.pack(">ihq", reply.partition, reply.error, reply.high_watermark)]
        if self.version >= 4:
            parts.append(struct.pack(">q", reply.last_stable_offset))
        if self.version >= 5:
            parts.append(struct.pack(">q", reply.log_start_offset))
        if self.version >= 4:
            parts.append(self._write_aborted(reply.aborted))
        if self.version >= 11:
            parts.append(_I32.pack(reply.preferred_read_replica))
        parts.append(write_count(record_bytes, flexible=self.flexible))
        return b"".join(parts), self._write_partition_tags(reply) if self.flexible else b""

    def _write_aborted(self, aborted: tuple[tuple[int, int], ...] | None) -> bytes:
        if aborted is None:
            return b"\0" if self.flexible else b"\xff\xff\xff\xff"
        end = b"\0" if self.flexible else b""
        entries = [struct.pack(">qq", *each) + end for each in aborted]
        return write_count(len(entries), flexible=self.flexible) + b"".join(entries)

    def _write_partition_tags(self, reply: PartitionReply) -> bytes:
        tags: list[tuple[int, bytes]] = []
        if reply.diverging_epoch is not None:
            tags.append((0, struct.pack(">iqx", *reply.diverging_epoch)))
        if reply.current_leader is not None:
            tags.append((1, struct.pack(">iix", *reply.current_leader)))
        return write_tags(tags)

    def end(self, endpoints: Iterable[Endpoint]) -> bytes:
        """Encode the end of a response, behind its last topic: the new leaders' *endpoints*, from v16 on."""
        if not self.flexible:
            return b""
        listed = list(endpoints) if self.version >= 16 else []
        return write_tags([(0, write_endpoints(listed))] if listed else [])


@cache
def response_layout(version: int) -> ResponseLayout:
    form: str
    tail: tuple[int, ...]
    committed: tuple[int, ...]
    if version >= 12:
        form, tail, committed = ">ihqqqBiBB", (0, UNKNOWN, 1, 0), (1, UNKNOWN, 1, 0)
    elif version >= 11:
        form, tail, committed = ">ihqqqiii", (UNKNOWN, UNKNOWN, 0), (0, UNKNOWN, 0)
    elif version >= 5:
        form, tail, committed = ">ihqqqii", (UNKNOWN, 0), (0, 0)
    elif version >= 4:
        form, tail, committed = ">ihqqii", (UNKNOWN, 0), (0, 0)
    else:
        form, tail, committed = ">ihqi", (0,), (0,)
    return ResponseLayout(version, version >= 12, version >= IDS_VERSION, struct.Struct(form), tail, committed)


def read_response(version: int, frame: bytes | memoryview) -> FetchResponse:
    """Decode a broker's Fetch response; *version* is that of the request, and *frame* has no size prefix.

    Records are views of *frame*, not copies.

    Cost:   O(partitions in the response), which in a session are those that changed.
    Raises: MalformedFrame: the frame is shorter or longer than the response, or a count is impossible.
    """
    layout = response_layout(version)
    cursor = Cursor(frame)
    correlation_id = cursor.i32()
    if layout.flexible:
        cursor.skip_tags()
    throttle_ms = cursor.i32() if version >= 1 else 0
    error, session_id = (cursor.i16(), cursor.i32()) if version >= 7 else (0, 0)
    topics = tuple(
        _read_topic_replies(layout, cursor) for _ in range(cursor.count(flexible=layout.flexible, item_bytes=3))
    )
    endpoints: tuple[Endpoint, ...] = ()
    if layout.flexible:
        for tag, field in cursor.tags():
            if tag == 0 and version >= 16:
                endpoints = read_endpoints(Cursor(field))
    cursor.check_end()
    return FetchResponse(correlation_id, throttle_ms, error, session_id, topics, endpoints)


def replace_endpoints(
    version: int, frame: memoryview, replace: Callable[[Endpoint], Endpoint | None]
) -> list[bytes | memoryview]:
    """Replace the endpoints of new leaders in a Fetch response of v16 or later; all other fields stay as they are.

    *frame* has no size prefix. *replace* returns the new endpoint for each one, or None to leave it out. Return the
    new frame with its size, in pieces to be sent one after the other; the largest is a view of *frame*.

    Cost:   O(partitions in the response); records are not copied.
    Raises: MalformedFrame: as ``read_response``.
    """
    layout = response_layout(version)
    cursor = Cursor(frame)
    cursor.i32()
    cursor.skip_tags()
    cursor.take(_BEFORE_TOPICS)
    for _ in range(cursor.count(flexible=True, item_bytes=3)):
        _read_topic_replies(layout, cursor)
    topics = frame[: cursor.at]
    end = replace_tagged_endpoints(cursor, replace)
    return [_I32.pack(len(topics) + len(end)), topics, end]


def _read_topic_replies(layout: ResponseLayout, cursor: Cursor) -> tuple[Topic, tuple[PartitionReply, ...]]:
    topic = read_topic(cursor, by_id=layout.by_id, flexible=layout.flexible)
    count = cursor.count(flexible=layout.flexible, item_bytes=14)
    replies = tuple(_read_partition_reply(layout, cursor) for _ in range(count))
    if layout.flexible:
        cursor.skip_tags()
    return topic, replies


_ERROR_AND_OFFSETS: Final = {
    0: struct.Struct(">ihq"),
    4: struct.Struct(">ihqq"),
    5: struct.Struct(">ihqqq"),
}


def _read_partition_reply(layout: ResponseLayout, cursor: Cursor) -> PartitionReply:
    version, flexible = layout.version, layout.flexible
    form = _ERROR_AND_OFFSETS[5 if version >= 5 else 4 if version >= 4 else 0]
    partition, error, high_watermark, *offsets = form.unpack(cursor.take(form.size))
    last_stable_offset = offsets[0] if version >= 4 else UNKNOWN
    log_start_offset = offsets[1] if version >= 5 else UNKNOWN
    aborted = _read_aborted(cursor, flexible=flexible) if version >= 4 else None
    preferred = cursor.i32() if version >= 11 else UNKNOWN
    records = cursor.take(max(cursor.length(flexible=flexible), 0))
    diverging_epoch = current_leader = None
    if flexible:
        for tag, field in cursor.tags():
            if tag == 0:
                inner = Cursor(field)
                diverging_epoch = (inner.i32(), inner.i64())
            elif tag == 1:
                inner = Cursor(field)
                current_leader = (inner.i32(), inner.i32())
    return PartitionReply(
        partition,
        error,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        preferred,
        records,
        diverging_epoch,
        current_leader,
    )


def _read_aborted(cursor: Cursor, *, flexible: bool) -> tuple[tuple[int, int], ...] | None:
    count = cursor.nullable_count(flexible=flexible, item_bytes=16)
    if count < 0:
        return None
    entries = []
    for _ in range(count):
        entries.append((cursor.i64(), cursor.i64()))
        if flexible:
            cursor.skip_tags()
    return tuple(entries)
