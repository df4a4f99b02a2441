"""Frames: every message on a Kafka connection is a size, followed by a payload of that many bytes."""

import mmap
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Self

from proxy.errors import FrameTooLarge, MalformedFrame

__all__ = [
    "QUICK_BYTES",
    "SIZE_BYTES",
    "Buffer",
    "Chunks",
    "FrameReader",
    "Piece",
    "Pieces",
    "SizeCheck",
    "is_viewed",
    "with_size",
]

_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
"""The length of the size field before each frame."""
_KEY: Final = struct.Struct(">h")
_ARRIVALS_BYTES: Final = 16 * 1024
"""The buffer for frames whose size is not known yet; a larger frame gets a buffer of its own."""
_MAX_REUSE_RATIO: Final = 4
"""A buffer is reused for payloads down to its size divided by this: a small payload must not keep a large
buffer."""
_SPARES: Final = 2
_CHEAP_BYTES: Final = 64 * 1024
"""The system clears so many bytes within microseconds; buffers up to this size are not kept for idle clients."""
_GROWTH: Final = 4
"""The ratio of the memory of a payload to the part of it that has arrived: a size field alone must not take memory,
and each step costs a system call."""
QUICK_BYTES: Final = 16 * 1024
"""Work on more bytes than this is done in a thread: compressing so much with gzip blocks all others for 1 ms."""


class Chunks(Protocol):
    """A part of an outgoing frame, such as converted records, that is produced in chunks while it is sent.

    Its length in bytes is known before the first chunk: ``len``.
    """

    def __len__(self) -> int: ...

    @property
    def is_quick(self) -> bool:
        """Whether ``next_chunk`` returns so soon that it may run in the event loop; otherwise use a thread."""

    def next_chunk(self) -> bytes | bytearray | memoryview | None:
        """Produce and return the next chunk; return None after the last one.

        The call may block for long. Any thread may make it, but only one thread at a time.
        """


Piece = bytes | memoryview | Chunks
"""One buffer of an outgoing frame."""
Pieces = Sequence[Piece]
"""An outgoing frame, in buffers."""
SizeCheck = Callable[[int, int], None]
"""Raises an error if a request is too large for its API; called with the API key and the size in bytes."""


def with_size(payload: bytes) -> bytes:
    """Return a frame: the size of *payload* in bytes as four bytes, big-endian, and *payload*."""
    return _SIZE.pack(len(payload)) + payload


