"""An encoder and a decoder of Kafka record batches (magic 2, uncompressed) for the embedded cluster's logs.

Layout::

    0 base offset i64 | 8 length i32 (of the bytes behind it) | 12 leader epoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64
    43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records

The checksum (CRC-32C) covers byte 21 to the end, so that a broker can set base offset and leader epoch.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
from crc32c import crc32c

__all__ = ["BadBatch", "BatchInfo", "DemoRecord", "decode_records", "encode_batch", "split_batches"]

_HEAD: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_HEADER_BYTES: Final = 61
_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length does not count


class BadBatch(Exception):
    """An error about bytes that are not whole record batches of magic 2 with the right checksum."""


@attrs.frozen
class DemoRecord:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    offset: int = -1
    """The record's offset in its partition, once it is decoded; ignored when it is encoded."""


@attrs.frozen
class BatchInfo:
    """An encoded record batch, with the header fields that a partition's log needs to store and find it.

    The fields are its offsets, its largest timestamp, the producer's id, epoch and sequence, and whether it is
    compressed.
    """

    data: bytes
    """The whole batch, header included."""
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compressed: bool

    def with_offset(self, base_offset: int, leader_epoch: int) -> "BatchInfo":
        """Return a copy that has *base_offset* and *leader_epoch* in its header, as a broker writes them on append.

        The checksum does not cover these two fields, so it stays valid.
        """
        head = struct.pack(">q", base_offset) + self.data[8:12] + struct.pack(">i", leader_epoch)
        last_offset = base_offset + self.last_offset - self.base_offset
        return attrs.evolve(self, data=head + self.data[16:], base_offset=base_offset, last_offset=last_offset)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _length_prefixed(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def encode_batch(records: Sequence[DemoRecord], *, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    """Encode *records*, at least one, as an uncompressed batch with base offset 0, as a producer sends it.

    The records' own offsets are ignored. *producer_id* and *base_sequence* are those of an idempotent producer, by
    which a log recognizes a batch that is sent twice; -1 for none.
    """
    base_ms = records[0].timestamp_ms
    parts = []
    for delta, record in enumerate(records):
        body = b"".join(
            [
                b"\0",
                _varint(record.timestamp_ms - base_ms),
                _varint(delta),
                _length_prefixed(record.key),
                _length_prefixed(record.value),
                _varint(len(record.headers)),
                *(_length_prefixed(name.encode()) + _length_prefixed(value) for name, value in record.headers),
            ]
        )
        parts += [_varint(len(body)), body]
    max_ms = max(record.timestamp_ms for record in records)
    count = len(records)
    producer_epoch = -1 if producer_id < 0 else 0
    checked = _BODY.pack(0, count - 1, base_ms, max_ms, producer_id, producer_epoch, base_sequence, count)
    checked += b"".join(parts)
    return _HEAD.pack(0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def split_batches(data: bytes) -> Iterator[BatchInfo]:
    """Split *data*, encoded batches one after the other, and yield each batch after checking it.

    Raises: BadBatch: a batch is incomplete, is not of magic 2, or has a wrong checksum.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER_BYTES:
            raise BadBatch("cut short in a header")
        base, length, _, magic, crc = _HEAD.unpack_from(data, at)
        if magic != 2:
            raise BadBatch(f"magic {magic}")
        end = at + _OVERHEAD_BYTES + length
        if length < _HEADER_BYTES - _OVERHEAD_BYTES or end > len(data):
            raise BadBatch(f"a length of {length} bytes")
        attributes, delta, _, max_ms, producer, epoch, sequence, _ = _BODY.unpack_from(data, at + 21)
        batch = data[at:end]
        if crc32c(batch[21:]) != crc:
            raise BadBatch("wrong checksum")
        yield BatchInfo(batch, base, base + delta, max_ms, producer, epoch, sequence, bool(attributes & 7))
        at = end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def decode_records(batches: Iterable[BatchInfo]) -> Iterator[DemoRecord]:
    """Decode *batches*, which must be uncompressed, and yield their records in order, each with its offset."""
    for batch in batches:
        data = batch.data
        base_ms = int.from_bytes(data[27:35], "big", signed=True)
        at = _HEADER_BYTES
        while at < len(data):
            _, at = _read_varint(data, at)
            delta_ms, at = _read_varint(data, at + 1)
            delta, at = _read_varint(data, at)
            key, at = _read_sized(data, at)
            value, at = _read_sized(data, at)
            count, at = _read_varint(data, at)
            headers = []
            for _ in range(count):
                name, at = _read_sized(data, at)
                header, at = _read_sized(data, at)
                headers.append(((name or b"").decode(), header))
            yield DemoRecord(value, key, tuple(headers), base_ms + delta_ms, batch.base_offset + delta)
