"""Frames: every message on a Kafka connection is its size and that many bytes."""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from proxy.errors import FrameTooLarge, MalformedFrame

__all__ = [
    "QUICK_BYTES",
    "SIZE_BYTES",
    "Buffer",
    "Chunks",
    "FrameReader",
    "Piece",
    "Pieces",
    "is_viewed",
    "with_size",
]

_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
"""Of the size before each frame."""
_ARRIVALS_BYTES: Final = 16 * 1024
"""Where frames arrive whose size is not known yet; a larger frame gets a buffer of its own."""
_ROOM: Final = 4
"""A buffer serves again for payloads down to its size divided by this: a small one must not hold a large one's."""
_SPARES: Final = 2
_CHEAP_BYTES: Final = 64 * 1024
"""So much is cleared within microseconds, and clients that rest need not hold it."""
QUICK_BYTES: Final = 16 * 1024
"""Work on more than that is done in a thread: so much gzip takes a millisecond, in which nobody else is served."""


class Chunks(Protocol):
    """Bytes that are made while they are sent; how many is known before."""

    def __len__(self) -> int: ...

    @property
    def is_quick(self) -> bool:
        """Whether the next of them takes so little time that nobody need mind."""

    def next_chunk(self) -> bytes | bytearray | memoryview | None:
        """The next of them; None behind the last. May take a while: any thread will do, one at a time."""


Piece = bytes | memoryview | Chunks
"""Of a frame that is to be sent."""
Pieces = Sequence[Piece]
"""A frame, in buffers."""


def with_size(payload: bytes) -> bytes:
    """*payload* as a frame."""
    return _SIZE.pack(len(payload)) + payload


class Buffer(bytearray):
    """The memory of one large payload, there until the last view of it is gone; weak references tell when."""

    __slots__ = ("__weakref__",)


class FrameReader:
    """Cuts what arrives on one connection into frames; the caller receives straight into its buffers.

    Layout: ``size: i32 | payload: size bytes``, repeated; *size* does not count itself.
    Use:    as long as ``needs`` is not 0, ``grant`` first. Receive into ``space()``, then tell ``received(n)``,
            which returns the payloads now complete, oldest first. A payload of over 16 KiB is never copied once its
            size is known; smaller ones are, once. Payloads are read-only, and stay valid for as long as they, or
            views of them, are held.
    Memory: one payload's, beyond those that are held. As long as only ones of over 64 KiB arrive, the last two's
            buffers are used for the next: fresh memory would have to be cleared twice, by the system and Python.
            Two, since one may still be on its way to the client while the next payload comes.
    Raises: MalformedFrame: a size is negative; FrameTooLarge: it is over *max_frame_bytes*. The reader is then
            useless.
    Source: Kafka protocol guide, "Common Request and Response Structure"; the limit plays the part of the
            broker's ``socket.request.max.bytes``.
    """

    __slots__ = ("_arrivals", "_end", "_filled", "_large", "_max_frame_bytes", "_spares", "needs")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._arrivals = bytearray(_ARRIVALS_BYTES)
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0
        self._spares: list[Buffer] = []
        self.needs: int = 0
        """Size in bytes of a payload that has begun, for which there is no buffer yet; 0 where there is none."""

    def limit(self, max_frame_bytes: int) -> None:
        """From here on, frames may have up to *max_frame_bytes*."""
        self._max_frame_bytes = max_frame_bytes

    def grant(self) -> Buffer:
        """Take the memory that ``needs`` tells, and return it: it may serve for several payloads in turn."""
        assert self.needs, "nothing was asked for"
        size, self.needs = self.needs, 0
        buffer = Buffer(size)
        if size > _CHEAP_BYTES:
            self._spares.append(buffer)
        self._begin(buffer, size)
        return buffer

    def drop_spares(self) -> None:
        """Keep no memory for later; what is being received, or held, stays."""
        self._spares.clear()

    def drop_all(self) -> None:
        """Nothing more is received: keep nothing."""
        self._spares.clear()
        self._large = None

    def space(self) -> memoryview:
        """Where the next bytes must be received; never empty."""
        assert not self.needs, "there is no memory for them yet"
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
    def is_in_large(self) -> bool:
        """Whether ``space`` is what is left of one large payload, and nothing else."""
        return self._large is not None

    @property
    def at_boundary(self) -> bool:
        """Whether nothing of a next frame has arrived."""
        return self._large is None and self._end == 0 and not self.needs

    def _cut(self) -> list[memoryview]:
        arrived = memoryview(bytes(memoryview(self._arrivals)[: self._end]))
        frames: list[memoryview] = []
        at = large = 0
        while self._end - at >= _SIZE.size and not large:
            (size,) = _SIZE.unpack_from(arrived, at)
            if not 0 <= size <= self._max_frame_bytes:
                wrong = MalformedFrame if size < 0 else FrameTooLarge
                raise wrong(f"frame size {size} is not within 0..{self._max_frame_bytes}")
            body = at + _SIZE.size
            if body + size <= self._end:
                frames.append(arrived[body : body + size])
                at = body + size
                self._spares.clear()
            elif size + _SIZE.size > len(self._arrivals):
                at, large = body, size
            else:
                break
        left = arrived[at:]
        self._arrivals[: len(left)] = left
        self._end = len(left)
        if large:
            self._find_room(large)
        return frames

    def _find_room(self, size: int) -> None:
        """In a large payload's memory if nobody holds that any more; what serves no more is let go of first."""
        for spare in self._spares:
            if size <= len(spare) <= size * _ROOM and not is_viewed(spare):
                self._begin(spare, size)
                return
        self._spares = [spare for spare in self._spares if is_viewed(spare)][1 - _SPARES :]
        self.needs = size

    def _begin(self, buffer: Buffer, size: int) -> None:
        """Receive a payload of *size* into *buffer*, with what has arrived of it."""
        self._large = memoryview(buffer)[:size]
        self._large[: self._end] = memoryview(self._arrivals)[: self._end]
        self._filled, self._end = self._end, 0


def is_viewed(buffer: bytearray) -> bool:
    """Whether views of *buffer* are held: as long as there are, it refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
