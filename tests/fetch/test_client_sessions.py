"""The broker's half of KIP-227 for clients, over bytes: each scenario of Kafka's own suites that applies."""

import attrs
import pytest

from proxy.errors import ErrorCode
from proxy.events import SessionRecord
from proxy.fetch.client_sessions import Incremental, NewSession, Refused, Sessionless
from proxy.fetch.exchange import Exchange
from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from proxy.session.slots import EVICTION_S
from proxy.wire.fetch import FetchOptions, FetchPartition, FetchResponse, PartitionKey, PartitionReply
from tests.fetch.desk import Desk, fetch_of, read, wanted_of
from tests.fetch.requests import topic_id

A0, A1, B0 = PartitionKey("a", 0), PartitionKey("a", 1), PartitionKey("b", 0)
VERSIONS_WITH_NAMES = pytest.mark.parametrize("version", [7, 8, 9, 10, 11, 12])
EVERY_VERSION = pytest.mark.parametrize("version", range(7, 19))
FULL = pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])


def asks(*keys: PartitionKey, offset: int = 10) -> dict[PartitionKey, FetchPartition]:
    return {key: FetchPartition(offset, max_bytes=1000) for key in keys}


def keys_of(version: int) -> tuple[PartitionKey, PartitionKey, PartitionKey]:
    first, second = (topic_id(1), topic_id(2)) if version >= 13 else ("a", "b")
    return PartitionKey(first, 0), PartitionKey(first, 1), PartitionKey(second, 0)


def create(desk: Desk, *keys: PartitionKey) -> int:
    return desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(*keys), now_s=0.0)).session_id


def partitions_in(response: FetchResponse) -> list[PartitionKey]:
    assert response.error == ErrorCode.none
    return [PartitionKey(topic, each.partition) for topic, replies in response.topics for each in replies]


def outcome(response: FetchResponse) -> tuple[int, int, list[PartitionKey]]:
    keys = [PartitionKey(topic, each.partition) for topic, replies in response.topics for each in replies]
    return response.error, response.session_id, keys


# contexts


@EVERY_VERSION
def test_epochs_go_one_two_three(version: int) -> None:
    desk = Desk(version)
    a0, a1, b0 = keys_of(version)
    context = desk.open(NO_SESSION, INITIAL_EPOCH, asks(b0, a0, a1))
    assert isinstance(context, NewSession)
    assert outcome(desk.answer(context)) == (0, 100, [b0, a0, a1])

    for epoch in (1, 2, 3):
        context = desk.open(100, epoch)
        assert isinstance(context, Incremental)
        assert wanted_of(context) == asks(b0, a0, a1)
        assert outcome(desk.answer(context)) == (0, 100, [])


def test_full_without_a_session_is_served_whole_and_remembered_nowhere() -> None:
    desk = Desk()

    context = desk.open(NO_SESSION, FINAL_EPOCH, asks(B0, A0))

    assert isinstance(context, Sessionless)
    assert not isinstance(context, NewSession)
    assert outcome(desk.answer(context)) == (0, NO_SESSION, [B0, A0])
    assert len(desk.sessions) == 0


def test_the_epoch_after_the_last_is_one() -> None:
    desk = Desk()
    session_id = create(desk, A0)
    session = desk.sessions._slots.get(session_id)  # type: ignore[arg-type]
    assert session is not None
    session.epoch = 2**31 - 1

    assert partitions_in(desk.answer(desk.open(session_id, 2**31 - 1))) == []
    assert partitions_in(desk.answer(desk.open(session_id, 1))) == []


def test_unknown_session_id_returns_error_70() -> None:
    desk = Desk()

    context = desk.open(7, 1, asks(A0))

    assert isinstance(context, Refused)
    assert outcome(desk.answer(context)) == outcome(desk.empty(context))
    assert outcome(desk.empty(context)) == (ErrorCode.fetch_session_id_not_found, NO_SESSION, [])


