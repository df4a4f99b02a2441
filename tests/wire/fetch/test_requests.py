"""Fetch requests of every version. kio is the second opinion from v4 on; older ones are written out by hand."""

import contextlib
import struct
import tracemalloc
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1 import RequestHeader as HeaderV1
from kio.schema.request_header.v2 import RequestHeader as HeaderV2

from proxy.errors import LimitReached, MalformedFrame
from proxy.wire import messages
from proxy.wire.fetch import (
    FETCH,
    FetchOptions,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    TopicId,
    read_request,
    request_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader, read_request_header
from proxy.wire.primitives import write_tags
from tests.strategies import asks, client_ids, examples, i32s, keys, options, topics
from tests.wire.entities import item_type, made
from tests.wire.fetch.oracle import (
    KIO_VERSIONS,
    asked_of,
    entries_of,
    forgotten_of,
    request_type,
    runs,
    topic_fields,
)

ALL_VERSIONS = range(19)
FLEXIBLE = range(12, 19)
MIB = 1 << 20


def read(frame: bytes | memoryview) -> FetchRequest:
    return read_request(*read_request_header(frame))


def header(version: int, client_id: str | None = "c") -> RequestHeader:
    return RequestHeader(FETCH, version, 7, client_id)


def sample(version: int) -> bytes:
    """A request with something in every field, without its size."""
    ids = version >= 13
    one, two = (TopicId(b"\1" * 16), TopicId(b"\2" * 16)) if ids else ("orders", "payments")
    asked = {
        PartitionKey(one, 0): FetchPartition(5, 100),
        PartitionKey(one, 3): FetchPartition(6, 100),
        PartitionKey(two, 1): FetchPartition(7, 100),
    }
    forgotten = [PartitionKey(two, 8), PartitionKey(two, 9)]
    return write_request(header(version), FetchOptions(500, 1, 9, 1, "rack"), 3, 4, asked, forgotten)[4:]


# -------------------------------------------------------------------------------------- against kio


@pytest.mark.parametrize("version", KIO_VERSIONS)
@examples(15)
@given(data=st.data())
def test_encoded_request_is_decoded_equally_by_kio(version: int, data: st.DataObject) -> None:
    said = data.draw(options(version))
    asked = data.draw(st.dictionaries(keys(version), asks(version), max_size=5))
    forgotten = data.draw(st.lists(keys(version), max_size=4))
    client_id, session_id, epoch = data.draw(st.tuples(client_ids, i32s, i32s))

    frame = write_request(header(version, client_id), said, session_id, epoch, asked, forgotten)

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    kind = request_type(version)
    header_kind: Any = HeaderV2 if version >= 12 else HeaderV1
    front, at = messages.read_entity(header_kind, frame, 4)
    reported, end = messages.read_entity(kind, frame, at)
    assert end == len(frame)
    assert (front.request_api_key, front.request_api_version, front.correlation_id) == (FETCH, version, 7)
    assert front.client_id == client_id
    assert flat(entries_of(reported)) == [(key, *ask) for key, ask in asked.items()]
    if version >= 7:
        assert (reported.session_id, reported.session_epoch) == (session_id, epoch)
        assert forgotten_of(reported) == forgotten
    assert options_of(reported) == said
    assert replica_of(reported) == -1


@pytest.mark.parametrize("version", KIO_VERSIONS)
@examples(15)
@given(data=st.data())
def test_request_encoded_by_kio_is_decoded_equally(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(version))
    client_id = data.draw(client_ids)

    request = read(messages.request_frame(7, client_id, entity)[4:])

    assert request.header == RequestHeader(FETCH, version, 7, client_id)
    assert asked_of(request) == entries_of(entity)
    assert request.options == options_of(entity)
    assert request.replica_id == replica_of(entity)
    assert list(request.forgotten) == forgotten_of(entity)
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (entity.session_id, entity.session_epoch)
    else:
        assert (request.session_id, request.session_epoch) == (0, -1)


def flat(topics_: list[tuple[Any, list[tuple[int, ...]]]]) -> list[tuple[Any, ...]]:
    return [(PartitionKey(topic, fields[0]), *fields[1:]) for topic, entries in topics_ for fields in entries]


def options_of(entity: Any) -> FetchOptions:
    return FetchOptions(
        round(entity.max_wait.total_seconds() * 1000),
        entity.min_bytes,
        entity.max_bytes,
        entity.isolation_level,
        getattr(entity, "rack_id", ""),
    )


def replica_of(entity: Any) -> int:
    replica: int = entity.replica_id if hasattr(entity, "replica_id") else entity.replica_state.replica_id
    return replica


@st.composite
def entities(draw: st.DrawFn, version: int) -> Any:
    """Draw kio entities, also with the fields that only followers send."""
    kind = request_type(version)
    topic_kind = item_type(kind, "topics")
    entry_kind = item_type(topic_kind, "partitions")
    epochs = st.integers(-1, 2**31 - 1)

    def entry() -> Any:
        ask = draw(asks(version))
        followers: dict[str, Any] = {}
        if version >= 17:
            followers["replica_directory_id"] = draw(st.sampled_from([None, UUID(int=5)]))
        if version >= 18:
            followers["high_watermark"] = draw(st.sampled_from([2**63 - 1, 12]))
        if version >= 12:
            followers["last_fetched_epoch"] = ask.last_fetched_epoch
        if version >= 9:
            followers["current_leader_epoch"] = ask.epoch
        if version >= 5:
            followers["log_start_offset"] = draw(epochs)
        return made(
            entry_kind,
            partition=draw(i32s),
            fetch_offset=ask.offset,
            partition_max_bytes=ask.max_bytes,
            **followers,
        )

    said = draw(options(version))
    fields: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=said.max_wait_ms),
        "min_bytes": said.min_bytes,
        "max_bytes": said.max_bytes,
        "isolation_level": said.isolation,
        "topics": tuple(
            topic_kind(**topic_fields(topic), partitions=tuple(entry() for _ in range(draw(st.integers(0, 4)))))
            for topic in draw(st.lists(topics(version), max_size=3))
        ),
    }
    if version >= 7:
        forgotten = item_type(kind, "forgotten_topics_data")
        gone = draw(st.lists(keys(version), max_size=4))
        fields |= {
            "session_id": draw(i32s),
            "session_epoch": draw(i32s),
            "forgotten_topics_data": tuple(
                forgotten(**topic_fields(topic), partitions=tuple(partitions)) for topic, partitions in runs(gone)
            ),
        }
    if version >= 11:
        fields["rack_id"] = said.rack_id
    if version >= 12:
        fields["cluster_id"] = draw(st.sampled_from([None, "cluster"]))
    if version >= 15:
        replica = made(kind).replica_state
        fields["replica_state"] = type(replica)(replica_id=draw(epochs), replica_epoch=draw(epochs))
    else:
        fields["replica_id"] = draw(epochs)
    return made(kind, **fields)


