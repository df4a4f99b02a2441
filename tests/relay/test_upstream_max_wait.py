"""Fetches that wait longer than their clients: requests at the broker, and responses without a request."""

import uuid

import pytest

from proxy.errors import ErrorCode
from proxy.relay.commands import CloseLink, Command, Draining, LinkAnswering, MemoryNeeded, OpenLink
from tests.relay.playbook import PATIENT, QUICK, Part, Play, learnt, of_type, parts_of, told, topology

IDLE = Part()
MANY = range(120)
"""Enough for the idle ones to be worth a lane of their own."""


def parked(partitions: int = 3) -> Play:
    """A client whose partitions, at their ends, wait at the broker; it asks next."""
    play = Play(topology(partitions), upstream_max_wait_s=10)
    play.established(*range(partitions))
    return play


def unparked() -> Play:
    """Return the same, after a wait without news."""
    play = parked()
    play.answer({})
    play.asked.clear()
    return play


def offsets(partitions: int, **moved: int) -> dict[int, int]:
    return {p: moved.get(f"p{p}", 0) for p in range(partitions)}


def moving(play: Play) -> int:
    """Partition 5 brings records again and again; the offset that it is asked for at in the fetch at hand."""
    for at in range(3):
        play.fetch(offsets(len(MANY), p5=at))
        assert len(told(play.answer({5: Part(0, 101 + at, b"more")}))) == 1
    play.fetch(offsets(len(MANY), p5=3))
    play.open(QUICK)
    return 3


def records_of(answer: object) -> dict[int, bytes]:
    parts = [part for topic in answer.responses for part in topic.partitions]  # type: ignore[attr-defined]
    return {part.partition_index: bytes(part.records) for part in parts if part.records}


# ----------------------------------------------------------------------------------------- one patient lane


def test_polls_are_answered_here_while_one_fetch_waits_at_the_broker() -> None:
    play = parked()
    asked = len(play.asked)

    for _ in range(15):
        play.fetch(offsets(3))
        (answer,) = told(play.wait(0.5))
        assert parts_of(answer) == {0: (0, 100), 1: (0, 100), 2: (0, 100)}

    assert len(play.asked) == asked


def test_what_is_held_of_a_topic_is_not_given_for_another_of_the_same_name() -> None:
    play = Play(topology(), broker_fetch=12, upstream_max_wait_s=10)
    play.established(0, 1, 2)
    play.answer({1: Part(0, 101, b"of the old")})

    play.known = topology(topic_id=uuid.UUID(int=8))
    commands = play.fetch(offsets(3))
    commands += play.answer({0: IDLE, 1: Part(0, 101, b"of the new"), 2: IDLE})

    (answer,) = told(commands)
    assert records_of(answer) == {1: b"of the new"}


def test_what_began_to_come_before_the_client_asked_is_no_word_about_what_has_happened_since() -> None:
    play = parked()
    play.handle(LinkAnswering(PATIENT))
    play.fetch(offsets(3))

    assert told(play.answer({1: Part(0, 101, b"news")})) == []
    (answer,) = told(play.answer({}))

    assert records_of(answer) == {1: b"news"}
    assert play.asked[-1].max_wait_ms == 0


def test_what_is_held_is_dropped_when_the_leader_cannot_tell_of_its_partition_any_more() -> None:
    play = parked()
    play.handle(LinkAnswering(PATIENT))
    play.fetch(offsets(3, p1=50))
    play.open(QUICK)
    assert told(play.answer({1: Part(0, 101, b"from before")}, link=QUICK)) == []

    commands = play.answer({1: Part(ErrorCode.not_leader_or_follower, -1)})
    assert told(commands) == []
    (answer,) = told(play.answer({1: Part(0, 101, b"from now")}, link=play.asked[-1].link))

    assert records_of(answer) == {1: b"from now"}