def test_a_session_is_found_at_its_own_brokers_listener_only() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    desk.node_id = 2
    refused = desk.open(session_id, 1)
    desk.open(session_id, FINAL_EPOCH)
    desk.node_id = 1

    assert outcome(desk.answer(refused)) == (ErrorCode.fetch_session_id_not_found, NO_SESSION, [])
    assert partitions_in(desk.answer(desk.open(session_id, 1))) == []


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1])
def test_wrong_session_epoch_returns_error_71_and_changes_nothing(epoch: int) -> None:
    desk = Desk()
    session_id = create(desk, A0)

    refused = desk.open(session_id, epoch, asks(B0))

    assert outcome(desk.answer(refused)) == (ErrorCode.invalid_fetch_session_epoch, NO_SESSION, [])
    assert list(wanted_of(desk.open(session_id, 1))) == [A0]


@FULL
def test_unknown_id_with_a_full_epoch_is_a_normal_full(epoch: int) -> None:
    desk = Desk()

    assert partitions_in(desk.answer(desk.open(7, epoch, asks(A0)))) == [A0]


def test_close_and_new_replaces_the_session() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    response = desk.answer(desk.open(session_id, INITIAL_EPOCH, asks(B0)))

    assert outcome(response) == (0, session_id + 1, [B0])
    assert desk.answer(desk.open(session_id, 1)).error == ErrorCode.fetch_session_id_not_found
    assert len(desk.sessions) == 1


def test_close_leaves_no_session() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    assert outcome(desk.answer(desk.open(session_id, FINAL_EPOCH))) == (0, NO_SESSION, [])
    assert len(desk.sessions) == 0


def test_forgetting_everything_ends_the_session() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1)

    assert outcome(desk.answer(desk.open(session_id, 1, forgotten=(A0, A1)))) == (0, NO_SESSION, [])
    assert len(desk.sessions) == 0


def test_a_fetch_of_nothing_gets_no_session() -> None:
    desk = Desk()

    assert outcome(desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH))) == (0, NO_SESSION, [])


@pytest.mark.parametrize("slots", [0, 1])
def test_refused_session_gets_full_response_with_session_id_0(slots: int) -> None:
    desk = Desk(slots=slots)
    create(desk, A0)

    assert outcome(desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(B0)))) == (0, NO_SESSION, [B0])
    assert len(desk.sessions) == slots


def test_waiting_fetch_of_evicted_session_completes_and_next_fetch_returns_error_70() -> None:
    desk = Desk(slots=1)
    session_id = create(desk, A0)
    waiting = desk.open(session_id, 1)

    desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(B0), now_s=EVICTION_S + 2))

    assert desk.sessions.evictions == 1
    assert outcome(desk.answer(waiting)) == (0, session_id, [])
    assert desk.answer(desk.open(session_id, 2)).error == ErrorCode.fetch_session_id_not_found


def test_a_session_that_is_used_is_not_evicted() -> None:
    desk = Desk(slots=1)
    session_id = create(desk, A0)
    desk.answer(desk.open(session_id, 1, now_s=EVICTION_S))

    desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(B0), now_s=EVICTION_S + 2))

    assert (desk.sessions.evictions, desk.sessions.refusals) == (0, 1)
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == []


# the contents of a session


@EVERY_VERSION
def test_adding_and_forgetting_in_one_request_changes_session_partitions(version: int) -> None:
    desk = Desk(version)
    a0, a1, b0 = keys_of(version)
    session_id = create(desk, a0, a1)

    context = desk.open(session_id, 1, asks(b0), forgotten=(a0,))

    assert list(wanted_of(context)) == [a1, b0]
    assert partitions_in(desk.answer(context)) == [b0]
    assert desk.sessions.partitions == 2


