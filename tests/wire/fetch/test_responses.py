"""Fetch answers of every version. kio is the second opinion from v4 on; older ones are written out by hand."""

import contextlib
import dataclasses
import struct
import tracemalloc
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from proxy.errors import MalformedFrame
from proxy.wire import messages
from proxy.wire.fetch import (
    Endpoint,
    FetchResponse,
    PartitionReply,
    ResponseLayout,
    TopicId,
    read_response,
    response_layout,
)
from proxy.wire.primitives import write_tags, write_uvarint
from tests.strategies import examples, responses
from tests.wire.entities import item_type, made
from tests.wire.fetch.oracle import KIO_VERSIONS, response_entity, response_type

FLEXIBLE = range(12, 19)
MIB = 1 << 20
ERRORS = st.sampled_from([int(code) for code in ErrorCode])


def written(version: int, response: FetchResponse) -> bytes:
    """Encode a response with ``ResponseLayout``, without its size."""
    layout = response_layout(version)
    parts: list[bytes | memoryview] = [
        layout.header(response.correlation_id, response.throttle_ms, response.error, len(response.topics))
    ]
    for topic, replies in response.topics:
        parts.append(layout.topic(topic, len(replies)))
        for each in replies:
            parts += written_partition(layout, each)
        parts.append(layout.topic_end)
    parts.append(layout.end(response.endpoints))
    return b"".join(parts)


def written_partition(layout: ResponseLayout, reply: PartitionReply) -> tuple[bytes | memoryview, ...]:
    head, tail = layout.partition(reply, len(reply.records))
    return head, reply.records, tail


def sample(version: int) -> bytes:
    """An answer with something in every field."""
    if version < 4:
        throttle = struct.pack(">i", 9) if version else b""
        partition = struct.pack(">ihqi", 3, 0, 50, 7) + b"records"
        return struct.pack(">i", 7) + throttle + struct.pack(">ih6si", 1, 6, b"orders", 1) + partition
    topic = TopicId(b"\1" * 16) if version >= 13 else "orders"
    full = PartitionReply(3, 6, 50, 40, 2, ((5, 6), (7, 8)), 2, b"records", (4, 5), (6, 7))
    empty = PartitionReply(4, 0, 50, 40, 2, None, -1, b"")
    response = FetchResponse(7, 9, 0, 0, ((topic, (full, empty)), (topic, ())), (Endpoint(1, "host", 2, "rack"),))
    return written(version, response)


# ---------------------------------------------------------------------------------------- against kio


@pytest.mark.parametrize("version", KIO_VERSIONS)
@examples(20)
@given(data=st.data())
def test_response_encoded_by_kio_is_decoded_equally(version: int, data: st.DataObject) -> None:
    response = data.draw(responses(version, ERRORS))
    frame = messages.response_frame(response.correlation_id, response_entity(version, response))[4:]

    assert read_response(version, frame) == response


@pytest.mark.parametrize("version", KIO_VERSIONS)
@examples(20)
@given(data=st.data())
def test_encoded_response_is_decoded_equally_by_kio(version: int, data: st.DataObject) -> None:
    response = attrs.evolve(data.draw(responses(version, ERRORS)), session_id=0)

    correlation_id, reported = messages.read_response(response_type(version), written(version, response))

    assert correlation_id == response.correlation_id
    assert reported == response_entity(version, response)


