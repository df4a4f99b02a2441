"""The partitions that a client wants, kept from fetch to fetch: always equal to a table made from scratch."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cluster.topology import BrokerId, Leader, TopicInfo, Topology
from proxy.errors import ErrorCode
from proxy.fetch.fetch_state import Change, FetchState, RequestContext, differing_entries, numbered
from proxy.wire.fetch import FetchPartition, PartitionKey, Topic, TopicSection, request_layout
from tests.fetch.requests import ORDERS, PAYMENTS, Asked, sections, topic_id
from tests.strategies import examples

ME, OTHER = BrokerId(1), BrokerId(2)
BY_NAME, BY_ID = (
    RequestContext(ME, by_id=False, may_read_followers=False),
    RequestContext(ME, by_id=True, may_read_followers=False),
)
FOLLOWER = RequestContext(ME, by_id=True, may_read_followers=True)
V12 = request_layout(12)
ID = topic_id(1)


def known(name: str, number: int, *leaders: int, error: int = 0, epoch: int = 5) -> TopicInfo:
    return TopicInfo(
        name, topic_id(number), error, {p: Leader(BrokerId(leader), epoch) for p, leader in enumerate(leaders)}
    )


def cluster(*infos: TopicInfo) -> Topology:
    by_name: dict[Topic, TopicInfo] = {info.name: info for info in infos if info.name is not None}
    return Topology(topics=by_name | {info.topic_id: info for info in infos if info.topic_id is not None})


def at(*partitions: int, offset: int = 0) -> dict[int, FetchPartition]:
    return {partition: FetchPartition(offset, 100) for partition in partitions}


def update(
    wanted: FetchState, asked: Asked, topology: Topology, context: RequestContext = BY_ID, version: int = 12
) -> Change:
    layout = request_layout(version)
    return wanted.update(layout, sections(layout, asked), topology, context)


# ------------------------------------------------------------------------------------ one request


@pytest.mark.parametrize(("context", "name"), [(BY_ID, ID), (BY_NAME, ORDERS)])
def test_partitions_are_requested_by_upstream_topic_key_with_known_leader_epoch(
    context: RequestContext, name: Topic
) -> None:
    wanted = FetchState()

    change = update(wanted, [(ORDERS, at(0, 1))], cluster(known(ORDERS, 1, ME, ME)), context)

    assert wanted.requested == {
        PartitionKey(name, 0): FetchPartition(0, 100, epoch=5),
        PartitionKey(name, 1): FetchPartition(0, 100, epoch=5),
    }
    assert set(change.touched) == set(wanted.requested)
    assert change.reshaped == {0}
    assert wanted.named == {name: ORDERS}
    assert (wanted.unreadable_errors, wanted.unknown) == ({}, set())


def test_the_clients_own_epoch_stays() -> None:
    wanted = FetchState()

    update(wanted, [(ORDERS, {0: FetchPartition(0, 100, epoch=3)})], cluster(known(ORDERS, 1, ME)))

    assert wanted.requested == {PartitionKey(ID, 0): FetchPartition(0, 100, epoch=3)}


def test_partition_with_other_leader_is_not_requested() -> None:
    wanted = FetchState()

    update(wanted, [(ORDERS, at(0, 1))], cluster(known(ORDERS, 1, ME, OTHER)))

    assert set(wanted.requested) == {PartitionKey(ID, 0)}
    assert wanted.unreadable_errors == {(ORDERS, 1): ErrorCode.not_leader_or_follower}
    assert wanted.unknown == {ORDERS}


def test_partition_with_other_leader_is_requested_without_epoch_for_client_with_rack() -> None:
    wanted = FetchState()

    update(wanted, [(ORDERS, at(0, 1))], cluster(known(ORDERS, 1, ME, OTHER)), FOLLOWER)

    assert wanted.requested == {
        PartitionKey(ID, 0): FetchPartition(0, 100, epoch=5),
        PartitionKey(ID, 1): FetchPartition(0, 100, epoch=-1),
    }


def test_unknown_partition_is_looked_up_and_not_requested_until_it_is_there() -> None:
    wanted = FetchState()

    update(wanted, [(ORDERS, at(0, 1))], cluster(known(ORDERS, 1, ME)))
    assert wanted.requested.keys() == {PartitionKey(ID, 0)}
    assert wanted.unreadable_errors == {(ORDERS, 1): ErrorCode.unknown_topic_or_partition}
    assert wanted.unknown == {ORDERS}

    update(wanted, [(ORDERS, at(0, 1))], cluster(known(ORDERS, 1, ME, ME)))
    assert wanted.requested.keys() == {PartitionKey(ID, 0), PartitionKey(ID, 1)}
    assert not wanted.unreadable_errors
    assert not wanted.unknown


@pytest.mark.parametrize(
    ("topology", "error"),
    [
        (cluster(), ErrorCode.not_leader_or_follower),
        (cluster(known(ORDERS, 1, error=ErrorCode.invalid_topic_exception)), ErrorCode.unknown_topic_or_partition),
        (cluster(known(ORDERS, 1, error=29)), ErrorCode.topic_authorization_failed),
        (cluster(TopicInfo(ORDERS, None)), ErrorCode.unknown_topic_or_partition),
    ],
    ids=["not known", "an impossible name", "not authorized", "without an id"],
)
def test_topic_that_cannot_be_requested_has_error(topology: Topology, error: int) -> None:
    wanted = FetchState()

    update(wanted, [(ORDERS, at(0, 1)), (PAYMENTS, {})], topology)

    assert wanted.requested == {}
    assert wanted.unreadable_errors == {(ORDERS, 0): error, (ORDERS, 1): error}
    assert wanted.unknown == {ORDERS}


# ----------------------------------------------------------------------------- one after the other


def test_the_same_again_touches_nothing() -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME, ME))
    update(wanted, [(ORDERS, at(0, 1))], topology)

    assert update(wanted, [(ORDERS, at(0, 1))], topology) == Change((), (), frozenset(), frozenset())


def test_changed_offset_touches_partition_without_reshaping_its_section() -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME, ME, ME))
    update(wanted, [(ORDERS, at(0, 1, 2))], topology)

    change = update(wanted, [(ORDERS, {**at(0, 1, 2), 1: FetchPartition(9, 100)})], topology)

    assert change == Change((PartitionKey(ID, 1),), (), frozenset(), frozenset())
    assert wanted.requested[PartitionKey(ID, 1)] == FetchPartition(9, 100, epoch=5)


def test_offset_that_returns_to_earlier_value_touches_partition() -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME))
    update(wanted, [(ORDERS, at(0, offset=0))], topology)
    update(wanted, [(ORDERS, at(0, offset=9))], topology)

    change = update(wanted, [(ORDERS, at(0, offset=0))], topology)

    assert change.touched == (PartitionKey(ID, 0),)
    assert wanted.requested == {PartitionKey(ID, 0): FetchPartition(0, 100, epoch=5)}


def test_a_topic_created_again_is_forgotten_under_its_old_id() -> None:
    wanted = FetchState()
    update(wanted, [(ORDERS, at(0))], cluster(known(ORDERS, 1, ME)))

    change = update(wanted, [(ORDERS, at(0))], cluster(known(ORDERS, 2, ME)))

    assert set(wanted.requested) == {PartitionKey(topic_id(2), 0)}
    assert set(change.touched) == {PartitionKey(ID, 0), PartitionKey(topic_id(2), 0)}


def test_replaced_topic_is_reported_even_if_none_of_it_was_requested() -> None:
    wanted = FetchState()
    update(wanted, [(ORDERS, at(0))], cluster(known(ORDERS, 1, ME + 1)))
    assert wanted.requested == {}

    change = update(wanted, [(ORDERS, at(0))], cluster(known(ORDERS, 2, ME)))

    assert change.recreated == ()
    assert change.replaced == {ORDERS}


def test_rotated_as_librdkafka_does_partitions_go_from_section_to_section() -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME, ME, ME), known(PAYMENTS, 2, ME))
    update(wanted, [(ORDERS, at(0, 1)), (PAYMENTS, at(0)), (ORDERS, at(2))], topology)
    asked: Asked = [(ORDERS, at(1)), (PAYMENTS, at(0)), (ORDERS, at(2, 0))]

    change = update(wanted, asked, topology)

    assert set(wanted.requested) == {
        PartitionKey(ID, 0),
        PartitionKey(ID, 1),
        PartitionKey(ID, 2),
        PartitionKey(topic_id(2), 0),
    }
    assert change.reshaped == {0, 2}


def test_partition_in_two_sections_is_still_requested_after_one_is_removed() -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME))
    update(wanted, [(ORDERS, at(0)), (ORDERS, at(0))], topology)

    update(wanted, [(ORDERS, at(0))], topology)

    assert set(wanted.requested) == {PartitionKey(ID, 0)}


def test_a_topic_not_known_stays_so_when_one_of_its_sections_goes() -> None:
    wanted = FetchState()
    update(wanted, [(ORDERS, at(0)), (ORDERS, at(1))], cluster())

    update(wanted, [(ORDERS, at(0))], cluster())

    assert wanted.unknown == {ORDERS}
    assert set(wanted.unreadable_errors) == {(ORDERS, 0)}


@pytest.mark.parametrize("other", [BY_NAME, FOLLOWER])
def test_changed_request_context_touches_old_and_new_keys(other: RequestContext) -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, ME))
    update(wanted, [(ORDERS, at(0))], topology)
    before = set(wanted.requested)

    change = update(wanted, [(ORDERS, at(0))], topology, other)

    assert set(change.touched) == before | set(wanted.requested)
    assert change.reshaped == {0}


# ---------------------------------------------------------------------------------- any sequence

_INFOS = [
    None,
    *(known(ORDERS, number, *leaders) for number in (1, 3) for leaders in [(1, 1, 1), (1, 2, 1), (2, 2, 2)]),
    known(ORDERS, 1, 1, 1, 1, epoch=6),
    known(ORDERS, 1, error=3),
    TopicInfo(ORDERS, None, 0, {0: Leader(ME, 1)}),
]
_topologies = st.tuples(st.sampled_from(_INFOS), st.sampled_from([None, known(PAYMENTS, 2, 1, 2, 1)])).map(
    lambda infos: cluster(*(info for info in infos if info is not None))
)
_asks = st.builds(
    FetchPartition, st.integers(0, 2), st.sampled_from([100, 200]), st.sampled_from([-1, 4]), st.just(-1)
)


@st.composite
def _requests(draw: st.DrawFn) -> list[tuple[str, dict[int, FetchPartition]]]:
    """Each partition once, its topic as often as it comes up: the way librdkafka lists them."""
    listed = draw(st.lists(st.tuples(st.sampled_from([ORDERS, PAYMENTS]), st.integers(0, 3)), unique=True))
    found: list[tuple[str, dict[int, FetchPartition]]] = []
    for topic, partition in listed:
        if not found or found[-1][0] != topic:
            found.append((topic, {}))
        found[-1][1][partition] = draw(_asks)
    return found


_moves = st.one_of(_requests(), st.sampled_from(["again", "rotated", "moved", "cut"]))


@examples(300)
@given(
    st.lists(
        st.tuples(
            _moves, st.one_of(st.none(), _topologies), st.sampled_from([BY_ID, BY_ID, BY_ID, BY_NAME, FOLLOWER])
        ),
        max_size=8,
    ),
    st.sampled_from([4, 9, 12]),
)
def test_updated_state_equals_state_built_from_scratch_after_any_requests(
    rounds: Sequence[tuple[list[tuple[str, dict[int, FetchPartition]]] | str, Topology | None, RequestContext]],
    version: int,
) -> None:
    wanted, topology = FetchState(), cluster(known(ORDERS, 1, 1, 1, 1), known(PAYMENTS, 2, 1, 2, 1))
    asked: list[tuple[str, dict[int, FetchPartition]]] = []
    for move, refreshed, context in rounds:
        topology = refreshed or topology
        match move:
            case "again":
                pass
            case "rotated":
                asked = [*asked[1:], *asked[:1]]
            case "moved":
                asked = [
                    (t, {p: ask._replace(offset=ask.offset + p % 2) for p, ask in ps.items()}) for t, ps in asked
                ]
            case "cut":
                asked = asked[:-1]
            case list():
                asked = move
        before = dict(wanted.requested)

        change = update(wanted, asked, topology, context, version)

        scratch = FetchState()
        update(scratch, asked, topology, context, version)
        assert wanted.requested == scratch.requested
        assert wanted.unreadable_errors == scratch.unreadable_errors
        assert wanted.unknown == scratch.unknown
        assert wanted.named.items() >= scratch.named.items()
        assert set(change.touched) >= {
            key for key in (*before, *wanted.requested) if before.get(key) != wanted.requested.get(key)
        }


def test_sections_are_numbered_by_earlier_sections_of_their_topic() -> None:
    listed = [TopicSection(topic, b"") for topic in ("a", "b", "a", "a", "b")]

    assert numbered(listed) == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]


# ------------------------------------------------------------------------------------- differences


@examples(100)
@given(
    st.integers(1, 40),
    st.integers(0, 600),
    st.data(),
    st.sampled_from([bytes, lambda entries: memoryview(entries)]),
)
def test_entries_that_differ_are_found_in_order(stride: int, count: int, data: st.DataObject, form: type) -> None:
    old = bytearray(range(256)) * (stride * count // 256 + 1)
    del old[stride * count :]
    new = bytearray(old)
    spots = data.draw(st.sets(st.integers(0, count - 1), max_size=6)) if count else set()
    for spot in spots:
        new[spot * stride + data.draw(st.integers(0, stride - 1))] ^= data.draw(st.integers(1, 255))

    assert differing_entries(form(bytes(old)), form(bytes(new)), stride) == sorted(spots)
