"""The answer kept ready: every partition in the client's order, the last offsets, and the updates spliced in."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fetch.response_template import PartitionUpdate, ResponseTemplate
from proxy.wire import messages
from proxy.wire.fetch import FetchPartition, PartitionReply, Topic, read_response, request_layout, response_layout
from tests.fetch.requests import ORDERS, PAYMENTS, sections, topic_id
from tests.pieces import joined
from tests.strategies import examples
from tests.wire.fetch.oracle import KIO_VERSIONS, response_type

Shape = Sequence[tuple[Topic, Sequence[int]]]
UNKNOWN = (-1, -1, -1)


def template(version: int, shape: Shape, *, committed: bool = False) -> ResponseTemplate:
    made = ResponseTemplate(response_layout(version), committed=committed)
    reshape(made, version, shape, range(len(shape)))
    return made


def reshape(made: ResponseTemplate, version: int, shape: Shape, reshaped: Sequence[int]) -> None:
    layout = request_layout(version)
    asked = [(topic, dict.fromkeys(partitions, FetchPartition(0, 100))) for topic, partitions in shape]
    made.reshape(layout, sections(layout, asked), reshaped)


def framed(made: ResponseTemplate, version: int, updates: Mapping[Topic, list[PartitionReply]]) -> bytes:
    layout = response_layout(version)
    spliced = {
        topic: [PartitionUpdate(each, each.records) for each in replies] for topic, replies in updates.items()
    }
    return joined([layout.header(7, 0, 0, made.sections), *made.answer(spliced), layout.end(())])


def decoded(
    made: ResponseTemplate, version: int, updates: Mapping[Topic, list[PartitionReply]] | None = None
) -> Any:
    """The answer's topics; kio must be able to read them too."""
    frame = framed(made, version, updates or {})
    messages.read_response(response_type(version), frame)
    return read_response(version, frame).topics


def quiet(
    version: int, partition: int, offsets: tuple[int, int, int], *, committed: bool = False
) -> PartitionReply:
    high, stable, start = offsets
    return PartitionReply(partition, 0, high, stable, start if version >= 5 else -1, () if committed else None)


def names(version: int) -> tuple[Topic, Topic]:
    return (topic_id(1), topic_id(2)) if version >= 13 else (ORDERS, PAYMENTS)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("version", KIO_VERSIONS)
def test_every_partition_is_there_in_order_with_its_last_offsets(version: int, committed: bool) -> None:
    orders, payments = names(version)
    made = template(version, [(orders, [3, 0]), (payments, [1]), (orders, [2])], committed=committed)

    made.learn(orders, 0, (50, 40, 30))
    made.learn(orders, 2, (51, 41, 31))
    made.learn(orders, 0, (52, 42, 32))

    def row(partition: int, offsets: tuple[int, int, int]) -> PartitionReply:
        return quiet(version, partition, offsets, committed=committed)

    assert decoded(made, version) == (
        (orders, (row(3, UNKNOWN), row(0, (52, 42, 32)))),
        (payments, (row(1, UNKNOWN),)),
        (orders, (row(2, (51, 41, 31)),)),
    )


@pytest.mark.parametrize("version", KIO_VERSIONS)
def test_updates_are_spliced_into_one_response_only(version: int) -> None:
    orders, payments = names(version)
    made = template(version, [(orders, [0, 1, 2]), (payments, [1])])
    updates = {orders: [PartitionReply(2, 6, -1), PartitionReply(1, 0, 9, 9, -1, None, -1, b"records")]}

    assert [each.partition for each in decoded(made, version, updates)[0][1]] == [0, 1, 2]
    assert decoded(made, version, updates)[0][1][1:] == (updates[orders][1], updates[orders][0])
    assert decoded(made, version)[0][1] == tuple(quiet(version, partition, UNKNOWN) for partition in range(3))


def test_records_are_handed_on_as_the_very_same_views() -> None:
    records = [memoryview(b"one"), memoryview(b"two")]
    made = template(12, [(ORDERS, range(5))])

    pieces = made.answer(
        {ORDERS: [PartitionUpdate(PartitionReply(p, 0, 1), view) for p, view in zip((3, 1), records, strict=True)]}
    )

    assert [piece for piece in pieces if any(piece is view for view in records)] == [records[1], records[0]]
    assert len(pieces) == 5


def test_built_response_is_unchanged_by_later_offsets() -> None:
    made = template(12, [(ORDERS, [0])])
    pieces = made.answer({})
    before = joined(pieces)

    made.learn(ORDERS, 0, (50, 40, 30))

    assert joined(pieces) == before != joined(made.answer({}))


