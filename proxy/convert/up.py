"""Up-conversion of the message set of one partition, from Produce v0-2, to record batches that brokers accept.

A set's messages become one batch, in order, uncompressed or in the set's codec; their offsets are ignored. Sets
of several wrappers, or of wrappers and messages, which brokers have refused since 2.4, are merged, as brokers did
before. Since a batch gets a new checksum, the checksums of all messages are verified first.

==========================================  ====================
several magics, compression inside of       87 INVALID_RECORD
compression, a wrapper without a value or
messages, a codec that messages never had
checksums, sizes, failed decompression      2 CORRUPT_MESSAGE
a time below -1                             32 INVALID_TIMESTAMP
==========================================  ====================

An incomplete message at the end is dropped, inside of wrappers too. The attribute bit for the broker's timestamp is
ignored. Source: Kafka's LogValidator, up to 3.9, and the responses of 3.9; but for UNKNOWN_SERVER_ERROR.
"""

from typing import Final, NamedTuple

from proxy.convert import kernel
from proxy.convert.codecs import DECOMPRESSED_BYTES, compress
from proxy.convert.entry import decompress_entry
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import BATCH_HEADER_BYTES, Codec, Entry, batch_of, entries, value_of

__all__ = ["to_batches"]

_GROWTH: Final = 2
"""The largest size of a record, as a multiple of its message's: a record has at most 32 bytes besides key and
value, a message at least 26."""


class _Run(NamedTuple):
    """Adjacent messages, uncompressed and complete."""

    log: memoryview
    start: int
    end: int


class _Records(NamedTuple):
    """The encoded records of a batch, uncompressed."""

    data: memoryview
    number: int
    base_ms: int
    newest_ms: int


def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes | memoryview, ...]:
    """Return the record batches to produce in place of *message_set*, in order; usually one, none for an empty set.

    They have the codec of the set. An incomplete message at the end is dropped, as brokers do. Batches (magic 2),
    which some clients of Produce v2 send, are returned unchanged.

    Args:   message_set:     the messages of one partition in a Produce request, of magic 0 or 1.
            max_batch_bytes: the size above which a batch is split; a record that is larger by itself gets a batch
                of its own, which the broker accepts or refuses.
    Raises: BadRecords: the set is damaged or not allowed. It has the error code for the client; nothing of the set
        must be produced.
    """
    first = next(entries(message_set), None)
    if first is None:
        return ()
    if first.magic == 2:
        return tuple(_check_batches(message_set))
    runs, codec = _decompress_set(message_set, first.magic)
    room = max(max_batch_bytes - BATCH_HEADER_BYTES, 1)
    if codec != Codec.NONE:
        room = max(room, sum(run.end - run.start for run in runs))
    while True:
        packed = _pack_records(runs, first.magic, room)
        batches = [_encode_batch(each, codec) for each in packed]
        if all(len(b) <= max_batch_bytes or p.number == 1 for b, p in zip(batches, packed, strict=True)):
            return tuple(batches)
        room = max(room // 2, 1)


def _check_batches(message_set: memoryview) -> list[memoryview]:
    passed = []
    for entry in entries(message_set):
        if entry.magic != 2:
            raise BadRecords(ErrorCode.invalid_record, f"magic {entry.magic} in a set of magic 2")
        passed.append(message_set[entry.at : entry.end])
    return passed


def _decompress_set(message_set: memoryview, magic: int) -> tuple[list[_Run], int]:
    """Return all messages of the set, decompressed and verified, and the codec of the last wrapper."""
    runs: list[_Run] = []
    codec: int = Codec.NONE
    left = DECOMPRESSED_BYTES
    at = 0
    while (entry := next(entries(message_set, at), None)) is not None:
        if entry.magic != magic:
            raise BadRecords(ErrorCode.invalid_record, f"magic {entry.magic} in a set of magic {magic}")
        if entry.codec == Codec.NONE:
            at = _verify_messages(message_set, at, magic)
            runs.append(_Run(message_set, entry.at, at))
        else:
            runs.append(_unwrap(entry, message_set, left))
            left -= runs[-1].end
            codec, at = entry.codec, entry.end
    return runs, codec


def _unwrap(entry: Entry, message_set: memoryview, limit: int) -> _Run:
    entry.verify_checksum(message_set)
    if entry.codec not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise BadRecords(ErrorCode.invalid_record, f"codec {entry.codec} in magic {entry.magic}")
    if not value_of(entry, message_set):
        raise BadRecords(ErrorCode.invalid_record, "a wrapper without a value")
    plain = decompress_entry(entry, message_set, limit)
    end = _verify_messages(plain, 0, entry.magic)
    if not end or next(entries(plain, end), None) is not None:
        raise BadRecords(ErrorCode.invalid_record, "a wrapper's inside is not all messages of its magic")
    return _Run(plain, 0, end)


def _verify_messages(log: memoryview, at: int, magic: int) -> int:
    """Verify the adjacent uncompressed messages from position *at* on; return their end."""
    checked = kernel.measure_messages(log, at, len(log), magic)
    if checked.damage:
        is_time = checked.damage is kernel.Damage.TIME
        code = ErrorCode.invalid_timestamp if is_time else ErrorCode.corrupt_message
        raise BadRecords(code, f"a message at byte {checked.end}: {checked.damage}")
    return checked.end


def _pack_records(runs: list[_Run], magic: int, room: int) -> list[_Records]:
    """Return the records of batches with all messages of *runs*; each has at most *room* bytes, or one record."""
    most = min(room, sum(run.end - run.start for run in runs) * _GROWTH)
    batch = _Packing(magic, most)
    packed = []
    for log, start, end in runs:
        at = start
        while at < end:
            at = batch.add(log, at, end)
            if at < end:
                if not batch.count:
                    large = next(entries(log[at:end]))
                    batch = _Packing(magic, large.size * _GROWTH)
                    at = batch.add(log, at, at + large.size)
                packed.append(batch.records())
                batch = _Packing(magic, most)
    return [*packed, batch.records()] if batch.count else packed


class _Packing:
    """A buffer to which the records of one batch are added."""

    def __init__(self, magic: int, room: int) -> None:
        self.count = 0
        self._magic = magic
        self._room = memoryview(bytearray(room))
        self._at = 0
        self._base_ms = self._newest_ms = -1

    def add(self, log: memoryview, at: int, end: int) -> int:
        """Add the messages from *at* to *end*; return the position of the first that does not fit, or *end*."""
        room = self._room[self._at :]
        raised = kernel.raise_messages(log, at, end, self._magic, self.count, self._base_ms, room)
        self._at += raised.size
        self.count += raised.records
        self._base_ms = raised.base_ms
        self._newest_ms = max(self._newest_ms, raised.newest_ms)
        return raised.end

    def records(self) -> _Records:
        return _Records(self._room[: self._at], self.count, self._base_ms, self._newest_ms)


def _encode_batch(records: _Records, codec: int) -> bytes:
    data = compress(codec, records.data, magic=2, is_brief=False)
    return batch_of(data, codec, records.number, records.base_ms, records.newest_ms)
