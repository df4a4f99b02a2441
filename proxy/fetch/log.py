"""Cached logs: consecutive records of one partition in memory, as one broker sent them.

A log is filled by responses to fetches from exactly its end, and read in slices of whole entries (record batches,
or messages of old formats) at any offset within it. Its bytes are views of the received frames. ``LOG_CACHE.md``
has the design and its rules.
"""

from bisect import bisect_right
from collections.abc import Iterable
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
    """Consecutive records of a log, for a response to a client."""

    records: bytes | memoryview
    """Whole entries, the first of which contains the requested offset or, after a gap, begins above it."""
    next_offset: int
    """The offset after the last entry."""
    aborted: tuple[AbortedPair, ...]
    """The aborted transactions that overlap these records, each once."""
    arrived_s: float
    """The time at which the first of the records arrived from the broker."""


@attrs.define
class _Chunk:
    """The whole entries of one broker response."""

    start: int
    """The requested offset; compaction may have left a gap between it and the first entry."""
    end: int
    """The offset after the last entry."""
    records: memoryview
    arrived_s: float
    """The time of the response."""
    _last: tuple[int, int] = (0, 0)
    """The argument of the last call of ``at`` and its result: readers mostly move forward."""

    def at(self, offset: int) -> int:
        """Return the byte position of the first entry that ends at or after *offset*.

        Cost: O(entries since that of the last call).
        """
        if offset <= self.start:
            return 0
        known, start = self._last if self._last[0] <= offset else (0, 0)
        rest = entries(self.records[start:])
        at = start if known == offset else start + next(each.at for each in rest if each.last_offset >= offset)
        self._last = (offset, at)
        return at


