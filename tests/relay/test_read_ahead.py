"""Read-ahead for clients that read on: the fetches at the broker, and the responses."""

import pytest

from proxy.fetch.ahead import AHEAD_BYTES
from proxy.relay.commands import Draining, MemoryNeeded
from tests.old_clients import batch, fetch_frame
from tests.relay.ahead import BATCH, SMALL, batches, given, part
from tests.relay.playbook import PATIENT, QUICK, Part, Play, told, topology


def reading(partitions: int = 1) -> Play:
    """A client that has read two batches of partition 0 from offset 0, and two more from 20; it asks next."""
    play = Play(topology(max(partitions, 3)), upstream_max_wait_s=10, reads_ahead=True)
    play.part_bytes = SMALL
    play.established(*range(partitions))
    play.fetch(dict.fromkeys(range(partitions), 0))
    assert given(play.answer({0: part(0, 2)})) == {0: (0, 2)}
    asked = len(play.asked)
    play.fetch(offsets(partitions, 20))
    assert len(play.asked) == asked + 1, "it has not gone on yet, so nobody has asked before it"
    assert given(play.answer({0: part(20, 2)})) == {0: (20, 2)}
    return play


def offsets(partitions: int, first: int) -> dict[int, int]:
    return {p: 0 if p else first for p in range(partitions)}


def test_whoever_has_gone_on_once_is_asked_for_before_it_asks() -> None:
    play = reading()

    assert dict(play.asked[-1].offsets) == {0: 40}
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    assert given(play.fetch({0: 40})) == {0: (40, 2)}
    assert [dict(each.offsets) for each in play.asked[asked:]] == [{0: 60}]


def test_an_answer_that_is_under_way_is_waited_for() -> None:
    play = reading()
    asked = len(play.asked)

    assert told(play.fetch({0: 40})) == []
    assert len(play.asked) == asked

    assert given(play.answer({0: part(40, 2)})) == {0: (40, 2)}


def test_more_is_asked_for_than_the_client_takes_and_given_in_parts_of_whole_batches() -> None:
    play = reading()
    assert play.asked[-1].part_bytes == {0: 4 * SMALL}
    play.answer({0: part(40, 7)})
    asked = len(play.asked)

    assert given(play.fetch({0: 40})) == {0: (40, 2)}
    assert given(play.fetch({0: 60})) == {0: (60, 2)}
    assert given(play.fetch({0: 80})) == {0: (80, 2)}
    assert len(play.asked) == asked
    assert given(play.fetch({0: 100})) == {0: (100, 1)}

    assert [dict(each.offsets) for each in play.asked[asked:]] == [{0: 110}]


def test_a_client_that_takes_less_than_a_batch_is_given_one() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    play.part_bytes = BATCH // 2

    assert given(play.fetch({0: 40})) == {0: (40, 1)}
    assert given(play.fetch({0: 50})) == {0: (50, 1)}


def test_what_is_cut_off_at_the_end_is_not_given_as_a_part() -> None:
    play = reading()
    play.answer({0: Part(0, 1000, batches(40, 3)[:-1])})

    assert given(play.fetch({0: 40})) == {0: (40, 2)}

    assert dict(play.asked[-1].offsets) == {0: 60}


def test_a_client_that_seeks_has_wasted_one_answer_and_is_read_ahead_of_once_it_goes_on() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    play.fetch({0: 500})
    assert given(play.answer({0: part(500, 2)})) == {0: (500, 2)}
    play.fetch({0: 700})
    assert given(play.answer({0: part(700, 2)})) == {0: (700, 2)}
    play.fetch({0: 720})
    assert given(play.answer({0: part(720, 2)})) == {0: (720, 2)}

    assert [dict(each.offsets) for each in play.asked[asked:]] == [{0: 500}, {0: 700}, {0: 720}, {0: 740}]


def test_a_client_that_asks_for_the_same_again_is_given_the_same() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    assert told(play.fetch({0: 20})) == []
    assert dict(play.asked[-1].offsets) == {0: 20}

    assert given(play.answer({0: part(20, 2)})) == {0: (20, 2)}


def test_a_partition_that_is_left_out_for_a_while_is_given_when_it_comes_back() -> None:
    """Check a partition that Java leaves out while its records are buffered, or while it is paused."""
    play = reading(2)
    play.fetch({1: 0})
    play.answer({0: part(40, 2)})
    assert len(told(play.wait(0.5))) == 1
    asked = len(play.asked)

    assert given([*play.fetch({0: 40, 1: 0}), *play.wait(0.05)]) == {0: (40, 2)}

    assert not any(40 in each.offsets.values() for each in play.asked[asked:])