# ------------------------------------------------------------------------------------ without an oracle


@pytest.mark.parametrize("version", ALL_VERSIONS)
@examples(10)
@given(data=st.data())
def test_request_is_equal_after_encoding_and_decoding(version: int, data: st.DataObject) -> None:
    said = data.draw(options(version))
    asked = data.draw(st.dictionaries(keys(version), asks(version), max_size=5))

    request = read(write_request(header(version), said, 5, 6, asked, list(asked))[4:])

    assert request.options == said
    assert flat(asked_of(request)) == [(key, *ask) for key, ask in asked.items()]
    assert (request.session_id, request.session_epoch) == ((5, 6) if version >= 7 else (0, -1))
    assert request.forgotten == (tuple(asked) if version >= 7 else ())


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_request_older_than_kio_is_as_the_protocol_guide_has_it(version: int) -> None:
    topic = struct.pack(">h6si", 6, b"orders", 2) + struct.pack(">iqi", 0, 5, 100) + struct.pack(">iqi", 3, 6, 101)
    max_bytes = struct.pack(">i", 900) if version >= 3 else b""
    body = struct.pack(">iii", -1, 500, 1) + max_bytes + struct.pack(">i", 1) + topic
    frame = struct.pack(">hhih1s", 1, version, 7, 1, b"c") + body
    said = FetchOptions(500, 1, 900) if version >= 3 else FetchOptions(500, 1)
    asked = {PartitionKey("orders", 0): FetchPartition(5, 100), PartitionKey("orders", 3): FetchPartition(6, 101)}

    request = read(frame)

    assert request.options == said
    assert flat(asked_of(request)) == [(key, *ask) for key, ask in asked.items()]
    assert write_request(header(version), said, 0, -1, asked, ())[4:] == frame


