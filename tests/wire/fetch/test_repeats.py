"""Requests that repeat the one before: read as any others are, and to the very same objects where they do."""

import struct
from collections.abc import Callable, Mapping, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import LimitReached, MalformedFrame
from proxy.wire.fetch import (
    FETCH,
    FetchOptions,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    Repeats,
    Topic,
    TopicId,
    TopicSection,
    read_request,
    request_layout,
    write_request,
)
from proxy.wire.fetch.repeats import merge_duplicates
from proxy.wire.headers import RequestHeader, read_request_header
from tests.strategies import examples

Entries = Sequence[tuple[int, int]]
"""Topic's number and partition."""
MANY = [(topic, partition) for topic in range(4) for partition in range(120)]
"""Partitions of more than one block."""
MOST = 600
OPTIONS = FetchOptions(500, 1)
LAYOUT = request_layout(11)


def named(version: int, topic: int) -> Topic:
    return TopicId(bytes(15) + bytes([topic])) if version >= 13 else f"topic-{topic}"


def frame(
    version: int,
    asked: Entries,
    offsets: Mapping[tuple[int, int], int] | None = None,
    *,
    correlation_id: int = 7,
    options: FetchOptions = OPTIONS,
    client_id: str = "client",
) -> bytes:
    """Without its size."""
    moved = offsets or {}
    asks = {
        PartitionKey(named(version, topic), p): FetchPartition(moved.get((topic, p), 0), 100) for topic, p in asked
    }
    header = RequestHeader(FETCH, version, correlation_id, client_id)
    return write_request(header, options, 0, -1, asks, ())[4:]


def read(repeats: Repeats, received: bytes) -> FetchRequest:
    """Read from a buffer that is overwritten afterwards."""
    buffer = bytearray(received)
    request = repeats.read(*read_request_header(memoryview(buffer)), MOST)
    buffer.clear()
    return request


def outcome(read: Callable[..., FetchRequest], received: bytes) -> FetchRequest | type[Exception]:
    try:
        return read(*read_request_header(received), MOST)
    except (MalformedFrame, LimitReached) as wrong:
        return type(wrong)


def test_repeated_request_reuses_sections_and_has_its_own_correlation_id() -> None:
    repeats = Repeats()
    first = read(repeats, frame(11, MANY))

    again = read(repeats, frame(11, MANY, correlation_id=8))

    assert again.sections is first.sections
    assert again.header.correlation_id == 8


def test_request_is_repeated_if_only_the_correlation_id_differs() -> None:
    repeats = Repeats()

    def is_repeated(received: bytes) -> bool:
        return repeats.is_repeated(read_request_header(received)[0], memoryview(received))

    assert not is_repeated(frame(11, MANY))
    read(repeats, frame(11, MANY))

    assert is_repeated(frame(11, MANY, correlation_id=8))
    assert not is_repeated(frame(11, MANY, {(2, 7): 55}))
    assert not is_repeated(frame(12, MANY))
    assert not is_repeated(frame(11, MANY) + b"x")


