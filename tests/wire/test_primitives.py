"""Scalars, strings, lengths and tagged fields; kio's writers are the second opinion."""

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers
from kio.static.primitive import uvarint

from proxy.errors import MalformedFrame
from proxy.wire.primitives import Cursor, write_string, write_tags, write_uvarint
from tests.strategies import examples, i16s, i32s, i64s

texts = st.one_of(st.none(), st.text(max_size=40), st.sampled_from(["a" * 126, "a" * 127, "a" * 128, "é" * 9000]))


def by_kio(write: Callable[..., None], value: object) -> bytes:
    buffer = io.BytesIO()
    write(buffer, value)
    return buffer.getvalue()


@examples(100)
@given(i16s, i32s, i64s, st.integers(-128, 127))
def test_scalars_are_read_in_order(short: int, middle: int, long: int, byte: int) -> None:
    written = (
        by_kio(writers.write_int16, short)
        + by_kio(writers.write_int32, middle)
        + by_kio(writers.write_int64, long)
        + by_kio(writers.write_int8, byte)
    )
    cursor = Cursor(written)

    assert (cursor.i16(), cursor.i32(), cursor.i64(), cursor.i8()) == (short, middle, long, byte)
    cursor.check_end()


@examples(100)
@given(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1), st.sampled_from([127, 128, 16383, 16384, 2**31])))
def test_a_varint_is_as_kio_writes_it(value: int) -> None:
    written = write_uvarint(value)

    assert written == by_kio(writers.write_unsigned_varint, uvarint(value))
    assert Cursor(written).uvarint() == value


@pytest.mark.parametrize("size", range(1, 5))
def test_a_varint_that_never_ends_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame, match="1 bytes wanted"):
        Cursor(b"\xff" * size).uvarint()


def test_a_varint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="longer than five"):
        Cursor(b"\xff" * 5 + b"\1").uvarint()


@examples(100)
@given(texts)
def test_a_string_is_as_kio_writes_it(text: str | None) -> None:
    compact, classic = write_string(text, flexible=True), write_string(text, flexible=False)

    assert compact == by_kio(writers.write_nullable_compact_string, text)
    assert classic == by_kio(writers.write_nullable_legacy_string, text)
    assert Cursor(compact).nullable_string(flexible=True) == text
    assert Cursor(memoryview(classic)).nullable_string(flexible=False) == text


@pytest.mark.parametrize(("written", "flexible"), [(b"\xff\xff", False), (b"\0", True)])
def test_null_is_malformed_where_a_string_must_be(written: bytes, flexible: bool) -> None:
    assert Cursor(written).nullable_string(flexible=flexible) is None
    with pytest.raises(MalformedFrame, match="null"):
        Cursor(written).string(flexible=flexible)


@pytest.mark.parametrize(
    ("written", "flexible"),
    [(b"\xff\xfe", False), (b"\x80\x00abc", False), (b"\0\3ab", False), (b"\4ab", True), (b"\0\1\xff", False)],
    ids=["-2", "-32768", "short", "short and compact", "not UTF-8"],
)
def test_a_string_of_an_impossible_length_is_malformed(written: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedFrame):
        Cursor(written).nullable_string(flexible=flexible)


@pytest.mark.parametrize(("chars", "fits"), [(2**15 - 1, True), (2**15, False)])
def test_a_compact_string_is_no_longer_than_a_classic_one_can_be(chars: int, fits: bool) -> None:
    """Brokers refuse it, too: a request of ours with a longer one in it would get no answer at all."""
    written = write_string("t" * chars, flexible=True)
    if fits:
        assert len(Cursor(written).string(flexible=True)) == chars
    else:
        with pytest.raises(MalformedFrame):
            Cursor(written).string(flexible=True)


@pytest.mark.parametrize("frame", [b"", b"\1", b"\1\2\3"])
def test_a_scalar_that_is_cut_short_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame, match=f"4 bytes wanted at 0, {len(frame)} left"):
        Cursor(frame).i32()


@pytest.mark.parametrize("size", [-1, 4])
def test_no_more_can_be_taken_than_there_is(size: int) -> None:
    with pytest.raises(MalformedFrame):
        Cursor(b"abc").take(size)


def test_null_arrays_have_no_items() -> None:
    assert Cursor(b"\xff\xff\xff\xff").count(flexible=False, item_bytes=1) == 0
    assert Cursor(b"\0").count(flexible=True, item_bytes=1) == 0


@pytest.mark.parametrize(("count", "fits"), [(3, True), (4, False)])
def test_items_that_the_frame_has_no_room_for_are_malformed(count: int, fits: bool) -> None:
    cursor = Cursor(count.to_bytes(4) + bytes(7))

    if fits:
        assert cursor.count(flexible=False, item_bytes=2) == count
    else:
        with pytest.raises(MalformedFrame, match="8 bytes wanted"):
            cursor.count(flexible=False, item_bytes=2)


@pytest.mark.parametrize(("count", "fits"), [(1_000_000, True), (1_000_001, False)])
def test_arrays_of_more_than_a_million_items_are_malformed(count: int, fits: bool) -> None:
    cursor = Cursor(count.to_bytes(4) + bytes(count))

    if fits:
        assert cursor.count(flexible=False, item_bytes=1) == count
    else:
        with pytest.raises(MalformedFrame, match="an array of 1000001 items at 4, 1000000 are allowed"):
            cursor.count(flexible=False, item_bytes=1)


@pytest.mark.parametrize(("count", "fits"), [(10_000, True), (10_001, False)])
def test_more_than_ten_thousand_tagged_fields_are_malformed(count: int, fits: bool) -> None:
    cursor = Cursor(write_tags([(tag, b"") for tag in range(count)]))

    if fits:
        cursor.skip_tags()
        cursor.check_end()
    else:
        with pytest.raises(MalformedFrame, match="10001 tagged fields at 2, 10000 are allowed"):
            cursor.skip_tags()


def test_tagged_fields_of_all_sections_have_a_limit() -> None:
    section = write_tags([(0, b""), (1, b"a")])
    cursor = Cursor(section + b"\0" + section + section)
    cursor.tags_left = 5

    for _ in range(3):
        cursor.skip_tags()
    with pytest.raises(MalformedFrame, match=r"2 tagged fields at \d+, 1 are allowed"):
        cursor.skip_tags()


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), max_size=4))
def test_tagged_fields_are_read_back(tags: list[tuple[int, bytes]]) -> None:
    written = write_tags(tags)
    cursor = Cursor(written)

    assert list(cursor.tags()) == tags
    cursor.check_end()
    skipping = Cursor(written)
    skipping.skip_tags()
    skipping.check_end()


def test_unread_bytes_at_end_are_malformed() -> None:
    cursor = Cursor(b"ab", 1)

    assert cursor.count_rest() == 1
    with pytest.raises(MalformedFrame, match="1 bytes too many at 1"):
        cursor.check_end()
