"""The conversion of one compressed entry to one that a client can read."""

import struct
from typing import Final
from zlib import crc32

from proxy.convert import kernel
from proxy.convert.codecs import compress, decompress
from proxy.convert.types import ConversionCounts, ConversionTarget
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.checksum import crc32c
from proxy.wire.records import (
    BATCH_HEADER_BYTES,
    ENTRY_HEADER_BYTES,
    MESSAGE_BYTES,
    Codec,
    Entry,
    entries,
    value_of,
)

__all__ = ["growth_of", "inside", "rewrite", "transcode"]

_SMALLEST_RECORD: Final = 7
"""The least size of a record in bytes; as a message of magic 1 it has 34."""
_GROWTH: Final = MESSAGE_BYTES[1] - _SMALLEST_RECORD
_LARGER: Final = 2
"""The most that a batch may grow by conversion, as a factor of its limit: a million empty records are not
expected."""
_WRAPPERS: Final = (struct.Struct(">qiIbbii"), struct.Struct(">qiIbbqii"))
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
"""The position in a batch; the checksum covers the bytes from there, and stands before them."""
_APPEND_TIME: Final = 8


def growth_of(entry: Entry, size: int | None = None) -> int:
    """Return the most bytes by which an entry with *size* bytes of records, or its own, grows as messages."""
    records = (entry.size if size is None else size) // _SMALLEST_RECORD
    return _GROWTH * min(entry.records, records)


def rewrite(
    entry: Entry, log: memoryview, from_offset: int, target: ConversionTarget, counts: ConversionCounts
) -> memoryview:
    """Convert a compressed batch or wrapper to one wrapper of magic 0 or 1.

    The result is empty if nothing in it is at *from_offset* or later. The whole entry stays together, unless the
    new codec is none: then it becomes messages, from *from_offset* on.

    Raises: BadRecords: it is damaged.
    """
    codec = target.codec(entry.codec)
    assert codec is not None
    is_wrapped = codec != Codec.NONE
    plain = inside(entry, log, target.decompressed_bytes)
    if entry.magic == 2:
        room_bytes = len(plain) + growth_of(entry, len(plain))
        if room_bytes > _LARGER * target.decompressed_bytes:
            raise _corrupt(entry, f"{entry.records} messages may come to {room_bytes} bytes")
        done, inner = _from_records(plain, entry, 0 if is_wrapped else from_offset, target.magic, is_wrapped)
    else:
        done, inner = _from_messages(plain, entry)
    if done.damage:
        raise _corrupt(entry, str(done.damage))
    if done.last_offset < from_offset:
        return memoryview(b"")
    counts.messages += done.messages
    counts.headers_dropped += done.headers
    if not is_wrapped:
        return inner
    counts.recompressions += 1
    newest_ms = max(entry.max_ms, -1) if entry.is_append_time else done.newest_ms
    value = compress(codec, inner, magic=target.magic)
    return _wrapper(value, codec, done.last_offset, newest_ms, entry, target.magic)


def _from_records(
    plain: memoryview, entry: Entry, from_offset: int, magic: int, is_wrapped: bool
) -> tuple[kernel.Done, memoryview]:
    room = memoryview(bytearray(len(plain) + growth_of(entry, len(plain))))
    done = kernel.convert_records(
        plain,
        entry.records,
        entry.base_offset,
        entry.last_offset,
        entry.base_ms,
        entry.max_ms,
        entry.is_append_time,
        from_offset,
        magic,
        is_wrapped and magic == 1,
        room,
    )
    return done, room[: done.size]


def _from_messages(plain: memoryview, entry: Entry) -> tuple[kernel.Done, memoryview]:
    """Convert the content of a wrapper of magic 1, whose offset is that of its last message."""
    last = -1
    for message in entries(plain):
        if message.magic != 1:
            raise _corrupt(entry, f"magic {message.magic} inside of magic 1")
        last = message.last_offset
    if last > entry.last_offset:
        raise _corrupt(entry, "its offset is before the last one inside")
    room = memoryview(bytearray(len(plain)))
    done = kernel.convert_messages(plain, entry.last_offset - last, room)
    if not done.damage and next(entries(plain, done.end), None) is not None:
        raise _corrupt(entry, "compressed messages inside")
    return done, room[: done.size]


def _wrapper(
    value: bytes | bytearray | memoryview, codec: int, offset: int, time_ms: int, entry: Entry, magic: int
) -> memoryview:
    size = MESSAGE_BYTES[magic] + len(value)
    attributes = codec | (_APPEND_TIME if magic and entry.is_append_time else 0)
    fields = (offset, size - ENTRY_HEADER_BYTES, 0, magic, attributes, *((time_ms,) * magic), -1, len(value))
    written = bytearray(size)
    _WRAPPERS[magic].pack_into(written, 0, *fields)
    written[MESSAGE_BYTES[magic] :] = value
    view = memoryview(written)
    _CRC.pack_into(written, ENTRY_HEADER_BYTES, crc32(view[ENTRY_HEADER_BYTES + _CRC.size :]))
    return view


def transcode(
    entry: Entry, log: memoryview, _from_offset: int, target: ConversionTarget, counts: ConversionCounts
) -> memoryview:
    """Recompress a batch with another codec.

    Raises: BadRecords: it is damaged.
    """
    codec = target.codec(entry.codec)
    assert codec is not None
    records: bytes | bytearray | memoryview = b""
    if entry.records:
        records = compress(codec, inside(entry, log, target.decompressed_bytes), magic=2)
    else:
        codec = Codec.NONE
    written = bytearray(log[entry.at : entry.at + BATCH_HEADER_BYTES]) + records
    view = memoryview(written)
    _SIZE.pack_into(written, 8, len(written) - ENTRY_HEADER_BYTES)
    _ATTRIBUTES.pack_into(written, _ATTRIBUTES_AT, entry.attributes & ~7 | codec)
    _CRC.pack_into(written, _ATTRIBUTES_AT - _CRC.size, crc32c(view[_ATTRIBUTES_AT:]))
    counts.messages += entry.records
    counts.recompressions += 1
    return view


def inside(entry: Entry, log: memoryview, limit: int) -> memoryview:
    """Return the decompressed content of a batch or wrapper.

    Raises: BadRecords: it is damaged, or exceeds *limit* bytes.
    """
    try:
        data = log[entry.at + BATCH_HEADER_BYTES : entry.end] if entry.magic == 2 else value_of(entry, log)
        plain = decompress(entry.codec, data, magic=entry.magic, limit=limit)
    except BadRecords as error:
        raise BadRecords(error.code, str(error), offset=entry.base_offset) from None
    return memoryview(plain)


def _corrupt(entry: Entry, why: str) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, why, offset=entry.base_offset)