class CachedLog:
    """The cached records of one partition from offset ``start`` to before ``end``.

    All were requested with the same leader epoch, if any, and isolation level. Use: fetch from ``end`` and
    ``append`` the response; ``slice`` records for readers; ``skip`` records that are read, ``trim`` deleted ones,
    and ``trim_before`` old ones.
    """

    __slots__ = ("_aborted", "_chunks", "_size_bytes", "end", "start")

    def __init__(self, start: int) -> None:
        """Create an empty log at offset *start*."""
        self.start = start
        self.end = start
        self._chunks: list[_Chunk] | tuple[()] = ()
        self._aborted: AbortedTransactions | None = None
        """None if there were none: most logs have none, and there are many logs."""
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of all entries."""
        return self._size_bytes

    @property
    def oldest_s(self) -> float:
        """The arrival time of the oldest entries; infinity if there are none."""
        return self._chunks[0].arrived_s if self._chunks else float("inf")

    def append(
        self, offset: int, records: memoryview, aborted: Iterable[AbortedPair] = (), *, now_s: float = 0.0
    ) -> bool:
        """Append the whole entries of a fetch response; return False, with no change, if none reaches *offset*.

        An entry that is incomplete, or has an impossible size or offset, is cut off with all that follow it.

        Args: offset: the offset of the request.
              aborted: the aborted transactions that the response lists.
              now_s: the time of the response.
        Raises: ValueError: *offset* is not ``end``, so the response belongs to an earlier state of the log; or the
                    first entry begins below ``end``, which is allowed only if the log has no entries.
                BadRecords: the header of an entry is damaged; noticed only while the marker of an aborted
                    transaction is looked for.
        """
        if offset != self.end:
            raise ValueError(f"a response from offset {offset} on does not continue a log that ends at {self.end}")
        whole = whole_entries(records, len(records)) if records else None
        if whole is None or whole.next_offset <= offset:
            return False
        records = records[: whole.end]
        if self._chunks and int.from_bytes(records[:8]) < offset:
            raise ValueError(f"a batch from {int.from_bytes(records[:8])} on overlaps a log that ends at {offset}")
        if listed := tuple(aborted):
            self._aborted = self._aborted or AbortedTransactions()
            self._aborted.add(listed)
        if self._aborted is not None:
            self._aborted.walk(records)
        self._chunks = self._chunks or []
        self._chunks.append(_Chunk(offset, whole.next_offset, records, now_s))
        self._size_bytes += len(records)
        self.end = whole.next_offset
        return True

    def slice(self, offset: int, most_bytes: int, *, at_least_one: bool, is_joined: bool = True) -> Slice | None:
        """Return the entries from *offset* on that fit into *most_bytes*.

        Return None if *offset* is outside the log or at its end, or if no entry fits. Records of one broker
        response are a view of it; those of several are a copy.

        Args: at_least_one: whether a first entry that is larger than *most_bytes* is returned whole (KIP-74).
              is_joined: whether the slice may have entries of several broker responses.
        """
        if not self.start <= offset < self.end:
            return None
        first = bisect_right(self._chunks, offset, key=lambda chunk: chunk.end)
        arrived_s = self._chunks[first].arrived_s
        parts: list[memoryview] = []
        left, next_offset = most_bytes, offset
        for chunk in islice(self._chunks, first, None):
            rest = chunk.records[chunk.at(offset) :]
            whole = whole_entries(rest, left)
            if whole.end > left and (parts or not at_least_one):
                break
            parts.append(rest[: whole.end])
            left, next_offset = left - whole.end, whole.next_offset
            if whole.end < len(rest) or not is_joined:
                break
        if not parts:
            return None
        # Many responses of few records each: one copy costs less than many pieces of a response.
        records = parts[0] if len(parts) == 1 else b"".join(parts)
        aborted = () if self._aborted is None else self._aborted.between(offset, next_offset)
        return Slice(records, next_offset, aborted, arrived_s)

    def contains(self, offset: int, since_s: float) -> bool:
        """Return whether *offset* is the end of the log, or in a part that arrived since *since_s*.

        A part is the range of one broker response. Offsets in gaps between its entries count, too.
        """
        if offset == self.end:
            return True
        if not self.start <= offset < self.end:
            return False
        return self._chunks[bisect_right(self._chunks, offset, key=lambda chunk: chunk.end)].arrived_s >= since_s

    def trim_before(self, oldest_s: float) -> None:
        """Drop the entries that arrived before *oldest_s*, and move ``start`` behind them."""
        if self._chunks and self._chunks[0].arrived_s < oldest_s:
            self.trim(next((chunk.start for chunk in self._chunks if chunk.arrived_s >= oldest_s), self.end))

    def trim(self, offset: int) -> None:
        """Drop each broker response whose last entry is below *offset*, and move ``start`` to the end of these.

        A response that also has entries from *offset* on is kept whole.
        """
        gone = bisect_right(self._chunks, offset, key=lambda chunk: chunk.end)
        if gone:
            self._size_bytes -= sum(len(chunk.records) for chunk in self._chunks[:gone])
            self.start = self._chunks[gone - 1].end
            self._chunks = list(self._chunks[gone:]) or ()
            if self._aborted is not None:
                self._aborted.trim(self.start)

    def skip(self, offset: int) -> None:
        """Move ``start`` to *offset*, which is within the log, and drop responses that end at or before it.

        Earlier entries of a response that has later ones, too, stay in memory.
        """
        self.trim(offset)
        self.start = max(self.start, offset)


class AbortedTransactions:
    """The aborted transactions of a cached log, with the offsets of their markers (control batches).

    A broker response lists the aborted transactions that overlap it, without their ends. A part of it must list
    those that overlap the part: a pair that is listed again after its marker makes Java's consumer drop committed
    records, and a pair that is listed twice makes librdkafka do so. The marker is the first control batch of the
    producer after the first offset.

    Source: Kafka's LogSegment.collectAbortedTxns and CompletedFetch; rd_kafka_msgset_reader.
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[AbortedPair, int] = {}
        """By transaction, the offset of its marker; ``_ENDLESS`` while the marker is not in the log."""

    def add(self, listed: Iterable[AbortedPair]) -> None:
        """Add the aborted transactions that a broker response lists; known ones are skipped."""
        for pair in listed:
            self._ends.setdefault(pair, _ENDLESS)

    def walk(self, records: memoryview) -> None:
        """Record the offsets of the markers of known transactions in *records*, the next entries of the log.

        Cost:   nothing if all known transactions have their markers; otherwise a microsecond for each entry.
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
        """Drop the transactions whose markers are below *start*."""
        if any(end < start for end in self._ends.values()):
            self._ends = {pair: end for pair, end in self._ends.items() if end >= start}

    def _end(self, marker: Entry) -> None:
        for pair, end in self._ends.items():
            if end == _ENDLESS and pair[0] == marker.producer_id and pair[1] <= marker.base_offset:
                self._ends[pair] = marker.base_offset
