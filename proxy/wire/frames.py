"""Frames: every message on a Kafka connection is its size and that many bytes."""

import struct
from typing import Final

from proxy.errors import MalformedFrame

__all__ = ["FrameReader", "with_size"]

_SIZE: Final = struct.Struct(">i")
_ARRIVALS_BYTES: Final = 16 * 1024
"""Where frames arrive whose size is not known yet; a larger frame gets a buffer of its own."""


def with_size(payload: bytes) -> bytes:
    """*payload* as a frame."""
    return _SIZE.pack(len(payload)) + payload


class FrameReader:
    """Cuts what arrives on one connection into frames; the caller receives straight into its buffers.

    Layout: ``size: i32 | payload: size bytes``, repeated; *size* does not count itself.
    Use:    receive into ``space()``, then tell ``received(n)``, which returns the payloads now complete, oldest
            first. A payload of over 16 KiB is never copied once its size is known; smaller ones are, once.
            Payloads are read-only, and stay valid for as long as they, or views of them, are held.
    Memory: one payload's, beyond those that are held. As long as only large ones arrive, the buffer of one is used
            for the next: fresh memory would have to be cleared twice, by the system and by Python.
    Raises: MalformedFrame: a size is negative or over *max_frame_bytes*. The reader is then useless.
    Source: Kafka protocol guide, "Common Request and Response Structure"; the limit plays the part of the
            broker's ``socket.request.max.bytes``.
    """

    __slots__ = ("_arrivals", "_end", "_filled", "_large", "_max_frame_bytes", "_spare")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._arrivals = bytearray(_ARRIVALS_BYTES)
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0
        self._spare = bytearray()

    def limit(self, max_frame_bytes: int) -> None:
        """From here on, frames may have up to *max_frame_bytes*."""
        self._max_frame_bytes = max_frame_bytes

    def space(self) -> memoryview:
        """Where the next bytes must be received; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return memoryview(self._arrivals)[self._end :]

    def received(self, size: int) -> list[memoryview]:
        """*size* bytes have been written to the front of ``space()``."""
        if self._large is not None:
            self._filled += size
            if self._filled < len(self._large):
                return []
            whole, self._large = self._large, None
            return [whole.toreadonly()]
        self._end += size
        return self._cut()

    @property
    def at_boundary(self) -> bool:
        """Whether nothing of a next frame has arrived."""
        return self._large is None and self._end == 0

    def _cut(self) -> list[memoryview]:
        arrived = memoryview(bytes(memoryview(self._arrivals)[: self._end]))
        frames: list[memoryview] = []
        at = 0
        while self._end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(arrived, at)
            if not 0 <= size <= self._max_frame_bytes:
                raise MalformedFrame(f"frame size {size} is not within 0..{self._max_frame_bytes}")
            body = at + _SIZE.size
            if body + size <= self._end:
                frames.append(arrived[body : body + size])
                at = body + size
                self._spare = bytearray()
            elif size + _SIZE.size > len(self._arrivals):
                self._large = self._buffer(size)
                self._filled = self._end - body
                self._large[: self._filled] = arrived[body:]
                at = self._end
            else:
                break
        left = arrived[at:]
        self._arrivals[: len(left)] = left
        self._end = len(left)
        return frames

    def _buffer(self, size: int) -> memoryview:
        """*size* bytes, in the last large payload's memory if nobody holds that any more."""
        if len(self._spare) < size or _is_viewed(self._spare):
            self._spare = bytearray(size)
        return memoryview(self._spare)[:size]


def _is_viewed(buffer: bytearray) -> bool:
    """Whether views of *buffer* are held: as long as there are, it refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
