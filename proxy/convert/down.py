"""Down-conversion (KIP-283): the fetched records of one partition in an older format, for clients of that format.

A response states the size of a record set before the set, so ``begin`` commits to a size after converting only the
first messages; the rest is converted chunk by chunk while the response is written. The size is the sum of

- exact sizes: of uncompressed batches, by a walk over their records that writes nothing and costs a tenth of a
    conversion; of entries that are copied; of the first messages, which are converted at once if they are
    compressed;
- an estimate for other compressed batches, see ``sizes``; unless the rest is a chunk or less: then it is converted
    at once, and its size is exact.

The caller limits the size, as a client's limits hold for converted records, too: entries that exceed the limit are
left out, except for the first. Nothing is wasted without compression. If the estimate is too high, the set is
filled with the beginning of a message that is larger than the rest, which every client treats as cut off; if it is
too low, the last message is cut. Both are counted.

Damage or a refused codec behind the first messages ends the set: the client asks again at that offset and gets the
error.

A record set of magic 0 or 1 always has a whole message, and its last message is at or beyond the client's offset:
old clients fail or loop otherwise. If there is no such set, the outcome is ``NothingForClient``.
"""

import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, assert_never

from proxy.convert import kernel
from proxy.convert.aborted import AbortedBatchFinder
from proxy.convert.entry import growth_of, rewrite, transcode
from proxy.convert.sizes import Growth, size_behind
from proxy.convert.treatment import Treatment, is_copied, is_plain, treatment_of
from proxy.convert.types import (
    CodecRefused,
    ConversionCounts,
    ConversionTarget,
    Converted,
    DamagedEntry,
    IncompleteEntry,
    NothingForClient,
    Outcome,
)
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry, entries

__all__ = ["DownConversion", "needs_conversion"]

Piece = bytes | bytearray | memoryview

_GROWTH: Final = 4
"""A chunk ends when its output exceeds its nominal size by this factor: compressed input may grow thousandfold."""
_OVERFLOW: Final = struct.Struct(">qi")
"""Offset and size of the incomplete message that fills the rest of a set."""
_UNLIMITED: Final = 2**31 - 1
_OVERFLOW_SIZE: Final = 61
"""The least size that its header states: that of a batch, so that readers find it cut off, and not damaged."""


def needs_conversion(records: memoryview, offset: int, target: ConversionTarget) -> bool:
    """Return whether *records* must be converted for a client that requested *offset*, or can be sent as they are.

    They must be converted if the format or codec of a batch or message is none that the client can read. For magic
    0 and 1, also if an old client could not get past the records: the first entry ends before *offset* or is
    incomplete, or an entry's header is damaged. Empty *records* need no conversion.

    Args: target: the formats that the client can read.
    Cost: O(entries) if the result is False, usually O(1) otherwise.
    """
    if not records:
        return False
    is_set = target.magic == 2
    try:
        for entry in entries(records):
            if not is_copied(entry, target) or (not is_set and entry.last_offset < offset):
                return True
            is_set = True
    except BadRecords:
        return target.magic < 2
    return not is_set