@pytest.mark.parametrize("version", KIO_VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("offsets", [(50, 40, 2), (-1, -1, -1), (2**63 - 1, 0, 1)])
def test_a_quiet_partition_is_one_without_error_and_records(
    version: int, committed: bool, offsets: tuple[int, int, int]
) -> None:
    layout = response_layout(version)
    rows = bytearray(3 * layout.stride)

    layout.pack_quiet(rows, 1, 7, offsets, committed=committed)

    quiet = PartitionReply(7, 0, *offsets, aborted=() if committed else None)
    assert bytes(rows[layout.stride : 2 * layout.stride]) == b"".join(written_partition(layout, quiet))
    assert not any(rows[: layout.stride] + rows[2 * layout.stride :])
    assert layout.quiet_offsets(rows, 1) == (offsets if version >= 5 else offsets[:2])


@pytest.mark.parametrize("version", KIO_VERSIONS)
def test_null_records_are_read_as_none(version: int) -> None:
    kind = response_type(version)
    topic_kind = item_type(kind, "responses")
    partition = made(item_type(topic_kind, "partitions"), records=None)
    named = {"topic_id": None} if version >= 13 else {"topic": "orders"}
    body = made(kind, responses=(topic_kind(partitions=(partition,), **named),))

    response = read_response(version, messages.response_frame(7, body)[4:])

    assert bytes(response.topics[0][1][0].records) == b""


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_snapshot_is_not_looked_at(version: int) -> None:
    response = read_response(version, sample(version))
    entity = response_entity(version, response)
    (first, second), snapshot = entity.responses, _snapshot(entity)
    marked = dataclasses.replace(first.partitions[0], snapshot_id=snapshot)
    changed = dataclasses.replace(first, partitions=(marked, *first.partitions[1:]))
    frame = messages.response_frame(7, dataclasses.replace(entity, responses=(changed, second)))[4:]

    assert frame != sample(version)
    assert read_response(version, frame) == response


def _snapshot(entity: Any) -> Any:
    return type(entity.responses[0].partitions[0].snapshot_id)(end_offset=3, epoch=4)


# ------------------------------------------------------------------------------------ without an oracle


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_response_in_v0_to_v3_is_decoded_as_in_protocol_guide(version: int) -> None:
    reply = PartitionReply(3, 0, 50, records=b"records")

    expected = FetchResponse(7, 9 if version else 0, 0, 0, (("orders", (reply,)),), ())
    assert read_response(version, sample(version)) == expected


@pytest.mark.parametrize("version", range(19))
def test_records_are_views_of_the_frame(version: int) -> None:
    frame = sample(version)

    records = read_response(version, memoryview(frame)).topics[0][1][0].records

    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"records"


def test_fields_absent_from_version_are_omitted() -> None:
    reply = PartitionReply(0, 0, 5, 4, 3, (), 2, b"", (1, 2), (3, 4))
    for version in KIO_VERSIONS:
        response = FetchResponse(7, 0, 0, 0, (), (Endpoint(1, "h", 2, None),))
        reported = read_response(
            version, written(version, attrs.evolve(response, topics=((topic(version), (reply,)),)))
        )
        (only,) = reported.topics[0][1]

        assert only.log_start_offset == (3 if version >= 5 else -1)
        assert only.preferred_read_replica == (2 if version >= 11 else -1)
        assert only.diverging_epoch == ((1, 2) if version >= 12 else None)
        assert only.current_leader == ((3, 4) if version >= 12 else None)
        assert reported.endpoints == (response.endpoints if version >= 16 else ())


def topic(version: int) -> str | TopicId:
    return TopicId(b"\1" * 16) if version >= 13 else "orders"


_UNKNOWN = st.lists(st.tuples(st.integers(100, 2**31 - 1), st.binary(max_size=200)), max_size=2)


@pytest.mark.parametrize("version", FLEXIBLE)
@examples(15)
@given(data=st.data())
def test_unknown_tagged_fields_are_skipped_in_every_struct(version: int, data: st.DataObject) -> None:
    def tags(*known: tuple[int, bytes]) -> bytes:
        return write_tags([*known, *data.draw(_UNKNOWN)])

    aborted = [struct.pack(">qq", n, n + 1) + tags() for n in range(data.draw(st.integers(0, 3)))]
    diverging, leader = struct.pack(">iq", 4, 5) + tags(), struct.pack(">ii", 6, 7) + tags()
    endpoint = struct.pack(">i", 1) + b"\5host" + struct.pack(">i", 2) + b"\5rack" + tags()
    name = topic(version)
    frame = b"".join(
        [
            struct.pack(">i", 7) + tags() + struct.pack(">ihi", 9, 0, 3),
            b"\2" + (name if isinstance(name, bytes) else b"\7orders") + b"\2",
            struct.pack(">ihqqq", 3, 0, 50, 40, 2),
            write_uvarint(len(aborted) + 1) + b"".join(aborted),
            struct.pack(">i", 2) + b"\x08records" + tags((0, diverging), (1, leader)),
            tags(),  # of the topic
            tags(*([(0, b"\2" + endpoint)] if version >= 16 else [])),
        ]
    )

    pairs = tuple((n, n + 1) for n in range(len(aborted)))
    reply = PartitionReply(3, 0, 50, 40, 2, pairs, 2, b"records", (4, 5), (6, 7))
    endpoints = (Endpoint(1, "host", 2, "rack"),) if version >= 16 else ()
    assert read_response(version, frame) == FetchResponse(7, 9, 0, 3, ((name, (reply,)),), endpoints)


# --------------------------------------------------------------------------------------- malformed ones


@pytest.mark.parametrize("version", range(19))
def test_truncated_response_is_malformed(version: int) -> None:
    frame = sample(version)
    read_response(version, frame)

    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            read_response(version, frame[:size])


@pytest.mark.parametrize("version", range(19))
def test_response_with_trailing_bytes_is_malformed(version: int) -> None:
    with pytest.raises(MalformedFrame, match="1 bytes too many"):
        read_response(version, sample(version) + b"\0")


@examples(300)
@given(st.sampled_from(range(19)), st.data())
def test_bytes_at_random_are_read_or_malformed_and_nothing_else(version: int, data: st.DataObject) -> None:
    frame = bytearray(sample(version))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    tail = data.draw(st.one_of(st.none(), st.binary(max_size=60)))
    if tail is not None:
        frame[data.draw(st.integers(0, len(frame))) :] = tail

    with contextlib.suppress(MalformedFrame):
        read_response(version, memoryview(bytes(frame)))


@pytest.mark.parametrize("version", range(19))
def test_a_lying_count_reserves_no_memory(version: int) -> None:
    frame = sample(version)
    tracemalloc.start()
    try:
        for at in range(4, len(frame)):
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                with contextlib.suppress(MalformedFrame):
                    read_response(version, frame[:at] + lie + frame[at + len(lie) :])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB
