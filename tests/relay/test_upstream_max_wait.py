"""Fetches that wait longer than their clients: requests at the broker, and responses without a request."""

import uuid

import pytest

from proxy.errors import ErrorCode
from proxy.relay.commands import CloseLink, Command, Draining, LinkAnswering, OpenLink
from tests.old_clients import batch
from tests.relay.batches import BATCH, batches
from tests.relay.driver import MemoryNeeded
from tests.relay.playbook import (
    CATCH_UP,
    LIVE,
    LONG_POLL,
    Part,
    Play,
    client_responses,
    learnt,
    of_type,
    parts_of,
    topology,
)

IDLE = Part()
MANY = range(120)
"""Enough for the idle ones to be read apart from those that move."""


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
        assert len(client_responses(play.answer({5: Part(0, 101 + at, batch(at, b"more"))}))) == 1
    play.fetch(offsets(len(MANY), p5=3))
    play.open(LIVE)
    return 3


def records_of(answer: object) -> dict[int, bytes]:
    parts = [part for topic in answer.responses for part in topic.partitions]  # type: ignore[attr-defined]
    return {part.partition_index: bytes(part.records) for part in parts if part.records}


# ----------------------------------------------------------------------------------------- one long poll


def test_idle_fetches_are_answered_while_one_long_poll_waits_at_the_broker() -> None:
    play = parked()
    asked = len(play.asked)

    for _ in range(15):
        play.fetch(offsets(3))
        (answer,) = client_responses(play.wait(0.5))
        assert parts_of(answer) == {0: (0, 100), 1: (0, 100), 2: (0, 100)}

    assert len(play.asked) == asked


def test_cached_records_of_a_topic_are_dropped_when_it_is_created_again() -> None:
    play = Play(topology(), broker_fetch=12, upstream_max_wait_s=10)
    play.established(0, 1, 2)
    play.answer({1: Part(0, 101, batch(0, b"of the old"))})

    play.known = topology(topic_id=uuid.UUID(int=8))
    commands = play.fetch(offsets(3))
    commands += play.answer({0: IDLE, 1: Part(0, 101, batch(0, b"of the new")), 2: IDLE})

    (answer,) = client_responses(commands)
    assert records_of(answer) == {1: batch(0, b"of the new")}


def test_response_that_began_before_the_client_fetch_is_confirmed_by_another_request() -> None:
    play = parked()
    play.handle(LinkAnswering(LONG_POLL))
    play.fetch(offsets(3))

    assert client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))})) == []
    (answer,) = client_responses(play.answer({}))

    assert records_of(answer) == {1: batch(0, b"news")}
    assert play.asked[-1].max_wait_ms == 0


def test_cached_records_are_dropped_when_the_leader_refuses_their_partition() -> None:
    play = parked()
    play.handle(LinkAnswering(LONG_POLL))
    play.fetch(offsets(3, p1=50))
    play.open(LIVE)
    assert client_responses(play.answer({1: Part(0, 101, batch(50, b"from before"))}, link=LIVE)) == []

    commands = play.answer({1: Part(ErrorCode.not_leader_or_follower, -1)})
    assert client_responses(commands) == []
    (answer,) = client_responses(play.answer({1: Part(0, 101, batch(50, b"from now"))}, link=play.asked[-1].link))

    assert records_of(answer) == {1: batch(50, b"from now")}


def test_many_partitions_are_read_again_a_little_later_after_few_records() -> None:
    play = parked(1_000)
    play.fetch(offsets(1_000))
    assert len(client_responses(play.answer({5: Part(0, 101, batch(0, b"news"))}))) == 1
    asked = len(play.asked)

    play.fetch(offsets(1_000, p5=1))
    at_once = len(play.asked)
    play.wait(0.003)

    assert (at_once - asked, len(play.asked) - asked) == (0, 1)


