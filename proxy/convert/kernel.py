# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The conversion loops over records: one source, compiled by Cython if there is a compiler, else interpreted.

Both give the same results for every input. Differences are marked by ``if cython.compiled``: they are in the
primitives at the beginning, which read and write numbers, copy bytes and compute checksums.

No loop reads outside the given bounds, even if the data is malformed: each length is compared with the remaining
bytes before it is used. A loop that finds damage stops, and reports its position and kind. Compiled loops release
the GIL.

Layout: a record in a batch: ``size varint | attributes i8 | time - base varlong | offset - base varint
        | key size varint | key | value size varint | value | header count varint | headers``. Varints are zigzag;
        a size of -1 stands for null. For batches and messages see ``proxy.wire.records``.
Source: Kafka's DefaultRecord, LegacyRecord, ByteUtils.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple
from zlib import crc32

from proxy.wire.checksum import crc32c

try:
    import cython
except ModuleNotFoundError:
    from proxy.convert import uncompiled as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.proxy.convert.checksum import (
        sidefetch_checksums_begin,
        sidefetch_crc32,
        sidefetch_crc32c,
    )

    sidefetch_checksums_begin()

__all__ = [
    "Damage",
    "Done",
    "Raised",
    "Whole",
    "convert_entries",
    "convert_messages",
    "convert_records",
    "is_compiled",
    "measure_entries",
    "measure_messages",
    "raise_messages",
    "whole_entries",
]

is_compiled: Final = cython.compiled


class Damage(IntEnum):
    """The kind of damage that a conversion loop finds in a batch or message; ``str`` describes it.

    ``NONE``, which is 0, stands for no damage; ``ROOM`` for an output buffer that is too small.
    """

    NONE = 0
    NUMBER = 1
    LENGTH = 2
    ORDER = 3
    LEFT = 4
    HEADER = 5
    CHECKSUM = 6
    TIME = 7
    ROOM = 8

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS: Final = (
    "",
    "a number is longer than it may be, or cut off",
    "a length goes beyond its end",
    "offsets are out of order",
    "there are bytes after the last record",
    "its header is of something else",
    "its checksum is wrong",
    "its time is none",
    "there is no room to write to",
)
_DAMAGES: Final = tuple(Damage)
_NUMBER = cython.declare(cython.Py_ssize_t, Damage.NUMBER)
_LENGTH = cython.declare(cython.Py_ssize_t, Damage.LENGTH)
_ORDER = cython.declare(cython.Py_ssize_t, Damage.ORDER)
_LEFT = cython.declare(cython.Py_ssize_t, Damage.LEFT)
_HEADER = cython.declare(cython.Py_ssize_t, Damage.HEADER)
_CHECKSUM = cython.declare(cython.Py_ssize_t, Damage.CHECKSUM)
_TIME = cython.declare(cython.Py_ssize_t, Damage.TIME)
_ROOM = cython.declare(cython.Py_ssize_t, Damage.ROOM)
_LAST = cython.declare(cython.longlong, 2**63 - 1)
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct(">I")
_I64: Final = struct.Struct(">q")
_HEADS: Final = (struct.Struct(">qiIbbi"), struct.Struct(">qiIbbqi"))


class Done(NamedTuple):
    """The result of converting or measuring entries (batches and messages): the end, the damage there, and counts.

    The counts are of the messages of magic 0 or 1 that were written, or would be written.
    """

    end: int
    """The position in the source where the loop stopped, between two entries."""
    damage: Damage
    """The damage of the entry at ``end``; NONE if the loop stopped for another reason."""
    size: int
    """The number of bytes written, or of bytes to write."""
    messages: int
    """The number of messages."""
    headers: int
    """The number of dropped record headers, which the messages' format does not have."""
    first_offset: int
    """The first offset of the messages; -1 if there are none."""
    last_offset: int
    """The last offset of the messages; -1 if there are none."""
    newest_ms: int
    """The latest timestamp of the messages; -1 if none has one."""


class Raised(NamedTuple):
    """The result of converting messages to records of a batch, or of measuring that: the end, damage and counts."""

    end: int
    """The position in the source where the loop stopped, between two messages or at the end."""
    damage: Damage
    """The damage of the message at ``end``; ``ROOM`` if its record does not fit; NONE otherwise."""
    size: int
    """The number of bytes written, or of bytes to write."""
    records: int
    """The number of records."""
    base_ms: int
    """The base timestamp of the batch, to which the records' timestamps are relative."""
    newest_ms: int
    """The latest timestamp of these records; -1 if none has one."""


class Whole(NamedTuple):
    """The end of a run of complete entries (batches or messages), and the offset that follows the run."""

    end: int
    """The position behind the last entry; 0 if there is none."""
    next_offset: int
    """The offset behind the last entry; -1 if there is none."""


# --- primitives ---------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_i32(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        word: cython.uint = p[at]
        word = word << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]
        return cython.cast(cython.int, word)
    else:
        return _I32.unpack_from(p, at)[0]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_i64(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        word: cython.ulonglong = cython.cast(cython.uint, _read_i32(p, at))
        return cython.cast(cython.longlong, word << 32 | cython.cast(cython.uint, _read_i32(p, at + 4)))
    else:
        return _I64.unpack_from(p, at)[0]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_i32(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        out[at] = value >> 24 & 255
        out[at + 1] = value >> 16 & 255
        out[at + 2] = value >> 8 & 255
        out[at + 3] = value & 255
    else:
        _I32.pack_into(out, at, value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    if cython.compiled:
        memcpy(out + at, p + start, size)
    else:
        out[at : at + size] = p[start : start + size]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_checksum(
    out: cython.p_uchar, at: cython.Py_ssize_t, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.void:
    """Write the CRC-32 of *out* from *start* to *end* at *at*."""
    if cython.compiled:
        _write_i32(out, at, sidefetch_crc32(out + start, end - start))
    else:
        _U32.pack_into(out, at, crc32(out[start:end]))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_head(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    offset: cython.longlong,
    size: cython.longlong,
    magic: cython.int,
    attributes: cython.int,
    time_ms: cython.longlong,
    key_size: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a message's fields before the key, without the checksum; return the position of the key."""
    if cython.compiled:
        _write_i32(out, at, offset >> 32)
        _write_i32(out, at + 4, offset)
        _write_i32(out, at + 8, size)
        out[at + 16] = magic
        out[at + 17] = attributes
        at += 18
        if magic:
            _write_i32(out, at, time_ms >> 32)
            _write_i32(out, at + 4, time_ms)
            at += 8
        _write_i32(out, at, key_size)
        return at + 4
    elif magic:
        _HEADS[1].pack_into(out, at, offset, size, 0, magic, attributes, time_ms, key_size)
        return at + 30
    else:
        _HEADS[0].pack_into(out, at, offset, size, 0, magic, attributes, key_size)
        return at + 22


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _uvarint(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    bits: cython.int,
    cell: cython.p_ulonglong,
) -> cython.Py_ssize_t:
    """Decode the varint at *at* into *cell*; return its end, or -1 if it exceeds *end* or has more than *bits*."""
    byte: cython.ulonglong
    value: cython.ulonglong = 0
    shift: cython.int = 0
    while at < end and shift < bits:
        byte = p[at]
        at += 1
        if byte < 128:
            if shift + 7 > bits and byte >> (bits - shift):
                return -1
            cell[0] = value | byte << shift
            return at
        value |= (byte & 127) << shift
        shift += 7
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_uvarint(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.Py_ssize_t:
    """Write *value* as a varint at *at*; return its end."""
    while value > 127:
        out[at] = value & 127 | 128
        at += 1
        value >>= 7
    out[at] = value
    return at + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_bytes(value: cython.ulonglong) -> cython.longlong:
    """Return the number of bytes of *value* as a varint."""
    size: cython.longlong = 1
    while value > 127:
        size += 1
        value >>= 7
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_checksum(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Return whether the CRC-32 of *p* from *start* to *end* equals the number at *at*."""
    if cython.compiled:
        return cython.cast(cython.uint, _read_i32(p, at)) == sidefetch_crc32(p + start, end - start)
    else:
        return _U32.unpack_from(p, at)[0] == crc32(p[start:end])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_batch_checksum(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Return whether the batch from *at* to *end* has the CRC-32C of its header."""
    if cython.compiled:
        return cython.cast(cython.uint, _read_i32(p, at + 17)) == sidefetch_crc32c(p + at + 21, end - at - 21)
    else:
        return _U32.unpack_from(p, at + 17)[0] == crc32c(p[at + 21 : end])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _message(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, field: cython.p_longlong
) -> cython.Py_ssize_t:
    """Locate the parts of a message of magic 0 or 1; return the damage, 0 for none, -1 if it is incomplete.

    Args: field: gets the end, the key's position and size, the value's position and size, the time and the
        attributes; all are written if there is no damage.
    """
    size: cython.longlong
    stop: cython.Py_ssize_t
    magic: cython.int
    if end - at < 17:
        return -1
    size = _read_i32(p, at + 8)
    if size > end - at - 12:
        return -1
    magic = p[at + 16]
    if size < (22 if magic else 14):
        return _LENGTH
    if magic > 1:
        return _HEADER
    stop = at + 12 + size
    field[0] = stop
    field[5] = _read_i64(p, at + 18) if magic else -1
    field[6] = p[at + 17]
    at += 26 if magic else 18
    size = _read_i32(p, at)
    at += 4
    if size < -1 or size > stop - at - 4:
        return _LENGTH
    field[1] = at
    field[2] = size
    if size > 0:
        at += size
    size = _read_i32(p, at)
    at += 4
    if size < -1 or (size if size > 0 else 0) != stop - at:
        return _LENGTH
    field[3] = at
    field[4] = size
    return 0


# --- batches to messages --------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _records(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_offset: cython.longlong,
    last_delta: cython.longlong,
    base_ms: cython.longlong,
    append_ms: cython.longlong,
    is_append: cython.bint,
    from_offset: cython.longlong,
    magic: cython.int,
    is_relative: cython.bint,
    writes: cython.bint,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    tally: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Convert the records of one batch to messages in *out*; return 0, or the damage.

    Args: writes: whether to write the messages; otherwise they are only measured.
          tally:  gets the size, the numbers of messages and headers, the first and last offset, and the newest
              time; all are written if there is no damage.
    """
    if cython.compiled:
        slot: cython.ulonglong = 0
        cell: cython.p_ulonglong = cython.address(slot)
    else:
        cell = [0]
    stop: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    crc_at: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    size: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    delta: cython.longlong
    offset: cython.longlong
    time_ms: cython.longlong
    first: cython.longlong = -1
    last: cython.longlong = -1
    newest: cython.longlong = -1
    previous: cython.longlong = 0
    messages: cython.longlong = 0
    headers: cython.longlong = 0
    overhead: cython.longlong = 34 if magic else 26
    attributes: cython.int = 8 if magic and is_append else 0
    moment: cython.ulonglong
    _index: cython.longlong
    for _index in range(count):
        at = _uvarint(p, at, end, 32, cell)
        if at < 0:
            return _NUMBER
        size = cell[0] >> 1
        if cell[0] & 1 or size < 1 or size > end - at:
            return _LENGTH
        stop = at + size
        at = _uvarint(p, at + 1, stop, 64, cell)
        if at < 0:
            return _NUMBER
        moment = base_ms + ((cell[0] >> 1) ^ -(cell[0] & 1))
        at = _uvarint(p, at, stop, 32, cell)
        if at < 0:
            return _NUMBER
        delta = cell[0] >> 1
        if cell[0] & 1 or delta < previous or delta > last_delta:
            return _ORDER
        previous = delta
        at = _uvarint(p, at, stop, 32, cell)
        if at < 0:
            return _NUMBER
        key_size = -1 if cell[0] & 1 else cell[0] >> 1
        if key_size > stop - at:
            return _LENGTH
        key_at = at
        if key_size > 0:
            at += key_size
        at = _uvarint(p, at, stop, 32, cell)
        if at < 0:
            return _NUMBER
        value_size = -1 if cell[0] & 1 else cell[0] >> 1
        if value_size > stop - at:
            return _LENGTH
        value_at = at
        if value_size > 0:
            at += value_size
        at = _uvarint(p, at, stop, 32, cell)
        if at < 0:
            return _NUMBER
        size = cell[0] >> 1
        if cell[0] & 1 or size > (stop - at) >> 1 or (size == 0 and at != stop):
            return _LENGTH
        at = stop
        offset = base_offset + delta
        if offset < from_offset:
            continue
        headers += size
        messages += 1
        if first < 0:
            first = offset
        last = offset
        if is_append:
            time_ms = append_ms
        else:
            if not cython.compiled:
                moment &= 0xFFFFFFFFFFFFFFFF
            time_ms = -1 if moment >> 63 else moment
        if time_ms > newest:
            newest = time_ms
        size = overhead
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        if writes:
            if size > room - to:
                return _ROOM
            crc_at = to + 12
            to = _write_head(
                out, to, offset - first if is_relative else offset, size - 12, magic, attributes, time_ms, key_size
            )
            if key_size > 0:
                _copy(out, to, p, key_at, key_size)
                to += key_size
            _write_i32(out, to, value_size)
            to += 4
            if value_size > 0:
                _copy(out, to, p, value_at, value_size)
                to += value_size
            _write_checksum(out, crc_at, crc_at + 4, to)
        else:
            to += size
    if at != end:
        return _LEFT
    tally[0] = to
    tally[1] = messages
    tally[2] = headers
    tally[3] = first
    tally[4] = last
    tally[5] = newest
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _lowered(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_offset: cython.longlong,
    from_offset: cython.longlong,
    writes: cython.bint,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    tally: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Convert a message of magic 1 to magic 0 in *out*; return 0, or the damage.

    The damage is ``_HEADER`` if the message is compressed or incomplete.

    Args: base_offset: the number to add to the message's offset.
          tally:       as for ``_records``, and the message's end.
    """
    if cython.compiled:
        field: cython.longlong[7]
    else:
        field = [0] * 7
    offset: cython.longlong
    size: cython.longlong
    to: cython.Py_ssize_t
    wrong: cython.Py_ssize_t = _message(p, at, end, field)
    if wrong < 0 or (wrong == 0 and field[6] & 7):
        return _HEADER
    if wrong:
        return wrong
    if not _is_checksum(p, at + 12, at + 16, field[0]):
        return _CHECKSUM
    offset = _read_i64(p, at)
    if offset < 0 or offset > _LAST - base_offset:
        return _ORDER
    offset += base_offset
    tally[0] = tally[1] = tally[2] = 0
    tally[3] = tally[4] = tally[5] = -1
    tally[6] = field[0]
    if offset < from_offset:
        return 0
    size = 26
    if field[2] > 0:
        size += field[2]
    if field[4] > 0:
        size += field[4]
    if writes:
        if size > room:
            return _ROOM
        to = _write_head(out, 0, offset, size - 12, 0, 0, -1, field[2])
        if field[2] > 0:
            _copy(out, to, p, field[1], field[2])
            to += field[2]
        _write_i32(out, to, field[4])
        to += 4
        if field[4] > 0:
            _copy(out, to, p, field[3], field[4])
        _write_checksum(out, 12, 16, size)
    tally[0] = size
    tally[1] = 1
    tally[3] = tally[4] = offset
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _batch(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    from_offset: cython.longlong,
    magic: cython.int,
    checks: cython.bint,
    writes: cython.bint,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    tally: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Convert a batch to messages in *out*; return 0, or the damage: ``_HEADER`` for an unsupported batch.

    Args: tally: as for ``_records``, and the batch's end.
    """
    size: cython.longlong = _read_i32(p, at + 8) if end - at >= 61 else 0
    if size < 49 or size > end - at - 12 or p[at + 16] != 2:
        return _HEADER
    attributes: cython.int = p[at + 22]
    base_offset: cython.longlong = _read_i64(p, at)
    last_delta: cython.longlong = _read_i32(p, at + 23)
    max_ms: cython.longlong = _read_i64(p, at + 35)
    count: cython.longlong = _read_i32(p, at + 57)
    if attributes & 39 or base_offset < 0 or last_delta < 0 or base_offset > _LAST - last_delta or count < 0:
        return _HEADER
    if checks and not _is_batch_checksum(p, at, at + 12 + size):
        return _CHECKSUM
    if max_ms < -1:
        max_ms = -1
    tally[6] = at + 12 + size
    return _records(
        p,
        at + 61,
        at + 12 + size,
        count,
        base_offset,
        last_delta,
        _read_i64(p, at + 27),
        max_ms,
        attributes & 8,
        from_offset,
        magic,
        False,
        writes,
        out,
        room,
        tally,
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _entries(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    base_offset: cython.longlong,
    from_offset: cython.longlong,
    magic: cython.int,
    takes_producers: cython.bint,
    checks: cython.bint,
    writes: cython.bint,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    total: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Convert batches, and messages of magic 1, to messages; return the position where the loop stopped.

    The rules are those of ``convert_entries``.

    Args: total: gets the sums of ``_records``' tallies, and the damage.
    """
    if cython.compiled:
        tally: cython.longlong[7]
    else:
        tally = [0] * 7
    start: cython.Py_ssize_t = at
    to: cython.Py_ssize_t = 0
    wrong: cython.Py_ssize_t
    while at < stop:
        if (
            not takes_producers
            and at != start
            and end - at >= 61
            and p[at + 16] == 2
            and _read_i64(p, at + 43) >= 0
        ):
            wrong = _HEADER
        elif end - at > 16 and p[at + 16] == 1 and magic == 0:
            wrong = _lowered(
                p,
                at,
                end,
                base_offset,
                from_offset,
                writes,
                out + to if cython.compiled else out[to:],
                room - to,
                tally,
            )
        else:
            wrong = _batch(
                p,
                at,
                end,
                from_offset,
                magic,
                checks,
                writes,
                out + to if cython.compiled else out[to:],
                room - to,
                tally,
            )
        if wrong:
            if at == start or (wrong != _HEADER and wrong != _ROOM):
                total[6] = wrong
            return at
        to += tally[0]
        total[0] += tally[0]
        total[1] += tally[1]
        total[2] += tally[2]
        if total[3] < 0:
            total[3] = tally[3]
        if tally[4] >= 0:
            total[4] = tally[4]
        if tally[5] > total[5]:
            total[5] = tally[5]
        at = tally[6]
    return at


@cython.cfunc
def _convert(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    base_offset: cython.longlong,
    from_offset: cython.longlong,
    magic: cython.int,
    takes_producers: cython.bint,
    checks: cython.bint,
    writes: cython.bint,
    out: cython.uchar[::1],
) -> Done:
    if not 0 <= start <= stop <= source.shape[0]:
        raise ValueError(f"{start} to {stop} of {source.shape[0]} bytes")
    if cython.compiled:
        p: cython.p_const_uchar = cython.address(source[0])
        to: cython.p_uchar = cython.address(out[0])
        total: cython.longlong[7]
    else:
        p, to, total = source, out, [0] * 7
    end: cython.Py_ssize_t = source.shape[0]
    room: cython.Py_ssize_t = out.shape[0]
    total[0] = total[1] = total[2] = total[6] = 0
    total[3] = total[4] = total[5] = -1
    with cython.nogil:
        end = _entries(
            p, start, end, stop, base_offset, from_offset, magic, takes_producers, checks, writes, to, room, total
        )
    return Done(end, _DAMAGES[total[6]], total[0], total[1], total[2], total[3], total[4], total[5])


def measure_entries(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    from_offset: cython.longlong,
    magic: cython.int,
    takes_producers: cython.bint,
    checks: cython.bint,
) -> Done:
    """Return the result that ``convert_entries`` would have with enough room; write nothing.

    The size in the result is that of the converted messages. For the other parameters see ``convert_entries``.

    Args: checks: whether to verify the checksums of batches; those of messages are always verified.
    """
    return _convert(source, start, stop, 0, from_offset, magic, takes_producers, checks, False, _NOWHERE)


_NOWHERE: Final = memoryview(bytearray(0))


def convert_entries(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    from_offset: cython.longlong,
    magic: cython.int,
    takes_producers: cython.bint,
    out: cython.uchar[::1],
) -> Done:
    """Convert entries of *source* to messages, which are written to *out* from its beginning.

    It converts uncompressed record batches, and for *magic* 0 also uncompressed messages of magic 1. It stops
    before an entry that is of another kind, incomplete or damaged, or does not fit into *out*. The result reports a
    wrong checksum or a damaged record in any entry; other reasons count as damage only if the entry is the first.

    Args: start:           the position of the first entry.
          stop:            the position from which on no entry begins that is to be converted.
          from_offset:     records with lower offsets are left out.
          magic:           the format of the messages, 0 or 1.
          takes_producers: whether batches with a producer id, which may belong to a transaction, are converted also
              behind the first entry; otherwise it stops before them.
    """
    return _convert(source, start, stop, 0, from_offset, magic, takes_producers, True, True, out)


def convert_messages(
    source: cython.const[cython.uchar][::1], base_offset: cython.longlong, out: cython.uchar[::1]
) -> Done:
    """Convert *source*, the decompressed messages of a wrapper of magic 1, to messages of magic 0 in *out*.

    It stops like ``convert_entries``.

    Args: base_offset: the number to add to the offsets in *source*, which are relative.
    """
    return _convert(source, 0, source.shape[0], base_offset, 0, 0, True, True, True, out)


def convert_records(
    records: cython.const[cython.uchar][::1],
    count: cython.longlong,
    base_offset: cython.longlong,
    last_offset: cython.longlong,
    base_ms: cython.longlong,
    append_ms: cython.longlong,
    is_append: cython.bint,
    from_offset: cython.longlong,
    magic: cython.int,
    is_relative: cython.bint,
    out: cython.uchar[::1],
) -> Done:
    """Convert *records*, the decompressed records of one batch, to messages in *out*.

    If a record is damaged, or *out* is too small, the result has the damage and no counts.

    Args: count, base_offset, last_offset, base_ms: the number of records, the offsets and the base timestamp in the
              batch's header.
          append_ms:   the timestamp of all messages, if *is_append*; otherwise records have their own.
          from_offset: records with lower offsets are left out.
          magic:       the format of the messages, 0 or 1.
          is_relative: whether to write offsets relative to that of the first message, as in wrappers of magic 1.
    """
    if cython.compiled:
        p: cython.p_const_uchar = cython.address(records[0])
        to: cython.p_uchar = cython.address(out[0])
        tally: cython.longlong[6]
    else:
        p, to, tally = records, out, [0] * 6
    end: cython.Py_ssize_t = records.shape[0]
    room: cython.Py_ssize_t = out.shape[0]
    wrong: cython.Py_ssize_t
    last_delta: cython.longlong = last_offset - base_offset
    if append_ms < -1:
        append_ms = -1
    with cython.nogil:
        wrong = _records(
            p,
            0,
            end,
            count,
            base_offset,
            last_delta,
            base_ms,
            append_ms,
            is_append,
            from_offset,
            magic,
            is_relative,
            True,
            to,
            room,
            tally,
        )
    if wrong:
        return Done(0, _DAMAGES[wrong], 0, 0, 0, -1, -1, -1)
    return Done(end, Damage.NONE, tally[0], tally[1], tally[2], tally[3], tally[4], tally[5])


# --- messages to batches --------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _raised(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    index: cython.longlong,
    writes: cython.bint,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
    total: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Convert messages to records in *out*; return the position where the loop stopped.

    Args: total: gets the size, the number of records, the base time, the newest time and the damage.
    """
    if cython.compiled:
        field: cython.longlong[7]
    else:
        field = [0] * 7
    to: cython.Py_ssize_t = 0
    body: cython.longlong
    delta: cython.longlong
    time_delta: cython.ulonglong
    key_size: cython.ulonglong
    value_size: cython.ulonglong
    wrong: cython.Py_ssize_t
    while at < end:
        if end - at > 16 and p[at + 16] != magic:
            break
        wrong = _message(p, at, end, field)
        if wrong < 0 or (wrong == 0 and field[6] & 7):
            break
        if wrong == 0 and not _is_checksum(p, at + 12, at + 16, field[0]):
            wrong = _CHECKSUM
        if wrong == 0 and field[5] < -1:
            wrong = _TIME
        if wrong:
            total[4] = wrong
            break
        if index == 0:
            total[2] = field[5]
        delta = field[5] - total[2]
        if not cython.compiled:
            delta = (delta + 2**63) % 2**64 - 2**63
        time_delta = (delta << 1) ^ (delta >> 63)
        key_size = field[2] << 1 if field[2] >= 0 else 1
        value_size = field[4] << 1 if field[4] >= 0 else 1
        body = 2 + _varint_bytes(time_delta) + _varint_bytes(index << 1)
        body += _varint_bytes(key_size) + _varint_bytes(value_size)
        if field[2] > 0:
            body += field[2]
        if field[4] > 0:
            body += field[4]
        if writes:
            if _varint_bytes(body << 1) + body > room - to:
                total[4] = _ROOM
                break
            to = _write_uvarint(out, to, body << 1)
            out[to] = 0
            to = _write_uvarint(out, to + 1, time_delta)
            to = _write_uvarint(out, to, index << 1)
            to = _write_uvarint(out, to, key_size)
            if field[2] > 0:
                _copy(out, to, p, field[1], field[2])
                to += field[2]
            to = _write_uvarint(out, to, value_size)
            if field[4] > 0:
                _copy(out, to, p, field[3], field[4])
                to += field[4]
            out[to] = 0
            to += 1
        else:
            to += _varint_bytes(body << 1) + body
        if field[5] > total[3]:
            total[3] = field[5]
        index += 1
        total[1] += 1
        at = field[0]
    total[0] = to
    return at


@cython.cfunc
def _raise(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    index: cython.longlong,
    base_ms: cython.longlong,
    writes: cython.bint,
    out: cython.uchar[::1],
) -> Raised:
    if not 0 <= start <= end <= source.shape[0]:
        raise ValueError(f"{start} to {end} of {source.shape[0]} bytes")
    if cython.compiled:
        p: cython.p_const_uchar = cython.address(source[0])
        to: cython.p_uchar = cython.address(out[0])
        total: cython.longlong[5]
    else:
        p, to, total = source, out, [0] * 5
    room: cython.Py_ssize_t = out.shape[0]
    total[0] = total[1] = total[4] = 0
    total[2] = base_ms
    total[3] = -1
    with cython.nogil:
        end = _raised(p, start, end, magic, index, writes, to, room, total)
    return Raised(end, _DAMAGES[total[4]], total[0], total[1], total[2], total[3])


def measure_messages(
    source: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t, magic: cython.int
) -> Raised:
    """Return the result that ``raise_messages`` would have with enough room and *index* 0; write nothing.

    This verifies the messages as well: the result has their damage.
    """
    return _raise(source, start, end, magic, 0, -1, False, _NOWHERE)


def raise_messages(
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    magic: cython.int,
    index: cython.longlong,
    base_ms: cython.longlong,
    out: cython.uchar[::1],
) -> Raised:
    """Convert the messages of *source* from position *start* to *end* to records of a batch, written to *out*.

    It stops before a message that is compressed, incomplete, or of another format than *magic*, which is no damage;
    and, with damage, before one that is damaged, has a timestamp below -1, or does not fit into *out*.

    Args: magic:   the format of the messages, 0 or 1.
          index:   the number of records that the batch already has, and so the offset delta of the first new one.
          base_ms: the base timestamp of the batch; without effect for *index* 0, since the first record sets it.
    """
    return _raise(source, start, end, magic, index, base_ms, True, out)


def whole_entries(source: cython.const[cython.uchar][::1], most: cython.Py_ssize_t) -> Whole:
    """Return the end of the complete entries at the beginning of *source* that fit into *most* bytes.

    The first entry counts even if it is larger (KIP-74). Only headers are decoded. An entry that is incomplete or
    has an impossible header ends the run.
    """
    if cython.compiled:
        p: cython.p_const_uchar = cython.address(source[0])
    else:
        p = source
    end: cython.Py_ssize_t = source.shape[0]
    at: cython.Py_ssize_t = 0
    size: cython.longlong
    first: cython.longlong
    more: cython.longlong
    next_offset: cython.longlong = -1
    with cython.nogil:
        while end - at > 16:
            size = 12 + _read_i32(p, at + 8)
            if size < 26 or size > end - at or (at and at + size > most):
                break
            first = _read_i64(p, at)
            more = 0
            if p[at + 16] == 2:
                if size < 61:
                    break
                more = _read_i32(p, at + 23)
            if first < 0 or more < 0 or first >= _LAST - more:
                break
            next_offset = first + more + 1
            at += size
    return Whole(at, next_offset)
