"""Read-ahead for clients that read on: the fetches at the broker, and the responses."""

from proxy.relay.commands import Draining
from tests.relay.batches import BATCH, SMALL, batches, given, part
from tests.relay.driver import MemoryNeeded
from tests.relay.playbook import LONG_POLL, Part, Play, client_responses, topology


def reading(partitions: int = 1) -> Play:
    """A client that has read four batches of partition 0, up to offset 40; it asks next."""
    play = Play(topology(max(partitions, 3)), upstream_max_wait_s=10, reads_ahead=True)
    play.part_bytes = SMALL
    play.established(*range(partitions))
    for first in (0, 20):
        play.fetch(offsets(partitions, first))
        assert given(play.answer({0: part(first, 2)})) == {0: (first, 2)}
    return play


def offsets(partitions: int, first: int) -> dict[int, int]:
    return {p: 0 if p else first for p in range(partitions)}


def test_next_records_are_requested_before_the_client_requests_them() -> None:
    play = reading()

    assert dict(play.asked[-1].offsets) == {0: 40}
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    assert given(play.fetch({0: 40})) == {0: (40, 2)}
    assert [dict(each.offsets) for each in play.asked[asked:]] == [{0: 60}]


def test_client_that_reads_on_gets_several_responses_from_one_fetch() -> None:
    play = reading()

    assert [dict(play.asked[n].part_bytes) for n in (0, -1)] == [{0: SMALL}, {0: 64 * 1024}]


def test_request_after_a_seek_has_the_partition_max_bytes_of_the_client() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    play.fetch({0: 500})

    assert dict(play.asked[-1].part_bytes) == {0: SMALL}


def test_response_that_is_under_way_is_waited_for_and_not_requested_again() -> None:
    play = reading()
    asked = len(play.asked)

    assert client_responses(play.fetch({0: 40})) == []
    assert len(play.asked) == asked

    assert given(play.answer({0: part(40, 2)})) == {0: (40, 2)}


def test_large_response_is_delivered_in_parts_of_whole_batches() -> None:
    play = reading()
    play.answer({0: part(40, 7)})

    assert given(play.fetch({0: 40})) == {0: (40, 2)}
    assert given(play.fetch({0: 60})) == {0: (60, 2)}
    assert given(play.fetch({0: 80})) == {0: (80, 2)}
    assert given(play.fetch({0: 100})) == {0: (100, 1)}


def test_client_that_takes_less_than_a_batch_is_given_one() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    play.part_bytes = BATCH // 2

    assert given(play.fetch({0: 40})) == {0: (40, 1)}
    assert given(play.fetch({0: 50})) == {0: (50, 1)}


def test_incomplete_batch_at_the_end_is_not_delivered() -> None:
    play = reading()
    play.answer({0: Part(0, 1000, batches(40, 3)[:-1])})

    assert given(play.fetch({0: 40})) == {0: (40, 2)}
    assert dict(play.asked[-1].offsets) == {0: 60}


def test_log_with_more_than_64_kib_unread_is_not_read_further() -> None:
    play = reading(2)
    play.answer({0: part(40, 66)})

    play.fetch({0: 40, 1: 0})

    assert (dict(play.asked[-1].offsets), play.asked[-1].forgotten) == ({}, [0])
    assert given(play.answer({})) == {0: (40, 2)}


def test_client_that_seeks_gets_the_records_at_its_new_offset() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    commands = play.fetch({0: 500})
    assert client_responses(commands) == []
    assert dict(play.asked[-1].offsets) == {0: 500}
    assert given(play.answer({0: part(500, 2)})) == {0: (500, 2)}


def test_repeated_fetch_of_an_offset_returns_the_same_records() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    assert client_responses(play.fetch({0: 20})) == []
    assert dict(play.asked[-1].offsets) == {0: 20}

    assert given(play.answer({0: part(20, 2)})) == {0: (20, 2)}


def test_partition_that_is_left_out_for_a_while_is_delivered_when_it_comes_back() -> None:
    """Check a partition that Java leaves out while its records are buffered, or while it is paused."""
    play = reading(2)
    play.fetch({1: 0})
    play.answer({0: part(40, 2)})
    assert len(client_responses(play.wait(0.5))) == 1
    asked = len(play.asked)

    assert given([*play.fetch({0: 40, 1: 0}), *play.wait(0.05)]) == {0: (40, 2)}

    assert not any(40 in each.offsets.values() for each in play.asked[asked:])


def test_error_about_a_partition_that_is_left_out_is_not_delivered() -> None:
    play = reading(2)
    play.fetch({1: 0})
    play.answer({0: Part(error=6)})

    (answer,) = client_responses(play.wait(0.5))

    assert [each.partition_index for topic in answer.responses for each in topic.partitions] == [1]


def test_records_of_a_partition_that_is_left_out_are_dropped_after_a_second() -> None:
    play = reading(2)
    play.answer({0: part(40, 2)})
    for _ in range(3):
        play.fetch({1: 0})
        play.wait(0.5)

    assert play.relay.cache.oldest_s is None


def test_other_partitions_are_confirmed_before_records_are_delivered() -> None:
    play = reading(2)
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    assert client_responses(play.fetch({0: 40, 1: 0})) == []
    (request,) = play.asked[asked:]
    assert (request.link, request.max_wait_ms) == (LONG_POLL, 0)

    assert given(play.answer({})) == {0: (40, 2)}


def test_records_that_were_read_ahead_are_dropped_if_the_leader_changes() -> None:
    play = reading()
    play.answer({0: part(40, 2)})

    play.known = topology(3, epoch=6)
    assert client_responses(play.fetch({0: 40})) == []

    assert dict(play.asked[-1].offsets) == {0: 40}
    assert dict(play.asked[-1].leader_epochs) == {0: 6}


def test_records_that_were_read_ahead_are_fetched_again_if_their_memory_was_needed() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    play.handle(MemoryNeeded())
    assert play.relay.cache.oldest_s is None

    assert client_responses(play.fetch({0: 40})) == []
    assert play.asked[-1].forgotten == []
    assert given(play.answer({0: part(40, 2)})) == {0: (40, 2)}


def test_nothing_is_read_ahead_while_draining() -> None:
    play = reading()
    play.answer({0: part(40, 2)})
    asked = len(play.asked)

    play.handle(Draining())
    assert given(play.fetch({0: 40})) == {0: (40, 2)}

    assert len(play.asked) == asked


def test_nothing_is_read_ahead_if_requests_wait_no_longer_than_clients() -> None:
    play = Play(topology(3), upstream_max_wait_s=0, reads_ahead=True)
    for at in (0, 20, 40):
        play.fetch({0: at})
        if not at:
            play.open(LONG_POLL)
        assert given(play.answer({0: part(at, 2)})) == {0: (at, 2)}

    assert [dict(each.offsets) for each in play.asked] == [{0: 0}, {0: 20}, {0: 40}]
