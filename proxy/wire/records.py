"""The headers of the entries of a log: of record batches (magic 2), and of messages (magic 0 and 1).

Layout: magic 2, a batch::

            0 base offset i64 | 8 size i32 | 12 leader epoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
            23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64
            51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records, maybe compressed

        magic 0 and 1, a message; one whose value is a compressed run of such messages is a wrapper::

            0 offset i64 | 8 size i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | [18 timestamp i64, magic 1]
            key size i32 | key | value size i32 | value

        The size counts the bytes behind it. The checksum is CRC-32C over byte 21 to the end, for messages CRC-32
        over byte 16 to the end.
Source: Kafka's DefaultRecordBatch, LegacyRecord, AbstractLegacyRecordBatch.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple
from zlib import crc32

from proxy.errors import BadRecords, ErrorCode
from proxy.wire.checksum import crc32c

__all__ = [
    "BATCH_HEADER_BYTES",
    "ENTRY_HEADER_BYTES",
    "MESSAGE_BYTES",
    "Codec",
    "Entry",
    "batch_of",
    "entries",
    "value_of",
]

ENTRY_HEADER_BYTES: Final = 12
"""The length of offset and size, which every entry of a log begins with; the size does not count them."""
BATCH_HEADER_BYTES: Final = 61
MESSAGE_BYTES: Final = (26, 34)
"""The size of a message without key and value, by its magic."""

_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_MIN_ENTRY_SIZE: Final = 14
"""The least size of an entry: that of a message of magic 0 without key and value."""
_BATCH: Final = struct.Struct(">qi4xbIhiqqqhii")
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED_AT: Final = 21
_NONE: Final = -1
"""Leader epoch, producer id, producer epoch and sequence of a producer that is not idempotent."""
_MESSAGE: Final = struct.Struct(">qiIbb")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_LAST: Final = 2**63 - 1


class Codec(IntEnum):
    """The compression codecs of records; the value is in the lowest three bits of an entry's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Entry(NamedTuple):
    """The decoded header of one entry of a log, which is a record batch (magic 2) or a message (magic 0 or 1).

    Its checksum is not verified: call ``verify_checksum``.
    """

    at: int
    """The position of its first byte in the bytes that ``entries`` was called with."""
    end: int
    """The position behind its last byte."""
    magic: int
    attributes: int
    crc: int
    base_offset: int
    """The offset of a message; of a wrapper, that of the last message in it."""
    last_offset: int
    base_ms: int = -1
    """The base timestamp of a batch; the timestamp of a message of magic 1; -1 for magic 0."""
    max_ms: int = -1
    """The newest timestamp of a batch; the timestamp of a message of magic 1; -1 for magic 0."""
    producer_id: int = -1
    records: int = 1
    """The number of records by a batch's header; after compaction, fewer than it has offsets."""

    @property
    def size(self) -> int:
        """The size of the whole entry in bytes, with its offset and size fields."""
        return self.end - self.at

    @property
    def codec(self) -> int:
        """The compression codec: a ``Codec``, or 5 to 7, which no codec has."""
        return self.attributes & 7

    @property
    def is_append_time(self) -> bool:
        """Whether the timestamp is the broker's append time; without a meaning for messages of magic 0."""
        return bool(self.attributes & 8)

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & 16)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & 32)

    def verify_checksum(self, log: memoryview) -> None:
        """Verify the entry's checksum over its bytes in *log*, with which ``entries`` was called.

        Raises: BadRecords: the checksum is wrong.
        """
        if self.magic >= 2:
            actual = crc32c(log[self.at + _CRC_AT + 4 : self.end])
        else:
            actual = crc32(log[self.at + _MAGIC_AT : self.end])
        if actual != self.crc:
            raise _corrupt_error(self.base_offset, f"its checksum is {self.crc:08x}, its bytes have {actual:08x}")