def test_partitions_added_to_a_topic_come_behind_those_it_has() -> None:
    desk = Desk()
    session_id = create(desk, A1)

    context = desk.open(session_id, 1, asks(A0, A1, offset=12))

    assert list(wanted_of(context).items()) == [(A1, FetchPartition(12, 1000)), (A0, FetchPartition(12, 1000))]
    assert partitions_in(desk.answer(context)) == [A0]


def test_a_partition_both_named_and_forgotten_is_gone() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1)

    assert list(wanted_of(desk.open(session_id, 1, asks(A0), forgotten=(A0,)))) == [A1]


def test_forgetting_partition_outside_session_is_ignored() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    assert list(wanted_of(desk.open(session_id, 1, forgotten=(A1, B0)))) == [A0]
    assert desk.sessions.partitions == 1


def test_forgotten_partition_is_reported_again_when_re_added() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1)
    desk.answer(desk.open(session_id, 1, forgotten=(A0,)))

    assert partitions_in(desk.answer(desk.open(session_id, 2, asks(A0)))) == [A0]


@EVERY_VERSION
def test_update_replaces_session_partition_in_place_without_reporting_it(version: int) -> None:
    desk = Desk(version)
    a0, a1, _ = keys_of(version)
    session_id = create(desk, a0, a1)
    changed = FetchPartition(20, 5, 3 if version >= 9 else -1, 2 if version >= 12 else -1)

    context = desk.open(session_id, 1, {a0: changed})

    assert list(wanted_of(context).items()) == [(a0, changed), (a1, FetchPartition(10, 1000))]
    assert partitions_in(desk.answer(context)) == []
    assert wanted_of(desk.open(session_id, 2))[a0] == changed


def test_duplicate_partition_in_full_fetch_is_reported_twice_and_stored_once() -> None:
    desk = Desk()
    twice = fetch_of(
        12,
        NO_SESSION,
        INITIAL_EPOCH,
        {A0: FetchPartition(1, 1), B0: FetchPartition(1, 1), A1: FetchPartition(1, 1)},
    )
    twice = attrs.evolve(twice, sections=(*twice.sections, twice.sections[0]))

    response = desk.answer(desk.sessions.open(twice, 1, 0.0))

    assert partitions_in(response) == [A0, B0, A1, A0]
    context = desk.open(response.session_id, 1)
    assert list(wanted_of(context)) == [A0, A1, B0]
    assert set(partitions_in(desk.answer(context))) <= {A0, A1, B0}
    assert partitions_in(desk.answer(desk.open(response.session_id, 2))) == []


def test_a_session_by_name_refuses_ids_and_stays() -> None:
    desk = Desk(12)
    session_id = create(desk, A0)

    desk.version = 13
    assert outcome(desk.answer(desk.open(session_id, 1))) == (ErrorCode.fetch_session_topic_id_error, 0, [])
    desk.version = 12
    assert partitions_in(desk.answer(desk.open(session_id, 1))) == []


def test_a_session_by_id_refuses_names_and_stays() -> None:
    desk = Desk(13)
    session_id = create(desk, PartitionKey(topic_id(1), 0))

    desk.version = 12
    assert outcome(desk.answer(desk.open(session_id, 1))) == (ErrorCode.fetch_session_topic_id_error, 0, [])
    desk.version = 13
    assert partitions_in(desk.answer(desk.open(session_id, 1))) == []


def test_the_epoch_is_checked_before_ids_against_names() -> None:
    desk = Desk(12)
    session_id = create(desk, A0)

    desk.version = 13
    assert desk.answer(desk.open(session_id, 5)).error == ErrorCode.invalid_fetch_session_epoch


def test_a_recreated_topic_is_another_partition_of_the_session() -> None:
    desk = Desk(13)
    old, new = PartitionKey(topic_id(1), 0), PartitionKey(topic_id(2), 0)
    session_id = create(desk, old)

    context = desk.open(session_id, 1, asks(new), forgotten=(old,))

    assert list(wanted_of(context)) == [new]


