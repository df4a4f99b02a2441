"""Fetches that wait at several brokers for as much as their client wants, when it wants something else next."""

from kio.static.primitive import i32

from proxy.relay.commands import CloseLink
from tests.relay.playbook import PATIENT, Part, Play, lane, of_type, told

FOLLOWER = lane(2)
FOLLOWERS_QUICK = lane(2, quick=True)
FEW = b"few"
MUCH = b"much" * 250


def waiting_for_much(max_wait_ms: int = 30_000) -> Play:
    """The client has just been given much of the leader's partition 1; node 2 still waits for much of its own, 0.

    It began to a second ago, for a client that waits for *max_wait_ms* and at least 1000 bytes.
    """
    play = Play(rack="b", upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, min_bytes=1000, max_wait_ms=1000)
    play.open(PATIENT)
    play.answer({0: Part(preferred=2), 1: Part(high_watermark=0)})
    play.open(FOLLOWER)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER, session_id=7)
    play.answer({1: Part(high_watermark=1, records=FEW)})
    play.wait(1)
    play.answer({}, link=FOLLOWER)
    assert len(told(play.answer({1: Part(high_watermark=1, records=FEW)}))) == 1

    play.fetch({0: 0, 1: 1}, min_bytes=1000, max_wait_ms=max_wait_ms)
    (waits,) = play.asked_on(FOLLOWER)[-1:]
    assert (waits.max_wait_ms, waits.min_bytes) == (max_wait_ms, 500)
    play.wait(1)
    assert len(told(play.answer({1: Part(records=MUCH)}))) == 1
    play.asked.clear()
    return play


def test_who_waits_for_much_is_not_waited_for_by_a_fetch_that_takes_a_little() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 100}, max_wait_ms=60_000)
    play.open(FOLLOWERS_QUICK)

    (asked,) = play.asked_on(FOLLOWERS_QUICK)
    assert (dict(asked.offsets), asked.min_bytes) == ({0: 0}, 1)
    assert len(told(play.answer({0: Part(records=FEW)}, link=FOLLOWERS_QUICK) + play.wait(0.1))) == 1


def test_who_waits_for_long_is_not_waited_for_by_a_fetch_that_does_not() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 100}, min_bytes=1000)
    play.open(FOLLOWERS_QUICK)

    (asked,) = play.asked_on(FOLLOWERS_QUICK)
    assert (dict(asked.offsets), asked.max_wait_ms) == ({0: 0}, 500)


def test_who_waits_for_no_more_than_the_next_fetch_does_goes_on_waiting() -> None:
    play = waiting_for_much()
    commands = play.fetch({0: 0, 1: 100}, min_bytes=1000, max_wait_ms=30_000)

    assert {each.link for each in play.asked} == {PATIENT}
    assert of_type(CloseLink, commands) == []


def test_what_ends_a_wait_for_much_is_no_word_for_a_fetch_that_came_meanwhile() -> None:
    play = waiting_for_much()
    play.wait(28.9)
    play.fetch({0: 0, 1: 100}, min_bytes=1000, max_wait_ms=200)
    play.wait(0.2)
    play.answer({1: Part()})
    play.asked.clear()

    assert told(play.answer({}, link=FOLLOWER)) == []
    (asked,) = play.asked_on(FOLLOWER)
    assert asked.max_wait_ms == 0


def test_the_first_offsets_of_a_partition_are_asked_for_at_once_where_others_are_read_from_another_broker() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 2: 0})

    assert [(asked.link, asked.max_wait_ms) for asked in play.asked] == [(PATIENT, 0)]
    assert told(play.answer({2: Part(high_watermark=0)})) == []
    assert play.asked[-1].max_wait_ms > 0


def test_partitions_are_requested_in_the_clients_order() -> None:
    play = Play()
    play.fetch({1: 0})
    play.open(PATIENT)
    play.answer({1: Part(records=b"records")})

    play.fetch({0: 0, 2: 0, 1: 5})

    assert list(play.asked[-1].offsets) == [0, 2, 1]


def test_session_is_created_once_a_response_was_not_cut_by_a_limit() -> None:
    play = Play()
    play.part_bytes = 100
    play.fetch({0: 0, 1: 0})
    play.open(PATIENT)
    play.answer({0: Part(records=b"r" * 90), 1: Part()})
    play.fetch({1: 0, 0: 5})
    play.answer({0: Part(), 1: Part(records=b"r" * 10)})
    play.fetch({0: 5, 1: 5})

    assert [asked.epoch for asked in play.asked] == [-1, -1, 0]


def waiting_for_min_bytes() -> Play:
    """The client waits 30 s for 1000 bytes; both partitions are requested from the broker with that wait."""
    play = Play(upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, min_bytes=1000, max_wait_ms=30_000)
    play.open(PATIENT)
    assert told(play.answer({0: Part(high_watermark=1, records=FEW), 1: Part(high_watermark=0)})) == []
    assert (play.asked[-1].min_bytes, dict(play.asked[-1].offsets)) == (1000, {0: 0, 1: 0})
    return play


def test_records_left_over_from_the_last_response_are_fetched_again_if_they_are_less_than_min_bytes() -> None:
    play = waiting_for_min_bytes()
    assert len(told(play.answer({0: Part(records=MUCH), 1: Part(records=MUCH)}))) == 1
    play.fetch({0: 1, 1: 1}, min_bytes=1000, max_bytes=i32(900), max_wait_ms=30_000)
    assert len(told(play.answer({0: Part(records=MUCH[:800]), 1: Part(records=MUCH[:700])}))) == 1

    play.asked.clear()

    play.wait(0.1)
    play.fetch({0: 2, 1: 1}, min_bytes=1000, max_wait_ms=30_000)

    assert {p: offset for each in play.asked for p, offset in each.offsets.items()} == {0: 2, 1: 1}


def test_records_are_fetched_again_after_a_second_in_which_another_broker_waits_for_more() -> None:
    play = waiting_for_much()
    play.fetch({0: 0, 1: 100}, min_bytes=1000, max_wait_ms=30_000)
    assert told(play.answer({1: Part(records=MUCH[:600])})) == []
    play.asked.clear()

    play.wait(0.9)
    assert [dict(each.offsets) for each in play.asked] == []
    play.wait(0.2)

    assert [(each.link, dict(each.offsets)) for each in play.asked] == [(PATIENT, {1: 100})]
