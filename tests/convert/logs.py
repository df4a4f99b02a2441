"""Slow and simple encoders and decoders of logs and message sets, as a reference for the conversion.

Compression is aiokafka's; for magic 0, the lz4 package, with Kafka's old checksum.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import attrs
import lz4.frame
import xxhash
from aiokafka import codec as codecs
from crc32c import crc32c

from proxy.wire.records import Codec

__all__ = [
    "Message",
    "Record",
    "batch",
    "compressed",
    "decompressed",
    "entry_sizes",
    "marker",
    "message",
    "messages_of",
    "records_of",
    "wrapper",
]

_COMPRESS: Final[dict[int, Callable[[bytes], Any]]] = {
    Codec.NONE: bytes,
    Codec.GZIP: lambda data: codecs.gzip_encode(data, 1),
    Codec.SNAPPY: codecs.snappy_encode,
    Codec.LZ4: lambda data: codecs.lz4_encode(data, 0),
    Codec.ZSTD: codecs.zstd_encode,
}
_DECOMPRESS: Final[dict[int, Callable[[bytes], Any]]] = {
    Codec.NONE: bytes,
    Codec.GZIP: codecs.gzip_decode,
    Codec.SNAPPY: codecs.snappy_decode,
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: codecs.zstd_decode,
}
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")


@attrs.frozen
class Record:
    """A record of a log."""

    offset: int
    time_ms: int = -1
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@attrs.frozen
class Message:
    """A message as a client sees it."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    codec: int = Codec.NONE
    magic: int = 1
    is_append_time: bool = False


def compressed(codec: int, data: bytes) -> bytes:
    return bytes(_COMPRESS[codec](data))


def decompressed(codec: int, data: bytes, magic: int) -> bytes:
    if magic == 0 and codec == Codec.LZ4:
        assert data[6] == xxhash.xxh32_intdigest(data[:6]) >> 8 & 255, "not Kafka's old checksum"
        data = data[:6] + bytes([xxhash.xxh32_intdigest(data[4:6]) >> 8 & 255]) + data[7:]
    return bytes(_DECOMPRESS[codec](data))


def varint(value: int) -> bytes:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _wrapped(time_ms: int) -> int:
    """Return the time in 64 bits: Kafka's arithmetic wraps around."""
    return (time_ms + 2**63) % 2**64 - 2**63


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _record(record: Record, base_offset: int, base_ms: int) -> bytes:
    body = b"\0" + varint(_wrapped(record.time_ms - base_ms)) + varint(record.offset - base_offset)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    body += b"".join(_sized(name) + _sized(value) for name, value in record.headers)
    return varint(len(body)) + body


def batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int = -1,
    last_offset: int = -1,
    append_ms: int | None = None,
    producer_id: int = -1,
    is_control: bool = False,
    records_bytes: bytes | None = None,
) -> bytes:
    """With a producer id it is of a transaction.

    Args: base_offset, last_offset: where they are not those of the first and last record.
          records_bytes:            in place of the records, compressed or not.
    """
    base = records[0].offset if base_offset < 0 else base_offset
    last = records[-1].offset if last_offset < 0 else last_offset
    base_ms = records[0].time_ms if records else -1
    max_ms = append_ms if append_ms is not None else max((each.time_ms for each in records), default=-1)
    attributes = codec | (append_ms is not None) << 3 | (producer_id >= 0) << 4 | is_control << 5
    if records_bytes is None:
        records_bytes = compressed(codec, b"".join(_record(each, base, base_ms) for each in records))
    size = _BATCH.size + len(records_bytes) - 12
    fields = (attributes, last - base, base_ms, max_ms, producer_id, min(producer_id, 0), -1, len(records))
    checked = _BATCH.pack(0, 0, 0, 0, 0, *fields)[21:] + records_bytes
    return struct.pack(">qiibI", base, size, 5, 2, crc32c(checked)) + checked


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(offset, 0, struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 0))
    return batch([record], producer_id=producer_id, is_control=True)


