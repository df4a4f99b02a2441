"""A search for the spans in which records were produced, by the records' ``traceparent`` headers.

Only uncompressed batches are searched, in place: nothing is decompressed, and only the header is copied. A record
is::

    size varint | attributes i8 | time delta varint | offset delta varint | key | value | headers varint | header...
    key, value: size varint | bytes      header: name size varint | name | value size varint | value

Source: Kafka's DefaultRecord; W3C Trace Context, "traceparent header".
"""

import re
from typing import Final

import attrs

from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import BATCH_HEADER_BYTES, Entry, entries

__all__ = ["Producer", "Producers"]

_MOST_BATCHES: Final = 512
"""The most batches of a response whose headers are read: half a millisecond."""
_MOST_RECORDS: Final = 128
"""The most records of a response that are searched: half a millisecond."""
_MOST_LINKS: Final = 32
"""The most links of a span; more would be of no use to people."""
_MOST_HEADERS: Final = 64
"""The most headers of a record that are searched: producers choose their number."""
_NAME: Final = b"traceparent"
_VALUE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LONGEST_VALUE: Final = 256
"""The longest header value, in bytes: later versions may be longer than today's 55."""
_LONGEST_VARINT: Final = 10


@attrs.frozen
class Producer:
    """The span in which a producer sent records, from the ``traceparent`` header of the records."""

    trace_id: int
    span_id: int
    flags: int
    """The trace flags, such as 1 for sampled."""
    offset: int = attrs.field(eq=False)
    """The offset of the first record that names the span."""


@attrs.define
class Producers:
    """The producers' spans that were found in the records of one response to a client, and counts of the search."""

    found: dict[tuple[int, int], Producer] = attrs.field(factory=dict)
    """The spans by trace id and span id."""
    messages: int = 0
    """The number of records in the batches that were read."""
    compressed_batches: int = 0
    """The number of compressed batches, which were not searched."""
    is_cut: bool = False
    """Whether a limit ended the search early."""
    counts_all: bool = True
    """Whether all batches were read, so that ``messages`` is complete."""
    _batches: int = 0
    _records: int = 0
    _last: bytes = b""

    def search(self, records: memoryview, offset: int = 0) -> None:
        """Search *records*, the batches of one partition, for ``traceparent`` headers, and add to this result.

        Records below *offset*, control batches and the formats before magic 2 are skipped; compressed batches are
        only counted. The search ends early, without an error, at limits for one response (``is_cut``) and at the
        first corrupt batch.

        Cost: a microsecond for each batch, three for each record.
        """
        try:
            for entry in entries(records):
                if self._batches >= _MOST_BATCHES:
                    self.counts_all, self.is_cut = False, True
                    return
                self._batches += 1
                self._search_batch(records, entry, offset)
        except BadRecords:
            self.counts_all = False

    def _search_batch(self, log: memoryview, entry: Entry, offset: int) -> None:
        if entry.magic < 2 or entry.is_control or entry.last_offset < offset:
            return
        self.messages += entry.records
        if entry.codec:
            self.compressed_batches += 1
            return
        at = entry.at + BATCH_HEADER_BYTES
        for _ in range(entry.records):
            if self._records >= _MOST_RECORDS or len(self.found) >= _MOST_LINKS:
                self.is_cut = True
                return
            self._records += 1
            size, body = _varint(log, at, entry.end)
            at = body + size
            if size < 1 or at > entry.end:
                raise _corrupt("a record's size", entry.base_offset)
            self._search_record(log[body:at], entry.base_offset, offset)

    def _search_record(self, record: memoryview, base_offset: int, offset: int) -> None:
        end = len(record)
        _, at = _varint(record, 1, end)
        delta, at = _varint(record, at, end)
        if base_offset + delta < offset:
            return
        for _ in ("key", "value"):
            size, at = _varint(record, at, end)
            at += max(size, 0)
        count, at = _varint(record, at, end)
        for _ in range(min(count, _MOST_HEADERS)):
            size, name_at = _varint(record, at, end)
            value_size, at = _varint(record, name_at + max(size, 0), end)
            if size == len(_NAME) and bytes(record[name_at : name_at + size]) == _NAME:
                if 0 < value_size <= _LONGEST_VALUE:
                    self._take(bytes(record[at : at + value_size]), base_offset + delta)
                return
            at += max(value_size, 0)

    def _take(self, value: bytes, offset: int) -> None:
        if value == self._last:
            return
        self._last = value
        match = _VALUE.match(value)
        if match is None or match[1] == b"ff" or (match[1] == b"00" and match.end() != len(value)):
            return
        trace_id, span_id, flags = (int(part, 16) for part in match.groups()[1:])
        if trace_id and span_id:
            self.found.setdefault((trace_id, span_id), Producer(trace_id, span_id, flags, offset))


def _varint(log: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the zigzag varint at position *at* of *log*, and the position behind it.

    Raises: BadRecords: the number does not end before *end*.
    """
    if at < end and log[at] < 0x80:
        return (log[at] >> 1) ^ -(log[at] & 1), at + 1
    value = shift = 0
    for byte in log[at : min(end, at + _LONGEST_VARINT)]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _corrupt("a number without an end", -1)


def _corrupt(why: str, offset: int) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, why, offset=offset)
