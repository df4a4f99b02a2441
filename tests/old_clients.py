"""Requests and responses of Fetch v0 to v3, encoded with aiokafka, since kio does not have them."""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
from aiokafka.protocol import fetch
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.record.memory_records import MemoryRecords

from proxy.wire.frames import Piece, with_size
from proxy.wire.records import Codec
from tests.convert import logs
from tests.pieces import joined

__all__ = ["Heard", "OldRecord", "batch", "fetch_frame", "heard", "response_type"]

_CODEC_BITS = 7
_ENTRY = struct.Struct(">qiIbb")
"""The head of a message or wrapper: offset, size of the rest, CRC, magic, attributes."""
_SIZED_FROM = 12
_VALUE_OF_WRAPPER_FROM = _ENTRY.size + 4 + 4


@attrs.frozen
class OldRecord:
    """A message as an old client reads it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    """None in message format 0."""
    timestamp_type: int | None
    """0 for the producer's, 1 for the broker's; None in message format 0."""
    codec: int
    """The codec of its wrapper; 0 for none."""


@attrs.frozen
class Heard:
    """One partition of an answer."""

    error: int
    high_watermark: int
    records: tuple[OldRecord, ...]
    """The complete records."""
    record_bytes: int
    """All that stood in their place."""


def batch(first: int, *values: bytes, codec: int = 0, is_control: bool = False, producer_id: int = -1) -> bytes:
    """A record batch (magic 2) that a broker has placed at offset *first*; times are 1,000 more than offsets."""
    records = [logs.Record(at, 1_000 + at, value=value) for at, value in enumerate(values, first)]
    return logs.batch(records, codec=codec, is_control=is_control, producer_id=producer_id)


def fetch_frame(
    version: int,
    offsets: Mapping[int, int],
    *,
    topic: str = "t",
    max_wait_ms: int = 500,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    correlation_id: int = 1,
) -> bytes:
    """Return the frame of a Fetch request; *max_bytes*: the limit of the response, from v3 on."""
    kind: Any = getattr(fetch, f"FetchRequest_v{version}")
    topics = [(topic, [(partition, offset, partition_max_bytes) for partition, offset in offsets.items()])]
    request = kind(-1, max_wait_ms, 1, *((max_bytes,) if version >= 3 else ()), topics)
    header = RequestHeader_v1(request, correlation_id=correlation_id, client_id="the-client")
    payload: bytes = header.encode() + request.encode()
    return with_size(payload)


def response_type(version: int) -> Any:
    """aiokafka's; it has ``decode``."""
    return getattr(fetch, f"FetchResponse_v{version}")


def heard(pieces: Iterable[Piece], version: int) -> dict[int, Heard]:
    """Return the contents of a response with its size, by partition of its one topic."""
    frame = joined(pieces)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    buffer = io.BytesIO(frame[8:])
    answer: Any = response_type(version).decode(buffer)
    assert not buffer.read(), "bytes behind the answer"
    reported: dict[int, Heard] = {}
    for _, partitions in answer.topics:
        for partition, error, high_watermark, records in partitions:
            assert partition not in reported
            reported[partition] = Heard(error, high_watermark, tuple(_records(records or b"")), len(records or b""))
    return reported


def _records(message_set: bytes) -> Iterator[OldRecord]:
    at = 0
    while len(message_set) - at >= _ENTRY.size:
        _, size, _, magic, attributes = _ENTRY.unpack_from(message_set, at)
        end = at + _SIZED_FROM + size
        if end > len(message_set):
            return
        assert magic < 2, "a record batch, which no client of these versions can read"
        codec = attributes & _CODEC_BITS
        entry = message_set[at:end]
        if codec == Codec.LZ4 and magic == 0:
            # aiokafka reads no LZ4 from brokers of its time: its frames have a wrong checksum.
            entry = logs.decompressed(codec, entry[_VALUE_OF_WRAPPER_FROM:], magic)
        for each in _entries(entry):
            assert each.validate_crc()
            for record in each:
                yield OldRecord(
                    record.offset, record.key, record.value, record.timestamp, record.timestamp_type, codec
                )
        at = end


def _entries(message_set: bytes) -> Iterator[Any]:
    batches = MemoryRecords(message_set)
    while (each := batches.next_batch()) is not None:
        yield each
