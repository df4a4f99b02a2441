"""A copy of one partition's log, read from its leader, and the record batches and message sets in it."""

import bisect
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import lz4.frame
import xxhash
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

__all__ = ["Batch", "Log", "Record", "build_batch", "iterate_batches", "iterate_message_set"]

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""

_HEAD: Final = struct.Struct(">qiibIhiqqqhi")
_SIZED_FROM: Final = 12
_TRANSACTIONAL, _CONTROL = 16, 32
_CODEC, _LZ4 = 7, 3
_WRAPPED_FROM: Final = 26
"""The position of the value in a wrapper of magic 0, which has no key."""
_TIMESTAMP_MS: Final = 1_700_000_000_000


@attrs.frozen
class Batch:
    """The header of a record batch, and where it is."""

    position: int
    size: int
    base: int
    last: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    is_abort: bool


def iterate_batches(data: bytes | bytearray | memoryview, first: int = 0) -> Iterator[Batch]:
    """Yield the whole record batches (magic 2) of *data* from position *first*."""
    position = first
    while position + 61 <= len(data):
        base, length, _, magic, _, attributes, delta, _, _, producer_id, _, _ = _HEAD.unpack_from(data, position)
        size = _SIZED_FROM + length
        if position + size > len(data):
            return
        if magic != 2:
            raise ValueError(f"magic {magic} at position {position}")
        is_control = bool(attributes & _CONTROL)
        is_abort = is_control and _control_type(data, position) == 0
        yield Batch(
            position, size, base, base + delta, producer_id, bool(attributes & _TRANSACTIONAL), is_control, is_abort
        )
        position += size


def _control_type(data: bytes | bytearray | memoryview, position: int) -> int:
    (record,) = _records(bytes(data[position : position + 200]))
    assert record[1] is not None
    return int(struct.unpack(">hh", record[1])[1])


def _records(data: bytes) -> list[Record]:
    records: Any = MemoryRecords(data)
    batch = records.next_batch()
    return [(each.offset, each.key, each.value) for each in batch]


def iterate_message_set(data: bytes) -> Iterator[tuple[int, Record]]:
    """Yield the magic and each message of a message set (magic 0 or 1) as far as it is whole."""
    position = 0
    while len(data) - position >= 17:
        (size,) = struct.unpack_from(">i", data, position + 8)
        end = position + _SIZED_FROM + size
        if end > len(data) or size < 0:
            return
        magic = data[position + 16]
        if magic == 0 and data[position + 17] & _CODEC == _LZ4:
            yield from iterate_message_set(_unpacked_lz4(data[position:end]))
            position = end
            continue
        batches: Any = MemoryRecords(data[position:end])
        while (batch := batches.next_batch()) is not None:
            for each in batch:
                yield magic, (each.offset, each.key, each.value)
        position = end


def _unpacked_lz4(entry: bytes) -> bytes:
    """Return the messages of a wrapper of magic 0: Kafka's LZ4 frames have a wrong checksum there (KAFKA-3160)."""
    value = entry[_WRAPPED_FROM:]
    checksum = xxhash.xxh32_intdigest(value[4:6]) >> 8 & 255
    return bytes(lz4.frame.decompress(value[:6] + bytes([checksum]) + value[7:]))


class Log:
    """The leader's log of one partition, from its start when it was first read."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._batches: list[Batch] = []
        self._lasts: list[int] = []
        self._aborted: list[bool] = []
        self._open: dict[int, list[int]] = {}
        self._read: dict[int, list[Record]] = {}

    @property
    def end(self) -> int | None:
        """The offset behind the last batch; None if nothing has been read."""
        return self._lasts[-1] + 1 if self._lasts else None

    def extend(self, data: bytes) -> None:
        """Append the whole batches of *data*, which the leader returned for offset ``end``."""
        for batch in iterate_batches(data):
            if self._lasts and batch.last <= self._lasts[-1]:
                continue
            kept = attrs.evolve(batch, position=len(self._data))
            self._data += data[batch.position : batch.position + batch.size]
            number = len(self._batches)
            self._batches.append(kept)
            self._lasts.append(batch.last)
            self._aborted.append(False)
            if batch.is_control:
                for other in self._open.pop(batch.producer_id, []):
                    self._aborted[other] = batch.is_abort
            elif batch.is_transactional:
                self._open.setdefault(batch.producer_id, []).append(number)

    def bytes_from(self, offset: int, size: int) -> bytes:
        """Return *size* bytes from the batch that contains *offset*, or else from the first behind it."""
        number = bisect.bisect_left(self._lasts, offset)
        if number == len(self._batches):
            return b""
        position = self._batches[number].position
        return bytes(self._data[position : position + size])

    def batches(self, first: int, end: int) -> Sequence[Batch]:
        """Return the batches with offsets from *first* to before *end*."""
        number = bisect.bisect_left(self._lasts, first)
        found = []
        while number < len(self._batches) and self._batches[number].base < end:
            found.append(self._batches[number])
            number += 1
        return found

    def records(self, first: int, end: int, *, committed: bool = False) -> list[Record]:
        """Return the data records from offset *first* to before *end*, all or without those that were aborted."""
        found = []
        for batch in self.batches(first, end):
            number = bisect.bisect_left(self._lasts, batch.last)
            if batch.is_control or (committed and self._aborted[number]):
                continue
            found += [each for each in self.records_of(number) if first <= each[0] < end]
        return found

    def records_of(self, number: int) -> list[Record]:
        if number not in self._read:
            batch = self._batches[number]
            self._read[number] = _records(bytes(self._data[batch.position : batch.position + batch.size]))
        return self._read[number]

    def bytes_before(self, first: int, end: int) -> bytes:
        """Return the batches from the one with *first* on that lie wholly before offset *end*."""
        found = [batch for batch in self.batches(first, end) if batch.last < end]
        if not found:
            return b""
        return bytes(self._data[found[0].position : found[-1].position + found[-1].size])


def build_batch(magic: int, values: Sequence[bytes], codec: int = 0) -> bytes:
    """Return a record batch, or a message set of magic 0 or 1, with these values from offset 0 on."""
    builder: Any
    if magic == 2:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for offset, value in enumerate(values):
            builder.append(offset, _TIMESTAMP_MS + offset, b"k%d" % offset, value, headers=[])
    else:
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 30)
        for offset, value in enumerate(values):
            builder.append(offset, _TIMESTAMP_MS + offset if magic else None, b"k%d" % offset, value)
    return bytes(builder.build())