def entries(log: memoryview, at: int = 0) -> Iterator[Entry]:
    """Yield the header of each complete entry in *log* from position *at* on; leave out an incomplete last entry.

    Cost:   less than a microsecond an entry; records are not decoded.
    Raises: BadRecords: a size, magic, offset or count is impossible. The entries before it have been yielded.
    """
    end = len(log)
    while end - at > _MAGIC_AT:
        offset, size, crc, magic, attributes = (
            _MESSAGE.unpack_from(log, at) if end - at >= 18 else _read_head(log, at)
        )
        if size < _MIN_ENTRY_SIZE:
            raise _corrupt_error(offset, f"a size of {size}")
        entry_end = at + ENTRY_HEADER_BYTES + size
        if entry_end > end:
            return
        yield (
            _read_batch(log, at, entry_end)
            if magic == 2
            else _read_message(log, at, entry_end, crc, magic, attributes)
        )
        at = entry_end


def batch_of(
    records: bytes | bytearray | memoryview, codec: int, number: int, base_ms: int, newest_ms: int
) -> bytes:
    """Encode a record batch to be produced: a header with checksum, followed by *records*, which stay as they are.

    Args:
        records: encoded records of magic 2, already compressed with *codec*.
        codec: a ``Codec``.
        number: the number of records.
        base_ms: the base timestamp, in ms.
        newest_ms: the newest timestamp of the records, in ms.
    """
    size, last = BATCH_HEADER_BYTES + len(records) - ENTRY_HEADER_BYTES, number - 1

    def header(crc: int) -> bytes:
        return _HEADER.pack(0, size, _NONE, 2, crc, codec, last, base_ms, newest_ms, _NONE, _NONE, _NONE, number)

    crc = crc32c(records, crc32c(header(0)[_CHECKED_AT:]))
    return b"".join((header(crc), records))


def value_of(message: Entry, log: memoryview) -> memoryview:
    """Return the value of a *message* of magic 0 or 1 as a view of *log*, with which ``entries`` was called.

    The value of a wrapper is the compressed run of inner messages. The result is empty if the value is null.

    Raises: BadRecords: the sizes of key and value do not match that of the message.
    """
    at = message.at + MESSAGE_BYTES[message.magic] - 2 * _I32.size
    (key_size,) = _I32.unpack_from(log, at)
    at += _I32.size + max(key_size, 0)
    if key_size >= -1 and at + _I32.size <= message.end:
        (value_size,) = _I32.unpack_from(log, at)
        if value_size >= -1 and max(value_size, 0) == message.end - at - _I32.size:
            return log[at + _I32.size : message.end]
    raise _corrupt_error(message.base_offset, "its key and value do not fit")


def _read_head(log: memoryview, at: int) -> tuple[int, int, int, int, int]:
    """Decode the head of an entry whose attributes are cut off.

    It is the end of the log, unless its size is impossible.
    """
    offset, size = struct.unpack_from(">qi", log, at)
    return offset, size, 0, 0, 0


def _read_batch(log: memoryview, at: int, end: int) -> Entry:
    if end - at < BATCH_HEADER_BYTES:
        raise _corrupt_error(_I64.unpack_from(log, at)[0], f"a batch of {end - at} bytes")
    base, _, magic, crc, attributes, delta, base_ms, max_ms, producer, _, _, count = _BATCH.unpack_from(log, at)
    if base < 0 or delta < 0 or base > _LAST - delta or count < 0:
        raise _corrupt_error(base, f"a batch of {count} records up to {delta} above its base offset")
    return Entry(at, end, magic, attributes, crc, base, base + delta, base_ms, max_ms, producer, count)


def _read_message(log: memoryview, at: int, end: int, crc: int, magic: int, attributes: int) -> Entry:
    (offset,) = _I64.unpack_from(log, at)
    if magic not in (0, 1):
        raise _corrupt_error(offset, f"magic {magic}")
    if end - at < MESSAGE_BYTES[magic] or offset < 0:
        raise _corrupt_error(offset, f"a message of {end - at} bytes")
    (time_ms,) = _I64.unpack_from(log, at + 18) if magic == 1 else (-1,)
    return Entry(at, end, magic, attributes & 0xFF, crc, offset, offset, time_ms, time_ms)


def _corrupt_error(offset: int, why: str) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, why, offset=offset)
