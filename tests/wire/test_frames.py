"""Frames out of a byte stream, however it is cut."""

import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import FrameTooLarge, MalformedFrame
from proxy.wire.frames import FrameReader, with_size
from tests.strategies import examples

LIMIT = 1 << 20


def feed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[bytes]:
    """Hand *data* to the reader in pieces, each of the next size of *cuts*, again and again."""
    frames: list[bytes] = []
    at = number = 0
    while at < len(data):
        if reader.needed_bytes:
            reader.allocate()
        space = reader.get_space()
        piece = data[at : at + min(cuts[number % len(cuts)], len(space))]
        space[: len(piece)] = piece
        frames += map(bytes, reader.process_received(len(piece)))
        at += len(piece)
        number += 1
    return frames


def feed_views(reader: FrameReader, data: bytes) -> list[memoryview]:
    """Feed the same with the reader's own views, as much at once as it accepts."""
    frames: list[memoryview] = []
    while data:
        if reader.needed_bytes:
            reader.allocate()
        space = reader.get_space()
        piece, data = data[: len(space)], data[len(space) :]
        space[: len(piece)] = piece
        frames += reader.process_received(len(piece))
    return frames


ROUND_ITS_BUFFER = [size + more for size in (16_384, 65_536) for more in (-5, -4, -3, 0, 1)]
sizes = st.one_of(st.integers(0, 200), st.sampled_from([*ROUND_ITS_BUFFER, 150_000]))


@examples(60)
@given(
    st.lists(sizes, max_size=6),
    st.lists(st.sampled_from([1, 3, 4, 5, 7, 100, 4096, 70_000]), min_size=1, max_size=5),
)
def test_any_cutting_gives_the_same_frames(payload_sizes: list[int], cuts: list[int]) -> None:
    if sum(payload_sizes) > 1000 and max(cuts) < 100:
        cuts = [*cuts, 4096]
    payloads = [bytes([number % 251]) * size for number, size in enumerate(payload_sizes)]
    reader = FrameReader(LIMIT)

    assert feed(reader, b"".join(map(with_size, payloads)), cuts) == payloads
    assert reader.at_boundary


def test_frames_stay_as_they_are_while_more_arrive() -> None:
    reader = FrameReader(LIMIT)
    space = reader.get_space()
    space[:7] = with_size(b"one")
    (first,) = reader.process_received(7)

    feed(reader, with_size(b"two") * 100, [16])

    assert bytes(first) == b"one"


@pytest.mark.parametrize("size", [70_000, 90_000])
def test_a_large_frame_that_is_held_stays_as_it_is(size: int) -> None:
    reader = FrameReader(LIMIT)
    held = feed_views(reader, with_size(b"1" * 90_000))

    feed_views(reader, with_size(b"2" * size))

    assert bytes(held[0]) == b"1" * 90_000


def test_memory_of_large_frame_is_reused_when_unreferenced() -> None:
    reader = FrameReader(LIMIT)
    first = feed_views(reader, with_size(b"1" * 90_000))
    memory = first[0].obj
    first.clear()

    (second,) = feed_views(reader, with_size(b"2" * 90_000))

    assert second.obj is memory
    assert bytes(second) == b"2" * 90_000


def test_part_of_a_frame_is_no_boundary() -> None:
    reader = FrameReader(LIMIT)
    frame = with_size(bytes(100_000))

    assert reader.at_boundary
    assert feed(reader, frame[:3], [3]) == []
    assert not reader.at_boundary
    assert feed(reader, frame[3:4], [1]) == []
    assert not reader.at_boundary
    assert feed(reader, frame[4:99_000], [50_000]) == []
    assert not reader.at_boundary
    assert len(feed(reader, frame[99_000:], [50_000])) == 1
    assert reader.at_boundary


@pytest.mark.parametrize(
    ("size", "error"),
    [(-1, MalformedFrame), (-(2**31), MalformedFrame), (LIMIT + 1, FrameTooLarge), (2**31 - 1, FrameTooLarge)],
)
def test_a_size_that_is_negative_or_over_the_limit_is_malformed(size: int, error: type[MalformedFrame]) -> None:
    with pytest.raises(MalformedFrame, match=str(size)) as raised:
        feed(FrameReader(LIMIT), struct.pack(">i", size), [4])

    assert raised.type is error


def test_a_new_limit_applies_to_the_next_frame() -> None:
    reader = FrameReader(LIMIT)
    assert feed(reader, with_size(b"four"), [8]) == [b"four"]

    reader.set_limit(3)

    assert feed(reader, with_size(b"two"), [7]) == [b"two"]
    with pytest.raises(FrameTooLarge):
        feed(reader, with_size(b"four"), [8])


def test_a_frame_of_the_limit_passes() -> None:
    assert len(feed(FrameReader(LIMIT), with_size(bytes(LIMIT)), [LIMIT])[0]) == LIMIT


def test_a_byte_at_a_time_gives_the_same_frames() -> None:
    payloads = [b"", b"one", bytes(70_000), b"two", b""]

    assert feed(FrameReader(LIMIT), b"".join(map(with_size, payloads)), [1]) == payloads