@VERSIONS_WITH_NAMES
@pytest.mark.parametrize("other", [7, 9, 11, 12])
def test_a_session_outlives_a_change_of_version(version: int, other: int) -> None:
    desk = Desk(version)
    session_id = create(desk, A0, A1, B0)

    desk.version = other
    context = desk.open(session_id, 1, asks(A1, offset=20))

    assert wanted_of(context) == asks(A0, A1, B0) | asks(A1, offset=20)
    desk.offsets[B0] = (11, 11, 0)
    assert partitions_in(desk.answer(context)) == [B0]
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == []


# the contents of an incremental response

RECONNECTS = pytest.mark.parametrize("reconnects", [False, True], ids=["one connection", "two connections"])


@EVERY_VERSION
@RECONNECTS
@pytest.mark.parametrize("offsets", [(11, 10, 0), (10, 10, 1), (9, 9, 0)], ids=["higher", "log start", "lower"])
def test_offset_change_is_reported_once(version: int, reconnects: bool, offsets: tuple[int, int, int]) -> None:
    desk = Desk(version)
    a0, a1, b0 = keys_of(version)
    session_id = create(desk, a0, a1, b0)
    if reconnects:
        desk.reconnect()

    desk.offsets[a1] = offsets
    response = desk.answer(desk.open(session_id, 1))

    assert partitions_in(response) == [a1]
    reply = response.topics[0][1][0]
    assert (reply.high_watermark, reply.last_stable_offset, reply.log_start_offset) == offsets
    if reconnects:
        desk.reconnect()
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == []


@RECONNECTS
def test_change_of_last_stable_offset_alone_is_not_reported(reconnects: bool) -> None:
    desk = Desk()
    session_id = create(desk, A0)
    if reconnects:
        desk.reconnect()

    desk.offsets[A0] = (10, 9, 0)

    assert partitions_in(desk.answer(desk.open(session_id, 1))) == []


def test_change_of_isolation_level_alone_is_not_reported() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1)
    desk.offsets[A1] = (11, 11, 0)
    request = fetch_of(12, session_id, 1, {}, options=FetchOptions(500, 1, isolation=1))

    assert partitions_in(desk.answer(desk.sessions.open(request, 1, 0.0))) == [A1]


@EVERY_VERSION
@pytest.mark.parametrize(
    "reply",
    [
        PartitionReply(0, 0, 10, 10, 0, records=b"records"),
        PartitionReply(0, 0, 10, 10, 0, preferred_read_replica=2),
        PartitionReply(0, 0, 10, 10, 0, diverging_epoch=(1, 2)),
    ],
    ids=["records", "preferred replica", "diverging epoch"],
)
def test_records_replica_and_diverging_epoch_are_always_reported(version: int, reply: PartitionReply) -> None:
    desk = Desk(version)
    a0, a1, b0 = keys_of(version)
    session_id = create(desk, a0, a1, b0)

    for epoch in (1, 2, 3):
        response = desk.answer(desk.open(session_id, epoch), (a1.topic, reply._replace(partition=1)))
        assert partitions_in(response) == [a1]
        assert response.topics[0][1][0].records == reply.records
    assert partitions_in(desk.answer(desk.open(session_id, 4))) == []


def test_records_and_offset_changes_of_one_topic_share_one_response() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1, B0)
    desk.offsets |= {A0: (11, 11, 0), B0: (12, 12, 0)}

    response = desk.answer(desk.open(session_id, 1), ("a", PartitionReply(1, 0, 30, records=b"records")))

    assert partitions_in(response) == [A0, A1, B0]
    assert [each.records for _, replies in response.topics for each in replies] == [b"", b"records", b""]


def test_offsets_sent_with_records_count_as_reported_and_later_ones_do_not() -> None:
    desk = Desk()
    session_id = create(desk, A0)
    desk.offsets[A0] = (14, 14, 0)
    older = PartitionReply(0, 0, 12, 12, 0, records=b"records")

    assert partitions_in(desk.answer(desk.open(session_id, 1), ("a", older))) == [A0]
    response = desk.answer(desk.open(session_id, 2))
    assert response.topics[0][1][0].high_watermark == 14
    assert partitions_in(desk.answer(desk.open(session_id, 3))) == []