def test_after_a_little_has_come_a_client_of_very_many_partitions_is_read_for_a_little_later() -> None:
    play = parked(1_000)
    play.fetch(offsets(1_000))
    assert len(told(play.answer({5: Part(0, 101, b"news")}))) == 1
    asked = len(play.asked)

    play.fetch(offsets(1_000, p5=1))
    at_once = len(play.asked)
    play.wait(0.003)

    assert (at_once - asked, len(play.asked) - asked) == (0, 1)


def test_a_client_whose_wait_is_over_does_not_wait_for_that() -> None:
    play = parked(1_000)
    play.fetch(offsets(1_000))
    play.answer({5: Part(0, 101, b"news")})

    play.fetch(offsets(1_000, p5=1), max_wait_ms=0)

    assert dict(play.asked[-1].offsets) == {5: 1}


def test_the_broker_is_given_the_patience_and_the_least_there_can_be_to_wait_for() -> None:
    play = unparked()
    play.fetch(offsets(3))

    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (10_000, 1)


def test_what_comes_ends_the_wait_at_once() -> None:
    play = parked()

    play.fetch(offsets(3))
    play.wait(0.2)
    (answer,) = told(play.answer({1: Part(0, 101, b"news")}))

    assert records_of(answer) == {1: b"news"}
    assert parts_of(answer) == {0: (0, 100), 1: (0, 101), 2: (0, 100)}


def test_what_trickled_goes_on_waiting_in_its_place() -> None:
    play = parked()
    play.fetch(offsets(3))
    play.answer({1: Part(0, 101, b"news")})

    play.fetch(offsets(3, p1=101))

    assert dict(play.asked[-1].offsets) == {1: 101}
    assert play.asked[-1].link == PATIENT
    assert play.asked[-1].max_wait_ms == 10_000


def test_the_fetch_that_makes_a_session_does_not_wait_since_a_session_unknown_to_us_could_not_be_closed() -> None:
    play = Play(upstream_max_wait_s=10)
    play.fetch(offsets(3))
    play.open(PATIENT)
    play.wait(0.5)
    play.answer(dict.fromkeys(range(3), IDLE))
    play.fetch(offsets(3))

    assert [(asked.epoch, asked.max_wait_ms) for asked in play.asked] == [(-1, 500), (0, 0)]


def test_the_first_answer_waits_no_longer_than_the_client_since_nothing_is_known_before() -> None:
    play = Play(upstream_max_wait_s=10)
    play.fetch(offsets(1))
    play.open(PATIENT)

    assert play.asked[-1].max_wait_ms == 500
    assert told(play.wait(0.5)) == []
    assert len(told(play.answer({0: IDLE}))) == 1


def test_fetch_that_does_not_wait_gets_a_response_to_a_request_sent_after_it() -> None:
    play = parked()

    for first in (True, False, False):
        asked = len(play.asked)
        assert told(play.fetch(offsets(3), max_wait_ms=0)) == []
        if first:
            play.open(QUICK)
        (probe,) = play.asked[asked:]
        assert (dict(probe.offsets), probe.max_wait_ms) == (offsets(3), 0)
        assert len(told(play.answer(dict.fromkeys(range(3), IDLE), link=probe.link))) == 1


def test_silence_does_not_answer_a_fetch_that_waits_less_than_10_ms() -> None:
    play = parked()
    commands = play.fetch(offsets(3), max_wait_ms=9)
    commands += play.open(QUICK)

    assert told([*commands, *play.wait(0.5)]) == []
    assert len(told(play.answer(dict.fromkeys(range(3), IDLE), link=QUICK))) == 1


def test_response_to_an_earlier_long_poll_does_not_answer_a_fetch_that_does_not_wait() -> None:
    play = parked()
    assert told(play.fetch(offsets(3), max_wait_ms=0)) == []
    play.open(QUICK)

    assert told(play.answer({1: Part(0, 101, b"news")}, link=PATIENT)) == []
    (answer,) = told(play.answer({0: IDLE, 2: Part(0, 102)}, link=PATIENT))

    assert records_of(answer) == {1: b"news"}
    assert parts_of(answer) == {0: (0, 100), 1: (0, 101), 2: (0, 102)}