@pytest.mark.parametrize("last", [-1, LIMIT + 1])
def test_frames_before_a_bad_size_are_lost_with_the_connection(last: int) -> None:
    with pytest.raises(MalformedFrame):
        feed(FrameReader(LIMIT), with_size(b"good") + struct.pack(">i", last), [100])


@pytest.mark.parametrize("size", range(65_526, 65_540))
def test_frame_of_about_buffer_size_leaves_room_for_next_frame(size: int) -> None:
    reader = FrameReader(LIMIT)
    payloads = [b"first", bytes(size), b"last"]

    assert feed(reader, b"".join(map(with_size, payloads)), [70_000]) == payloads
    assert len(reader.get_space()) > 0


def test_a_large_frame_is_received_in_place() -> None:
    reader = FrameReader(LIMIT)
    reader.get_space()[:4] = struct.pack(">i", 100_000)
    reader.process_received(4)
    reader.allocate()
    buffer, space = reader.buffer, reader.get_space()
    assert reader.process_received(len(space)) == []
    reader.allocate()

    (frame,) = reader.process_received(len(reader.get_space()))

    assert len(frame) == 100_000
    assert frame.obj is space.obj is buffer


@pytest.mark.parametrize("arrived", [0, 1, 16_380])
def test_memory_of_a_large_frame_is_requested_while_it_arrives(arrived: int) -> None:
    reader = FrameReader(LIMIT)
    frame = with_size(bytes(range(250)) * 4_000)
    requested = []

    frames = feed(reader, frame[: 4 + arrived], [4 + arrived])
    at = 4 + arrived
    while at < len(frame):
        if reader.needed_bytes:
            requested.append(reader.needed_bytes)
            reader.allocate()
        size = len(reader.get_space())
        assert size <= 4 * max(at, 16 * 1024)
        reader.get_space()[:] = frame[at : at + size]
        frames += map(bytes, reader.process_received(size))
        at += size

    assert requested == [64 * 1024, 256 * 1024, 1_000_000]
    assert frames == [frame[4:]]


def test_the_frames_before_a_large_one_do_not_wait_for_its_memory() -> None:
    reader = FrameReader(LIMIT)

    assert feed(reader, with_size(b"small") + with_size(bytes(100_000))[:9], [18]) == [b"small"]
    assert reader.needed_bytes == 64 * 1024


def test_the_memory_of_a_held_frame_is_gone_with_its_last_view() -> None:
    reader = FrameReader(LIMIT)
    frames = feed_views(reader, with_size(b"1" * 90_000))
    memory = weakref.ref(frames[0].obj)
    part = frames[0][5:10]
    reader.drop_spares()

    frames.clear()
    assert memory() is not None
    del part
    assert memory() is None


def test_too_small_spare_memory_is_freed_before_larger_frame_is_received() -> None:
    reader = FrameReader(LIMIT)
    memory = weakref.ref(feed_views(reader, with_size(bytes(90_000))).pop().obj)

    feed(reader, with_size(bytes(90_001))[:4], [4])

    assert reader.needed_bytes
    assert memory() is None


@pytest.mark.parametrize(("size", "is_kept"), [(64 * 1024, False), (64 * 1024 + 1, True)])
def test_only_memory_that_takes_time_to_clear_is_kept_for_the_next_frame(size: int, is_kept: bool) -> None:
    reader = FrameReader(LIMIT)
    first = feed_views(reader, with_size(bytes(size)))
    memory = first[0].obj
    first.clear()

    (second,) = feed_views(reader, with_size(bytes(size)))

    assert (second.obj is memory) is is_kept


def test_a_small_frame_is_not_received_into_the_memory_of_a_much_larger_one() -> None:
    reader = FrameReader(LIMIT)
    feed_views(reader, with_size(bytes(400_000)))

    feed(reader, with_size(bytes(100_000))[:4], [4])
    assert reader.needed_bytes == 0
    feed(reader, bytes(100_000), [100_000])
    feed(reader, with_size(bytes(99_999))[:4], [4])

    assert reader.needed_bytes


def test_partially_received_frame_survives_drop_of_spares() -> None:
    reader = FrameReader(LIMIT)
    frame = with_size(b"1" * 90_000)
    feed(reader, frame[:50_000], [50_000])

    reader.drop_spares()

    assert feed(reader, frame[50_000:], [50_000]) == [frame[4:]]


@pytest.mark.parametrize("cuts", [[1], [5], [6], [100_000]])
def test_large_frame_is_refused_by_its_first_bytes_before_it_gets_memory(cuts: list[int]) -> None:
    class Refused(Exception):
        pass

    asked: list[tuple[int, int]] = []

    def check_size(api_key: int, size_bytes: int) -> None:
        asked.append((api_key, size_bytes))
        if api_key == 17:
            raise Refused

    reader = FrameReader(LIMIT, check_size)
    small, large = with_size(b"\0\x11" + bytes(100)), b"\0\x01" + bytes(90_000)

    assert feed(reader, small + with_size(large), cuts) == [small[4:], large]
    with pytest.raises(Refused):
        feed(reader, (90_002).to_bytes(4) + b"\0\x11", cuts)
    assert not reader.needed_bytes
    assert asked == [(1, 90_002), (17, 90_002)]