@RECONNECTS
def test_error_is_repeated_and_recovery_is_reported_once_despite_same_offsets(reconnects: bool) -> None:
    desk = Desk()
    session_id = create(desk, A0, A1)
    broken = ("a", PartitionReply(0, ErrorCode.not_leader_or_follower, -1))

    for epoch in (1, 2):
        assert partitions_in(desk.answer(desk.open(session_id, epoch), broken)) == [A0]
    if reconnects:
        desk.reconnect()
    assert partitions_in(desk.answer(desk.open(session_id, 3))) == [A0]
    assert partitions_in(desk.answer(desk.open(session_id, 4))) == []


def test_an_error_that_carries_the_high_watermark_does_not_silence_the_recovery() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    assert partitions_in(desk.answer(desk.open(session_id, 1), ("a", PartitionReply(0, 1, 10, 10, 0)))) == [A0]
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == [A0]


def test_recovery_is_reported_after_error_in_first_response() -> None:
    desk = Desk()
    context = desk.open(NO_SESSION, INITIAL_EPOCH, asks(A0, A1))
    session_id = desk.answer(context, ("a", PartitionReply(0, 3, -1))).session_id

    assert partitions_in(desk.answer(desk.open(session_id, 1))) == [A0]


def test_unknown_offsets_are_not_reported_until_known() -> None:
    desk = Desk(offsets={A0: (-1, -1, -1)})
    session_id = create(desk, A0)

    assert partitions_in(desk.answer(desk.open(session_id, 1, asks(A1)))) == [A1]
    desk.offsets[A0] = (5, 5, 0)
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == [A0]


def test_error_of_whole_fetch_is_reported_for_all_session_partitions() -> None:
    desk = Desk()
    session_id = create(desk, A0, B0)
    context = desk.open(session_id, 1)

    exchange = Exchange(context.request, 0.0, context=context)
    response = read(12, exchange.unreadable(exchange.encode_errors(ErrorCode.not_leader_or_follower)))

    assert outcome(response) == (0, session_id, [A0, B0])
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == [A0, B0]


def test_a_broker_that_refuses_everything_leaves_the_session_alone() -> None:
    desk = Desk()
    session_id = create(desk, A0, B0)
    context = desk.open(session_id, 1)

    refused = read(12, Exchange(context.request, 0.0, context=context).refusal(ErrorCode.unsupported_version))

    assert outcome(refused) == (ErrorCode.unsupported_version, session_id, [])
    assert partitions_in(desk.answer(desk.open(session_id, 2))) == []


# races and throttling


def test_superseded_fetch_returns_error_71_and_marks_nothing_as_reported() -> None:
    desk = Desk()
    session_id = create(desk, A0)
    waiting = desk.open(session_id, 1)
    overtaking = desk.open(session_id, 2)
    desk.offsets[A0] = (11, 11, 0)

    assert outcome(desk.answer(waiting)) == outcome(desk.empty(waiting))
    assert outcome(desk.empty(waiting)) == (ErrorCode.invalid_fetch_session_epoch, session_id, [])
    assert outcome(desk.answer(overtaking)) == (0, session_id, [A0])


def test_a_doubled_request_is_refused_while_the_first_waits_and_after_it() -> None:
    desk = Desk()
    session_id = create(desk, A0)
    waiting = desk.open(session_id, 1)

    assert desk.answer(desk.open(session_id, 1)).error == ErrorCode.invalid_fetch_session_epoch
    assert partitions_in(desk.answer(waiting)) == []
    assert desk.answer(desk.open(session_id, 1)).error == ErrorCode.invalid_fetch_session_epoch


