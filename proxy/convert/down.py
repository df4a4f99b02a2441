"""Down-conversion (KIP-283): one partition's records of a fetch answer, as a client of an older format reads them.

The size of a record set is told before the set, so ``begin`` commits to one before anything but the first messages
is converted; the rest is converted chunk by chunk as the answer is written. The size is the sum of

- what is known exactly: batches that are not compressed, by a walk over their records that writes nothing and costs
  a tenth of a conversion; entries that are copied; what converts to nothing; the first messages, where these are
  compressed: they are converted at once;
- for other compressed batches a guess, see ``sizes``; unless all that is left is a chunk or less: then it is
  converted at once, and known too.

So nothing is wasted where nothing is compressed. Where the guess is too high, the set is filled with the beginning
of a message that is longer than what follows, which every client takes for one that was cut off; where it is too
low, the last message is cut. Either is counted.

Damage or a refused codec behind the first messages ends the set, so that the client asks again there and is told.

A set for magic 0 or 1 is never only a part of a message, and has a message at or beyond the client's offset, its
last one among them; old clients fail or loop on all else. Where there is no such set, the outcome is
``NothingForClient``.
"""

import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, assert_never

from proxy.convert import kernel
from proxy.convert.aborted import Aborted
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
"""A chunk ends when it has become so many times what it is asked to be: what is compressed may become thousands."""
_OVERFLOW: Final = struct.Struct(">qi")
"""Of the message that fills a set up: offset and size."""
_OVERFLOW_SIZE: Final = 61
"""The least that it claims to have: a batch's, so that no reader takes it for damaged rather than cut off."""


