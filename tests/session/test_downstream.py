"""The broker's half of KIP-227: one test per scenario of Kafka's own suites that applies to it."""

from collections.abc import Mapping
from itertools import count
from uuid import UUID

import pytest

from proxy.errors import ErrorCode
from proxy.session.downstream import (
    FetchContext,
    FetchSessionCache,
    FullFetchContext,
    IncrementalFetchContext,
    Key,
    PlainPartitionState,
    SessionErrorContext,
    SessionlessFetchContext,
    SessionPartition,
    SessionRequest,
    SessionResponse,
)
from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.slots import EVICTION_S

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
IDLE = PlainPartitionState(high_watermark=10, log_start=0)
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def cache_of(slots: int = 10) -> FetchSessionCache:
    counter = count(100)
    return FetchSessionCache(slots, lambda: next(counter))


def asks(*keys: Key, offset: int = 10) -> dict[Key, SessionPartition]:
    return {key: SessionPartition(offset, max_bytes=1000) for key in keys}


def create(cache: FetchSessionCache, *keys: Key, by_id: bool = False) -> SessionId:
    context = cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks(*keys), by_id=by_id), 0.0)
    return answer_all(context).session_id


def step(
    cache: FetchSessionCache,
    session_id: SessionId,
    epoch: int,
    add: Mapping[Key, SessionPartition] | None = None,
    forget: tuple[Key, ...] = (),
    by_id: bool = False,
) -> FetchContext:
    return cache.open(SessionRequest(session_id, epoch, add or {}, forget, by_id), 1.0)


def answer_all(context: FetchContext, **states: PlainPartitionState) -> SessionResponse:
    """Answer with ``IDLE`` but for the partitions named, as ``a0=State(...)``."""
    results = {key: states.get(f"{key[0]}{key[1]}", IDLE) for key, _ in context.partitions()}
    return context.answer(results, 1.0)


def order(context: FetchContext) -> list[Key]:
    return [key for key, _ in context.partitions()]


# contexts


def test_full_without_a_session_is_served_whole_and_remembered_nowhere() -> None:
    cache = cache_of()

    context = cache.open(SessionRequest(NO_SESSION, FINAL_EPOCH, asks(B0, A0)), 0.0)

    assert isinstance(context, SessionlessFetchContext)
    assert (len(context), A0 in context, A1 in context) == (2, True, False)
    answer = answer_all(context)
    assert (answer.error, answer.session_id, list(answer.keys)) == (ErrorCode.none, NO_SESSION, [B0, A0])
    assert len(cache) == 0


def test_epochs_go_one_two_three() -> None:
    cache = cache_of()
    context = cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks(A0)), 0.0)
    assert isinstance(context, FullFetchContext)
    session_id = answer_all(context).session_id
    assert session_id == 100

    for epoch in (1, 2, 3):
        context = step(cache, session_id, epoch)
        assert isinstance(context, IncrementalFetchContext)
        assert answer_all(context) == SessionResponse(ErrorCode.none, session_id, [])


def test_the_epoch_after_the_last_is_one() -> None:
    cache = cache_of()
    session_id = create(cache, A0)
    session = cache._slots.get(session_id)
    assert session is not None
    session.epoch = 2**31 - 1

    assert answer_all(step(cache, session_id, 2**31 - 1)).error == ErrorCode.none
    assert answer_all(step(cache, session_id, 1)).error == ErrorCode.none


def test_unknown_session_id_returns_error_70() -> None:
    context = step(cache_of(), SessionId(7), 1)

    assert isinstance(context, SessionErrorContext)
    assert context.error == ErrorCode.fetch_session_id_not_found
    assert (len(context), A0 in context, order(context), context.topic_names) == (0, False, [], {})
    refusal = SessionResponse(ErrorCode.fetch_session_id_not_found, NO_SESSION, ())
    assert context.answer({}, 1.0) == context.answer_throttled() == refusal


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1])
def test_wrong_session_epoch_returns_error_71_and_changes_nothing(epoch: int) -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    refused = step(cache, session_id, epoch, asks(B0))

    assert refused.error == ErrorCode.invalid_fetch_session_epoch
    assert answer_all(refused) == SessionResponse(ErrorCode.invalid_fetch_session_epoch, NO_SESSION, ())
    assert order(step(cache, session_id, 1)) == [A0]


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_unknown_id_with_a_full_epoch_is_a_normal_full(epoch: int) -> None:
    context = cache_of().open(SessionRequest(SessionId(7), epoch, asks(A0)), 0.0)

    answer = answer_all(context)
    assert (answer.error, list(answer.keys)) == (ErrorCode.none, [A0])


def test_close_and_new_replaces_the_session() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    answer = answer_all(cache.open(SessionRequest(session_id, INITIAL_EPOCH, asks(B0)), 1.0))

    assert answer.session_id not in (NO_SESSION, session_id)
    assert step(cache, session_id, 1).error == ErrorCode.fetch_session_id_not_found
    assert len(cache) == 1


def test_close_leaves_no_session() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    answer = answer_all(cache.open(SessionRequest(session_id, FINAL_EPOCH, {}), 1.0))

    assert (answer.error, answer.session_id, list(answer.keys)) == (ErrorCode.none, NO_SESSION, [])
    assert len(cache) == 0


def test_forgetting_everything_ends_the_session() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)

    context = step(cache, session_id, 1, forget=(A0, A1))

    assert isinstance(context, SessionlessFetchContext)
    assert answer_all(context).session_id == NO_SESSION
    assert len(cache) == 0


def test_an_empty_session_can_be_made_and_ends_if_nothing_is_added() -> None:
    cache = cache_of()
    session_id = create(cache)
    assert session_id != NO_SESSION

    assert answer_all(step(cache, session_id, 1)).session_id == NO_SESSION


def test_refused_session_gets_full_response_with_session_id_0() -> None:
    cache = cache_of(slots=1)
    create(cache, A0)

    answer = answer_all(cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks(B0)), 1.0))

    assert (answer.error, answer.session_id, list(answer.keys)) == (ErrorCode.none, NO_SESSION, [B0])
    assert cache.refusals == 1


def test_waiting_fetch_of_evicted_session_completes_and_next_fetch_returns_error_70() -> None:
    cache = cache_of(slots=1)
    session_id = create(cache, A0)
    waiting = step(cache, session_id, 1)

    cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks(B0)), 0.0).answer({B0: IDLE}, EVICTION_S + 2)

    assert cache.evictions == 1
    assert answer_all(waiting) == SessionResponse(ErrorCode.none, session_id, [])
    assert step(cache, session_id, 2).error == ErrorCode.fetch_session_id_not_found


# deltas


def test_adding_and_forgetting_in_one_request_changes_partitions_and_their_order() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)

    context = step(cache, session_id, 1, asks(B0), forget=(A0,))

    assert order(context) == [A1, B0]
    assert (len(context), A0 in context, B0 in context) == (2, False, True)
    assert answer_all(context).keys == [B0]
    assert cache.partitions == 2


def test_a_key_both_named_and_forgotten_is_gone() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)

    assert order(step(cache, session_id, 1, asks(A0), forget=(A0,))) == [A1]


def test_forgetting_a_partition_that_the_session_does_not_have_changes_nothing() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    assert order(step(cache, session_id, 1, forget=(B0,))) == [A0]


def test_update_replaces_session_partition_in_place_without_reporting_it() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)
    changed = SessionPartition(20, max_bytes=5, leader_epoch=3, last_fetched_epoch=2, log_start=1)

    context = step(cache, session_id, 1, {A0: changed})

    assert list(context.partitions()) == [(A0, changed), (A1, SessionPartition(10, 1000))]
    assert answer_all(context).keys == []
    assert dict(step(cache, session_id, 2).partitions())[A0] == changed


def test_a_session_by_name_refuses_ids_and_stays() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    refused = step(cache, session_id, 1, by_id=True)

    assert refused.error == ErrorCode.fetch_session_topic_id_error
    assert answer_all(refused).session_id == NO_SESSION
    assert answer_all(step(cache, session_id, 1)).error == ErrorCode.none


def test_a_session_by_id_refuses_names_and_stays() -> None:
    cache = cache_of()
    session_id = create(cache, (OLD_ID, 0), by_id=True)

    assert step(cache, session_id, 1).error == ErrorCode.fetch_session_topic_id_error
    assert step(cache, session_id, 1, by_id=True).error == ErrorCode.none


def test_the_epoch_is_checked_before_ids_against_names() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    assert step(cache, session_id, 5, by_id=True).error == ErrorCode.invalid_fetch_session_epoch


def test_a_recreated_topic_is_another_partition_of_the_session() -> None:
    cache = cache_of()
    session_id = create(cache, (OLD_ID, 0), by_id=True)

    context = step(cache, session_id, 1, asks((NEW_ID, 0)), forget=((OLD_ID, 0),), by_id=True)

    assert order(context) == [(NEW_ID, 0)]


def test_names_resolved_for_ids_are_remembered_by_the_session() -> None:
    cache = cache_of()
    request = SessionRequest(NO_SESSION, INITIAL_EPOCH, asks((OLD_ID, 0)), by_id=True)
    context = cache.open(request, 0.0)
    context.topic_names[OLD_ID] = "a"
    session_id = answer_all(context).session_id

    assert step(cache, session_id, 1, by_id=True).topic_names == {OLD_ID: "a"}


# the contents of an incremental response


def test_unchanged_partitions_are_omitted() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1, B0)

    assert answer_all(step(cache, session_id, 1)).keys == []


@pytest.mark.parametrize(
    "state",
    [
        PlainPartitionState(11, 0),
        PlainPartitionState(10, 1),
        PlainPartitionState(9, 0),
    ],
    ids=["high watermark", "log start", "high watermark gone back"],
)
def test_offset_change_is_reported_once(state: PlainPartitionState) -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)

    assert answer_all(step(cache, session_id, 1), a1=state).keys == [A1]
    assert answer_all(step(cache, session_id, 2), a1=state).keys == []


@pytest.mark.parametrize(
    "state",
    [
        PlainPartitionState(10, 0, has_records=True),
        PlainPartitionState(10, 0, preferred_replica=2),
        PlainPartitionState(10, 0, diverging=True),
    ],
    ids=["records", "preferred replica", "diverging epoch"],
)
def test_records_replica_and_diverging_epoch_are_always_reported(state: PlainPartitionState) -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1)

    for epoch in (1, 2, 3):
        assert answer_all(step(cache, session_id, epoch), a1=state).keys == [A1]


def test_error_is_repeated_and_recovery_is_reported_once_despite_same_high_watermark() -> None:
    cache = cache_of()
    session_id = create(cache, A0)
    broken = PlainPartitionState(-1, 0, error=ErrorCode.not_leader_or_follower)

    reported = [
        answer_all(step(cache, session_id, epoch), a0=state).keys
        for epoch, state in enumerate([broken, broken, IDLE, IDLE], start=1)
    ]
    assert reported == [[A0], [A0], [A0], []]


def test_an_error_that_carries_the_high_watermark_does_not_silence_the_recovery() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    assert answer_all(step(cache, session_id, 1), a0=PlainPartitionState(10, 0, error=1)).keys == [A0]
    assert answer_all(step(cache, session_id, 2)).keys == [A0]


@pytest.mark.parametrize("high_watermark", [0, 1])
def test_recovery_from_an_error_is_sent_for_every_high_watermark(high_watermark: int) -> None:
    cache = cache_of()
    session_id = create(cache, A0)
    recovered = PlainPartitionState(high_watermark, 0)

    assert answer_all(step(cache, session_id, 1), a0=recovered).keys == [A0]
    assert answer_all(step(cache, session_id, 2), a0=PlainPartitionState(-1, 0, error=6)).keys == [A0]
    assert answer_all(step(cache, session_id, 3), a0=recovered).keys == [A0]


def test_partitions_with_records_go_to_the_back_and_others_keep_their_place() -> None:
    cache = cache_of()
    session_id = create(cache, A0, A1, B0)

    context = step(cache, session_id, 1)
    answer = answer_all(context, a0=PlainPartitionState(12, 0, has_records=True), a1=PlainPartitionState(12, 0))

    assert answer.keys == [A0, A1]
    assert order(step(cache, session_id, 2)) == [A1, B0, A0]


def test_full_response_keeps_partition_order() -> None:
    cache = cache_of()
    context = cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks(A0, A1)), 0.0)
    session_id = answer_all(context, a0=PlainPartitionState(12, 0, has_records=True)).session_id

    assert order(step(cache, session_id, 1)) == [A0, A1]


# races and throttling


def test_a_doubled_request_ends_in_71_for_whichever_came_too_late() -> None:
    cache = cache_of()
    session_id = create(cache, A0)
    waiting = step(cache, session_id, 1)
    overtaking = step(cache, session_id, 2)

    assert answer_all(waiting) == SessionResponse(ErrorCode.invalid_fetch_session_epoch, session_id, ())
    assert waiting.answer_throttled() == SessionResponse(ErrorCode.invalid_fetch_session_epoch, session_id, ())
    assert answer_all(overtaking) == SessionResponse(ErrorCode.none, session_id, [])


def test_throttled_incremental_fetch_keeps_deltas_and_reported_state() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    throttled = step(cache, session_id, 1, asks(B0)).answer_throttled()

    assert throttled == SessionResponse(ErrorCode.none, session_id, ())
    context = step(cache, session_id, 2)
    assert order(context) == [A0, B0]
    assert answer_all(context).keys == [B0]


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_throttling_a_full_fetch_grants_no_session(epoch: int) -> None:
    cache = cache_of()

    throttled = cache.open(SessionRequest(NO_SESSION, epoch, asks(A0)), 0.0).answer_throttled()

    assert throttled == SessionResponse(ErrorCode.none, NO_SESSION, ())
    assert len(cache) == 0


def test_evict_takes_a_session_away() -> None:
    cache = cache_of()
    session_id = create(cache, A0)

    assert cache.evict(session_id)
    assert not cache.evict(session_id)
    assert step(cache, session_id, 1).error == ErrorCode.fetch_session_id_not_found
