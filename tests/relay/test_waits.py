"""Fetches that wait at several brokers for as much as their client wants, when it wants something else next."""

from kio.static.primitive import i32

from proxy.fetch.commands import FetcherKind
from proxy.relay.commands import CloseLink, Draining, OpenLink
from tests.old_clients import batch
from tests.relay.batches import BATCH, given, part
from tests.relay.playbook import LIVE, LONG_POLL, Part, Play, client_responses, fetcher_id, of_type, parts_of

FOLLOWER = fetcher_id(2)
FOLLOWERS_LIVE = fetcher_id(2, FetcherKind.LIVE)
FEW = batch(0, b"few")


def waiting_for_much(max_wait_ms: int = 30_000) -> Play:
    """The client has just been given much of the leader's partition 1; node 2 still waits for much of its own, 0.

    It began to a second ago, for a client that waits for *max_wait_ms* and at least 1000 bytes.
    """
    play = Play(rack="b", upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, min_bytes=1000, max_wait_ms=1000)
    play.open(LONG_POLL)
    play.answer({0: Part(preferred=2), 1: Part(high_watermark=0)})
    play.open(FOLLOWER)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.answer({1: Part(high_watermark=1, records=FEW)}, session_id=7)
    assert len(client_responses(play.wait(1))) == 1
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER, session_id=7)
    play.answer({})

    play.fetch({0: 0, 1: 1}, min_bytes=1000, max_wait_ms=max_wait_ms)
    (waits,) = play.asked_on(FOLLOWER)[-1:]
    assert (waits.max_wait_ms, waits.min_bytes) == (max_wait_ms, 500)
    play.wait(1)
    assert len(client_responses(play.answer({1: part(1, 1)}))) == 1
    play.asked.clear()
    return play


def test_request_with_large_min_bytes_does_not_delay_a_fetch_with_small_min_bytes() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 11}, max_wait_ms=60_000)
    play.open(FOLLOWERS_LIVE)

    (asked,) = play.asked_on(FOLLOWERS_LIVE)
    assert (dict(asked.offsets), asked.min_bytes) == ({0: 0}, 1)
    assert len(client_responses(play.answer({0: Part(records=FEW)}, link=FOLLOWERS_LIVE) + play.wait(0.1))) == 1


def test_request_with_long_max_wait_does_not_delay_a_fetch_with_short_max_wait() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 11}, min_bytes=1000)
    play.open(FOLLOWERS_LIVE)

    (asked,) = play.asked_on(FOLLOWERS_LIVE)
    assert (dict(asked.offsets), asked.max_wait_ms) == ({0: 0}, 500)


def test_request_that_waits_no_longer_than_the_next_fetch_stays_in_flight() -> None:
    play = waiting_for_much()
    commands = play.fetch({0: 0, 1: 11}, min_bytes=1000, max_wait_ms=30_000)

    assert {each.link for each in play.asked} == {LONG_POLL}
    assert of_type(CloseLink, commands) == []


def test_empty_response_to_a_large_min_bytes_is_confirmed_by_another_request() -> None:
    play = waiting_for_much()
    play.wait(28.9)
    play.fetch({0: 0, 1: 11}, min_bytes=1000, max_wait_ms=200)
    play.wait(0.2)
    play.answer({1: Part()})
    play.asked.clear()

    assert client_responses(play.answer({}, link=FOLLOWER)) == []
    (asked,) = play.asked_on(FOLLOWER)
    assert asked.max_wait_ms == 0


def test_first_request_of_a_partition_does_not_wait_beside_one_at_another_broker() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 2: 0})

    assert [(asked.link, asked.max_wait_ms) for asked in play.asked] == [(LONG_POLL, 0)]
    assert client_responses(play.answer({2: Part(high_watermark=0)})) == []
    assert play.asked[-1].max_wait_ms > 0


def test_partitions_are_requested_in_the_clients_order() -> None:
    play = Play()
    play.fetch({1: 0})
    play.open(LONG_POLL)
    play.answer({1: Part(records=FEW)})

    play.fetch({0: 0, 2: 0, 1: 1})

    assert list(play.asked[-1].offsets) == [0, 2, 1]


def test_session_is_created_once_a_response_was_not_cut_by_a_limit() -> None:
    play = Play()
    play.part_bytes = 2 * len(FEW) - 1
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)
    play.answer({0: Part(records=FEW), 1: Part()})
    play.fetch({1: 0, 0: 1})
    play.answer({0: Part(), 1: Part(records=batch(0, b""))})
    play.fetch({0: 1, 1: 1})

    assert [asked.epoch for asked in play.asked] == [-1, -1, 0]


def test_broker_waits_for_the_bytes_that_are_missing_to_min_bytes() -> None:
    play = Play(upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, min_bytes=1000, max_wait_ms=30_000)
    play.open(LONG_POLL)

    assert client_responses(play.answer({0: Part(high_watermark=1, records=FEW), 1: Part(high_watermark=0)})) == []

    missing = 1000 - len(FEW)
    assert (play.asked[-1].min_bytes, dict(play.asked[-1].offsets)) == (missing, {1: 0, 0: 1})


def with_records_left_over(max_wait_ms: int) -> Play:
    """A client whose last response had two batches of partition 0, and no room for one of partition 1."""
    play = Play(upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, min_bytes=2 * BATCH, max_bytes=i32(2 * BATCH), max_wait_ms=max_wait_ms)
    play.open(LONG_POLL)
    assert given(play.answer({0: part(0, 2), 1: part(0, 1)})) == {0: (0, 2)}
    return play


def test_at_the_end_of_its_wait_a_fetch_awaits_the_request_that_ends_then_too() -> None:
    play = with_records_left_over(max_wait_ms=500)
    play.fetch({0: 20, 1: 0}, min_bytes=3 * BATCH, max_wait_ms=500)

    assert client_responses(play.wait(0.5)) == []
    assert given(play.answer({0: part(20, 1), 1: Part()})) == {0: (20, 1), 1: (0, 1)}


def test_records_at_hand_are_delivered_if_the_broker_is_half_a_second_late() -> None:
    play = with_records_left_over(max_wait_ms=500)
    play.fetch({0: 20, 1: 0}, min_bytes=3 * BATCH, max_wait_ms=500)

    assert client_responses(play.wait(0.9)) == []
    assert given(play.wait(0.2)) == {1: (0, 1)}


def test_records_left_over_from_the_last_response_count_towards_min_bytes() -> None:
    play = with_records_left_over(max_wait_ms=30_000)
    play.asked.clear()

    commands = play.fetch({0: 20, 1: 0}, min_bytes=2 * BATCH, max_wait_ms=30_000)

    assert client_responses(commands) == []
    assert dict(play.asked[-1].offsets) == {0: 20, 1: 10}
    assert given(play.answer({0: part(20, 1), 1: Part()})) == {0: (20, 1), 1: (0, 1)}


def test_records_are_fetched_again_after_a_second_of_waiting_for_another_broker() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 11}, min_bytes=1000, max_wait_ms=30_000)
    assert client_responses(play.answer({1: Part(records=batch(11, b"few"))})) == []
    play.asked.clear()

    play.wait(0.9)
    assert [dict(each.offsets) for each in play.asked] == []
    play.wait(0.2)
    play.open(LIVE)

    assert [(each.link, dict(each.offsets)) for each in play.asked] == [(LIVE, {1: 11})]


def test_first_fetch_at_the_end_of_a_partition_costs_one_connection_and_one_request() -> None:
    play = Play(upstream_max_wait_s=10)
    commands = play.fetch({0: 0})
    commands += play.open(LONG_POLL)
    commands += play.wait(0.51)
    commands += play.answer({0: Part(high_watermark=0)})

    assert len(client_responses(commands)) == 1
    assert of_type(OpenLink, commands) == [OpenLink(LONG_POLL, "the-client")]
    assert [each.epoch for each in play.asked] == [-1, 0]  # the second creates a session for the next fetch


def test_partition_with_an_error_is_not_requested_again_before_the_next_fetch() -> None:
    play = Play(rack="b", upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)

    commands = play.answer({0: Part(error=1), 1: Part(preferred=2)})
    commands += play.wait(0.3)

    assert client_responses(commands) == []
    assert len(play.asked_on(LONG_POLL)) == 1
    play.open(FOLLOWER)
    (answer,) = client_responses([*play.answer({1: Part(high_watermark=0)}, link=FOLLOWER), *play.wait(0.5)])
    assert parts_of(answer) == {0: (1, 100), 1: (0, 100)}
    play.fetch({0: 0, 1: 0})
    assert dict(play.asked_on(LONG_POLL)[-1].offsets) == {0: 0}


def test_no_connection_is_opened_for_a_fetch_while_draining() -> None:
    play = waiting_for_much()
    play.handle(Draining())

    commands = play.fetch({0: 0, 1: 11}, max_wait_ms=60_000)
    commands += play.answer({1: Part()})
    commands += play.wait(0.2)

    assert of_type(OpenLink, commands) == []
    assert len(client_responses(commands)) == 1
