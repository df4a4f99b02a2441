"""Frames: every message on a Kafka connection is its size, followed by that many bytes."""

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
"""The length of the size field before each frame."""
_ARRIVALS_BYTES: Final = 16 * 1024
"""The buffer for frames whose size is not known yet; a larger frame gets a buffer of its own."""
_ROOM: Final = 4
"""A buffer is reused for payloads down to its size divided by this: a small payload must not keep a large
buffer."""
_SPARES: Final = 2
_CHEAP_BYTES: Final = 64 * 1024
"""The system clears so many bytes within microseconds; buffers up to this size are not kept for idle clients."""
QUICK_BYTES: Final = 16 * 1024
"""Work on more bytes than this is done in a thread: compressing so much with gzip blocks all others for 1 ms."""


class Chunks(Protocol):
    """Bytes that are produced while they are sent; their number is known before."""

    def __len__(self) -> int: ...

    @property
    def is_quick(self) -> bool:
        """Whether the next chunk takes so little time that it need not run in a thread."""

    def next_chunk(self) -> bytes | bytearray | memoryview | None:
        """Return the next chunk; None after the last.

        It may take a while; call it from any thread, one call at a time.
        """


Piece = bytes | memoryview | Chunks
"""One buffer of an outgoing frame."""
Pieces = Sequence[Piece]
"""An outgoing frame, in buffers."""


def with_size(payload: bytes) -> bytes:
    """Return *payload* with its size before it."""
    return _SIZE.pack(len(payload)) + payload


class Buffer(bytearray):
    """The memory of one large payload, kept until the last view of it is gone; weak references notice when."""

    __slots__ = ("__weakref__",)


class FrameReader:
    """The cutter of a connection's incoming bytes into frames; the caller receives directly into its buffers.

    Layout: ``size: i32 | payload: size bytes``, repeated; *size* does not count itself.
    Use:    as long as ``needs`` is not 0, call ``grant`` first. Receive into ``space()``, then call
        ``received(n)``, which returns the payloads that are complete now, oldest first. A payload of over 16 KiB is
        never copied once its size is known; smaller ones are copied once. Payloads are read-only, and stay valid
        for as long as they, or views of them, are held.
    Memory: one payload's, beyond those that are held. As long as only payloads of over 64 KiB arrive, the buffers
        of the last two are used for the next: fresh memory would have to be cleared twice, by the system and by
        Python. Two, since one may still be on its way to the client while the next payload arrives.
    Raises: MalformedFrame: a size is negative; FrameTooLarge: it is over *max_frame_bytes*. The reader cannot be
        used afterwards.
    Source: Kafka protocol guide, "Common Request and Response Structure"; the limit corresponds to the broker's
        ``socket.request.max.bytes``.
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
        """Size in bytes of a payload that has begun to arrive and has no buffer yet; 0 if there is none."""

    def limit(self, max_frame_bytes: int) -> None:
        """Set the size limit of later frames to *max_frame_bytes*."""
        self._max_frame_bytes = max_frame_bytes

    def grant(self) -> Buffer:
        """Allocate the ``needs`` bytes, and return the buffer: it may serve for several payloads in turn."""
        assert self.needs, "nothing was asked for"
        size, self.needs = self.needs, 0
        buffer = Buffer(size)
        if size > _CHEAP_BYTES:
            self._spares.append(buffer)
        self._begin(buffer, size)
        return buffer

    def drop_spares(self) -> None:
        """Keep no memory for later payloads; a payload that is being received, or held, stays."""
        self._spares.clear()

    def drop_all(self) -> None:
        """Keep no memory at all: nothing more is received."""
        self._spares.clear()
        self._large = None

    def space(self) -> memoryview:
        """Return the buffer into which the next bytes must be received; never empty."""
        assert not self.needs, "there is no memory for them yet"
        if self._large is not None:
            return self._large[self._filled :]
        return memoryview(self._arrivals)[self._end :]

    def received(self, size: int) -> list[memoryview]:
        """Return the payloads that are complete once *size* bytes were written to the front of ``space()``."""
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
        """Whether ``space`` is the rest of one large payload, and nothing else."""
        return self._large is not None

    @property
    def at_boundary(self) -> bool:
        """Whether no byte of a next frame has arrived."""
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
        """Receive into the memory of a former payload if nobody holds it any more.

        Buffers of no further use are dropped first.
        """
        for spare in self._spares:
            if size <= len(spare) <= size * _ROOM and not is_viewed(spare):
                self._begin(spare, size)
                return
        self._spares = [spare for spare in self._spares if is_viewed(spare)][1 - _SPARES :]
        self.needs = size

    def _begin(self, buffer: Buffer, size: int) -> None:
        """Receive a payload of *size* into *buffer*, after the bytes of it that have arrived."""
        self._large = memoryview(buffer)[:size]
        self._large[: self._end] = memoryview(self._arrivals)[: self._end]
        self._filled, self._end = self._end, 0


def is_viewed(buffer: bytearray) -> bool:
    """Return whether views of *buffer* are held: while there are any, it refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
