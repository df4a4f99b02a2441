"""The compared samples, the requests to the broker, and the differences that count."""

import struct
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.cluster.topology import TopicInfo, Topology
from proxy.errors import MalformedFrame
from proxy.fetch import verify
from proxy.fetch.exchange import Exchange
from proxy.fetch.response_template import ResponseTemplate
from proxy.fetch.verify import Compared, Sample, compare, direct_fetch, samples
from proxy.wire.fetch import (
    FetchOptions,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
    read_request,
    request_layout,
    response_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader, read_request_header
from tests.relay.playbook import topology

ID = TopicId(bytes(15) + b"\7")
"""The id of topic ``t``."""


def requested(version: int, offsets: Mapping[int, int]) -> FetchRequest:
    topic: Topic = ID if version >= 13 else "t"
    asks = {
        PartitionKey(topic, partition): FetchPartition(offset, 1 << 20) for partition, offset in offsets.items()
    }
    frame = write_request(RequestHeader(1, version, 5, "c"), FetchOptions(500, 1), 0, -1, asks, ())
    return read(frame)


def read(frame: bytes) -> FetchRequest:
    return read_request(*read_request_header(memoryview(frame)[4:]))


def answered(request: FetchRequest, *replies: PartitionReply) -> list[bytes | memoryview]:
    """Return the response as the client got it."""
    template = ResponseTemplate(response_layout(request.version), committed=False)
    template.reshape(request_layout(request.version), request.sections, range(len(request.sections)))
    exchange = Exchange(request, 0.0)
    for reply in replies:
        exchange.add(request.sections[0].topic, reply)
    pieces = exchange.answer(template, lambda *_: None)
    return [piece for piece in pieces if isinstance(piece, bytes | memoryview)]


def brought(partition: int, records: bytes, **more: Any) -> PartitionReply:
    return PartitionReply(partition, 0, 100, 100, 0, None, -1, records)._replace(**more)


def batch_of_size(size: int, fill: bytes = b"x") -> bytes:
    """A record batch as far as its first two fields."""
    return struct.pack(">qi", 0, size - 12) + fill * (size - 12)


def sample(records: bytes = b"abcdef", *, offset: int = 10) -> Sample:
    return Sample(TopicInfo("t", ID), 0, offset, records, len(records))


def verdict(reply: PartitionReply | None, sampled: Sample | None = None, *, committed: bool = False) -> Compared:
    """Return the verdict on one sample and the broker's response about it."""
    topics = ((ID, (reply,)),) if reply is not None else ()
    response = FetchResponse(0, 0, 0, 0, topics, ())
    (compared,) = compare([sampled or sample()], 13, response, committed=committed)
    return compared


@pytest.mark.parametrize("version", range(4, 19))
def test_only_partitions_with_records_are_sampled(version: int) -> None:
    request = requested(version, {0: 10, 1: 20, 2: 30, 3: 40})
    pieces = answered(request, brought(1, b"one"), brought(2, b"", error=6), brought(3, b"three"))

    found = samples(request, pieces, topology())

    assert [(each.partition, each.offset, each.records, each.delivered_bytes) for each in found] == [
        (1, 20, b"one", 3),
        (3, 40, b"three", 5),
    ]
    assert {(each.topic.name, each.topic.topic_id) for each in found} == {("t", ID)}


def test_a_topic_that_is_not_known_any_more_is_not_compared() -> None:
    request = requested(11, {0: 10})

    assert samples(request, answered(request, brought(0, b"zero")), Topology()) == []


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        (batch_of_size(100), 100),
        (batch_of_size(65_536) + batch_of_size(50), 65_536),
        (batch_of_size(50) * 2_000, 65_536),
        (batch_of_size(90_000) + batch_of_size(50), 90_000),
        (batch_of_size(90_000)[:70_000], 70_000),
        (b"short", 5),
    ],
)
def test_sample_keeps_64_kib_or_whole_first_batch(records: bytes, kept: int) -> None:
    """Brokers bring no part of a batch but of an answer's first."""
    request = requested(11, {0: 10})

    (found,) = samples(request, answered(request, brought(0, records)), topology())

    assert (found.records, found.delivered_bytes) == (records[:kept], len(records))


def test_large_response_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    request = requested(11, {0: 10})
    pieces = answered(request, brought(0, b"zero"))
    monkeypatch.setattr(verify, "_LARGEST_ANSWER_BYTES", sum(map(len, pieces)) - 1)

    assert samples(request, pieces, topology()) == []


def test_incomplete_response_raises_malformed_frame() -> None:
    request = requested(11, {0: 10})
    pieces = answered(request, brought(0, b"zero"))

    with pytest.raises(MalformedFrame):
        samples(request, pieces[:1], topology())


@pytest.mark.parametrize(("version", "topic"), [(4, "t"), (12, "t"), (13, ID), (18, ID)])
def test_direct_fetch_requests_sampled_partitions_without_session_and_wait(version: int, topic: Topic) -> None:
    sampled = [sample(b"a" * 70, offset=10), Sample(TopicInfo("t", ID), 3, 20, b"b" * 30, 500)]

    request = read(direct_fetch(sampled, version, 9, "verifier", committed=True))

    layout = request_layout(version)
    entries = [
        layout.entry.unpack(section.entries[at : at + layout.stride])
        for section in request.sections
        for at in range(0, len(section.entries), layout.stride)
    ]
    asked = [
        (fields[0], layout.fetch_partition(fields).offset, layout.fetch_partition(fields).max_bytes)
        for fields in entries
    ]
    assert request.header == RequestHeader(1, version, 9, "verifier")
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.options == FetchOptions(0, 1, 100, 1)
    assert {section.topic for section in request.sections} == {topic}
    assert asked == [(0, 10, 70), (3, 20, 30)]


@pytest.mark.parametrize("direct", [b"abcdef", b"abc", b"abcdefghi"])
def test_records_are_equal_as_far_as_both_go(direct: bytes) -> None:
    compared = verdict(brought(0, direct))

    assert (compared.equal, compared.direct_bytes) == (True, len(direct))


@pytest.mark.parametrize("direct", [b"abcdeF", b"Abc", b"bcdef", b"abcdeXghi"])
def test_records_that_are_not_the_brokers_are_noticed(direct: bytes) -> None:
    compared = verdict(brought(0, direct))

    assert (compared.equal, compared.direct_bytes) == (False, len(direct))


@pytest.mark.parametrize(
    ("reply", "committed", "equal"),
    [
        (brought(0, b"", high_watermark=10), False, False),
        (brought(0, b"", high_watermark=11), False, None),
        (brought(0, b"", high_watermark=11, last_stable_offset=10), True, False),
        (brought(0, b"", high_watermark=11, last_stable_offset=11), True, None),
    ],
)
def test_records_where_the_broker_has_none_are_noticed(
    reply: PartitionReply, *, committed: bool, equal: bool | None
) -> None:
    """Below its end, a limit of the broker's own may have left it none to bring."""
    assert verdict(reply, committed=committed).equal is equal


@pytest.mark.parametrize(
    ("reply", "error"), [(None, 0), (brought(0, b"abcdef", error=6), 6), (brought(1, b"a"), 0)]
)
def test_broker_error_or_missing_partition_yields_no_verdict(reply: PartitionReply | None, error: int) -> None:
    compared = verdict(reply)

    assert (compared.equal, compared.error) == (None, error)