def message(record: Record, magic: int, *, codec: int = Codec.NONE, is_append_time: bool = False) -> bytes:
    time = struct.pack(">q", record.time_ms) if magic else b""
    body = struct.pack(">bb", magic, codec | is_append_time << 3) + time
    for data in (record.key, record.value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", record.offset, len(body) + 4, crc32(body)) + body


def wrapper(
    records: Sequence[Record],
    magic: int,
    codec: int,
    *,
    append_ms: int | None = None,
    offset: int = -1,
    inner: bytes | None = None,
) -> bytes:
    """Offsets inside are relative in magic 1; *offset* is the wrapper's where it is not that of the last record."""
    base = records[0].offset if magic else 0
    is_append = append_ms is not None
    if inner is None:
        inner = b"".join(
            message(attrs.evolve(each, offset=each.offset - base), magic, is_append_time=is_append)
            for each in records
        )
    value = compressed(codec, inner)
    if magic == 0 and codec == Codec.LZ4:
        value = value[:6] + bytes([xxhash.xxh32_intdigest(value[:6]) >> 8 & 255]) + value[7:]
    time_ms = append_ms if append_ms is not None else max(each.time_ms for each in records)
    last = records[-1].offset if offset < 0 else offset
    return message(Record(last, time_ms, None, value), magic, codec=codec, is_append_time=is_append)


def _entries(log: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(log):
        (size,) = struct.unpack_from(">i", log, at + 8)
        if size < 14 or at + 12 + size > len(log):
            return
        yield log[at : at + 12 + size]
        at += 12 + size


def entry_sizes(log: bytes) -> list[int]:
    """Return the sizes of the complete entries."""
    return [len(each) for each in _entries(log)]


def messages_of(message_set: bytes) -> list[Message]:
    """All complete messages, those in wrappers too; checksums and sizes are asserted."""
    found = []
    for entry in _entries(message_set):
        outer = _message(entry)
        if not outer.codec:
            found.append(outer)
            continue
        assert outer.value is not None
        inner = [_message(each) for each in _entries(decompressed(outer.codec, outer.value, outer.magic))]
        base = outer.offset - inner[-1].offset if outer.magic else 0
        for each in inner:
            assert (each.magic, each.codec, each.is_append_time) == (outer.magic, 0, outer.is_append_time)
            time_ms = outer.time_ms if outer.is_append_time else each.time_ms
            found.append(attrs.evolve(each, offset=base + each.offset, time_ms=time_ms, codec=outer.codec))
        if not outer.is_append_time:
            assert outer.time_ms == max(each.time_ms for each in inner)
    return found


def _message(entry: bytes) -> Message:
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", entry)
    assert crc == crc32(entry[16:]), f"checksum at {offset}"
    assert magic in (0, 1)
    assert not attributes & ~(15 if magic else 7)
    at = 18
    time_ms = -1
    if magic:
        (time_ms,) = struct.unpack_from(">q", entry, at)
        at += 8
    fields: list[bytes | None] = []
    for _ in range(2):
        (size,) = struct.unpack_from(">i", entry, at)
        at += 4
        fields.append(None if size < 0 else entry[at : at + size])
        at += max(size, 0)
    assert at == len(entry), f"bytes too many at {offset}"
    return Message(offset, time_ms, fields[0], fields[1], attributes & 7, magic, bool(attributes & 8))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return (value >> 1) ^ -(value & 1), at


def records_of(log: bytes) -> list[Record]:
    """Return the records of all batches; check checksums and sizes."""
    found = []
    for entry in _entries(log):
        base, size, _, magic, crc = struct.unpack_from(">qiibI", entry)
        attributes, delta, base_ms, max_ms, _, _, _, count = struct.unpack_from(">hiqqqhii", entry, 21)
        assert (magic, size, crc) == (2, len(entry) - 12, crc32c(entry[21:]))
        data = decompressed(attributes & 7, entry[61:], 2)
        at = 0
        read: list[Record] = []
        for _ in range(count):
            length, at = _read_varint(data, at)
            end = at + length
            time_delta, at = _read_varint(data, at + 1)
            offset_delta, at = _read_varint(data, at)
            fields: list[bytes | None] = []
            for _ in range(2):
                length, at = _read_varint(data, at)
                fields.append(None if length < 0 else data[at : at + length])
                at += max(length, 0)
            headers, at = _read_varint(data, at)
            pairs = []
            for _ in range(headers):
                pair: list[bytes | None] = []
                for _ in range(2):
                    length, at = _read_varint(data, at)
                    pair.append(None if length < 0 else data[at : at + length])
                    at += max(length, 0)
                pairs.append((pair[0] or b"", pair[1]))
            assert at == end
            time_ms = _wrapped(base_ms + time_delta)
            read.append(Record(base + offset_delta, time_ms, fields[0], fields[1], tuple(pairs)))
        assert at == len(data)
        assert read[-1].offset == base + delta
        assert max_ms == max(each.time_ms for each in read)
        found += read
    return found