def test_a_client_whose_wait_is_over_does_not_wait_for_that() -> None:
    play = Play(topology(1_000), upstream_max_wait_s=10)
    play.fetch(offsets(1_000), max_wait_ms=0)
    play.open(LONG_POLL)
    play.answer(dict.fromkeys(range(1_000), IDLE))
    play.fetch(offsets(1_000), max_wait_ms=0)
    play.answer(dict.fromkeys(range(1_000), IDLE), session_id=7)
    play.fetch(offsets(1_000), max_wait_ms=0)
    play.answer({5: Part(0, 101, batch(0, b"news"))})

    play.fetch(offsets(1_000, p5=1), max_wait_ms=0)

    assert dict(play.asked[-1].offsets) == {5: 1}


def test_request_waits_for_upstream_max_wait_with_min_bytes_1() -> None:
    play = unparked()
    play.fetch(offsets(3))

    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (10_000, 1)


def test_records_end_the_wait_of_a_client_fetch_at_once() -> None:
    play = parked()

    play.fetch(offsets(3))
    play.wait(0.2)
    (answer,) = client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))}))

    assert records_of(answer) == {1: batch(0, b"news")}
    assert parts_of(answer) == {0: (0, 100), 1: (0, 101), 2: (0, 100)}


def test_partition_with_few_records_stays_on_the_long_poll_fetcher() -> None:
    play = parked()
    play.fetch(offsets(3))
    play.answer({1: Part(0, 101, batch(0, b"news"))})

    play.fetch(offsets(3, p1=101))

    assert dict(play.asked[-1].offsets) == {1: 101}
    assert play.asked[-1].link == LONG_POLL
    assert play.asked[-1].max_wait_ms == 10_000


def test_fetch_that_creates_a_session_does_not_wait_at_the_broker() -> None:
    # Without the response, Sidefetch does not know the session, and could not close it when the client leaves.
    play = Play(upstream_max_wait_s=10)
    play.fetch(offsets(3))
    play.open(LONG_POLL)
    play.wait(0.5)
    play.answer(dict.fromkeys(range(3), IDLE))
    play.fetch(offsets(3))

    assert [(asked.epoch, asked.max_wait_ms) for asked in play.asked] == [(-1, 500), (0, 0)]


def test_first_upstream_fetch_waits_no_longer_than_the_client() -> None:
    play = Play(upstream_max_wait_s=10)
    play.fetch(offsets(1))
    play.open(LONG_POLL)

    assert play.asked[-1].max_wait_ms == 500
    assert client_responses(play.wait(0.5)) == []
    assert len(client_responses(play.answer({0: IDLE}))) == 1


def test_fetch_that_does_not_wait_gets_a_response_to_a_request_sent_after_it() -> None:
    play = parked()

    for _ in range(3):
        asked = len(play.asked)
        commands = play.fetch(offsets(3), max_wait_ms=0)
        assert client_responses(commands) == []
        play.open_wanted(commands)
        (probe,) = play.asked[asked:]
        assert (dict(probe.offsets), probe.max_wait_ms) == (offsets(3), 0)
        assert len(client_responses(play.answer(dict.fromkeys(range(3), IDLE), link=probe.link))) == 1


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(9, 1), (500, 0)])
def test_silence_does_not_answer_a_fetch_that_hardly_waits(max_wait_ms: int, min_bytes: int) -> None:
    play = parked()
    commands = play.fetch(offsets(3), max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    commands += play.open_wanted(commands)

    assert client_responses([*commands, *play.wait(0.5)]) == []
    assert len(client_responses(play.answer(dict.fromkeys(range(3), IDLE), link=play.asked[-1].link))) == 1


def test_response_to_an_earlier_long_poll_does_not_answer_a_fetch_that_does_not_wait() -> None:
    play = parked()
    commands = play.fetch(offsets(3), max_wait_ms=0)
    assert client_responses(commands) == []
    play.open_wanted(commands)
    link = play.asked[-1].link

    assert client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))}, link=LONG_POLL)) == []
    others = {0: Part(0, 0), 2: Part(0, 0)}
    (answer,) = client_responses(play.answer(others | {1: Part(0, 101, batch(0, b"news"))}, link=link))

    assert records_of(answer) == {1: batch(0, b"news")}