def test_a_topic_may_come_twice_and_stays_two_sections() -> None:
    asked = {
        PartitionKey("a", 0): FetchPartition(1, 2),
        PartitionKey("b", 0): FetchPartition(1, 2),
        PartitionKey("a", 1): FetchPartition(1, 2),
    }

    request = read(write_request(header(12), FetchOptions(0, 0), 0, -1, asked, ())[4:])

    assert [section.topic for section in request.sections] == ["a", "b", "a"]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_request_holds_nothing_of_the_frame_that_it_was_read_from(version: int) -> None:
    frame = bytearray(sample(version))

    request = read(memoryview(frame))

    assert request.sections
    frame.append(0)  # raises BufferError as long as there are views


_TAG_SETS = st.lists(st.tuples(st.integers(100, 2**31 - 1), st.binary(max_size=200)), max_size=2).map(write_tags)


@pytest.mark.parametrize("version", FLEXIBLE)
@examples(15)
@given(data=st.data())
def test_unknown_tagged_fields_are_skipped_in_every_struct(version: int, data: st.DataObject) -> None:
    def tags() -> bytes:
        return data.draw(_TAG_SETS)

    topic = b"\1" * 16 if version >= 13 else b"\7orders"
    entries = [
        struct.pack(">iiqiqi", n, 4, 5 + n, 2, -1, 100) + tags() for n in range(data.draw(st.integers(0, 4)))
    ]
    replica = struct.pack(">i", -1) if version <= 14 else b""
    body = b"".join(
        [
            tags(),  # of the header
            replica + struct.pack(">iiib", 500, 1, 900, 1) + struct.pack(">ii", 3, 4),
            b"\2" + topic + bytes([len(entries) + 1]) + b"".join(entries) + tags(),
            b"\2" + topic + b"\2" + struct.pack(">i", 8) + tags(),
            b"\5rack",
            tags(),
        ]
    )

    request = read(struct.pack(">hhih1s", 1, version, 7, 1, b"c") + body)

    name = TopicId(topic) if version >= 13 else "orders"
    expected = [(n, 5 + n, 100, 4, 2) for n in range(len(entries))]
    assert asked_of(request) == [(name, expected)]
    pack = request_layout(version).pack
    assert request.sections[0].entries == b"".join(
        pack(n, FetchPartition(5 + n, 100, 4, 2)) for n in range(len(entries))
    )
    assert request.forgotten == (PartitionKey(name, 8),)
    assert request.options == FetchOptions(500, 1, 900, 1, "rack")


# --------------------------------------------------------------------------------------- malformed ones


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_request_cut_short_anywhere_is_malformed(version: int) -> None:
    frame = sample(version)

    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            read(frame[:size])


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_request_with_something_behind_it_is_malformed(version: int) -> None:
    with pytest.raises(MalformedFrame, match="1 bytes too many"):
        read(sample(version) + b"\0")


