"""Compression, as Kafka frames it; what is decompressed is bounded.

=======  ======================================================================================================
gzip     members, one after the other
snappy   blocks of 32 KiB in the framing of snappy-java ("xerial"); read without any framing too, which is how
         librdkafka writes it
lz4      a frame, see ``lz4``
zstd     frames, one after the other; written for Fetch v10 and later only, which is never asked for here
=======  ======================================================================================================

Source: KIP-110; snappy-java's SnappyInputStream; RFC 8878 for Zstandard.
"""

import struct
import zlib
from typing import Final

import cramjam

from proxy.convert import lz4
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec

__all__ = ["DECOMPRESSED_BYTES", "compress", "decompress"]

DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""The most that one batch may decompress to: 64 times what brokers take by default for one, compressed."""

_Bytes = bytes | bytearray | memoryview

_GZIP: Final = 31
"""zlib's way to say: 32 KiB of window, and gzip's header."""
_GZIP_LEVELS: Final = {True: 1, False: 6}
"""Kafka's default is zlib's own, 6. Level 1 takes half the time, and what comes out is a twentieth larger."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""The version, and the oldest one that can read it."""
_XERIAL_BLOCK: Final = 32 * 1024
_ZSTD_LEVEL: Final = 3
"""Kafka's default."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
"""And fifteen more."""
_ZSTD_BLOCK: Final = 128 * 1024
"""What a block decompresses to at most."""
_RAW, _REPEATED, _COMPRESSED = range(3)
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct("<I")


def compress(codec: int, data: _Bytes, *, magic: int, is_brief: bool = True) -> _Bytes:
    """*data* as the inside of an entry of *magic*.

    Args:   is_brief: it goes to a client, often on the same host, so time matters more than size; not into a log.
    Cost:   the GIL is not held while it compresses.
    Raises: BadRecords: *codec* is none of Kafka's.
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
    """What is inside of an entry of *magic*.

    Args:   limit: the most bytes that may come out.
    Cost:   memory for what comes out, and 128 KiB. The GIL is not held while it decompresses.
    Raises: BadRecords: it is damaged or comes to more than *limit*, or *codec* is none of Kafka's.
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
                room = memoryview(bytearray(min(lz4.bound(view), limit)))
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


def _read_gzip(data: memoryview, limit: int) -> bytes:
    members = []
    left = limit
    rest: _Bytes = data
    while True:
        member = zlib.decompressobj(_GZIP)
        members.append(member.decompress(rest, left + 1))
        left -= len(members[-1])
        if left < 0:
            raise ValueError("there is more")
        if not member.eof:
            raise ValueError("it ends too early")
        rest = member.unused_data
        if not rest.startswith(_GZIP_MAGIC):
            return members[0] if len(members) == 1 else b"".join(members)


def _write_snappy(data: memoryview) -> bytes:
    parts: list[_Bytes] = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)


def _read_snappy(data: memoryview, limit: int) -> memoryview:
    blocks = list(_xerial_blocks(data)) if bytes(data[:8]) == _XERIAL_MAGIC else [data]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > limit:
        raise ValueError("there is more")
    room = memoryview(bytearray(sum(sizes)))
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        at += cramjam.snappy.decompress_raw_into(block, room[at : at + size])
    return room[:at]


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    at = len(_XERIAL)
    if len(data) < at:
        raise ValueError("its header is cut off")
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL_MAGIC:  # another stream's header, where streams were joined
            at += len(_XERIAL)
            continue
        (size,) = _I32.unpack_from(data, at)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"a block of {size} bytes where {len(data) - at} are left")
        blocks.append(data[at : at + size])
        at += size
    return blocks


def _zstd_bound(data: memoryview) -> int:
    """The most that *data* can decompress to, by the headers of its frames and blocks.

    Nothing in a frame needs to tell its size, and a block of four bytes may stand for 128 KiB.
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
