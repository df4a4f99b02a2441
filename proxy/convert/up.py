"""Up-conversion: what a producer of Produce v0-2 sends for one partition, as batches that brokers still take.

A set's messages become one batch, in order, whatever offsets they claim: uncompressed, or in the set's codec. Sets
that brokers have not taken since 2.4, of several wrappers, or of wrappers and messages, are merged, as brokers did
before. Since a batch's checksum is new, those of all messages are compared first: nobody can afterwards.

==========================================  ====================
several magics, compression inside of       87 INVALID_RECORD
compression, a wrapper without a value or
messages, a codec that messages never had
checksums, sizes, what does not decompress  2 CORRUPT_MESSAGE
a time below -1                             32 INVALID_TIMESTAMP
==========================================  ====================

What is cut off at the end is left out, inside of wrappers too. The bit for a broker's time means nothing here.

Source: Kafka's LogValidator, up to 3.9, and what 3.9 answers; but where that is UNKNOWN_SERVER_ERROR.
"""

from typing import Final, NamedTuple

from proxy.convert import kernel
from proxy.convert.codecs import DECOMPRESSED_BYTES, compress
from proxy.convert.entry import inside
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import BATCH_HEADER_BYTES, Codec, Entry, batch_of, entries, value_of

__all__ = ["to_batches"]

_GROWTH: Final = 2
"""No record is as many times larger than its message: it has 32 bytes at most next to key and value, a message 26
or more."""


class _Run(NamedTuple):
    """Messages in a row, not compressed, none cut off."""

    log: memoryview
    start: int
    end: int


class _Records(NamedTuple):
    """The records of a batch, not compressed."""

    data: memoryview
    number: int
    base_ms: int
    newest_ms: int


def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes | memoryview, ...]:
    """The batches to be produced one after the other in place of *message_set*; most often one, none for none.

    A message that is cut off at the end is left out, as brokers do. Batches (magic 2), which some clients of
    Produce v2 send, pass as they are.
    Args:   max_batch_bytes: there is more than one where one would be larger; a record that is larger alone has a
            batch of its own, for the broker to judge.
    Raises: BadRecords: with the error code to answer; nothing is to be produced then.
    """
    first = next(entries(message_set), None)
    if first is None:
        return ()
    if first.magic == 2:
        return tuple(_passed(message_set))
    runs, codec = _runs(message_set, first.magic)
    room = max(max_batch_bytes - BATCH_HEADER_BYTES, 1)
    if codec != Codec.NONE:
        room = max(room, sum(run.end - run.start for run in runs))
    while True:
        packed = _packed(runs, first.magic, room)
        batches = [_batch(each, codec) for each in packed]
        if all(len(b) <= max_batch_bytes or p.number == 1 for b, p in zip(batches, packed, strict=True)):
            return tuple(batches)
        room = max(room // 2, 1)


def _passed(message_set: memoryview) -> list[memoryview]:
    passed = []
    for entry in entries(message_set):
        if entry.magic != 2:
            raise BadRecords(ErrorCode.invalid_record, f"magic {entry.magic} in a set of magic 2")
        passed.append(message_set[entry.at : entry.end])
    return passed


def _runs(message_set: memoryview, magic: int) -> tuple[list[_Run], int]:
    """All messages of the set, checked, and the codec of the last wrapper."""
    runs: list[_Run] = []
    codec: int = Codec.NONE
    left = DECOMPRESSED_BYTES
    at = 0
    while (entry := next(entries(message_set, at), None)) is not None:
        if entry.magic != magic:
            raise BadRecords(ErrorCode.invalid_record, f"magic {entry.magic} in a set of magic {magic}")
        if entry.codec == Codec.NONE:
            at = _check(message_set, at, magic)
            runs.append(_Run(message_set, entry.at, at))
        else:
            runs.append(_unwrapped(entry, message_set, left))
            left -= runs[-1].end
            codec, at = entry.codec, entry.end
    return runs, codec


def _unwrapped(entry: Entry, message_set: memoryview, limit: int) -> _Run:
    entry.check(message_set)
    if entry.codec not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise BadRecords(ErrorCode.invalid_record, f"codec {entry.codec} in magic {entry.magic}")
    if not value_of(entry, message_set):
        raise BadRecords(ErrorCode.invalid_record, "a wrapper without a value")
    plain = inside(entry, message_set, limit)
    end = _check(plain, 0, entry.magic)
    if not end or next(entries(plain, end), None) is not None:
        raise BadRecords(ErrorCode.invalid_record, "a wrapper's inside is not all messages of its magic")
    return _Run(plain, 0, end)


def _check(log: memoryview, at: int, magic: int) -> int:
    """Where the messages in a row end that begin at *at*."""
    checked = kernel.measure_messages(log, at, len(log), magic)
    if checked.damage:
        is_time = checked.damage is kernel.Damage.TIME
        code = ErrorCode.invalid_timestamp if is_time else ErrorCode.corrupt_message
        raise BadRecords(code, f"a message at byte {checked.end}: {checked.damage}")
    return checked.end


def _packed(runs: list[_Run], magic: int, room: int) -> list[_Records]:
    """The runs' records, at most *room* bytes in a batch, but for single ones that are larger."""
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
    """The records of one batch, as they are added."""

    def __init__(self, magic: int, room: int) -> None:
        self.count = 0
        self._magic = magic
        self._room = memoryview(bytearray(room))
        self._at = 0
        self._base_ms = self._newest_ms = -1

    def add(self, log: memoryview, at: int, end: int) -> int:
        """Where the first message begins that there is no room for; *end* if there is none."""
        room = self._room[self._at :]
        raised = kernel.raise_messages(log, at, end, self._magic, self.count, self._base_ms, room)
        self._at += raised.size
        self.count += raised.records
        self._base_ms = raised.base_ms
        self._newest_ms = max(self._newest_ms, raised.newest_ms)
        return raised.end

    def records(self) -> _Records:
        return _Records(self._room[: self._at], self.count, self._base_ms, self._newest_ms)


def _batch(records: _Records, codec: int) -> bytes:
    data = compress(codec, records.data, magic=2, is_brief=False)
    return batch_of(data, codec, records.number, records.base_ms, records.newest_ms)
