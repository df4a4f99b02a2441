"""Fetches of thousands of partitions: in parts, with a limit on those that wait, and with memory that is freed."""

import pytest

from proxy.relay.commands import FetchMemoryShort, Reply, Tick
from tests.relay.playbook import LONG_POLL, Part, Play, of_type, topology

MANY = 5_000


def test_large_fetch_is_found_and_requested_in_parts() -> None:
    play = Play(topology(MANY), upstream_max_wait_s=10)
    play.fetch(dict.fromkeys(range(MANY), 0))
    play.open(LONG_POLL)

    ticks = 0
    while play.relay.deadline_s == play.now_s:
        assert not play.asked, "it has requested some before it has found all"
        play.handle(Tick())
        ticks += 1
    assert ticks == 2
    assert [len(asked.offsets) for asked in play.asked] == [2_000]
    assert play.asked[0].max_wait_ms == 0

    play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)))
    assert len(play.asked[-1].offsets) == 4_000
    assert play.asked[-1].max_wait_ms == 0
    play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)), session_id=7)
    rest = play.asked[-1].offsets
    assert len(rest) == 1_000
    assert {p for asked in play.asked for p in asked.offsets} == set(range(MANY))

    (reply,) = of_type(Reply, [*play.answer(dict.fromkeys(rest, Part(0, 5))), *play.wait(0.5)])
    assert reply.record is not None
    assert reply.record.answered == MANY


def test_fetches_behind_one_that_waits_are_read_up_to_64_kib() -> None:
    play = Play(topology(MANY))
    play.fetch({0: 0})
    play.open(LONG_POLL)
    for _ in range(3):
        assert play.relay.takes_requests
        play.fetch(dict.fromkeys(range(1_000), 0))
    assert not play.relay.takes_requests

    play.answer({0: Part(records=b"x")})
    assert play.relay.takes_requests


def test_resting_client_frees_its_memory_and_its_next_fetch_is_answered() -> None:
    play = Play(topology(100))
    play.fetch(dict.fromkeys(range(100), 0))
    play.open(LONG_POLL)
    assert play.relay.fetch_bytes > 100_000
    assert not play.relay.rest(play.now_s)
    assert len(of_type(Reply, [*play.answer(dict.fromkeys(range(100), Part(0, 5))), *play.wait(0.5)])) == 1

    assert play.relay.rest(play.now_s)
    assert play.relay.fetch_bytes == 0
    assert play.relay.is_rested

    play.fetch(dict.fromkeys(range(100), 3))
    play.open(LONG_POLL)
    assert not play.relay.is_rested
    assert set(play.asked[-1].offsets.items()) == {(p, 3) for p in range(100)}
    (reply,) = of_type(Reply, play.answer({p: Part(0, 5, records=b"x") for p in range(100)}))
    assert reply.record is not None
    assert reply.record.answered == 100


def test_client_in_a_session_rests_and_goes_on_with_the_same_session() -> None:
    play = Play(client_sessions=10)
    play.fetch({0: 0, 1: 0}, session_epoch=0)
    play.open(LONG_POLL)
    play.answer({0: Part(0, 5), 1: Part(0, 6)})
    play.wait(0.5)
    assert play.relay.rest(play.now_s)

    play.fetch({}, session_id=100, session_epoch=1)
    play.open(LONG_POLL)
    assert dict(play.asked[-1].offsets) == {0: 0, 1: 0}
    (reply,) = of_type(Reply, play.answer({0: Part(0, 5, records=b"x"), 1: Part(0, 6)}))
    assert reply.record is not None
    assert (reply.record.session_id, reply.record.answered) == (100, 1)


@pytest.mark.parametrize("upstream_max_wait_s", [0, 10])
def test_client_whose_memory_is_needed_waits_for_a_tenth_of_a_second_at_most(upstream_max_wait_s: float) -> None:
    play = Play(upstream_max_wait_s=upstream_max_wait_s)
    play.established(0)
    play.fetch({0: 0}, max_wait_ms=5_000)
    play.wait(0.2)

    replies = of_type(Reply, [*play.handle(FetchMemoryShort()), *play.wait(0.1)])
    if not upstream_max_wait_s:  # the long poll of the broker has the client's own wait
        replies += of_type(Reply, play.answer({}))
    assert len(replies) == 1
