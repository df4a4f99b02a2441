"""Cached logs: contiguous parts of partitions, as one source served them. They know no clients.

A log is filled by responses, each asked for at exactly its end, and read in slices of whole entries at any offset
within it. Its bytes are views of the received frames. ``LOG_CACHE.md`` has the design and its rules.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import attrs

from proxy.convert.kernel import whole_entries
from proxy.wire.records import Entry, entries

__all__ = ["AbortedTransactions", "CachedLog", "Slice"]

AbortedPair = tuple[int, int]
"""An aborted transaction in a fetch response: (producer id, first offset)."""
_ENDLESS: Final = 2**63


class Slice(NamedTuple):
    """A part of a log that fits into a response."""

    records: Sequence[memoryview]
    """Whole entries, the first of which contains the offset that was asked for, or begins above it."""
    next_offset: int
    """The offset after the last entry."""
    aborted: tuple[AbortedPair, ...]
    """The aborted transactions that a filter of these records must know, each once."""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))


@attrs.frozen
class _Chunk:
    """The whole entries of one response."""

    start: int
    """The offset that was asked for: offsets up to the first entry are gaps, left by compaction."""
    end: int
    records: memoryview

    def at(self, offset: int) -> int:
        """Return the position of the first entry that ends after *offset*. Cost: O(entries before it)."""
        if offset <= self.start:
            return 0
        return next(entry.at for entry in entries(self.records) if entry.last_offset >= offset)


class CachedLog:
    """The records of a partition from ``start`` to before ``end``, in one leader epoch, at one isolation level.

    Use: ``append`` each response that was asked for at ``end``; ``slice`` for readers; ``trim`` behind them.
    """

    __slots__ = ("_aborted", "_chunks", "_size_bytes", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._chunks: deque[_Chunk] = deque()
        self._aborted = AbortedTransactions()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of all its entries."""
        return self._size_bytes

    def append(self, asked: int, records: memoryview, aborted: Iterable[AbortedPair] = ()) -> bool:
        """Append the whole entries of a response; return whether there were any.

        An incomplete entry at the end is cut off.

        Args: asked: the offset of the request.
        Raises: ValueError: it is not ``end``, so that the response belongs to an earlier state of the log; or the
                    first entry begins below it, which is possible only at the start of a log.
                BadRecords: a control batch, or the header of an entry, is damaged.
        """
        if asked != self.end:
            raise ValueError(f"a response from offset {asked} on does not continue a log that ends at {self.end}")
        whole = whole_entries(records, len(records)) if records else None
        if whole is None or whole.next_offset <= asked:
            return False
        records = records[: whole.end]
        if self._chunks and int.from_bytes(records[:8]) < asked:
            raise ValueError(f"a batch from {int.from_bytes(records[:8])} on overlaps a log that ends at {asked}")
        self._aborted.add(aborted)
        self._aborted.walk(records)
        self._chunks.append(_Chunk(asked, whole.next_offset, records))
        self._size_bytes += len(records)
        self.end = whole.next_offset
        return True

    def slice(self, offset: int, most_bytes: int, *, at_least_one: bool) -> Slice | None:
        """Return the entries from *offset* on that fit into *most_bytes*; None if there is none.

        Args: at_least_one: whether a first entry that is larger than *most_bytes* is returned whole (KIP-74).
        """
        if not self.start <= offset < self.end:
            return None
        first = bisect_right(self._chunks, offset, key=lambda chunk: chunk.end)
        parts: list[memoryview] = []
        left, next_offset = most_bytes, offset
        for chunk in islice(self._chunks, first, None):
            rest = chunk.records[chunk.at(offset) :]
            whole = whole_entries(rest, left)
            if whole.end > left and (parts or not at_least_one):
                break
            parts.append(rest[: whole.end])
            left, next_offset = left - whole.end, whole.next_offset
            if whole.end < len(rest):
                break
        return Slice(parts, next_offset, self._aborted.between(offset, next_offset)) if parts else None

    def trim(self, offset: int) -> None:
        """Drop the responses that end at *offset* or before."""
        while self._chunks and self._chunks[0].end <= offset:
            chunk = self._chunks.popleft()
            self._size_bytes -= len(chunk.records)
            self.start = chunk.end
        self._aborted.trim(self.start)


class AbortedTransactions:
    """The aborted transactions of a log, with the offsets of their markers.

    A response lists the aborted transactions that overlap it, without their ends. A part of it must list those that
    overlap the part: a pair that is listed again after its marker makes Java's consumer drop committed records, and
    a pair that is listed twice makes librdkafka do so. The marker is the first control batch of the producer after
    the first offset. Source: Kafka's LogSegment.collectAbortedTxns and CompletedFetch; rd_kafka_msgset_reader.
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[AbortedPair, int] = {}
        """By transaction, the offset of its marker; ``_ENDLESS`` while the marker is not in the log."""

    def add(self, listed: Iterable[AbortedPair]) -> None:
        """Add the transactions of a response, some of which may be known."""
        for pair in listed:
            self._ends.setdefault(pair, _ENDLESS)

    def walk(self, records: memoryview) -> None:
        """Find markers in the entries that follow the known part of the log.

        Cost:   nothing unless a known transaction lacks its marker; otherwise a microsecond for each entry.
        Raises: BadRecords: the header of an entry is damaged.
        """
        if any(end == _ENDLESS for end in self._ends.values()):
            for entry in entries(records):
                if entry.is_control:
                    self._end(entry)

    def between(self, start: int, end: int) -> tuple[AbortedPair, ...]:
        """Return the transactions that overlap the offsets from *start* to before *end*, by first offset."""
        pairs = (pair for pair, marker in self._ends.items() if pair[1] < end and marker >= start)
        return tuple(sorted(pairs, key=lambda pair: pair[1]))

    def trim(self, start: int) -> None:
        """Forget the transactions that end before *start*."""
        if any(end < start for end in self._ends.values()):
            self._ends = {pair: end for pair, end in self._ends.items() if end >= start}

    def _end(self, marker: Entry) -> None:
        for pair, end in self._ends.items():
            if end == _ENDLESS and pair[0] == marker.producer_id and pair[1] <= marker.base_offset:
                self._ends[pair] = marker.base_offset