@pytest.mark.parametrize("max_wait_ms", [0, 40])
def test_silence_does_not_count_while_a_request_with_max_wait_0_is_in_flight(max_wait_ms: int) -> None:
    play = unparked()
    play.open_wanted(play.fetch(offsets(3), max_wait_ms=max_wait_ms))
    asked = play.asked[-1]
    assert asked.max_wait_ms == 0

    assert client_responses(play.wait(4)) == []
    idle = dict.fromkeys(range(3), IDLE) if asked.epoch < 1 else {}
    assert len(client_responses(play.answer(idle, link=asked.link))) == 1


def test_silence_counts_only_after_a_request_is_in_flight_for_50_ms() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)
    assert client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))})) == []

    assert client_responses(play.wait(0.045)) == []
    assert len(client_responses(play.wait(0.01))) == 1


def test_silence_does_not_count_while_the_broker_throttles_the_client() -> None:
    play = unparked()
    play.fetch(offsets(3))
    (answer,) = client_responses(play.answer({}, throttle_ms=14_000))
    assert (answer.throttle_time.total_seconds(), answer.responses) == (14, ())
    play.fetch(offsets(3))

    commands = play.wait(13.9)

    assert client_responses(commands) == of_type(CloseLink, commands) == []
    assert len(client_responses(play.wait(0.2))) == 1


def test_connection_with_an_overdue_response_is_closed_and_opened_again() -> None:
    play = parked()
    for _ in range(22):
        play.fetch(offsets(3))
        play.wait(0.5)
    play.fetch(offsets(3))

    commands = play.wait(0.5) + play.fetch(offsets(3))

    assert [(command.link, command.why) for command in of_type(CloseLink, commands)] == [
        (LONG_POLL, "no answer within 12 s")
    ]
    assert of_type(OpenLink, commands) == [OpenLink(LONG_POLL, "the-client")]
    play.open(LONG_POLL)
    assert play.asked[-1].epoch in (-1, 0)


def test_fetch_with_large_min_bytes_waits_at_the_broker_for_the_missing_bytes() -> None:
    play = unparked()
    play.fetch(offsets(3), min_bytes=BATCH)
    few = batch(0, b"few")
    assert client_responses(play.answer({1: Part(0, 101, few)})) == []

    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (500, BATCH - len(few))
    assert 1 not in play.asked[-1].forgotten
    (answer,) = client_responses(play.answer({1: Part(0, 120, batches(1, 1))}))
    assert records_of(answer) == {1: few + batches(1, 1)}
    play.fetch(offsets(3, p1=11), min_bytes=BATCH)
    assert (play.asked[-1].max_wait_ms, play.asked[-1].min_bytes) == (500, BATCH)


def test_fetch_while_draining_is_answered_after_100_ms_beside_a_long_poll() -> None:
    play = parked()
    play.fetch(offsets(3))

    assert len(client_responses(play.handle(Draining()))) == 1
    play.fetch(offsets(3))
    assert client_responses(play.wait(0.09)) == []
    assert len(client_responses(play.wait(0.02))) == 1


def test_draining_does_not_end_a_fetch_with_max_wait_0_before_the_broker_response() -> None:
    play = unparked()
    play.open_wanted(play.fetch(offsets(3), max_wait_ms=0))

    assert client_responses(play.handle(Draining())) == []
    assert len(client_responses(play.answer(dict.fromkeys(range(3), IDLE), link=play.asked[-1].link))) == 1


def test_fetch_while_draining_does_not_wait_for_a_request_with_large_min_bytes() -> None:
    play = unparked()
    play.fetch(offsets(3), min_bytes=1000, max_wait_ms=30_000)
    play.answer({1: Part(0, 101, batch(0, b"few"))})
    assert play.asked[-1].min_bytes > 900
    assert len(client_responses(play.handle(Draining()))) == 1

    play.fetch(offsets(3, p1=1))
    assert len(client_responses(play.wait(0.11))) == 1


def test_silence_does_not_count_while_a_large_response_arrives() -> None:
    play = parked()
    play.fetch(offsets(3))
    play.handle(LinkAnswering(LONG_POLL))

    assert client_responses(play.wait(60)) == []
    (answer,) = client_responses(play.answer({1: Part(0, 101, batch(0, b"large"))}))
    assert records_of(answer) == {1: batch(0, b"large")}


def test_silence_does_not_count_beside_records_while_a_large_response_arrives() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)
    play.handle(LinkAnswering(LONG_POLL))

    assert client_responses(play.answer({2: Part(0, 100, batch(50, b"few"))}, link=LIVE)) == []
    (answer,) = client_responses(play.answer({1: Part(0, 101, batch(0, b"large"))}))
    assert records_of(answer) == {1: batch(0, b"large"), 2: batch(50, b"few")}


def test_fetch_for_more_than_there_is_ends_at_its_max_wait_beside_a_long_poll() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50), min_bytes=1000)
    play.open(LIVE)
    few = batch(50, b"few")
    play.answer({2: Part(0, 100, few)}, link=LIVE)
    (answer,) = client_responses(play.wait(0.5))

    # The live request does not wait for the rest of the 1,000 bytes: its silence shows that there is nothing more.
    assert [(each.min_bytes, each.max_wait_ms) for each in play.asked_on(LIVE)[1:]] == [(1, 100)]
    assert records_of(answer) == {2: few}


def test_high_watermark_of_a_log_that_left_its_fetcher_is_learnt() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)
    play.answer({2: Part(0, 105)})
    play.wait(0.05)
    answer = client_responses(play.answer({}, link=LIVE)) + client_responses(play.wait(0.5))

    assert parts_of(answer[0])[2] == (0, 105)


def test_response_for_the_old_topic_id_changes_no_offset_of_a_topic_created_again() -> None:
    play = parked()
    again = uuid.UUID(int=8)
    play.known = topology(topic_id=again)
    play.fetch(offsets(3), max_wait_ms=0)
    play.open(LIVE)
    fresh = dict.fromkeys(range(3), Part(0, 1))
    assert len(client_responses(play.answer(fresh, link=LIVE, topic_id=again))) == 1
    play.answer({2: Part(0, 105)})
    play.fetch(offsets(3), max_wait_ms=0)
    (answer,) = client_responses(play.answer({}))

    assert parts_of(answer) == {0: (0, 1), 1: (0, 1), 2: (0, 1)}


def test_topic_created_again_during_a_fetch_is_requested_by_its_new_id_at_once() -> None:
    play = parked()
    again = uuid.UUID(int=8)
    play.fetch(offsets(3))
    asked = len(play.asked)

    play.update_topology(topology(topic_id=again))
    play.open(LIVE)

    fresh = dict.fromkeys(range(3), Part(0, 1, batch(0, b"new")))
    (answer,) = client_responses(play.answer(fresh, link=play.asked[-1].link, topic_id=again))
    assert len(play.asked) == asked + 1
    assert records_of(answer) == dict.fromkeys(range(3), batch(0, b"new"))


# -------------------------------------------------------------------------------------------- several fetchers


def test_seek_beside_a_long_poll_is_requested_at_once_on_the_live_fetcher() -> None:
    play = parked()
    commands = play.fetch(offsets(3, p2=50))

    assert of_type(OpenLink, commands) == [OpenLink(LIVE, "the-client")]
    play.open(LIVE)
    asked = play.asked[-1]
    assert (asked.link, dict(asked.offsets), asked.max_wait_ms, asked.epoch) == (LIVE, {2: 50}, 100, -1)
    (answer,) = client_responses(play.answer({2: Part(0, 100, batch(50, b"fifty"))}, link=LIVE))
    assert records_of(answer) == {2: batch(50, b"fifty")}


def test_long_poll_response_for_the_offset_before_a_seek_is_not_used() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)

    assert client_responses(play.answer({2: Part(0, 100, batch(0, b"of the old place"))})) == []
    (answer,) = client_responses(
        [*play.answer({2: Part(0, 100, batch(50, b"fifty"))}, link=LIVE), *play.wait(0.05)]
    )
    assert records_of(answer) == {2: batch(50, b"fifty")}


def test_endpoint_of_a_new_leader_from_two_broker_responses_is_returned_once() -> None:
    play = Play(topology(3), upstream_max_wait_s=10)
    play.established(0, 1, 2, version=16)
    play.fetch(offsets(3, p2=50), version=16)
    play.open(LIVE)

    moved = Part(error=6, high_watermark=-1)
    assert client_responses(play.answer({1: moved}, leaders=(2,))) == []
    (answer,) = client_responses(play.answer({2: moved}, link=LIVE, leaders=(2,)), version=16)

    assert [part.error_code for part in answer.responses[0].partitions] == [0, 6, 6]
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 9095)]


def test_seek_beside_two_requests_that_wait_is_requested_at_once_on_a_third() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)
    play.answer({2: IDLE}, link=LIVE)
    assert len(client_responses(play.wait(0.5))) == 1
    assert play.relay.is_busy(LONG_POLL)
    assert play.relay.is_busy(LIVE)

    assert of_type(CloseLink, play.fetch(offsets(3, p1=60, p2=50))) == []
    play.open(CATCH_UP)
    asked = play.asked[-1]
    assert (asked.link, dict(asked.offsets), asked.max_wait_ms) == (CATCH_UP, {1: 60}, 0)


def test_no_connection_is_closed_for_a_client_that_alternates_sets_of_partitions() -> None:
    play = parked(4)
    commands: list[Command] = []
    for partition in (2, 3, 2, 3):
        commands += play.fetch({0: 0, 1: 0, partition: 50})
        for opened in of_type(OpenLink, commands[-2:]):
            commands += play.open(opened.link)
        for link in (LIVE, CATCH_UP):
            if play.relay.is_busy(link):
                commands += play.answer(dict.fromkeys(play.asked_on(link)[-1].offsets, IDLE), link=link)
        commands += play.wait(0.5)

    assert of_type(CloseLink, commands) == []
    assert [sorted(parts_of(answer)) for answer in client_responses(commands)] == [
        [0, 1, 2],
        [0, 1, 3],
        [0, 1, 2],
        [0, 1, 3],
    ]


def test_log_that_moves_beside_100_quiet_ones_is_read_on_the_live_fetcher() -> None:
    play = parked(len(MANY))
    at = moving(play)

    long_poll, live = play.asked_on(LONG_POLL)[-1], play.asked_on(LIVE)[-1]
    assert long_poll.forgotten == [5]
    assert long_poll.max_wait_ms == 10_000
    assert dict(live.offsets) == {5: at}
    assert live.max_wait_ms == 100


def test_few_partitions_are_read_on_one_fetcher_however_they_move() -> None:
    play = parked()
    for at in range(6):
        play.fetch(offsets(3, p1=at))
        play.answer({1: Part(0, 101 + at, batch(at, b"more"))})

    assert play.asked_on(LIVE) == []


def test_drain_without_a_wait_needs_one_request_a_fetch_however_partitions_move() -> None:
    play = Play(topology(len(MANY)), upstream_max_wait_s=10)
    play.fetch(offsets(len(MANY)), max_wait_ms=0)
    play.open(LONG_POLL)
    play.answer(dict.fromkeys(MANY, IDLE))

    for at in range(6):
        asked = len(play.asked)
        commands = play.fetch(offsets(len(MANY), p5=at), max_wait_ms=0)
        assert of_type(OpenLink, commands) == []
        assert (
            len(client_responses(play.answer({**dict.fromkeys(MANY, IDLE), 5: Part(records=batch(at, b"more"))})))
            == 1
        )
        assert len(play.asked) == asked + 1


def test_log_that_has_stopped_moving_returns_to_the_long_poll_fetcher() -> None:
    play = parked(len(MANY))
    at = moving(play)
    for _ in range(6):
        assert len(client_responses([*play.answer({5: Part(0, 103)}, link=LIVE), *play.wait(0.5)])) == 1
        play.fetch(offsets(len(MANY), p5=at))
    play.answer({})

    assert dict(play.asked_on(LONG_POLL)[-1].offsets) == {5: at}


def seeking() -> Play:
    """Return a conversation whose partition 1 has a first live request in flight, from offset 50."""
    play = parked()
    play.fetch(offsets(3, p1=50))
    play.open(LIVE)
    return play


def test_confirmed_log_returns_to_the_long_poll_from_a_live_request_in_flight() -> None:
    play = seeking()
    play.answer({1: Part(0, 50)}, link=LIVE)
    assert play.asked[-1].link == LIVE
    play.wait(0.01)
    play.answer({})

    assert dict(play.asked_on(LONG_POLL)[-1].offsets) == {1: 50}


def test_log_whose_first_live_response_may_be_large_waits_for_it() -> None:
    play = seeking()
    play.answer({0: Part(0, 101, batch(0, b"news"))})
    assert not any(1 in each.offsets for each in play.asked_on(LONG_POLL))

    large = batches(50, 20)
    (answer,) = client_responses(play.answer({1: Part(0, 70, large)}, link=LIVE))
    assert records_of(answer) == {0: batch(0, b"news"), 1: large}


def test_fetcher_that_confirmed_its_logs_is_idle_while_another_is_waited_for() -> None:
    play = parked(len(MANY))
    at = moving(play)
    play.wait(0.05)
    assert len(client_responses(play.answer({5: Part(0, 104, batch(at, b"more"))}, link=LIVE))) == 1
    play.answer({})
    play.fetch(offsets(len(MANY), p5=at + 1), max_wait_ms=40)
    asked = len(play.asked_on(LIVE))
    assert [each.max_wait_ms for each in play.asked[-2:]] == [0, 0]
    play.wait(0.04)

    assert client_responses(play.answer({5: Part(0, 104)}, link=LIVE)) == []
    assert len(play.asked_on(LIVE)) == asked
    assert len(client_responses(play.answer({}))) == 1


def test_a_partition_in_error_leaves_the_others_in_peace() -> None:
    play = parked(len(MANY))
    play.fetch(offsets(len(MANY)))
    (answer,) = client_responses(play.answer({5: Part(error=56)}))
    assert parts_of(answer)[5][0] == 56

    play.fetch(offsets(len(MANY)))
    play.open(LIVE)

    assert play.asked_on(LONG_POLL)[-1].forgotten == [5]
    assert list(play.asked_on(LIVE)[-1].offsets) == [5]


def test_connection_lost_with_its_broker_is_an_error_for_the_client() -> None:
    play = parked()
    play.fetch(offsets(3))
    commands = play.lose(LONG_POLL)
    assert of_type(OpenLink, commands) == [OpenLink(LONG_POLL, "the-client")]
    commands = [*play.lose(LONG_POLL), *play.wait(1)]

    (answer,) = client_responses(commands)
    assert {error for error, _ in parts_of(answer).values()} == {6}
    assert learnt(commands) == [frozenset({"t"})]


# ---------------------------------------------------------------------------------------------- cached records


def test_records_cached_between_fetches_wait_until_the_others_are_confirmed() -> None:
    play = parked()
    assert client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))})) == []

    assert client_responses(play.fetch(offsets(3))) == []
    asked = play.asked[-1]
    assert (asked.max_wait_ms, asked.offsets, asked.forgotten) == (0, {1: 1}, [])
    (answer,) = client_responses(play.answer({2: Part(0, 105)}))

    assert records_of(answer) == {1: batch(0, b"news")}
    assert parts_of(answer) == {0: (0, 100), 1: (0, 101), 2: (0, 105)}