def test_updates_of_unrequested_partitions_are_omitted() -> None:
    made = template(12, [(ORDERS, [0])])

    made.learn(ORDERS, 9, (1, 1, 0))
    made.learn(PAYMENTS, 0, (1, 1, 0))

    updates: dict[Topic, list[PartitionReply]] = {
        ORDERS: [PartitionReply(9, 0, 1)],
        PAYMENTS: [PartitionReply(0, 0, 1)],
    }
    assert decoded(made, 12, updates) == decoded(made, 12) == ((ORDERS, (quiet(12, 0, UNKNOWN),)),)


def test_unsent_large_response_is_unchanged_by_later_offsets() -> None:
    made = template(11, [(ORDERS, range(1000))])
    made.learn(ORDERS, 7, (50, 50, 0))
    pieces = made.answer({})
    before = joined(pieces)

    made.learn(ORDERS, 7, (51, 51, 0))

    assert joined(pieces) == before
    assert joined(made.answer({})) != before


def test_unchanged_partitions_of_large_response_are_not_copied() -> None:
    made = template(11, [(ORDERS, range(1000)), (PAYMENTS, range(1000))])
    updates = [PartitionUpdate(PartitionReply(7, 0, 50, records=b"records"), b"records")]

    idle, busy = made.answer({}), made.answer({PAYMENTS: updates})

    assert sum(len(piece) for piece in idle if not isinstance(piece, memoryview)) == 0
    assert sum(len(piece) for piece in busy if not isinstance(piece, memoryview)) < 1000


def test_reshaped_known_offsets_are_kept_wherever_the_partition_goes() -> None:
    made = template(12, [(ORDERS, [0, 1]), (PAYMENTS, [0])])
    for partition in (0, 1):
        made.learn(ORDERS, partition, (50 + partition, 40, 30))

    reshape(made, 12, [(PAYMENTS, [0]), (ORDERS, [1]), (ORDERS, [2, 0])], [1, 2])

    assert decoded(made, 12) == (
        (PAYMENTS, (quiet(12, 0, UNKNOWN),)),
        (ORDERS, (quiet(12, 1, (51, 40, 30)),)),
        (ORDERS, (quiet(12, 2, UNKNOWN), quiet(12, 0, (50, 40, 30)))),
    )


def test_offsets_of_a_partition_that_went_are_not_kept() -> None:
    made = template(12, [(ORDERS, [0])])
    made.learn(ORDERS, 0, (50, 40, 30))

    reshape(made, 12, [(PAYMENTS, [0])], [0])
    reshape(made, 12, [(ORDERS, [0])], [0])

    assert decoded(made, 12) == ((ORDERS, (quiet(12, 0, UNKNOWN),)),)


def test_it_suits_one_version_and_isolation() -> None:
    made = template(12, [], committed=True)

    assert made.is_for(12, committed=True)
    assert not made.is_for(12, committed=False)
    assert not made.is_for(11, committed=True)


@st.composite
def shapes(draw: st.DrawFn, topics: tuple[Topic, Topic]) -> list[tuple[Topic, list[int]]]:
    listed = draw(st.lists(st.tuples(st.sampled_from(topics), st.integers(0, 4)), unique=True, max_size=8))
    found: list[tuple[Topic, list[int]]] = []
    for topic, partition in listed:
        if not found or found[-1][0] != topic or draw(st.booleans()):
            found.append((topic, []))
        found[-1][1].append(partition)
    return found


@pytest.mark.parametrize("version", KIO_VERSIONS)
@examples(15)
@given(data=st.data())
def test_response_has_latest_offsets_and_updates_after_any_reshape(version: int, data: st.DataObject) -> None:
    topics = names(version)
    committed = data.draw(st.booleans())
    made = ResponseTemplate(response_layout(version), committed=committed)
    known: dict[tuple[Topic, int], tuple[int, int, int]] = {}
    offsets = st.tuples(*[st.integers(0, 2**63 - 1)] * 3)
    for _ in range(data.draw(st.integers(1, 4))):
        shape = data.draw(shapes(topics))
        reshape(made, version, shape, range(len(shape)))
        rows = [(topic, partition) for topic, partitions in shape for partition in partitions]
        known = {row: known[row] for row in rows if row in known}
        if not rows:
            continue
        for topic, partition in data.draw(st.lists(st.sampled_from(rows), max_size=4)):
            known[topic, partition] = data.draw(offsets)
            made.learn(topic, partition, known[topic, partition])
        updates = {
            row: PartitionReply(
                row[1], data.draw(st.sampled_from([0, 6])), 1, 1, -1, None, -1, data.draw(st.binary())
            )
            for row in data.draw(st.sets(st.sampled_from(rows), max_size=3))
        }
        by_topic: dict[Topic, list[PartitionReply]] = {}
        for (topic, _), reply in updates.items():
            by_topic.setdefault(topic, []).append(reply)

        assert [
            ((topic, each.partition), each)
            for topic, replies in decoded(made, version, by_topic)
            for each in replies
        ] == [
            (row, updates.get(row) or quiet(version, row[1], known.get(row, UNKNOWN), committed=committed))
            for row in rows
        ]
