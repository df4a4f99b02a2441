"""The client's half of KIP-227: the contents of a fetch, and each row of the table of responses."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ErrorCode
from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import (
    AcceptedResponse,
    FetchPlan,
    FullFetchPlan,
    IncrementalFetchPlan,
    RejectedResponse,
    RejectionReason,
    SessionResponseFields,
    UpstreamSession,
)
from proxy.wire.fetch import FetchPartition, PartitionKey
from tests.strategies import examples

A, B, C, D = (PartitionKey("t", partition) for partition in range(4))
SEVEN, EIGHT = SessionId(7), SessionId(8)


def at(offset: int) -> FetchPartition:
    return FetchPartition(offset, max_bytes=1000)


def wanting(*keys: PartitionKey, offset: int = 0) -> dict[PartitionKey, FetchPartition]:
    return dict.fromkeys(keys, at(offset))


def reply(
    session_id: SessionId = SEVEN,
    keys: Collection[PartitionKey] = (),
    *,
    error: int = ErrorCode.none,
    throttle_ms: int = 0,
) -> SessionResponseFields:
    return SessionResponseFields(error, session_id, throttle_ms, keys)


def plan(
    session: UpstreamSession,
    wanted: Mapping[PartitionKey, FetchPartition],
    *touched: PartitionKey,
    keep: bool = True,
) -> FetchPlan:
    """Return the next fetch for *wanted*: *touched* partitions are updated first, other new ones after them."""
    for key in (*touched, *(key for key in wanted if key not in session.requested)):
        session.put(key, wanted.get(key, at(0)))
        if key not in wanted:
            session.remove(key)
    assert session.requested == wanted
    return session.plan(keep=keep)


def listed(session: UpstreamSession) -> dict[PartitionKey, FetchPartition]:
    """Return the session that the broker is believed to have; no fetch is in flight."""
    asked = {key: session.get_planned(key) for key in (A, B, C, D)}
    return {
        key: ask
        for key, ask in asked.items()
        if ask is not None and isinstance(session.state, IncrementalFetchPlan)
    }


def established(*keys: PartitionKey, epoch: int = 1) -> UpstreamSession:
    """Session 7 over *keys* at offset 0; the next request has *epoch*."""
    session = UpstreamSession()
    assert session.receive(plan(session, wanting(*keys), *keys), reply(keys=keys)) == AcceptedResponse(SEVEN)
    session.state = IncrementalFetchPlan(SEVEN, epoch)
    return session


def named(made: FetchPlan) -> tuple[int, int, list[PartitionKey], list[PartitionKey]]:
    return made.session_id, made.epoch, list(made.requested), list(made.forgotten)


# ----------------------------------------------------------------------------------------------- building


def test_the_first_fetch_names_everything_in_the_order_wanted() -> None:
    assert named(plan(UpstreamSession(), wanting(C, A, B))) == (0, INITIAL_EPOCH, [C, A, B], [])


def test_fetch_without_session_requests_none() -> None:
    assert named(plan(UpstreamSession(), wanting(A), A, keep=False)) == (0, FINAL_EPOCH, [A], [])


def test_nothing_changed_names_nothing() -> None:
    made = plan(established(A, B), wanting(A, B))

    assert named(made) == (7, 1, [], [])
    assert made.size == 2


def test_a_partition_touched_but_the_same_is_left_out() -> None:
    assert named(plan(established(A, B), wanting(A, B), A, B)) == (7, 1, [], [])


@pytest.mark.parametrize(
    "changed",
    [
        FetchPartition(1, 1000),
        FetchPartition(0, 999),
        FetchPartition(0, 1000, epoch=3),
        FetchPartition(0, 1000, last_fetched_epoch=2),
    ],
)
def test_a_change_of_any_field_names_the_partition(changed: FetchPartition) -> None:
    made = plan(established(A, B), {A: at(0), B: changed}, B)

    assert made.requested == {B: changed}


def test_added_ones_are_named_before_moved_ones() -> None:
    made = plan(established(A, B), {**wanting(A, B, offset=5), **wanting(D, C)}, A, D, B, C)

    assert list(made.requested) == [D, C, A, B]


def test_a_partition_no_longer_wanted_is_forgotten() -> None:
    assert named(plan(established(A, B, C), wanting(B), A, C)) == (7, 1, [], [A, C])


def test_a_partition_that_came_and_went_between_two_fetches_is_not_forgotten() -> None:
    assert named(plan(established(A), wanting(A), B)) == (7, 1, [], [])


def test_a_session_given_up_is_closed_by_the_fetch_without_one() -> None:
    assert named(plan(established(A), wanting(A), keep=False)) == (7, FINAL_EPOCH, [A], [])


# ------------------------------------------------------------------- the table: answers to a full request


def test_full_valid_id_not_0_then_incremental_from_1() -> None:
    session = UpstreamSession()
    made = plan(session, wanting(A, B))

    assert made.size == 2
    assert session.receive(made, reply(SEVEN, [B, A])) == AcceptedResponse(SEVEN)

    assert session.state == IncrementalFetchPlan(SEVEN, 1)
    assert listed(session) == wanting(A, B)


def test_full_valid_id_0_then_new_full() -> None:
    session = UpstreamSession()

    assert session.receive(plan(session, wanting(A)), reply(NO_SESSION, [A])) == AcceptedResponse(NO_SESSION)

    assert session.state == FullFetchPlan()
    assert listed(session) == {}


@pytest.mark.parametrize("throttle_ms", [1, 9])
def test_full_no_partitions_but_throttled_then_new_full_and_no_error(throttle_ms: int) -> None:
    session = UpstreamSession()

    outcome = session.receive(plan(session, wanting(A)), reply(SEVEN, [], throttle_ms=throttle_ms))

    assert outcome == AcceptedResponse(NO_SESSION)
    assert session.state == FullFetchPlan()


def test_full_without_partitions_gets_a_session_if_it_is_not_throttled() -> None:
    session = UpstreamSession()

    assert session.receive(plan(session, {}), reply(SEVEN)) == AcceptedResponse(SEVEN)

    assert session.state == IncrementalFetchPlan(SEVEN, 1)


@pytest.mark.parametrize("keys", [[], [A], [A, C], [A, B, C], [A, A]])
def test_full_partitions_missing_or_extra_then_not_usable(keys: list[PartitionKey]) -> None:
    session = UpstreamSession()

    outcome = session.receive(plan(session, wanting(A, B)), reply(SEVEN, keys))

    assert outcome == RejectedResponse(RejectionReason.DISAGREED, 0)
    assert session.state == FullFetchPlan(SEVEN)  # the next fetch closes the session that was granted
    assert listed(session) == {}


def test_sessionless_full_fetch_leaves_no_session() -> None:
    session = UpstreamSession()

    session.receive(plan(session, wanting(A), keep=False), reply(NO_SESSION, [A]))

    assert session.state == FullFetchPlan()
    assert named(plan(session, wanting(A))) == (0, INITIAL_EPOCH, [A], [])


# -------------------------------------------------------------------------------- the table: refusals


@pytest.mark.parametrize("epoch", [1, 5])
def test_top_level_70_then_new_full(epoch: int) -> None:
    session = established(A, epoch=epoch)

    outcome = session.receive(plan(session, wanting(A)), reply(NO_SESSION, error=70))

    assert outcome == RejectedResponse(RejectionReason.EVICTED, 70)
    assert session.state == FullFetchPlan(NO_SESSION)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (71, RejectionReason.WRONG_EPOCH),
        (106, RejectionReason.MIXED_IDS),
        (29, RejectionReason.ERROR),
        (-1, RejectionReason.ERROR),
    ],
)
def test_any_other_top_level_error_then_close_and_new(error: int, why: RejectionReason) -> None:
    session = established(A)

    outcome = session.receive(plan(session, wanting(A)), reply(NO_SESSION, error=error))

    assert outcome == RejectedResponse(why, error)
    assert session.state == FullFetchPlan(SEVEN)
    assert named(plan(session, wanting(A))) == (7, INITIAL_EPOCH, [A], [])


def test_failed_full_fetch_leaves_replaced_session_to_be_closed() -> None:
    session = established(A)
    session.discard_plan(plan(session, wanting(A)))

    session.receive(plan(session, wanting(A)), reply(NO_SESSION, error=-1))

    assert session.state == FullFetchPlan(SEVEN)


# -------------------------------------------------------------- the table: answers to an incremental one


@pytest.mark.parametrize("keys", [[], [A], [A, B]])
@pytest.mark.parametrize("throttle_ms", [0, 9])
def test_incremental_valid_then_next_epoch(keys: list[PartitionKey], throttle_ms: int) -> None:
    session = established(A, B, epoch=4)

    outcome = session.receive(plan(session, wanting(A, B)), reply(SEVEN, keys, throttle_ms=throttle_ms))

    assert outcome == AcceptedResponse(SEVEN)
    assert session.state == IncrementalFetchPlan(SEVEN, 5)


def test_incremental_valid_after_the_last_epoch_comes_1() -> None:
    session = established(A, epoch=2**31 - 1)

    session.receive(plan(session, wanting(A)), reply())

    assert session.state == IncrementalFetchPlan(SEVEN, 1)


def test_incremental_valid_id_0_then_new_full() -> None:
    session = established(A)

    assert session.receive(plan(session, wanting(A)), reply(NO_SESSION, [A])) == AcceptedResponse(NO_SESSION)

    assert session.state == FullFetchPlan()


def test_incremental_a_partition_not_in_the_session_then_close_and_new() -> None:
    session = established(A)

    assert session.receive(plan(session, wanting(A)), reply(SEVEN, [B])) == RejectedResponse(
        RejectionReason.DISAGREED, 0
    )

    assert session.state == FullFetchPlan(SEVEN)


def test_incremental_a_partition_that_was_just_forgotten_then_close_and_new() -> None:
    session = established(A, B)

    assert session.receive(plan(session, wanting(A), B), reply(SEVEN, [B])) == RejectedResponse(
        RejectionReason.DISAGREED, 0
    )


def test_incremental_a_partition_that_was_just_added_is_in_the_session() -> None:
    session = established(A)

    assert session.receive(plan(session, wanting(A, B), B), reply(SEVEN, [B])) == AcceptedResponse(SEVEN)


def test_incremental_another_session_then_close_and_new() -> None:
    session = established(A)

    assert session.receive(plan(session, wanting(A)), reply(EIGHT)) == RejectedResponse(
        RejectionReason.DISAGREED, 0
    )

    assert session.state == FullFetchPlan(SEVEN)


# --------------------------------------------------------------------------- only what was acknowledged


def test_requested_partitions_are_in_session_after_response() -> None:
    session = established(A, B)
    wanted = {A: at(5), C: at(0)}

    session.receive(plan(session, wanted, A, B, C), reply())

    assert listed(session) == wanted
    assert named(plan(session, wanted)) == (7, 2, [], [])


def test_changes_during_in_flight_fetch_go_into_next_request() -> None:
    session = established(A, B)
    made = plan(session, {A: at(5), B: at(0), C: at(0)}, A, C)
    session.put(A, at(9))
    session.remove(B)
    session.remove(C)
    session.put(D, at(0))

    assert [session.get_planned(key) for key in (A, B, C, D)] == [at(5), at(0), at(0), None]
    assert session.size == made.size == 3
    session.receive(made, reply(keys=[A, B, C]))

    assert named(plan(session, {A: at(9), D: at(0)})) == (7, 2, [D, A], [B, C])
    assert session.size == 2


def test_lost_then_close_and_new_whatever_the_broker_has_seen() -> None:
    session = established(A, epoch=3)
    session.discard_plan(plan(session, wanting(A, offset=5), A))

    assert listed(session) == {}
    assert named(plan(session, wanting(A, offset=5))) == (7, INITIAL_EPOCH, [A], [])


def test_a_lost_fetch_without_a_session_leaves_none_to_close() -> None:
    session = UpstreamSession()
    session.discard_plan(plan(session, wanting(A), keep=False))

    assert session.state == FullFetchPlan(NO_SESSION)


def test_a_lost_fetch_that_was_to_close_a_session_may_not_have_closed_it() -> None:
    session = established(A)
    session.discard_plan(plan(session, wanting(A), keep=False))

    assert named(plan(session, wanting(A), keep=False)) == (7, FINAL_EPOCH, [A], [])


def test_restart_during_in_flight_fetch_rejects_its_response() -> None:
    session = established(A, B)
    under_way = plan(session, wanting(A), B)
    session.restart()

    assert session.receive(under_way, reply()) == RejectedResponse(RejectionReason.OUTDATED, 0)

    assert session.state == FullFetchPlan(SEVEN)
    assert listed(session) == {}


def test_restarted_it_names_everything_and_replaces_the_session() -> None:
    session = established(A, B)
    session.restart()

    assert named(plan(session, wanting(A, B))) == (7, INITIAL_EPOCH, [A, B], [])


def test_closing_is_sent_once_and_names_nothing() -> None:
    session = established(A, B)

    farewell = session.close()

    assert farewell is not None
    assert named(farewell) == (7, FINAL_EPOCH, [], [])
    assert farewell.size == 0
    assert session.close() is None


def test_without_a_session_there_is_nothing_to_close() -> None:
    assert UpstreamSession().close() is None


def test_a_session_that_may_be_left_over_is_closed_too() -> None:
    session = established(A)
    session.discard_plan(plan(session, wanting(A)))

    farewell = session.close()

    assert farewell is not None
    assert farewell.session_id == 7


# ------------------------------------------------------------------------------------ a second opinion


class JavaLikeHandler:
    """``FetchSessionHandler``, as it was read: it compares everything that is wanted with all of the session."""

    def __init__(self) -> None:
        self.session_id, self.epoch = 0, INITIAL_EPOCH
        self.session: dict[PartitionKey, FetchPartition] = {}

    def build(
        self, wanted: Mapping[PartitionKey, FetchPartition]
    ) -> tuple[tuple[int, int], list[PartitionKey], list[PartitionKey], list[PartitionKey]]:
        """Session and epoch; the partitions added, altered, removed."""
        if self.epoch == INITIAL_EPOCH:
            self.session = dict(wanted)
            return (self.session_id, self.epoch), list(wanted), [], []
        altered, removed = [], []
        for key, ask in list(self.session.items()):
            if key not in wanted:
                del self.session[key]
                removed.append(key)
            elif wanted[key] != ask:
                self.session[key] = wanted[key]
                altered.append(key)
        added = [key for key in wanted if key not in self.session]
        self.session |= {key: wanted[key] for key in added}
        return (self.session_id, self.epoch), added, altered, removed

    def handle(self, answer: SessionResponseFields) -> bool:
        """Whether the answer can be used."""
        full = self.epoch == INITIAL_EPOCH
        if answer.error == 70:
            self.session_id, self.epoch = 0, INITIAL_EPOCH
        elif answer.error:
            self.epoch = INITIAL_EPOCH
        elif full and not answer.keys and answer.throttle_ms:
            self.session_id = 0
        elif (full and set(answer.keys) != set(self.session)) or (
            not full and set(answer.keys) - set(self.session)
        ):
            self.epoch = INITIAL_EPOCH  # Java drops the id after a full request; to close it again does no harm
            return False
        elif answer.session_id == NO_SESSION:
            self.session_id, self.epoch = 0, INITIAL_EPOCH
        else:
            self.epoch = 1 if full or self.epoch == 2**31 - 1 else self.epoch + 1
            self.session_id = answer.session_id
        return not answer.error

    def fail(self) -> None:
        self.epoch = INITIAL_EPOCH


some_keys = st.sampled_from([A, B, C, D])
tables = st.dictionaries(some_keys, st.builds(at, st.integers(0, 2)), min_size=1)
answers = st.sampled_from(["all", "some", "nothing new", "strange", "throttled", "closed", "lost", 70, 71, -1])


@examples(300)
@given(st.lists(st.tuples(tables, st.lists(some_keys), answers), min_size=1, max_size=12), st.booleans())
def test_requests_equal_those_of_java_fetch_session_handler(
    rounds: list[tuple[dict[PartitionKey, FetchPartition], list[PartitionKey], str | int]], old: bool
) -> None:
    ours, java, last = UpstreamSession(), JavaLikeHandler(), dict[PartitionKey, FetchPartition]()
    for granted, (wanted, in_vain, fate) in enumerate(rounds, start=10):
        if old and isinstance(ours.state, IncrementalFetchPlan):
            java.epoch = 2**31 - 1
            ours.state = IncrementalFetchPlan(ours.session_id, java.epoch)
        differing = [key for key in (*last, *wanted) if last.get(key) != wanted.get(key)]
        made = plan(ours, wanted, *differing, *in_vain)
        last = wanted
        pair, added, altered, removed = java.build(wanted)

        assert (made.session_id, made.epoch) == pair
        assert set(list(made.requested)[: len(added)]) == set(added)
        assert set(list(made.requested)[len(added) :]) == set(altered)
        assert set(made.forgotten) == set(removed)
        assert made.requested == {key: wanted[key] for key in (*added, *altered)}

        if fate == "lost":
            ours.discard_plan(made)
            java.fail()
            continue
        session_id = SessionId(granted) if made.is_full else made.session_id
        match fate:
            case int():
                answer = reply(NO_SESSION, error=fate)
            case "throttled":
                answer = reply(NO_SESSION if made.is_full else session_id, throttle_ms=5)
            case "strange":
                answer = reply(NO_SESSION if made.is_full else session_id, [PartitionKey("other", 0)])
            case "closed":
                answer = reply(NO_SESSION, list(wanted))
            case _:
                answer = reply(
                    session_id, list(wanted) if made.is_full or fate == "all" else list(wanted)[: fate == "some"]
                )
        assert isinstance(ours.receive(made, answer), AcceptedResponse) == java.handle(answer)
        assert listed(ours) == (java.session if java.epoch != INITIAL_EPOCH else {})