@pytest.mark.parametrize("max_wait_ms", [0, 40])
def test_silence_is_no_word_of_a_broker_that_was_told_not_to_wait(max_wait_ms: int) -> None:
    play = unparked()
    play.fetch(offsets(3), max_wait_ms=max_wait_ms)
    assert play.asked[-1].max_wait_ms == 0

    assert told(play.wait(4)) == []
    assert len(told(play.answer({}))) == 1


def test_nothing_new_is_not_said_of_what_was_asked_for_only_just_now() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50), max_wait_ms=60)
    play.wait(0.04)
    play.open(QUICK)

    assert told(play.wait(0.045)) == []
    assert len(told(play.wait(0.01))) == 1


def test_the_silence_of_a_broker_that_holds_the_client_back_is_no_word_of_its() -> None:
    play = unparked()
    play.fetch(offsets(3))
    (answer,) = told(play.answer({}, throttle_ms=14_000))
    assert (answer.throttle_time.total_seconds(), answer.responses) == (14, ())
    play.fetch(offsets(3))

    commands = play.wait(13.9)

    assert told(commands) == of_type(CloseLink, commands) == []
    assert len(told(play.wait(0.2))) == 1


def test_a_broker_that_says_nothing_in_time_is_hung_up_on_and_asked_again() -> None:
    play = parked()
    for _ in range(22):
        play.fetch(offsets(3))
        play.wait(0.5)
    play.fetch(offsets(3))

    commands = play.wait(0.5)

    assert [(command.link, command.why) for command in of_type(CloseLink, commands)] == [
        (PATIENT, "no answer within 12 s")
    ]
    assert of_type(OpenLink, commands) == [OpenLink(PATIENT, "the-client")]
    play.open(PATIENT)
    assert play.asked[-1].epoch in (-1, 0)


def test_a_client_that_wants_much_waits_at_the_broker_who_can_count() -> None:
    play = unparked()
    play.fetch(offsets(3), min_bytes=1000)
    assert told(play.answer({1: Part(0, 101, b"few")})) == []

    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (500, 1000)
    assert 1 not in play.asked[-1].forgotten
    (answer,) = told(play.answer({1: Part(0, 120, b"a thousand")}))
    assert records_of(answer) == {1: b"a thousand"}
    play.fetch(offsets(3, p1=120), min_bytes=1000)
    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (500, 1000)


def test_a_poll_while_draining_is_answered_soon_though_the_fetch_goes_on_waiting() -> None:
    play = parked()
    play.fetch(offsets(3))

    assert len(told(play.handle(Draining()))) == 1
    play.fetch(offsets(3))
    assert told(play.wait(0.09)) == []
    assert len(told(play.wait(0.02))) == 1


def test_an_answer_that_needs_no_waiting_is_waited_for_while_draining_too() -> None:
    play = unparked()
    play.fetch(offsets(3), max_wait_ms=0)

    assert told(play.handle(Draining())) == []
    assert len(told(play.answer({}))) == 1


def test_while_draining_nobody_waits_for_a_fetch_that_waits_for_much() -> None:
    play = unparked()
    play.fetch(offsets(3), min_bytes=1000, max_wait_ms=30_000)
    play.answer({1: Part(0, 101, b"few")})
    assert play.asked[-1].min_bytes == 1000
    assert len(told(play.handle(Draining()))) == 1

    play.fetch(offsets(3))
    assert len(told(play.wait(0.11))) == 1


def test_silence_is_not_told_while_a_large_answer_is_on_its_way() -> None:
    play = parked()
    play.fetch(offsets(3))
    play.handle(LinkAnswering(PATIENT))

    assert told(play.wait(60)) == []
    (answer,) = told(play.answer({1: Part(0, 101, b"large")}))
    assert records_of(answer) == {1: b"large"}


def test_nor_is_it_told_beside_what_another_lane_has_brought() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(QUICK)
    play.handle(LinkAnswering(PATIENT))

    assert told(play.answer({2: Part(0, 100, b"few")}, link=QUICK)) == []
    (answer,) = told(play.answer({1: Part(0, 101, b"large")}))
    assert records_of(answer) == {1: b"large", 2: b"few"}


def test_what_wants_more_than_there_is_waits_no_longer_than_it_said_though_another_lane_waits_on() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50), min_bytes=1000)
    play.open(QUICK)
    play.answer({2: Part(0, 100, b"few")}, link=QUICK)
    assert (play.asked[-1].min_bytes, play.asked[-1].max_wait_ms) == (1000, 500)

    (answer,) = told([*play.wait(0.5), *play.answer({2: Part(0, 100, b"few")}, link=QUICK)])
    assert records_of(answer) == {2: b"few"}


def test_a_watermark_is_learnt_of_what_has_left_the_lane_too_since_a_session_tells_it_once() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(QUICK)
    play.answer({2: Part(0, 105)})
    play.wait(0.05)
    answer = told(play.answer({}, link=QUICK)) + told(play.wait(0.5))

    assert parts_of(answer[0])[2] == (0, 105)


def test_nothing_is_learnt_of_a_topic_that_was_made_anew_from_what_the_old_one_still_brings() -> None:
    play = parked()
    again = uuid.UUID(int=8)
    play.known = topology(topic_id=again)
    play.fetch(offsets(3), max_wait_ms=0)
    play.open(QUICK)
    fresh = dict.fromkeys(range(3), Part(0, 1))
    assert len(told(play.answer(fresh, link=QUICK, topic_id=again))) == 1
    play.answer({2: Part(0, 105)})
    play.fetch(offsets(3), max_wait_ms=0)
    (answer,) = told(play.answer({}))

    assert parts_of(answer) == {0: (0, 1), 1: (0, 1), 2: (0, 1)}


def test_topic_that_is_made_anew_while_a_fetch_waits_is_asked_for_by_its_new_id_at_once() -> None:
    play = parked()
    again = uuid.UUID(int=8)
    play.fetch(offsets(3))
    asked = len(play.asked)

    play.tell(topology(topic_id=again))
    play.open(QUICK)

    fresh = dict.fromkeys(range(3), Part(0, 1, b"new"))
    (answer,) = told(play.answer(fresh, link=play.asked[-1].link, topic_id=again))
    assert len(play.asked) == asked + 1
    assert records_of(answer) == dict.fromkeys(range(3), b"new")


# ----------------------------------------------------------------------------------------------- the quick lane


def test_who_seeks_while_the_fetch_waits_is_asked_for_at_once_on_the_other_lane() -> None:
    play = parked()
    commands = play.fetch(offsets(3, p2=50))

    assert of_type(OpenLink, commands) == [OpenLink(QUICK, "the-client")]
    play.open(QUICK)
    asked = play.asked[-1]
    assert (asked.link, dict(asked.offsets), asked.max_wait_ms, asked.epoch) == (QUICK, {2: 50}, 500, -1)
    (answer,) = told(play.answer({2: Part(0, 100, b"fifty")}, link=QUICK))
    assert records_of(answer) == {2: b"fifty"}


def test_what_the_waiting_fetch_brings_of_a_partition_that_left_it_is_not_used() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(QUICK)

    assert told(play.answer({2: Part(0, 100, b"of the old place")})) == []
    (answer,) = told([*play.answer({2: Part(0, 100, b"fifty")}, link=QUICK), *play.wait(0.05)])
    assert records_of(answer) == {2: b"fifty"}


def test_a_new_leader_that_is_told_of_twice_is_told_once_since_javas_client_takes_no_more() -> None:
    play = Play(topology(3), upstream_max_wait_s=10)
    play.established(0, 1, 2, version=16)
    play.fetch(offsets(3, p2=50), version=16)
    play.open(QUICK)

    moved = Part(error=6, high_watermark=-1)
    assert told(play.answer({1: moved}, leaders=(2,))) == []
    (answer,) = told(play.answer({2: moved}, leaders=(2,)), version=16)

    assert [part.error_code for part in answer.responses[0].partitions] == [0, 6, 6]
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 9095)]


def test_who_seeks_while_both_lanes_wait_does_not_wait_for_either() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50), max_wait_ms=30_000)
    play.open(QUICK)
    play.wait(0.05)
    assert len(told(play.answer({0: Part(0, 101, b"news")}))) == 1
    play.fetch(offsets(3, p0=101, p2=50), max_wait_ms=30_000)
    play.wait(0.05)
    assert len(told(play.handle(Draining()))) == 1

    commands = play.fetch(offsets(3, p0=101, p1=60, p2=50))

    assert [(command.link, command.why) for command in of_type(CloseLink, commands)] == [
        (QUICK, "it waits, and others cannot wait for it")
    ]
    play.open(QUICK)
    assert dict(play.asked[-1].offsets) == {1: 60}


def test_quick_lane_is_kept_for_a_client_that_alternates_sets_of_partitions() -> None:
    """The broker ends the lane's wait when the client's ends, and its response comes just after the next fetch."""
    play = parked(4)
    fetch_of_alternating_sets(play, 2)
    play.open(QUICK)
    answers = told(play.wait(0.5))

    for partition in (3, 2, 3):
        assert of_type(CloseLink, fetch_of_alternating_sets(play, partition)) == []
        play.answer({5 - partition: Part()}, link=QUICK)
        assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (QUICK, {partition: 50})
        play.answer({partition: Part()}, link=QUICK)
        answers += told(play.wait(0.5))

    assert [sorted(parts_of(answer)) for answer in answers] == [[0, 1, 2], [0, 1, 3], [0, 1, 2], [0, 1, 3]]


def fetch_of_alternating_sets(play: Play, partition: int) -> list[Command]:
    return play.fetch({0: 0, 1: 0, partition: 50})


def test_what_keeps_moving_is_read_apart_from_what_rests() -> None:
    play = parked(len(MANY))
    at = moving(play)

    patient_lane, quick = play.asked_on(PATIENT)[-1], play.asked_on(QUICK)[-1]
    assert patient_lane.forgotten == [5]
    assert patient_lane.max_wait_ms == 10_000
    assert dict(quick.offsets) == {5: at}
    assert quick.max_wait_ms == 500


def test_few_partitions_are_read_together_however_they_move() -> None:
    play = parked()
    for at in range(6):
        play.fetch(offsets(3, p1=at))
        play.answer({1: Part(0, 101 + at, b"more")})

    assert play.asked_on(QUICK) == []


def test_what_has_stopped_moving_comes_to_rest_with_the_others() -> None:
    play = parked(len(MANY))
    at = moving(play)
    for _ in range(6):
        assert len(told([*play.answer({5: Part(0, 103)}, link=QUICK), *play.wait(0.5)])) == 1
        play.fetch(offsets(len(MANY), p5=at))
    play.answer({})

    assert dict(play.asked_on(PATIENT)[-1].offsets) == {5: at}


def test_who_has_said_all_is_not_asked_again_while_another_lane_is_waited_for() -> None:
    play = parked(len(MANY))
    at = moving(play) + 1
    play.wait(0.05)
    assert len(told(play.answer({5: Part(0, 104, b"more")}, link=QUICK))) == 1
    play.answer({})
    play.fetch(offsets(len(MANY), p5=at), max_wait_ms=0)
    asked = len(play.asked_on(QUICK))

    assert told(play.answer({5: Part(0, 104)}, link=QUICK)) == []
    assert len(play.asked_on(QUICK)) == asked
    assert len(told(play.answer({}))) == 1


def test_a_partition_in_error_leaves_the_others_in_peace() -> None:
    play = parked(len(MANY))
    play.fetch(offsets(len(MANY)))
    (answer,) = told(play.answer({5: Part(error=56)}))
    assert parts_of(answer)[5][0] == 56

    play.fetch(offsets(len(MANY)))
    play.open(QUICK)

    assert play.asked_on(PATIENT)[-1].forgotten == [5]
    assert list(play.asked_on(QUICK)[-1].offsets) == [5]