def needs_conversion(records: memoryview, offset: int, target: ConversionTarget) -> bool:
    """Whether *records*, fetched at *offset*, must be converted; if not, they can leave as they are.

    Cost: O(entries) for what needs none, most often O(1) for what needs it.
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
    """Shares no state: its methods may be called in any thread, one at a time."""

    def __init__(
        self, records: memoryview, offset: int, target: ConversionTarget, aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        """*records* were fetched at *offset*, which is not negative.

        Args: aborted: (producer id, first offset) of each aborted transaction that the broker named with them.
        """
        self.counts = ConversionCounts()
        self._log = records
        self._offset = offset
        self._target = target
        self._listed = aborted if target.committed and target.magic < 2 else ()
        self._aborted = Aborted(self._listed)
        self._entry: Entry | None = None
        """Looked at, but not done with."""
        self._kind = Treatment.NOTHING
        """What it becomes."""
        self._wrapper: memoryview | None = None
        """What it has become, where ``begin`` had to know its size."""
        self._ready: deque[Piece] = deque()
        """All that there is, where it had to be converted to know its size."""
        self._error: BadRecords | None = None
        """Why nothing more is converted."""
        self._at = 0
        """All entries before it are done with."""
        self._end = 0
        """Of the last entry that counts for the size."""
        self._size = 0
        self._left = 0
        self._is_padded = False

    @property
    def source(self) -> memoryview:
        """The records that it is made of."""
        return self._log

    @property
    def offset(self) -> int:
        """From which on the client wants records."""
        return self._offset

    @property
    def magic(self) -> int:
        """The record format that comes of it."""
        return self._target.magic

    @property
    def is_quick(self) -> bool:
        """Whether nothing need be decompressed for the next chunk, and the kernel is compiled: a tenth of a ms."""
        return kernel.is_compiled and (
            bool(self._ready) or self._look() is None or self._kind is not Treatment.WRAPPER
        )

    @property
    def may_burst(self) -> bool:
        """Whether a few bytes of it may come to many: four of zstd stand for 128 KiB."""
        with suppress(BadRecords):
            return any(entry.codec == Codec.ZSTD for entry in entries(self._log))
        return False

    @property
    def held_bytes(self) -> int:
        """Of what has been converted and not been handed out."""
        return sum(map(len, self._ready)) + len(self._wrapper or b"")

    def let_go(self) -> None:
        """Of what ``begin`` has converted: it will be converted again, to the same bytes."""
        self.counts = ConversionCounts()
        self._aborted = Aborted(self._listed)
        self._entry = self._wrapper = self._error = None
        self._ready.clear()
        self._at = 0

    def __len__(self) -> int:
        """Bytes of the record set; 0 before ``begin``, and after it if the outcome is not ``Converted``."""
        return self._size

    def begin(self) -> Outcome:
        """Commit to a size, or tell why there is none.

        Cost: of what converts to nothing and of one batch; what a compressed one has become is held.
        """
        next_offset = -1
        while (entry := self._look()) is not None:
            size = self._size_of(entry)
            if self._error is not None:
                break
            if size:
                self._commit(entry, size)
                return Converted(self._size)
            next_offset = entry.last_offset + 1
            self._done_with(entry)
        if self._error is None:
            return NothingForClient(next_offset) if next_offset > self._offset else IncompleteEntry()
        if self._error.code == ErrorCode.unsupported_compression_type:
            return CodecRefused(self._error.offset)
        return DamagedEntry(self._error.offset, str(self._error))

    def _commit(self, first: Entry, size: int) -> None:
        growth = Growth(first, size if self._wrapper else None, self._target)
        aborted = self._aborted.copy()
        behind = size_behind(first, self._log, self._offset, self._target, aborted, growth)
        self._end = behind.end
        self._size = size + behind.size
        if not behind.is_exact and behind.end - first.at <= self._target.chunk_bytes:
            self._convert_all()
        self._left = self._size

    def _convert_all(self) -> None:
        """To know the size; unless it comes to so much that the guess will do."""
        size = 0
        while piece := self._convert():
            self._ready.append(piece)
            size += len(piece)
            if size > self._most_bytes:
                return
        self._size = size

    @property
    def _most_bytes(self) -> int:
        """What may come of a chunk of the source before the next batch must wait for the next chunk."""
        return _GROWTH * self._target.chunk_bytes

    def next_chunk(self) -> Piece | None:
        """The set's next bytes, never none of them; None behind its end. They may be views of the source.

        Cost: of ``chunk_bytes`` of the source, or one batch if that is larger; what is copied costs nothing. Memory
        for four times as much, or one batch more.
        """
        if not self._left:
            return None
        piece = self._ready.popleft() if self._ready else self._convert() or self._padding()
        if len(piece) > self._left:
            self.counts.cut_bytes += len(piece) - self._left
            piece = memoryview(piece)[: self._left]
        self._left -= len(piece)
        self.counts.out_bytes += len(piece)
        if not self._left:
            self._finish()
        return piece

    def _finish(self) -> None:
        """The size is used up: count what was fetched for nothing."""
        while (entry := self._look()) is not None and self._kind in (Treatment.NOTHING, Treatment.ABORTED):
            self._done_with(entry)
        self.counts.unread_bytes = max(self._end - self._at, 0)

    def _look(self) -> Entry | None:
        """The next entry that is not done with; None at the end, and behind an error.

        Its checksum has been looked at, unless it is copied, or the kernel will.
        """
        if self._entry is None and self._error is None:
            try:
                entry = next(entries(self._log, self._at), None)
                if entry is not None:
                    if not (is_copied(entry, self._target) or (is_plain(entry) and self._aborted.is_over)):
                        entry.check(self._log)
                    self._kind = treatment_of(entry, self._log, self._offset, self._target, self._aborted)
                self._entry = entry
            except BadRecords as error:
                self._error = error
        return self._entry

    def _done_with(self, entry: Entry) -> None:
        self._entry = self._wrapper = None
        self._at = entry.end
        self.counts.source_bytes += entry.size
        if self._kind is Treatment.ABORTED:
            self.counts.aborted_batches += 1
            self.counts.aborted_records += entry.records

    def _size_of(self, entry: Entry) -> int:
        """What the entry looked at comes to; 0 too where that is an error."""
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
                self._wrapper = self._rewritten(entry)
                return len(self._wrapper)
            case never:
                assert_never(never)

    def _rewritten(self, entry: Entry) -> memoryview:
        """Empty where that is an error."""
        write = rewrite if self._target.magic < 2 else transcode
        try:
            return write(entry, self._log, self._offset, self._target, self.counts)
        except BadRecords as error:
            self._error = error
            return memoryview(b"")

    def _convert(self) -> Piece:
        """The next chunk; empty at the end, and behind an error."""
        parts: list[Piece] = []
        is_quick = False
        left, chunk_end = self._most_bytes, self._at + self._target.chunk_bytes
        while left > 0 and (self._at < chunk_end or not parts) and (entry := self._look()) is not None:
            if self._kind is Treatment.COPY:
                if not parts:
                    return self._copies(entry)
                break
            if self._kind is Treatment.WRAPPER and is_quick and parts:
                break  # for a chunk that may take its time
            is_quick = is_quick or self._kind is Treatment.MESSAGES
            if piece := self._converted(entry, chunk_end):
                parts.append(piece)
                left -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _converted(self, entry: Entry, chunk_end: int) -> Piece:
        """What *entry*, the one looked at, has become, and as many as go along with it; done with."""
        match self._kind:
            case Treatment.MESSAGES:
                return self._messages(entry, chunk_end)
            case Treatment.WRAPPER:
                wrapper = self._rewritten(entry) if self._wrapper is None else self._wrapper
                self._done_with(entry)
                return wrapper
            case _:
                self._done_with(entry)
                return b""

    def _copies(self, first: Entry) -> memoryview:
        """All copied entries in a row, as one view."""
        entry: Entry | None = first
        while entry is not None and self._kind is Treatment.COPY:
            self._done_with(entry)
            entry = self._look()
        return self._log[first.at : self._at]

    def _messages(self, first: Entry, chunk_end: int) -> memoryview:
        """What is converted in one go: entries in a row up to the chunk's end, at least one."""
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

    def _padding(self) -> bytes:
        """The beginning of a message that is longer than what follows, or more of it."""
        size = min(self._left, self._target.chunk_bytes)
        self.counts.padding_bytes += size
        if self._is_padded:
            return bytes(size)
        self._is_padded = True
        head = _OVERFLOW.pack(-1, max(self._left + 1, _OVERFLOW_SIZE))
        return (head + bytes(max(size - len(head), 0)))[:size]


def _damage(done: kernel.Done, offset: int) -> BadRecords | None:
    return BadRecords(ErrorCode.corrupt_message, str(done.damage), offset=offset) if done.damage else None