@examples(300)
@given(st.sampled_from(ALL_VERSIONS), st.data())
def test_bytes_at_random_are_read_or_malformed_and_nothing_else(version: int, data: st.DataObject) -> None:
    frame = bytearray(sample(version))
    for at in data.draw(st.lists(st.integers(8, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    tail = data.draw(st.one_of(st.none(), st.binary(max_size=60)))
    if tail is not None:
        frame[data.draw(st.integers(8, len(frame))) :] = tail

    with contextlib.suppress(MalformedFrame):
        read(memoryview(bytes(frame)))


def tagged(counts: list[int]) -> bytes:
    """A v12 request of one topic whose partitions have so many empty tagged fields each."""
    entries = [struct.pack(">iiqiqi", n, -1, 0, -1, -1, 100) for n in range(len(counts))]
    fields = [write_tags([(tag, b"") for tag in range(count)]) for count in counts]
    topic = b"\2\7orders" + bytes([len(counts) + 1]) + b"".join(map(bytes.__add__, entries, fields)) + b"\0"
    front = struct.pack(">hhih1sxiiiibii", 1, 12, 7, 1, b"c", -1, 500, 1, 900, 0, 0, -1)
    return front + topic + b"\1\1\0"


@pytest.mark.parametrize(("last", "fits"), [(7, True), (8, False)])
def test_tagged_fields_are_counted_over_the_whole_request(last: int, fits: bool) -> None:
    frame = tagged([5_000, 0, 5_000, last])
    if fits:
        assert len(read_request(*read_request_header(frame), 7).sections[0].entries) == 4 * 33
    else:
        with pytest.raises(MalformedFrame, match=r"8 tagged fields at \d+, 7 are allowed"):
            read_request(*read_request_header(frame), 7)


@pytest.mark.parametrize("version", [0, 4, 11, 12])
@pytest.mark.parametrize(("name", "fits"), [("x" * 249, True), ("x" * 250, False), ("é" * 125, False)])
@pytest.mark.parametrize("where", ["topics", "forgotten"])
def test_topic_name_of_more_than_249_bytes_is_malformed(version: int, name: str, fits: bool, where: str) -> None:
    asked = {PartitionKey(name, 0): FetchPartition(0, 100)} if where == "topics" else {}
    forgotten = [PartitionKey(name, 0)] if where == "forgotten" and version >= 7 else []
    frame = write_request(header(version), FetchOptions(500, 1), 0, -1, asked, forgotten)[4:]

    if fits or not (asked or forgotten):
        read(frame)
    else:
        with pytest.raises(MalformedFrame, match="a topic's name of more than 249 bytes"):
            read(frame)


@pytest.mark.parametrize("version", [4, 12, 13])
def test_partitions_beyond_the_limit_are_refused_before_later_topics_are_read(version: int) -> None:
    topic = b"\1" * 16 if version >= 13 else b"\2a" if version >= 12 else b"\0\1a"
    count, end = (b"\4", b"\0") if version >= 12 else ((3).to_bytes(4), b"")
    section = topic + count + bytes(3 * request_layout(version).stride) + end
    sections = count + 2 * section + b"\xff" * 200
    asked = {PartitionKey("a" if version < 13 else TopicId(b"\1" * 16), 0): FetchPartition(0, 100)}
    whole = write_request(header(version), FetchOptions(500, 1), 0, -1, asked, ())[4:]
    front = whole[: whole.index(topic) - (1 if version >= 12 else 4)]

    with pytest.raises(LimitReached, match="a fetch of at least 6 partitions or topics, 5 are let through"):
        read_request(*read_request_header(front + sections), 5)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_lying_count_reserves_no_memory(version: int) -> None:
    frame = sample(version)
    tracemalloc.start()
    try:
        for at in range(8, len(frame)):
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                with contextlib.suppress(MalformedFrame):
                    read(frame[:at] + lie + frame[at + len(lie) :])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB
