"""Logs to convert: entries of every kind, in order, with gaps."""

import random
from collections.abc import Sequence

import attrs
from hypothesis import strategies as st

from proxy.wire.records import Codec
from tests.convert.logs import Record, batch, marker, message, wrapper

__all__ = ["Log", "Part", "changed", "logs", "message_sets", "records"]

_DATA = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.integers(0, 300).map(lambda size: b"x" * size),
    st.integers(0, 2**32).map(lambda seed: random.Random(seed).randbytes(seed % 200)),
)
_TIMES = st.one_of(st.just(-1), st.integers(0, 2**41), st.sampled_from([0, 2**62, 2**63 - 1]))
_HEADERS = st.lists(st.tuples(st.binary(max_size=5), _DATA), max_size=2).map(tuple)
_CODECS = st.sampled_from(list(Codec))
_OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


@attrs.frozen
class Part:
    """One entry of a log."""

    data: bytes
    records: tuple[Record, ...]
    """None where it has none for a client."""
    last_offset: int
    magic: int = 2
    codec: int = Codec.NONE
    append_ms: int | None = None
    is_aborted: bool = False


@attrs.frozen
class Log:
    """The records of a fetch response."""

    parts: tuple[Part, ...]
    tail: bytes
    """The part of an entry that is cut off."""
    aborted: tuple[tuple[int, int], ...]

    @property
    def data(self) -> memoryview:
        return memoryview(b"".join(part.data for part in self.parts) + self.tail)

    @property
    def last_offset(self) -> int:
        return self.parts[-1].last_offset


@st.composite
def records(draw: st.DrawFn, base_offset: int, *, most: int = 6, headers: bool = True) -> tuple[Record, ...]:
    """In order, at *base_offset* or behind it, with gaps."""
    found = []
    offset = base_offset
    for _ in range(draw(st.integers(1, most))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 7]))
        pairs = draw(_HEADERS) if headers else ()
        found.append(Record(offset, draw(_TIMES), draw(_DATA), draw(_DATA), pairs))
        offset += 1
    return tuple(found)


@st.composite
def _batches(draw: st.DrawFn, base: int) -> Part:
    found = draw(records(base))
    codec = draw(_CODECS)
    append_ms = draw(st.one_of(st.none(), st.none(), st.integers(0, 2**41)))
    last = found[-1].offset + draw(st.sampled_from([0, 0, 3]))
    data = batch(found, codec=codec, base_offset=base, last_offset=last, append_ms=append_ms)
    return Part(data, found, last, 2, codec, append_ms)


@st.composite
def _olds(draw: st.DrawFn, base: int) -> Part:
    magic, codec = draw(st.sampled_from([0, 1])), draw(_OLD_CODECS)
    append_ms = draw(st.one_of(st.none(), st.integers(0, 2**41))) if magic else None
    found = draw(records(base, most=6 if codec else 1, headers=False))
    if magic == 0:
        found = tuple(attrs.evolve(each, time_ms=-1) for each in found)
    if codec:
        data = wrapper(found, magic, codec, append_ms=append_ms)
    else:
        stamped = found[0] if append_ms is None else attrs.evolve(found[0], time_ms=append_ms)
        data = message(stamped, magic, is_append_time=append_ms is not None)
    return Part(data, found, found[-1].offset, magic, codec, append_ms)


@st.composite
def _empty(draw: st.DrawFn, base: int) -> Part:
    last = base + draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["emptied", "marker"]))
    if kind == "marker":
        return Part(marker(base, draw(st.integers(50, 52)), commits=draw(st.booleans())), (), base)
    codec = draw(_CODECS)
    return Part(
        batch([], base_offset=base, last_offset=last, codec=codec, records_bytes=b""), (), last, codec=codec
    )


def _transactions(parts: Sequence[Part], fates: Sequence[tuple[int, bool]]) -> tuple[Part, ...]:
    """Their batches made those of the producers named, aborted or not."""
    made = []
    for part, (producer, is_aborted) in zip(parts, fates, strict=True):
        if part.magic == 2 and part.records and producer >= 0:
            data = batch(
                part.records,
                codec=part.codec,
                base_offset=int.from_bytes(part.data[:8]),
                last_offset=part.last_offset,
                append_ms=part.append_ms,
                producer_id=producer + 2 * is_aborted,
            )
            made.append(attrs.evolve(part, data=data, is_aborted=is_aborted))
        else:
            made.append(part)
    return tuple(made)


@st.composite
def logs(draw: st.DrawFn, *, most: int = 6, old: bool = True) -> Log:
    """Producers 0 and 1 commit, 2 and 3 abort all that they write here; markers are those of others."""
    parts: list[Part] = []
    base = draw(st.sampled_from([0, 5, 2**31, 2**62]))
    for _ in range(draw(st.integers(1, most))):
        base += draw(st.sampled_from([0, 0, 4]))
        kinds = [_batches(base), _batches(base), _empty(base), *([_olds(base)] if old else [])]
        parts.append(draw(st.one_of(kinds)))
        base = parts[-1].last_offset + 1
    fates = draw(st.lists(st.tuples(st.integers(-1, 1), st.booleans()), min_size=len(parts), max_size=len(parts)))
    made = _transactions(parts, fates)
    aborted: dict[int, int] = {}
    for part, (producer, _) in zip(made, fates, strict=True):
        if part.is_aborted:
            aborted.setdefault(producer + 2, part.records[0].offset)
    cut = made[draw(st.integers(0, len(made) - 1))].data
    tail = cut[: draw(st.integers(0, len(cut) - 1))]
    return Log(made, tail, tuple(aborted.items()))


@st.composite
def message_sets(draw: st.DrawFn) -> tuple[bytes, tuple[Record, ...], int, int]:
    """Draw a set of an old producer: its bytes, its messages, its magic and the codec of its last wrapper."""
    magic, codec = draw(st.sampled_from([0, 1])), int(Codec.NONE)
    data = b""
    found: list[Record] = []
    for _ in range(draw(st.integers(1, 4))):
        each = draw(_OLD_CODECS)
        some = draw(records(0, most=5, headers=False))
        if magic == 0:
            some = tuple(attrs.evolve(record, time_ms=-1) for record in some)
        if each:
            data += wrapper(some, magic, each, offset=draw(st.sampled_from([0, some[-1].offset])))
            codec = each
        else:
            data += b"".join(message(record, magic) for record in some)
        found += some
    return data, tuple(found), magic, codec


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """*data* as a bad disk or a liar would have it."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(damaged)))
        kind = draw(st.sampled_from(["flip", "set", "cut", "length", "varint", "insert", "drop"]))
        if kind == "flip" and at < len(damaged):
            damaged[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            damaged[at : at + 1] = bytes([draw(st.sampled_from([0, 1, 2, 3, 127, 128, 254, 255]))])
        elif kind == "cut":
            del damaged[at:]
        elif kind == "length":
            value = draw(st.sampled_from([-(2**31), -2, -1, 0, 1, 13, 14, 48, 49, len(data), 2**31 - 1]))
            damaged[at : at + 4] = value.to_bytes(4, signed=True)
        elif kind == "varint":
            size = draw(st.integers(1, 11))
            damaged[at : at + size] = b"\xff" * size
        elif kind == "insert":
            damaged[at:at] = draw(st.binary(min_size=1, max_size=5))
        elif kind == "drop":
            del damaged[at : at + draw(st.integers(1, 5))]
    return bytes(damaged)