class DownConversion:
    """The conversion of one partition's fetched records to a format that an old client can read, chunk by chunk.

    Use: call ``begin``. If it returns ``Converted``, the size of the output is known (``len``): call ``next_chunk``
    for the bytes until it returns None. It shares no state: the methods may be called in any thread, one at a time.
    """

    def __init__(
        self, records: memoryview, offset: int, target: ConversionTarget, aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Create the conversion of *records*; convert nothing yet.

        Args: records: the records of one partition in a broker's response.
              offset:  the offset that the client requested, not negative. Earlier records are left out, unless they
                  share a compressed or copied entry with later ones.
              target:  the formats that the client can read, and the settings of the conversion.
              aborted: (producer id, first offset) of each aborted transaction in the broker's response.
        """
        self.counts = ConversionCounts()
        self._log = records
        self._offset = offset
        self._target = target
        self._listed = aborted if target.committed and target.magic < 2 else ()
        self._aborted = AbortedBatchFinder(self._listed)
        self._entry: Entry | None = None
        """The entry that is decoded and not finished."""
        self._kind = Treatment.NOTHING
        """The treatment of that entry."""
        self._wrapper: memoryview | None = None
        """The output of that entry, if ``begin`` converted it to know its size."""
        self._ready: deque[Piece] = deque()
        """The output that is not delivered yet, if ``begin`` converted everything to know the size."""
        self._error: BadRecords | None = None
        """The damage, or the refused codec, at which the conversion ends."""
        self._at = 0
        """The position up to which all entries are finished."""
        self._end = 0
        """The end of the last entry that counts for the size."""
        self._size = 0
        self._left = 0
        """The bytes of the size that are not delivered yet."""
        self._is_padded = False
        """Whether the beginning of the padding is delivered."""

    @property
    def source(self) -> memoryview:
        """The records to convert, as the broker sent them; after ``begin``, without those over the limit."""
        return self._log

    @property
    def offset(self) -> int:
        """The offset that the client requested."""
        return self._offset

    @property
    def magic(self) -> int:
        """The record format of the output: 0, 1 or 2."""
        return self._target.magic

    @property
    def is_quick(self) -> bool:
        """Whether the next chunk takes only a tenth of a ms, so that it need not be converted in a thread.

        True if the conversion loops are compiled, and the chunk is converted already or needs no decompression.
        """
        return kernel.is_compiled and (
            bool(self._ready) or self._next_entry() is None or self._kind is not Treatment.WRAPPER
        )

    @property
    def may_burst(self) -> bool:
        """Whether the source has zstd, of which four bytes can decompress to 128 KiB.

        Its conversion may take long even if the source is small.
        """
        with suppress(BadRecords):
            return any(entry.codec == Codec.ZSTD for entry in entries(self._log))
        return False

    @property
    def held_bytes(self) -> int:
        """The number of bytes of output that ``begin`` has converted and that are not delivered yet."""
        return sum(map(len, self._ready)) + len(self._wrapper or b"")

    def drop_output(self) -> None:
        """Drop the output that ``begin`` has kept, to free memory: it is converted again later, to the same bytes.

        Call it only between ``begin`` and the first ``next_chunk``: later, the output would start again from its
        beginning. It resets ``counts``, except for the CPU time.
        """
        self.counts = ConversionCounts(cpu_us=self.counts.cpu_us)
        self._aborted = AbortedBatchFinder(self._listed)
        self._entry = self._wrapper = self._error = None
        self._ready.clear()
        self._at = 0

    def __len__(self) -> int:
        """Return the size of the whole output, padding included, in bytes.

        It is 0 before ``begin``, and after it if the outcome is not ``Converted``.
        """
        return self._size

    def begin(self, limit_bytes: int = _UNLIMITED) -> Outcome:
        """Determine the size of the output, which ``next_chunk`` then yields exactly; return the outcome.

        Args:    limit_bytes: the largest size; only the output of the first entry may exceed it. Entries of the
                     source that exceed the limit are dropped from ``source``.
        Returns: ``Converted`` with the size, or the reason for which there is no output. Call this once.
        Cost: converting one batch, and the entries before it that have no message for the client; and measuring the
            uncompressed others, which takes a tenth of converting them. The output of a compressed first batch, or
            of everything if there are estimates and the source is a chunk or less, is kept (``held_bytes``).
        """
        next_offset = -1
        while (entry := self._next_entry()) is not None:
            size = self._measure_entry(entry)
            if self._error is not None:
                break
            if size:
                self._determine_size(entry, size, limit_bytes - size)
                self._left = self._size = min(self._size, max(size, limit_bytes))
                return Converted(self._size)
            next_offset = entry.last_offset + 1
            self._finish_entry(entry)
        if self._error is None:
            return NothingForClient(next_offset) if next_offset > self._offset else IncompleteEntry()
        if self._error.code == ErrorCode.unsupported_compression_type:
            return CodecRefused(self._error.offset)
        return DamagedEntry(self._error.offset, str(self._error))

    def _determine_size(self, first: Entry, size: int, limit_bytes: int) -> None:
        growth = Growth(first, size if self._wrapper else None, self._target)
        aborted = self._aborted.copy()
        behind = size_behind(first, self._log, self._offset, self._target, aborted, growth, limit_bytes)
        self._end = behind.end
        self._log = self._log[: behind.end]
        self._size = size + behind.size
        if not behind.is_exact and behind.end - first.at <= self._target.chunk_bytes:
            self._convert_all()

    def _convert_all(self) -> None:
        """Convert everything to know the exact size; stop, and leave the estimate, if the output becomes large."""
        size = 0
        while piece := self._convert_chunk():
            self._ready.append(piece)
            size += len(piece)
            if size > self._most_bytes:
                return
        self._size = size

    @property
    def _most_bytes(self) -> int:
        """The largest output of a chunk; the next batch must then wait for the next chunk."""
        return _GROWTH * self._target.chunk_bytes

    def next_chunk(self) -> Piece | None:
        """Return the next bytes of the output, at least one; None at its end. They may be a view of the source.

        All chunks together have exactly the size that ``begin`` has determined: too much output is cut off, too
        little is followed by padding.

        Cost: of converting ``chunk_bytes`` of the source, or one batch if that is larger; entries that are copied
            cost nothing. Memory for four times as much, or one batch more.
        """
        if not self._left:
            return None
        piece = self._ready.popleft() if self._ready else self._convert_chunk() or self._next_padding()
        if len(piece) > self._left:
            self.counts.cut_bytes += len(piece) - self._left
            piece = memoryview(piece)[: self._left]
        self._left -= len(piece)
        self.counts.out_bytes += len(piece)
        if not self._left:
            self._count_unread()
        return piece

    def _count_unread(self) -> None:
        """Count the source bytes that were not converted because the size is used up."""
        while (entry := self._next_entry()) is not None and self._kind in (Treatment.NOTHING, Treatment.ABORTED):
            self._finish_entry(entry)
        self.counts.unread_bytes = max(self._end - self._at, 0)

    def _next_entry(self) -> Entry | None:
        """Return the next unfinished entry and set its treatment; None at the end of the source and after an error.

        Its checksum is verified, unless the entry is copied, or the kernel will verify it.
        """
        if self._entry is None and self._error is None:
            try:
                entry = next(entries(self._log, self._at), None)
                if entry is not None:
                    if not (is_copied(entry, self._target) or (is_plain(entry) and self._aborted.is_over)):
                        entry.verify_checksum(self._log)
                    self._kind = treatment_of(entry, self._log, self._offset, self._target, self._aborted)
                self._entry = entry
            except BadRecords as error:
                self._error = error
        return self._entry

    def _finish_entry(self, entry: Entry) -> None:
        self._entry = self._wrapper = None
        self._at = entry.end
        self.counts.source_bytes += entry.size
        if self._kind is Treatment.ABORTED:
            self.counts.aborted_batches += 1
            self.counts.aborted_records += entry.records

    def _measure_entry(self, entry: Entry) -> int:
        """Return the output size of the present entry; 0 if it has no output, or is damaged (``_error``)."""
        match self._kind:
            case Treatment.NOTHING | Treatment.ABORTED:
                return 0
            case Treatment.COPY:
                return entry.size
            case Treatment.MESSAGES:
                done = kernel.measure_entries(
                    self._log, entry.at, entry.end, self._offset, self._target.magic, True, True
                )
                self._error = _damage(done, entry.base_offset)
                return done.size
            case Treatment.WRAPPER:
                self._wrapper = self._rewrite_entry(entry)
                return len(self._wrapper)
            case never:
                assert_never(never)

    def _rewrite_entry(self, entry: Entry) -> memoryview:
        """Return the output of a compressed entry; if that fails, set ``_error`` and return no bytes."""
        write = rewrite if self._target.magic < 2 else transcode
        try:
            return write(entry, self._log, self._offset, self._target, self.counts)
        except BadRecords as error:
            self._error = error
            return memoryview(b"")

    def _convert_chunk(self) -> Piece:
        """Convert the next chunk of the source; return no bytes at its end, and after an error."""
        parts: list[Piece] = []
        is_quick = False
        left, chunk_end = self._most_bytes, self._at + self._target.chunk_bytes
        while left > 0 and (self._at < chunk_end or not parts) and (entry := self._next_entry()) is not None:
            if self._kind is Treatment.COPY:
                if not parts:
                    return self._copy_entries(entry)
                break
            if self._kind is Treatment.WRAPPER and is_quick and parts:
                break  # leave it for a chunk that may run in a thread
            is_quick = is_quick or self._kind is Treatment.MESSAGES
            if piece := self._convert_entry(entry, chunk_end):
                parts.append(piece)
                left -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _convert_entry(self, entry: Entry, chunk_end: int) -> Piece:
        """Convert and finish the present entry, and later ones up to *chunk_end* if they are converted together."""
        match self._kind:
            case Treatment.MESSAGES:
                return self._convert_messages(entry, chunk_end)
            case Treatment.WRAPPER:
                wrapper = self._rewrite_entry(entry) if self._wrapper is None else self._wrapper
                self._finish_entry(entry)
                return wrapper
            case _:
                self._finish_entry(entry)
                return b""

    def _copy_entries(self, first: Entry) -> memoryview:
        """Finish adjacent entries that are copied; return them as one view of the source."""
        entry: Entry | None = first
        while entry is not None and self._kind is Treatment.COPY:
            self._finish_entry(entry)
            entry = self._next_entry()
        return self._log[first.at : self._at]

    def _convert_messages(self, first: Entry, chunk_end: int) -> memoryview:
        """Convert adjacent uncompressed entries that begin before *chunk_end*, at least one, to messages."""
        stop = min(max(chunk_end, first.end), len(self._log))
        room = memoryview(bytearray(max((stop - first.at) * 5 // 4, first.size + growth_of(first))))
        done = kernel.convert_entries(
            self._log, first.at, stop, self._offset, self._target.magic, self._aborted.is_over, room
        )
        self._error = _damage(done, -1)
        self._entry = None
        self._at = done.end
        self.counts.source_bytes += done.end - first.at
        self.counts.messages += done.messages
        self.counts.headers_dropped += done.headers
        return room[: done.size]

    def _next_padding(self) -> bytes:
        """Return padding: the beginning of a message that is larger than the rest of the output, or more of it."""
        size = min(self._left, self._target.chunk_bytes)
        self.counts.padding_bytes += size
        if self._is_padded:
            return bytes(size)
        self._is_padded = True
        head = _OVERFLOW.pack(-1, max(self._left + 1, _OVERFLOW_SIZE))
        return (head + bytes(max(size - len(head), 0)))[:size]


def _damage(done: kernel.Done, offset: int) -> BadRecords | None:
    return BadRecords(ErrorCode.corrupt_message, str(done.damage), offset=offset) if done.damage else None
