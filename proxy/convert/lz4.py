"""LZ4 frames in Kafka's variants: with the standard checksum of the header, and with that of Kafka before 0.10.

Layout: ``magic number u32 | flags u8 | block size u8 | [content size u64] | [dictionary id u32] | checksum u8``,
        then blocks, each ``size u32 | bytes | [checksum u32]``, little-endian, the highest bit of the size set
        if they are not compressed; a size of 0 ends them; ``[checksum u32]`` of the content.

The checksum of the header is the second byte of xxHash-32 over flags to dictionary id. Kafka before 0.10 included
the magic number in it, when writing and when verifying. Later versions do so when writing messages of magic 0, and
ignore the checksum when reading them.

Source: LZ4 Frame Format 1.6; KIP-57.
"""

import struct
from typing import Final

import cramjam

__all__ = ["compress", "decompress_into", "decompressed_bound"]

_MAGIC: Final = b"\x04\x22\x4d\x18"
_DESCRIPTOR: Final = b"\x60\x40"
"""Version 1 with independent blocks of at most 64 KiB. Kafka's readers accept only independent blocks."""
_BLOCK: Final = 64 * 1024
_BLOCK_SIZES: Final = {code: 1 << (2 * code + 8) for code in range(4, 8)}
_RATIO: Final = 255
"""The largest growth of a block by decompression, as a factor."""
_STORED: Final = 1 << 31
_U32: Final = struct.Struct("<I")
_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def compress(data: memoryview, *, is_broken: bool) -> bytes:
    """Compress *data* to one LZ4 frame, with independent blocks of 64 KiB.

    Args: is_broken: whether to write the wrong header checksum of Kafka before 0.10, as in messages of magic 0.
    """
    parts: list[bytes | memoryview] = [_MAGIC, _DESCRIPTOR, checksum(_MAGIC * is_broken + _DESCRIPTOR)]
    for at in range(0, len(data), _BLOCK):
        plain = data[at : at + _BLOCK]
        block = memoryview(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_U32.pack(len(block)), block)
        else:
            parts += (_U32.pack(len(plain) | _STORED), plain)
    parts.append(bytes(4))
    return b"".join(parts)


def decompressed_bound(data: memoryview) -> int:
    """Return an upper bound, in bytes, for the decompressed size of the frame *data*, by its blocks' headers.

    Raises: ValueError, IndexError, struct.error: *data* is no LZ4 frame, or is truncated.
    """
    most = _BLOCK_SIZES.get(data[5] >> 4 & 7)
    if bytes(data[:4]) != _MAGIC or data[4] >> 6 != 1 or most is None:
        raise ValueError("no header of a frame")
    trailer = 4 if data[4] & 16 else 0
    total, at = 0, _header_bytes(data)
    while size := _U32.unpack_from(data, at)[0]:
        is_stored, size = size & _STORED, size & ~_STORED
        total += size if is_stored else min(most, _RATIO * size)
        at += 4 + size + trailer
    return total


def decompress_into(data: memoryview, room: memoryview, *, is_broken: bool) -> int:
    """Decompress the frame *data* into the buffer *room*; return the number of bytes written.

    Args:   is_broken: whether to ignore the header's checksum, which is wrong in messages of magic 0.
    Raises: cramjam.DecompressionError: the frame is damaged, or *room* is too small.
            IndexError: with *is_broken*, the frame has less than 5 bytes.
    """
    if is_broken:
        at = _header_bytes(data) - 1
        right = checksum(bytes(data[4:at]))
        if data[at : at + 1] != right:
            data = memoryview(b"".join((data[:at], right, data[at + 1 :])))
    return cramjam.lz4.decompress_into(data, room)


def _header_bytes(data: memoryview) -> int:
    return 7 + (8 if data[4] & 8 else 0) + (4 if data[4] & 1 else 0)


def checksum(covered: bytes) -> bytes:
    """Return the checksum of an LZ4 header: the second byte of the xxHash-32 of *covered*, at most 15 bytes."""
    hashed = (_PRIMES[4] + len(covered)) & _MASK
    words, rest = covered[: len(covered) & ~3], covered[len(covered) & ~3 :]
    for at in range(0, len(words), 4):
        hashed = (hashed + _U32.unpack_from(words, at)[0] * _PRIMES[2]) & _MASK
        hashed = _rotate_left(hashed, 17) * _PRIMES[3] & _MASK
    for byte in rest:
        hashed = (hashed + byte * _PRIMES[4]) & _MASK
        hashed = _rotate_left(hashed, 11) * _PRIMES[0] & _MASK
    hashed = (hashed ^ hashed >> 15) * _PRIMES[1] & _MASK
    hashed = (hashed ^ hashed >> 13) * _PRIMES[2] & _MASK
    return bytes([(hashed ^ hashed >> 16) >> 8 & 0xFF])


def _rotate_left(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _MASK