def test_a_lane_lost_with_its_broker_is_an_error_to_the_client_and_not_silence() -> None:
    play = parked()
    play.fetch(offsets(3))
    commands = play.lose(PATIENT)
    assert of_type(OpenLink, commands) == [OpenLink(PATIENT, "the-client")]
    commands = [*play.lose(PATIENT), *play.wait(1)]

    (answer,) = told(commands)
    assert {error for error, _ in parts_of(answer).values()} == {6}
    assert learnt(commands) == [frozenset({"t"})]


# ------------------------------------------------------------------------------------------------ what is held


def test_what_came_between_two_polls_is_handed_out_with_the_brokers_word_about_the_rest() -> None:
    play = parked()
    assert told(play.answer({1: Part(0, 101, b"news")})) == []

    assert told(play.fetch(offsets(3))) == []
    asked = play.asked[-1]
    assert (asked.max_wait_ms, asked.forgotten) == (0, [1])
    (answer,) = told(play.answer({2: Part(0, 105)}))

    assert records_of(answer) == {1: b"news"}
    assert parts_of(answer) == {0: (0, 100), 1: (0, 101), 2: (0, 105)}


def test_it_is_served_to_exactly_the_offset_asked_for() -> None:
    play = parked()
    play.answer({1: Part(0, 101, b"news")})

    play.fetch(offsets(3, p1=7))

    assert dict(play.asked[-1].offsets) == {1: 7}
    (answer,) = told([*play.answer({}), *play.wait(0.5)])
    assert records_of(answer) == {}


def test_it_is_not_kept_for_longer_than_the_patience() -> None:
    play = parked()
    play.answer({1: Part(0, 101, b"news")})
    play.wait(10.1)

    play.fetch(offsets(3))

    assert play.asked[-1].forgotten == []
    (answer,) = told(play.answer({1: Part(0, 102, b"newer")}))
    assert records_of(answer) == {1: b"newer"}


@pytest.mark.parametrize("how", ["a new leader epoch", "the connection is lost", "the memory is needed"])
def test_it_is_dropped_when(how: str) -> None:
    play = parked()
    play.answer({1: Part(0, 101, b"news")})
    match how:
        case "a new leader epoch":
            play.known = topology(epoch=6)
        case "the connection is lost":
            play.lose(PATIENT)
        case _:
            play.handle(MemoryNeeded())

    play.fetch(offsets(3))
    play.open(PATIENT)
    answers = told(play.answer(dict.fromkeys(range(3), IDLE)) if play.asked[-1].epoch < 1 else play.answer({}))

    assert all(records_of(answer) == {} for answer in answers)


def test_more_than_the_client_takes_at_once_is_given_oldest_first() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(QUICK)
    play.answer({2: Part(0, 100, b"a" * 60)}, link=QUICK)
    play.answer({0: Part(0, 101, b"b" * 60), 1: Part(0, 101, b"c" * 60)})

    play.fetch(offsets(3, p2=60), max_bytes=100)
    (answer,) = told([*play.answer({}), *play.wait(0.05)])
    assert set(records_of(answer)) == {0}
    play.fetch(offsets(3, p0=60, p2=60), max_bytes=100)
    (answer,) = told([*play.answer({}), *play.wait(0.05)])

    assert set(records_of(answer)) == {1}


def test_an_answer_to_another_isolation_is_not_served() -> None:
    play = parked()
    play.answer({1: Part(0, 101, b"uncommitted")})

    play.fetch(offsets(3), isolation_level=1)

    assert set(play.asked[-1].offsets) == {0, 1, 2}
    play.answer(dict.fromkeys(range(3), IDLE), session_id=8)
    (answer,) = told(play.wait(0.5))
    assert records_of(answer) == {}