class Buffer(mmap.mmap):
    """The memory of one large payload at a time: the system provides each page when it is first written.

    It can be referenced weakly, which shows when its memory is freed.
    """

    usable_bytes = 0
    """The size of its first part that has been granted by ``FrameReader.allocate``."""

    def __new__(cls, size_bytes: int) -> Self:
        return super().__new__(cls, -1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    @property
    def is_viewed(self) -> bool:
        """Whether any memoryview of it exists, so that its bytes must not be changed."""
        try:
            self.resize(len(self))
        except (BufferError, SystemError):  # SystemError: this system cannot resize, so it is not known
            return True
        return False


class FrameReader:
    """A splitter of a connection's incoming bytes into frames; the caller receives directly into its buffers.

    Layout: ``size: i32 | payload: size bytes``, repeated; *size* does not count itself.
    Use:    if ``needed_bytes`` is not 0, call ``allocate``. Receive bytes into ``get_space()``, then call
        ``process_received(n)`` with their number: it returns the payloads that are complete now, oldest first.
        Repeat. A payload of over 16 KiB is never copied once its size is known; smaller ones are copied once.
        Payloads are read-only, and stay valid for as long as they, or views of them, are held.
    Memory: one payload's, beyond those that are held: 64 KiB, or four times the part that has arrived. As long as
        only payloads of over 64 KiB arrive, the buffers of the last two are used for the next: the system would
        have to clear fresh memory. Two, since one may still be on its way to the client while the next payload
        arrives.
    Raises: MalformedFrame: a size is negative; FrameTooLarge: it is over *max_frame_bytes*; errors of *check_size*,
        which is called for payloads of over 16 KiB before they get memory. The reader cannot be used afterwards.
    Source: Kafka protocol guide, "Common Request and Response Structure"; the limit corresponds to the broker's
        ``socket.request.max.bytes``.
    """

    __slots__ = (
        "_arrivals",
        "_check_size",
        "_end",
        "_filled",
        "_large",
        "_max_frame_bytes",
        "_size",
        "_spares",
        "_usable",
        "buffer",
        "large_payloads",
    )

    def __init__(self, max_frame_bytes: int, check_size: SizeCheck | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._check_size = check_size
        self._arrivals = bytearray(_ARRIVALS_BYTES)
        self._end = 0
        self._size = 0
        """The size of the large payload that is being received; 0 without one."""
        self._large: memoryview | None = None
        """The memory of that payload; None before ``allocate``."""
        self._filled = self._usable = 0
        self.buffer: Buffer | None = None
        """The memory of the payload being received, if that has over 64 KiB, from the first ``allocate`` on."""
        self._spares: list[Buffer] = []
        self.large_payloads = 0
        """The number of large payloads, of over 16 KiB, of which the reception has begun so far."""

    @property
    def needed_bytes(self) -> int:
        """The size in bytes that the memory of the payload being received must have before more can be received.

        It is 0 if that memory has room, or there is no large payload. It grows as the payload arrives: up to 64
        KiB at first, then to four times what has arrived.
        """
        if self._filled < self._usable or not self._size:
            return 0
        return min(self._size, max(self._usable * _GROWTH, _CHEAP_BYTES))

    def set_limit(self, max_frame_bytes: int) -> None:
        """Set the largest allowed payload in bytes, for frames whose size field has not been read yet.

        A frame of up to 16 KiB that has arrived in part is checked against the new limit, too.
        """
        self._max_frame_bytes = max_frame_bytes

    def allocate(self) -> None:
        """Provide the memory of ``needed_bytes``, which must not be 0, and is 0 afterwards.

        Memory of over 64 KiB is that of ``buffer``. The reader may use it again for later payloads, so it is freed
        only once the buffer object is gone.
        """
        usable = self.needed_bytes
        assert usable, "nothing is needed"
        if self._large is None:
            if self._size > _CHEAP_BYTES:
                self.buffer = Buffer(self._size)
                self._spares.append(self.buffer)
            self._begin_large(bytearray(self._size) if self.buffer is None else self.buffer)
        self._usable = usable
        if self.buffer is not None:
            self.buffer.usable_bytes = max(self.buffer.usable_bytes, usable)

    def drop_spares(self) -> None:
        """Release the buffers that are kept for later payloads, but not that of the payload being received."""
        self._spares.clear()

    def drop_all(self) -> None:
        """Release all large buffers, also that of the payload being received; nothing may be received after it."""
        self._spares.clear()
        self._large = self.buffer = None

    def get_space(self) -> memoryview:
        """Return the writable view, never empty, to receive the next bytes into; ``needed_bytes`` must be 0."""
        assert not self.needed_bytes, "there is no memory for them yet"
        if self._large is not None:
            return self._large[self._filled : self._usable]
        return memoryview(self._arrivals)[self._end :]

    def process_received(self, size: int) -> list[memoryview]:
        """Process *size* bytes, received into ``get_space()``; return the payloads that are complete now.

        Payloads have no size field, and come in the order of their arrival.

        Raises: MalformedFrame: a frame's size is negative; FrameTooLarge: it exceeds the limit; errors of
            *check_size*.
        """
        if self._large is not None:
            self._filled += size
            if self._filled < self._size:
                return []
            whole, self._large, self.buffer = self._large, None, None
            self._size = self._filled = self._usable = 0
            return [whole.toreadonly()]
        self._end += size
        return self._split_frames()

    @property
    def is_in_large(self) -> bool:
        """Whether a large payload is being received into memory of its own."""
        return self._large is not None

    @property
    def at_boundary(self) -> bool:
        """Whether all bytes received so far belong to complete frames."""
        return not self._size and self._end == 0

    def _split_frames(self) -> list[memoryview]:
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
                if self._check_size is not None:
                    if self._end - body < _KEY.size:
                        break
                    (api_key,) = _KEY.unpack_from(arrived, body)
                    self._check_size(api_key, size)
                at, large = body, size
            else:
                break
        left = arrived[at:]
        self._arrivals[: len(left)] = left
        self._end = len(left)
        if large:
            self._find_buffer(large)
        return frames

    def _find_buffer(self, size: int) -> None:
        """Reuse a spare buffer for a payload of *size* bytes if none of its views is left.

        Otherwise spare buffers without views are dropped, and ``needed_bytes`` is not 0.
        """
        self._size = size
        self.large_payloads += 1
        for spare in self._spares:
            if size <= len(spare) <= size * _MAX_REUSE_RATIO and not spare.is_viewed:
                self.buffer, self._usable = spare, min(size, spare.usable_bytes)
                self._begin_large(spare)
                return
        self._spares = [spare for spare in self._spares if spare.is_viewed][1 - _SPARES :]

    def _begin_large(self, buffer: Buffer | bytearray) -> None:
        """Receive the large payload into *buffer*, and move its bytes that have arrived there."""
        self._large = memoryview(buffer)[: self._size]
        self._large[: self._end] = memoryview(self._arrivals)[: self._end]
        self._filled, self._end = self._end, 0


def is_viewed(buffer: bytearray) -> bool:
    """Return whether any memoryview of *buffer* exists, so that its bytes must not be changed.

    *buffer* must not be empty; it stays as it is.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