def test_cached_records_are_delivered_only_at_their_offsets() -> None:
    play = parked()
    play.answer({1: Part(0, 101, batch(0, b"news"))})

    play.fetch(offsets(3, p1=7))

    assert dict(play.asked[-1].offsets) == {1: 7}
    (answer,) = client_responses([*play.answer({}), *play.wait(0.5)])
    assert records_of(answer) == {}


def test_cached_records_are_not_delivered_after_upstream_max_wait() -> None:
    play = parked()
    play.answer({1: Part(0, 101, batch(0, b"news"))})
    play.wait(10.1)

    play.fetch(offsets(3))

    assert play.asked[-1].forgotten == []
    (answer,) = client_responses(play.answer({1: Part(0, 102, batch(0, b"newer"))}))
    assert records_of(answer) == {1: batch(0, b"newer")}


@pytest.mark.parametrize("how", ["a new leader epoch", "the connection is lost", "the memory is needed"])
def test_cached_records_are_dropped_when(how: str) -> None:
    play = parked()
    play.answer({1: Part(0, 101, batch(0, b"news"))})
    match how:
        case "a new leader epoch":
            play.known = topology(epoch=6)
        case "the connection is lost":
            play.lose(LONG_POLL)
        case _:
            play.handle(MemoryNeeded())

    play.fetch(offsets(3))
    play.open(LONG_POLL)
    answers = client_responses(
        play.answer(dict.fromkeys(range(3), IDLE)) if play.asked[-1].epoch < 1 else play.answer({})
    )

    assert all(records_of(answer) == {} for answer in answers)


def test_more_than_the_client_takes_at_once_is_given_oldest_first() -> None:
    play = parked()
    play.fetch(offsets(3, p2=50))
    play.open(LIVE)
    play.answer({2: Part(0, 100, batch(50, b"a" * 60))}, link=LIVE)
    play.answer({0: Part(0, 101, batch(0, b"b" * 60)), 1: Part(0, 101, batch(0, b"c" * 60))})

    play.fetch(offsets(3, p2=60), max_bytes=100)
    (answer,) = client_responses([*play.answer({}), *play.wait(0.05)])
    assert set(records_of(answer)) == {0}
    play.fetch(offsets(3, p0=60, p2=60), max_bytes=100)
    (answer,) = client_responses([*play.answer({}), *play.wait(0.05)])

    assert set(records_of(answer)) == {1}


def test_records_of_another_isolation_level_are_not_delivered() -> None:
    play = parked()
    play.answer({1: Part(0, 101, batch(0, b"uncommitted"))})

    play.fetch(offsets(3), isolation_level=1)
    play.open(LONG_POLL)

    assert set(play.asked[-1].offsets) == {0, 1, 2}
    (answer,) = client_responses([*play.answer(dict.fromkeys(range(3), IDLE)), *play.wait(0.5)])
    assert records_of(answer) == {}


@pytest.mark.parametrize("is_large", [False, True])
def test_without_upstream_max_wait_each_idle_fetch_has_its_own_request_and_wait(*, is_large: bool) -> None:
    play = Play(topology(1))
    play.established(0)
    play.fetch({0: 0}, max_wait_ms=250)
    assert len(client_responses(play.wait(0.25))) == 1  # a moment before the broker's response arrives
    asked = len(play.asked)

    play.fetch({0: 0}, max_wait_ms=250)
    if is_large:
        play.handle(LinkAnswering(LONG_POLL))

    assert client_responses(play.answer({})) == []
    assert len(play.asked) == asked + 1
    assert client_responses(play.wait(0.24)) == []
    assert len(client_responses(play.answer({}))) == 1