def test_an_error_about_what_is_left_out_is_not_told() -> None:
    play = reading(2)
    play.fetch({1: 0})
    play.answer({0: Part(error=6)})

    (answer,) = told(play.wait(0.5))

    assert [each.partition_index for topic in answer.responses for each in topic.partitions] == [1]


def test_what_the_client_has_not_come_back_to_within_the_patience_is_dropped() -> None:
    play = reading(2)
    play.answer({0: part(40, 2)})
    for _ in range(25):
        play.fetch({1: 0})
        play.wait(0.5)

    assert play.relay.held_since_s is None


def test_others_are_heard_before_what_was_read_ahead_is_given() -> None:
    """Check that the response covers all partitions, without a request to the broker."""
    play = reading(2)
    play.answer({0: part(40, 2)})
    assert play.asked[-1].max_wait_ms == 10_000
    asked = len(play.asked)

    assert given(play.fetch({0: 40, 1: 0})) == {0: (40, 2)}

    assert [each.link for each in play.asked[asked:]] == []
    play.open(QUICK)
    assert given([*play.fetch({0: 60, 1: 0}), *play.answer({0: part(60, 2)}, link=QUICK)]) == {0: (60, 2)}


def test_what_has_another_leader_since_is_not_given() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    play.known = topology(3, epoch=6)
    assert told(play.fetch({0: 40})) == []

    assert dict(play.asked[-1].offsets) == {0: 40}
    assert dict(play.asked[-1].leader_epochs) == {0: 6}


def test_nothing_is_asked_for_behind_the_end() -> None:
    play = reading()
    play.answer({0: part(40, 2, end=60)})
    asked = len(play.asked)

    assert given(play.fetch({0: 40})) == {0: (40, 2)}

    assert len(play.asked) == asked


@pytest.mark.parametrize(
    ("value_bytes", "ahead"),
    [(1000, [2]), (4 * AHEAD_BYTES - 1000, [2]), (4 * AHEAD_BYTES, [])],
    ids=["few", "4MiB", "more"],
)
def test_behind_much_that_is_converted_nothing_is_read_ahead(value_bytes: int, ahead: list[int]) -> None:
    """It takes its time to be sent, and its memory."""
    play = Play(topology(3), upstream_max_wait_s=10, reads_ahead=True)
    play.request(fetch_frame(2, {0: 0}))
    play.open(PATIENT)
    play.answer({0: Part(records=batch(0, bytes(value_bytes)))})
    play.request(fetch_frame(2, {0: 1}))
    play.answer({0: Part(records=batch(1, bytes(value_bytes)))})

    assert [dict(each.offsets) for each in play.asked] == [{0: offset} for offset in (0, 1, *ahead)]


def test_after_memory_was_needed_nothing_is_read_ahead_for_a_while() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    play.handle(MemoryNeeded())
    assert play.relay.held_since_s is None

    play.fetch({0: 40})
    assert given(play.answer({0: part(40, 2)})) == {0: (40, 2)}
    asked = len(play.asked)
    play.fetch({0: 60})
    play.answer({0: part(60, 2)})
    assert [dict(each.offsets) for each in play.asked[asked:]] == [{0: 60}]

    play.wait(10)
    play.fetch({0: 80})
    play.answer({0: part(80, 2)})
    assert dict(play.asked[-1].offsets) == {0: 100}


def test_behind_an_aborted_transaction_nothing_is_given_that_was_brought_with_it() -> None:
    """Check that records behind an aborted transaction are fetched again, with a list of their own."""
    play = reading()
    play.answer({0: part(40, 7, aborted=((7, 45), (8, 95)))})

    (answer,) = told(play.fetch({0: 40}))
    (told_part,) = (each for topic in answer.responses for each in topic.partitions)

    assert len(told_part.records) == 2 * BATCH
    assert [(each.producer_id, each.first_offset) for each in told_part.aborted_transactions] == [(7, 45)]
    assert dict(play.asked[-1].offsets) == {0: 60}


def test_nothing_is_read_ahead_while_draining() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    play.handle(Draining())
    assert given(play.fetch({0: 40})) == {0: (40, 2)}

    assert len(play.asked) == asked


def test_without_patience_nothing_is_read_ahead() -> None:
    play = Play(topology(3), upstream_max_wait_s=0, reads_ahead=True)
    for at in (0, 20, 40):
        play.fetch({0: at})
        if not at:
            play.open(PATIENT)
        assert given(play.answer({0: part(at, 2)})) == {0: (at, 2)}

    assert [dict(each.offsets) for each in play.asked] == [{0: 0}, {0: 20}, {0: 40}]
