"""The compared samples, the requests to the broker, and the differences that count."""

import struct
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from proxy.cluster.topology import TopicInfo, Topology
from proxy.errors import MalformedFrame
from proxy.fetch import verify
from proxy.fetch.exchange import Exchange
from proxy.fetch.log import CachedLog
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
from tests.convert.logs import marker
from tests.old_clients import batch, fetch_frame
from tests.relay.playbook import topology

ID = TopicId(bytes(15) + b"\7")
"""The id of topic ``t``."""
Aborted = tuple[tuple[int, int], ...] | None
"""The aborted transactions of a response: (producer id, first offset)."""


def requested(version: int, offsets: Mapping[int, int], isolation: int = 0) -> FetchRequest:
    topic: Topic = ID if version >= 13 else "t"
    asks = {
        PartitionKey(topic, partition): FetchPartition(offset, 1 << 20) for partition, offset in offsets.items()
    }
    frame = write_request(
        RequestHeader(1, version, 5, "c"), FetchOptions(500, 1, isolation=isolation), 0, -1, asks, ()
    )
    return read(frame)


def read(frame: bytes) -> FetchRequest:
    return read_request(*read_request_header(memoryview(frame)[4:]))


def answered(request: FetchRequest, *replies: PartitionReply) -> list[bytes | memoryview]:
    """Return the response as the client got it."""
    template = ResponseTemplate(response_layout(request.version), committed=bool(request.options.isolation))
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


# ------------------------------------------------------------------------------- aborted transactions

RECORDS = tuple(batch(offset, b"value", producer_id=7) for offset in (10, 11, 12))
"""Batches of one record each, at offsets 10, 11 and 12."""
LISTED = ((7, 4), (8, 11))


@pytest.mark.parametrize(
    ("version", "isolation", "listed", "kept"),
    [
        (4, 1, LISTED, LISTED),
        (18, 1, LISTED, LISTED),
        (11, 1, (), ()),
        (11, 1, None, ()),
        (11, 0, None, None),
        (11, 0, LISTED, None),
    ],
)
def test_sample_keeps_aborted_transactions_of_read_committed_response(
    version: int, isolation: int, listed: Aborted, kept: Aborted
) -> None:
    """Consumers take no list for an empty one, and read no list under read_uncommitted."""
    request = requested(version, {0: 10}, isolation)

    (found,) = samples(request, answered(request, brought(0, b"records", aborted=listed)), topology())

    assert found.aborted == kept


def test_sample_of_version_without_isolation_level_has_no_aborted_transactions() -> None:
    """Sidefetch may read committed records for such a client, and filters them itself."""
    request = read(fetch_frame(3, {0: 10}))
    request = attrs.evolve(request, options=attrs.evolve(request.options, isolation=1))

    (found,) = samples(request, answered(request, brought(0, b"records")), topology())

    assert found.aborted is None


@pytest.mark.parametrize(
    ("listed", "brokers", "missing", "extra"),
    [
        (LISTED, LISTED, 0, 0),
        (LISTED[::-1], LISTED, 0, 0),
        ((), None, 0, 0),
        ((), LISTED, 2, 0),
        (LISTED[:1], LISTED, 1, 0),
        (LISTED, LISTED[1:], 0, 1),
        (LISTED, None, 0, 2),
        (((7, 4), (8, 10)), LISTED, 1, 1),
        ((*LISTED, (7, 4)), LISTED, 0, 1),
    ],
)
def test_list_of_aborted_transactions_must_be_that_of_the_broker(
    listed: tuple[tuple[int, int], ...], brokers: Aborted, missing: int, extra: int
) -> None:
    records = b"".join(RECORDS)
    sampled = attrs.evolve(sample(records), aborted=listed)

    compared = verdict(brought(0, records, aborted=brokers), sampled, committed=True)

    assert (compared.aborted_missing, compared.aborted_extra) == (missing, extra)
    assert compared.equal is (missing == extra == 0)


@pytest.mark.parametrize(("delivered", "direct"), [(2, 3), (3, 2), (2, 2)])
@pytest.mark.parametrize(("listed", "brokers"), [(LISTED, (*LISTED, (9, 12))), ((*LISTED, (9, 12)), LISTED)])
def test_aborted_transactions_behind_the_common_records_are_not_compared(
    delivered: int, direct: int, listed: Aborted, brokers: Aborted
) -> None:
    """The list of either side may go as far as its own records, and that of a broker somewhat further."""
    sampled = attrs.evolve(sample(b"".join(RECORDS[:delivered])), aborted=listed)

    compared = verdict(brought(0, b"".join(RECORDS[:direct]), aborted=brokers), sampled, committed=True)

    assert compared.equal is True


@pytest.mark.parametrize(("cut", "equal"), [(0, False), (1, True)])
def test_batch_that_is_cut_off_is_not_common(cut: int, *, equal: bool) -> None:
    records = b"".join(RECORDS)
    sampled = attrs.evolve(sample(records[: len(records) - cut]), aborted=())

    assert verdict(brought(0, records, aborted=((9, 12),)), sampled, committed=True).equal is equal


def test_aborted_transactions_are_not_compared_under_read_uncommitted() -> None:
    records = b"".join(RECORDS)

    compared = verdict(brought(0, records, aborted=LISTED), sample(records))

    assert (compared.equal, compared.aborted_missing, compared.aborted_extra) == (True, 0, 0)


def test_aborted_transactions_of_different_records_are_not_compared() -> None:
    sampled = attrs.evolve(sample(b"".join(RECORDS)), aborted=())

    compared = verdict(brought(0, batch(10, b"other"), aborted=LISTED), sampled, committed=True)

    assert (compared.equal, compared.aborted_missing, compared.aborted_extra) == (False, 0, 0)


@pytest.mark.parametrize("loses", [(7, 10), (7, 13)])
def test_transaction_missing_in_the_response_of_a_cached_log_is_noticed(loses: tuple[int, int]) -> None:
    """Two transactions of one producer: each of them is in the list for the records that it overlaps."""
    records = (
        RECORDS[0] + marker(11, 7, commits=False) + batch(13, b"v", producer_id=7) + marker(14, 7, commits=False)
    )
    brokers = ((7, 10), (7, 13))
    log = CachedLog(10)
    log.append(10, memoryview(records), brokers)
    whole = log.slice(10, 1 << 20, at_least_one=True)
    assert whole is not None
    broken = tuple(pair for pair in whole.aborted if pair != loses)

    def compared(aborted: tuple[tuple[int, int], ...]) -> Compared:
        sampled = attrs.evolve(sample(bytes(whole.records)), aborted=aborted)
        return verdict(brought(0, records, aborted=brokers), sampled, committed=True)

    assert compared(whole.aborted).equal is True
    assert (compared(broken).equal, compared(broken).aborted_missing) == (False, 1)
