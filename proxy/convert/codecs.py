"""Compression and decompression with Kafka's codecs; the decompressed size is limited.

=======  ======================================================================================================
gzip     members, one after the other
snappy   blocks of 32 KiB in the framing of snappy-java ("xerial"); also decoded without any framing, as librdkafka
         writes it
lz4      a frame, see ``lz4``
zstd     frames, one after the other; encoded for Fetch v10 and later only, which conversion never needs
=======  ======================================================================================================

Source: KIP-110; snappy-java's SnappyInputStream; RFC 8878 for Zstandard.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam

from proxy.convert import lz4
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec

__all__ = ["DECOMPRESSED_BYTES", "compress", "decompress"]

DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""The most that one batch may decompress to: 64 times the brokers' default limit of a compressed batch."""

_Bytes = bytes | bytearray | memoryview

_GZIP: Final = 31
"""zlib's code for a window of 32 KiB and gzip's header."""
_GZIP_LEVELS: Final = {True: 1, False: 6}
"""Kafka's default is zlib's, 6. Level 1 takes half the time, and its output is a twentieth larger."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_WINDOW: Final = 4096
"""The bytes behind the first member that zlib gets at a time: it copies unused input."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""The version, and the oldest version that can decode it."""
_XERIAL_BLOCK: Final = 32 * 1024
_ZSTD_LEVEL: Final = 3
"""Kafka's default."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
"""The first of sixteen magic numbers."""
_ZSTD_BLOCK: Final = 128 * 1024
"""The largest decompressed size of a block."""
_RAW, _REPEATED, _COMPRESSED = range(3)
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct("<I")


def compress(codec: int, data: _Bytes, *, magic: int, is_brief: bool = True) -> _Bytes:
    """Compress *data*, the records of a batch or the messages of a wrapper; ``Codec.NONE`` returns it as it is.

    Args:   codec:    a ``Codec``.
            magic:    the record format, 0 to 2; in format 0, LZ4 has the wrong checksum that Kafka wrote then.
            is_brief: whether gzip favours speed over size, as for data that is sent to a client, often on the same
                host; not for data that a broker stores.
    Cost:   the GIL is released while it compresses.
    Raises: BadRecords: *codec* is none of Kafka's (error UNSUPPORTED_COMPRESSION_TYPE).
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, _GZIP_LEVELS[is_brief], _GZIP)
        case Codec.SNAPPY:
            return _write_snappy(memoryview(data))
        case Codec.LZ4:
            return lz4.compress(memoryview(data), is_broken=magic == 0)
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(data, _ZSTD_LEVEL))
    raise _unknown(codec)


def decompress(codec: int, data: _Bytes, *, magic: int, limit: int = DECOMPRESSED_BYTES) -> _Bytes:
    """Decompress *data*, the records of a batch or the messages of a wrapper; ``Codec.NONE`` returns it as it is.

    Args:   codec: a ``Codec``.
            magic: the record format, 0 to 2; in format 0, the checksum of LZ4's header is ignored.
            limit: the largest number of bytes of output.
    Cost:   memory for the output, and 128 KiB. The GIL is released while it decompresses.
    Raises: BadRecords: the data is damaged or decompresses to more than *limit* bytes (error CORRUPT_MESSAGE), or
        *codec* is none of Kafka's (UNSUPPORTED_COMPRESSION_TYPE).
    """
    view = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                return data
            case Codec.GZIP:
                return _read_gzip(view, limit)
            case Codec.SNAPPY:
                return _read_snappy(view, limit)
            case Codec.LZ4:
                room = memoryview(bytearray(min(lz4.decompressed_bound(view), limit)))
                return room[: lz4.decompress_into(view, room, is_broken=magic == 0)]
            case Codec.ZSTD:
                room = memoryview(bytearray(min(_zstd_bound(view), limit)))
                return room[: cramjam.zstd.decompress_into(view, room)]
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError, ValueError) as error:
        why = f"it does not decompress to {limit} bytes or less: {error}"
        raise BadRecords(ErrorCode.corrupt_message, why) from None
    raise _unknown(codec)


def _unknown(codec: int) -> BadRecords:
    return BadRecords(ErrorCode.unsupported_compression_type, f"codec {codec}")


def _read_gzip(data: memoryview, limit: int) -> bytes | bytearray:
    """Decompress gzip data: the first member at once, since there is usually only one, further ones piecewise.

    A client may send a million members, and zlib copies the input behind each.
    """
    member = zlib.decompressobj(_GZIP)
    first = member.decompress(data, limit + 1)
    if len(first) > limit:
        raise ValueError("there is more")
    if not member.eof:
        raise ValueError("it ends too early")
    at = len(data) - len(member.unused_data)
    if bytes(data[at : at + 2]) != _GZIP_MAGIC:
        return first
    plain = bytearray(first)
    while bytes(data[at : at + 2]) == _GZIP_MAGIC:
        at = _read_member(data, at, plain, limit)
    return plain


def _read_member(data: memoryview, at: int, plain: bytearray, limit: int) -> int:
    """Append the content of the gzip member at position *at* to *plain*; return the position behind the member."""
    member = zlib.decompressobj(_GZIP)
    while not member.eof:
        window = member.unconsumed_tail or data[at : at + _WINDOW]
        if not window:
            raise ValueError("it ends too early")
        if not member.unconsumed_tail:
            at += len(window)
        plain += member.decompress(window, limit - len(plain) + 1)
        if len(plain) > limit:
            raise ValueError("there is more")
    return at - len(member.unused_data)


def _write_snappy(data: memoryview) -> bytes:
    parts: list[_Bytes] = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)


def _read_snappy(data: memoryview, limit: int) -> memoryview:
    """Decompress snappy in two passes over the blocks: the first adds up their sizes.

    Blocks may have five bytes each, so that a list of all blocks would be many times as large as *data*.
    """
    size = 0
    for block in _snappy_blocks(data):
        size += cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise ValueError("there is more")
    room = memoryview(bytearray(size))
    at = 0
    for block in _snappy_blocks(data):
        end = at + cramjam.snappy.decompress_raw_len(block)
        at += cramjam.snappy.decompress_raw_into(block, room[at:end])
    return room[:at]


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield data
        return
    at = len(_XERIAL)
    if len(data) < at:
        raise ValueError("its header is cut off")
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL_MAGIC:  # another stream's header, in concatenated streams
            at += len(_XERIAL)
            continue
        (size,) = _I32.unpack_from(data, at)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes where {len(data) - at} are left")
        yield data[at : at + size]
        at += size


def _zstd_bound(data: memoryview) -> int:
    """Return the largest size to which *data* can decompress, by the headers of its frames and blocks.

    A frame need not state its size, and a block of four bytes may stand for 128 KiB.
    """
    bound = at = 0
    while at < len(data):
        (magic,) = _U32.unpack_from(data, at)
        if magic & ~15 == _ZSTD_SKIPPABLE:
            at += 8 + _U32.unpack_from(data, at + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise ValueError(f"{magic:08x} begins no frame")
        descriptor = data[at + 4]
        is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
        size_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
        at += 5 + (1 - is_single) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
        is_last = 0
        while not is_last:
            head = int.from_bytes((data[at], data[at + 1], data[at + 2]), "little")
            is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
            bound += _ZSTD_BLOCK if kind == _COMPRESSED else min(size, _ZSTD_BLOCK)
            at += 3 + (1 if kind == _REPEATED else size)
        at += 4 * has_checksum
    return bound