@pytest.mark.parametrize("version", [0, 4, 5, 9, 11, 12, 13])
def test_only_topics_with_changed_offsets_are_decoded_again(version: int) -> None:
    repeats = Repeats()
    first = read(repeats, frame(version, MANY))
    moved = frame(version, MANY, {(2, 7): 55, (2, 119): 56})

    second = read(repeats, moved)

    assert second == read_request(*read_request_header(moved))
    assert [ours is before for ours, before in zip(second.sections, first.sections, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    assert read(repeats, moved).sections is second.sections


@pytest.mark.parametrize(
    "changed",
    [
        frame(11, MANY, options=FetchOptions(499, 1)),
        frame(11, MANY, options=FetchOptions(500, 1, isolation=1)),
        frame(11, MANY, client_id="cliemt"),
        frame(11, [(9 if topic == 2 else topic, partition) for topic, partition in MANY]),
        frame(10, MANY) + bytes(2),
    ],
    ids=["wait", "isolation", "client", "topic", "version"],
)
def test_request_with_other_header_options_or_topics_is_decoded_again(changed: bytes) -> None:
    repeats = Repeats()
    read(repeats, frame(11, MANY))

    assert outcome(repeats.read, changed) == outcome(read_request, changed)


def test_change_behind_partitions_is_decoded() -> None:
    repeats = Repeats()
    read(repeats, frame(11, MANY, options=FetchOptions(500, 1, rack_id="a")))

    assert read(repeats, frame(11, MANY, options=FetchOptions(500, 1, rack_id="b"))).options.rack_id == "b"


def test_tagged_fields_of_a_partition_are_no_offsets() -> None:
    repeats = Repeats()
    plain = frame(12, [(0, 0), (0, 1)])
    read(repeats, plain)
    tagged = bytearray(plain)
    tagged[plain.index(struct.pack(">ii", 1, -1)) - 1] = 1  # the next partition's bytes are the field then

    with pytest.raises(MalformedFrame):
        read(repeats, bytes(tagged))


def section(topic: int, *offsets: tuple[int, int]) -> TopicSection:
    """Return a section of (partition, offset) pairs."""
    return TopicSection(
        named(11, topic), b"".join(LAYOUT.pack(p, FetchPartition(offset, 100)) for p, offset in offsets)
    )


def test_partition_named_twice_keeps_its_first_place_and_gets_its_last_values() -> None:
    sections = (section(0, (0, 5), (1, 6)), section(1, (0, 7)), section(0, (2, 8), (0, 9)), section(1, (0, 10)))

    assert merge_duplicates(LAYOUT, sections) == (
        section(0, (0, 9), (1, 6)),
        section(1, (0, 10)),
        section(0, (2, 8)),
    )


def test_topics_without_partitions_are_left_out() -> None:
    assert merge_duplicates(LAYOUT, (section(0), section(1, (0, 5)), section(2))) == (section(1, (0, 5)),)


def test_sections_without_repeats_and_empty_topics_are_returned_as_they_are() -> None:
    sections = (section(0, (0, 5), (1, 6)), section(1, (0, 7)), section(0, (2, 8)))

    assert merge_duplicates(LAYOUT, sections) is sections


def test_request_that_names_a_partition_twice_is_read_with_it_once() -> None:
    repeats = Repeats()

    for moved in (6, 6, 7):
        once = frame(11, [(0, 0), (0, 1)], {(0, 1): moved})
        twice = once.replace(LAYOUT.pack(1, FetchPartition(moved, 100)), LAYOUT.pack(0, FetchPartition(moved, 100)))
        assert read(repeats, twice).sections == (section(0, (0, moved)),)


def test_request_with_other_partitions_at_same_position_is_decoded_again() -> None:
    repeats = Repeats()
    once = frame(11, [(0, 0), (0, 1)])
    read(repeats, once)

    twice = once.replace(LAYOUT.pack(1, FetchPartition(0, 100)), LAYOUT.pack(0, FetchPartition(5, 100)))

    assert read(repeats, twice).sections == (section(0, (0, 5)),)


_ENTRIES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True, max_size=12)


@pytest.mark.parametrize("version", [3, 4, 11, 12, 15])
@examples(40)
@given(data=st.data())
def test_requests_in_any_sequence_are_decoded_as_if_alone(version: int, data: st.DataObject) -> None:
    repeats = Repeats()
    asked: Entries = data.draw(st.one_of(_ENTRIES, st.just(MANY)))
    sent = bytearray(frame(version, asked))
    for _ in range(data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["repeat", "move", "byte", "other"])):
            case "move" if asked:
                places = data.draw(st.lists(st.sampled_from(asked), max_size=4))
                sent = bytearray(frame(version, asked, dict.fromkeys(places, data.draw(st.integers(0, 9)))))
            case "byte":
                sent[data.draw(st.integers(4, len(sent) - 1))] = data.draw(st.integers(0, 255))
            case "other":
                asked = data.draw(_ENTRIES)
                sent = bytearray(frame(version, asked))
        struct.pack_into(">i", sent, 4, data.draw(st.integers(0, 3)))
        alone = outcome(read_request, bytes(sent))
        if isinstance(alone, FetchRequest):
            alone = attrs.evolve(alone, sections=merge_duplicates(request_layout(version), alone.sections))
        assert outcome(repeats.read, bytes(sent)) == alone