def test_throttled_incremental_fetch_keeps_deltas_and_reported_state() -> None:
    desk = Desk()
    session_id = create(desk, A0)

    throttled = desk.empty(desk.open(session_id, 1, asks(B0)))

    assert outcome(throttled) == (0, session_id, [])
    context = desk.open(session_id, 2)
    assert list(wanted_of(context)) == [A0, B0]
    assert partitions_in(desk.answer(context)) == [B0]


@FULL
def test_throttling_a_full_fetch_grants_no_session(epoch: int) -> None:
    desk = Desk()

    assert outcome(desk.empty(desk.open(NO_SESSION, epoch, asks(A0)))) == (0, NO_SESSION, [])
    assert len(desk.sessions) == 0


# bytes and traces


def test_an_idle_fetch_is_the_same_bytes_as_the_last_and_is_not_compared() -> None:
    desk = Desk()
    session_id = create(desk, A0, B0)
    desk.answer(desk.open(session_id, 1))

    sections = desk.open(session_id, 2).request.sections

    assert desk.open(session_id, 3).request.sections is sections
    moved = desk.open(session_id, 4, asks(A0, offset=11)).request.sections
    assert moved[0].entries is not sections[0].entries
    assert moved[1].entries is sections[1].entries


def test_session_lifecycle_is_recorded() -> None:
    desk = Desk(slots=1)
    first = create(desk, A0, A1)
    create(desk, B0)
    desk.open(first, INITIAL_EPOCH, asks(A0))
    second = create(desk, B0)
    desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(A0), now_s=EVICTION_S + 1))

    assert desk.sessions.take_records() == [
        SessionRecord(1, first, "created", 2, "client"),
        SessionRecord(1, NO_SESSION, "refused", 1, "client"),
        SessionRecord(1, first, "closed", 2, "client"),
        SessionRecord(1, second, "created", 1, "client"),
        SessionRecord(1, second, "evicted", 1, "client", created_s=0.0, used_s=0.0),
        SessionRecord(1, second + 1, "created", 1, "client"),
    ]
    assert desk.sessions.take_records() == []


def test_session_lifecycle_is_recorded_once_for_several_principals() -> None:
    desk = Desk(slots=1)
    everybody, alice, bob = desk.sessions, desk.sessions.of("alice"), desk.sessions.of("bob")
    desk.sessions = alice
    session_id = create(desk, A0)
    made = SessionRecord(1, session_id, "created", 1, "client")
    assert alice.take_records() == [made]
    desk.sessions = bob
    desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(B0), now_s=EVICTION_S + 1))

    assert bob.take_records() == [
        SessionRecord(1, session_id, "evicted", 1, "client", created_s=0.0, used_s=0.0),
        SessionRecord(1, session_id + 1, "created", 1, "client"),
    ]
    assert [each.take_records() for each in (everybody, alice, bob)] == [[], [], []]


def test_topics_of_a_session_are_known_at_its_own_brokers_listener() -> None:
    desk = Desk()
    session_id = create(desk, A0, A1, B0)

    assert desk.sessions.topics(session_id, 1) == {"a", "b"}
    assert desk.sessions.topics(session_id, 2) == desk.sessions.topics(session_id + 1, 1) == frozenset()


def test_a_session_that_outgrows_the_memory_for_all_sessions_is_gone_for_its_client() -> None:
    desk = Desk(most_bytes=1_500)
    session_id = create(desk, A0)
    assert session_id == 100
    other = desk.answer(desk.open(NO_SESSION, INITIAL_EPOCH, asks(B0)))
    assert other.session_id == NO_SESSION  # no memory: the client goes on with full fetches

    assert desk.answer(desk.open(session_id, 1, asks(A1))).error == ErrorCode.none
    assert desk.answer(desk.open(session_id, 2, asks(B0))).error == ErrorCode.fetch_session_id_not_found
    assert len(desk.sessions) == 0
    assert desk.sessions.evictions == 1
