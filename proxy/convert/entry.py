"""The conversion of one compressed entry of a log (a record batch or a wrapper) to one that an old client can read.

A wrapper is a message of magic 0 or 1 whose value is a compressed run of messages.
"""

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

__all__ = ["decompress_entry", "growth_of", "rewrite", "transcode"]

_SMALLEST_RECORD: Final = 7
"""The smallest size of a record in bytes; such a record becomes a message of 34 bytes in magic 1."""
_GROWTH: Final = MESSAGE_BYTES[1] - _SMALLEST_RECORD
_LARGER: Final = 2
"""The largest converted size of a batch, as a multiple of the limit of its decompressed size: a million empty
records are not expected."""
_WRAPPERS: Final = (struct.Struct(">qiIbbii"), struct.Struct(">qiIbbqii"))
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
"""The position in a batch; the checksum covers the bytes from there, and stands before them."""
_APPEND_TIME: Final = 8


def growth_of(entry: Entry, size: int | None = None) -> int:
    """Return an upper bound for the bytes by which an entry's records grow when they become messages.

    Args: size: the decompressed size of the entry's records in bytes; by default, the size of the entry.
    """
    records = (entry.size if size is None else size) // _SMALLEST_RECORD
    return _GROWTH * min(entry.records, records)


def rewrite(
    entry: Entry, log: memoryview, from_offset: int, target: ConversionTarget, counts: ConversionCounts
) -> memoryview:
    """Convert *entry*, a compressed batch or wrapper in *log*, to one wrapper of magic 0 or 1, and return that.

    The result is empty if all records have offsets below *from_offset*; otherwise the wrapper has all of them. If
    *target* replaces the codec by none, the result is not a wrapper but uncompressed messages; those of a batch
    begin at *from_offset*.

    Args:   counts: the converted messages, dropped record headers and recompressions are added to it.
    Raises: BadRecords: the entry is damaged, or its decompressed or converted size exceeds the limit of *target*.
    """
    codec = target.codec(entry.codec)
    assert codec is not None
    is_wrapped = codec != Codec.NONE
    plain = decompress_entry(entry, log, target.decompressed_bytes)
    if entry.magic == 2:
        room_bytes = len(plain) + growth_of(entry, len(plain))
        if room_bytes > _LARGER * target.decompressed_bytes:
            raise _corrupt(entry, f"{entry.records} messages may come to {room_bytes} bytes")
        done, inner = _convert_records(plain, entry, 0 if is_wrapped else from_offset, target.magic, is_wrapped)
    else:
        done, inner = _convert_messages(plain, entry)
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
    return _build_wrapper(value, codec, done.last_offset, newest_ms, entry, target.magic)


def _convert_records(
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


def _convert_messages(plain: memoryview, entry: Entry) -> tuple[kernel.Done, memoryview]:
    """Convert the content of a wrapper of magic 1 to magic 0.

    Offsets in the wrapper are relative; the wrapper's own offset is that of its last message.
    """
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


def _build_wrapper(
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
    """Return the batch *entry* of *log*, compressed with the codec that *target* has for its codec; magic 2 stays.

    The size, codec and checksum in its header are adjusted. ``_from_offset`` is unused: the signature is that of
    ``rewrite``.

    Args:   counts: the records of the batch and one recompression are added to it.
    Raises: BadRecords: the batch is damaged, or its decompressed size exceeds the limit of *target*.
    """
    codec = target.codec(entry.codec)
    assert codec is not None
    records: bytes | bytearray | memoryview = b""
    if entry.records:
        records = compress(codec, decompress_entry(entry, log, target.decompressed_bytes), magic=2)
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


def decompress_entry(entry: Entry, log: memoryview, limit: int) -> memoryview:
    """Return the decompressed content of *entry* in *log*: the records of a batch, or the messages of a wrapper.

    Raises: BadRecords: the content is damaged, or has more than *limit* bytes; with the offset of the entry.
    """
    try:
        data = log[entry.at + BATCH_HEADER_BYTES : entry.end] if entry.magic == 2 else value_of(entry, log)
        plain = decompress(entry.codec, data, magic=entry.magic, limit=limit)
    except BadRecords as error:
        raise BadRecords(error.code, str(error), offset=entry.base_offset) from None
    return memoryview(plain)


def _corrupt(entry: Entry, why: str) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, why, offset=entry.base_offset)
