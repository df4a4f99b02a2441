"""Fetch requests: decoding of those of clients, in any version, and encoding of Sidefetch's own."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import Final

import attrs

from proxy.errors import LimitReached, MalformedFrame
from proxy.wire.fetch.types import (
    IDS_VERSION,
    UNKNOWN,
    FetchPartition,
    PartitionKey,
    Topic,
    read_topic,
    write_count,
    write_topic,
)
from proxy.wire.headers import RequestHeader, write_request_header
from proxy.wire.primitives import Cursor, write_string

_I32: Final = struct.Struct(">i")
NO_LIMIT: Final = 2**31 - 1
_MOST_TAGS: Final = 10_000
"""The largest number of tagged fields of a request, beyond one for each partition that is let through."""
_LONGEST_NAME: Final = 249
"""The longest name of a topic in bytes (Kafka's ``Topic.MAX_NAME_LENGTH``)."""
_LENGTH_BYTES: Final = 2
"""The size of the length of the longest name, in either encoding."""


@attrs.frozen
class FetchOptions:
    """Parameters of a Fetch request that apply to the whole response: wait, byte limits, isolation level, rack."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int = NO_LIMIT
    """The limit of the response; NO_LIMIT below v3, which lacks it."""
    isolation: int = 0
    """0 reads all records, 1 only those of committed transactions."""
    rack_id: str = ""


@attrs.frozen
class RequestLayout:
    """The encoding of Fetch requests in one version: the layout of a partition, and its packing and unpacking.

    An *entry* is one encoded partition of a request. Entries have a fixed size, so that a topic's partitions can be
    compared and addressed as bytes: the tagged fields of flexible versions are only used by followers, and are cut
    out if they occur.
    """

    version: int
    flexible: bool
    by_id: bool
    entry: struct.Struct

    @property
    def stride(self) -> int:
        return self.entry.size

    def fetch_partition(self, fields: tuple[int, ...]) -> FetchPartition:
        """Convert *fields*, one entry as ``entry.unpack`` returns it, to the partition's fetch parameters.

        Leader epochs that the version does not have are -1. The partition's id, ``fields[0]``, is not part of the
        result.
        """
        if self.version >= 12:
            _, epoch, offset, last_fetched_epoch, _, max_bytes = fields
            return FetchPartition(offset, _intern_limit(max_bytes), epoch, last_fetched_epoch)
        if self.version >= 9:
            _, epoch, offset, _, max_bytes = fields
            return FetchPartition(offset, _intern_limit(max_bytes), epoch)
        return FetchPartition(fields[1], _intern_limit(fields[-1]))

    def pack(self, partition: int, ask: FetchPartition) -> bytes:
        """Encode one entry: the id *partition* and its fetch parameters *ask*, as far as the version has them.

        The log start offset, which only followers send, is -1.
        """
        if self.version >= 12:
            return self.entry.pack(partition, ask.epoch, ask.offset, ask.last_fetched_epoch, UNKNOWN, ask.max_bytes)
        if self.version >= 9:
            return self.entry.pack(partition, ask.epoch, ask.offset, UNKNOWN, ask.max_bytes)
        if self.version >= 5:
            return self.entry.pack(partition, ask.offset, UNKNOWN, ask.max_bytes)
        return self.entry.pack(partition, ask.offset, ask.max_bytes)


@lru_cache(64)
def _intern_limit(limit: int) -> int:
    """Return one object for all equal numbers: clients have the same limit for most of their partitions."""
    return limit


@cache
def request_layout(version: int) -> RequestLayout:
    if version >= 12:
        form = ">iiqiqix"  # the x is the count of tagged fields, 0
    elif version >= 9:
        form = ">iiqqi"
    elif version >= 5:
        form = ">iqqi"
    else:
        form = ">iqi"
    return RequestLayout(version, version >= 12, version >= IDS_VERSION, struct.Struct(form))


@attrs.frozen
class TopicSection:
    """A topic in a Fetch request with its encoded partitions; a request may name a topic in several sections."""

    topic: Topic
    entries: bytes
    """The topic's partitions, encoded in ``RequestLayout.stride`` bytes each."""


@attrs.frozen
class FetchRequest:
    """A decoded Fetch request of a client; its partitions stay encoded, in one section for each topic."""

    header: RequestHeader
    replica_id: int
    """-1 for a consumer; a follower's node id."""
    options: FetchOptions
    session_id: int
    session_epoch: int
    """-1 below v7, which has no sessions."""
    sections: tuple[TopicSection, ...]
    forgotten: tuple[PartitionKey, ...]
    """The partitions to remove from the session."""

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def by_id(self) -> bool:
        """Whether the request names topics by id (v13 and later) instead of by name."""
        return self.version >= IDS_VERSION


def read_request(header: RequestHeader, cursor: Cursor, most: int = NO_LIMIT) -> FetchRequest:
    """Decode the body of a Fetch request whose header is *header*.

    Args:
        cursor: must stand behind the header's client id, as ``read_request_header`` returns it.
        most: the limit for each of four numbers: topics and partitions to fetch, topics and partitions to forget.

    Cost:   O(topics + forgotten partitions), and a copy of the bytes of the partitions; they get no object each,
            except in sections with tagged fields. A number that exceeds *most* is refused before its cost.
    Raises: MalformedFrame: the frame is shorter or longer than the request, a count is impossible, a topic's name
        has more than 249 bytes, or there are more than 10,000 + *most* tagged fields; LimitReached: a number
        exceeds *most*.
    """
    request, _ = read_with_positions(header, cursor, most)
    return request


def read_with_positions(header: RequestHeader, cursor: Cursor, most: int) -> tuple[FetchRequest, Sequence[int]]:
    """Decode a Fetch request as ``read_request`` does; return it and the position of each section's entries.

    The position is that in the frame. It is -1 if entries in the frame have tagged fields, which are cut out of the
    section.
    """
    version = header.api_version
    layout = request_layout(version)
    flexible = layout.flexible
    cursor.tags_left = _MOST_TAGS + most
    if flexible:
        cursor.skip_tags()
    replica_id = cursor.i32() if version <= 14 else UNKNOWN
    max_wait_ms, min_bytes = cursor.i32(), cursor.i32()
    max_bytes = cursor.i32() if version >= 3 else NO_LIMIT
    isolation = cursor.i8() if version >= 4 else 0
    session_id, session_epoch = (cursor.i32(), cursor.i32()) if version >= 7 else (0, -1)
    starts: MutableSequence[int] = array("q")
    sections = tuple(_read_sections(layout, cursor, most, starts))
    forgotten = tuple(_read_forgotten(layout, cursor, most)) if version >= 7 else ()
    rack_id = (cursor.nullable_string(flexible=flexible) or "") if version >= 11 else ""
    if flexible:
        for tag, field in cursor.tags():
            if tag == 1 and version >= 15:
                replica_id = Cursor(field).i32()
    cursor.check_end()
    options = FetchOptions(max_wait_ms, min_bytes, max_bytes, isolation, rack_id)
    return FetchRequest(header, replica_id, options, session_id, session_epoch, sections, forgotten), starts


def _check_limit(count: int, most: int) -> int:
    if count > most:
        raise LimitReached(
            "max-fetch-partitions", f"a fetch of at least {count} partitions or topics, {most} are let through"
        )
    return count


def _read_sections(
    layout: RequestLayout, cursor: Cursor, most: int, starts: MutableSequence[int]
) -> Iterator[TopicSection]:
    """Yield each topic's section, and append the position of its entries to *starts*."""
    partitions = 0
    for _ in range(_check_limit(cursor.count(flexible=layout.flexible, item_bytes=3), most)):
        topic = _read_topic(layout, cursor)
        count = cursor.count(flexible=layout.flexible, item_bytes=layout.stride)
        partitions = _check_limit(partitions + count, most)
        start = cursor.at
        entries = bytes(cursor.take(count * layout.stride))
        if layout.flexible:
            if not has_no_tags(layout, entries):
                cursor.at, start = start, -1
                entries = _entries_without_tags(layout, cursor, count)
            cursor.skip_tags()
        starts.append(start)
        yield TopicSection(topic, entries)


def _read_topic(layout: RequestLayout, cursor: Cursor) -> Topic:
    start = cursor.at
    topic = read_topic(cursor, by_id=layout.by_id, flexible=layout.flexible)
    if cursor.at - start > _LENGTH_BYTES + _LONGEST_NAME:
        raise MalformedFrame(f"a topic's name of more than {_LONGEST_NAME} bytes at {start}")
    return topic


def has_no_tags(layout: RequestLayout, entries: bytes) -> bool:
    """Return whether none of *entries* has tagged fields; always True for versions that are not flexible.

    *entries* are the bytes of a section's entries in the frame. The last byte of each ``layout.stride`` bytes must
    be 0, the number of tagged fields.
    """
    return not layout.flexible or not any(entries[layout.stride - 1 :: layout.stride])


def _entries_without_tags(layout: RequestLayout, cursor: Cursor, count: int) -> bytes:
    kept = bytearray()
    for _ in range(count):
        kept += cursor.take(layout.stride)
        if kept[-1]:
            kept[-1] = 0
            cursor.at -= 1
            cursor.skip_tags()
    return bytes(kept)


def _read_forgotten(layout: RequestLayout, cursor: Cursor, most: int) -> Iterator[PartitionKey]:
    total = 0
    for _ in range(_check_limit(cursor.count(flexible=layout.flexible, item_bytes=3), most)):
        topic = _read_topic(layout, cursor)
        count = cursor.count(flexible=layout.flexible, item_bytes=4)
        total = _check_limit(total + count, most)
        for _ in range(count):
            yield PartitionKey(topic, cursor.i32())
        if layout.flexible:
            cursor.skip_tags()


def write_request(
    header: RequestHeader,
    options: FetchOptions,
    session_id: int,
    session_epoch: int,
    asks: Mapping[PartitionKey, FetchPartition],
    forgotten: Iterable[PartitionKey],
) -> bytes:
    """Encode a consumer's Fetch request, in the version of *header*, as a frame with its size.

    Args:
        asks: the partitions to fetch, in this order; adjacent partitions of one topic share a section.
        forgotten: the partitions to remove from the session.

    Parameters that the version lacks are left out. Cost: O(asks + forgotten).
    """
    version = header.api_version
    layout = request_layout(version)
    flexible = layout.flexible
    parts = [write_request_header(header, flexible=flexible)]
    if version <= 14:
        parts.append(_I32.pack(UNKNOWN))
    parts.append(struct.pack(">ii", options.max_wait_ms, options.min_bytes))
    if version >= 3:
        parts.append(_I32.pack(options.max_bytes))
    if version >= 4:
        parts.append(struct.pack(">b", options.isolation))
    if version >= 7:
        parts.append(struct.pack(">ii", session_id, session_epoch))
    pack = layout.pack
    parts += _by_topic(layout, [(key.topic, pack(key.partition, ask)) for key, ask in asks.items()])
    if version >= 7:
        parts += _by_topic(layout, [(key.topic, _I32.pack(key.partition)) for key in forgotten])
    if version >= 11:
        parts.append(write_string(options.rack_id, flexible=flexible))
    if flexible:
        parts.append(b"\0")
    body = b"".join(parts)
    return _I32.pack(len(body)) + body


def _by_topic(layout: RequestLayout, items: list[tuple[Topic, bytes]]) -> list[bytes]:
    """Encode an array of topics from (topic, encoded partition); adjacent partitions of one topic share an item."""
    groups = [(topic, [item for _, item in run]) for topic, run in groupby(items, key=lambda each: each[0])]
    parts = [write_count(len(groups), flexible=layout.flexible)]
    for topic, run in groups:
        parts += (
            write_topic(topic, flexible=layout.flexible),
            write_count(len(run), flexible=layout.flexible),
        )
        parts += run
        if layout.flexible:
            parts.append(b"\0")
    return parts
