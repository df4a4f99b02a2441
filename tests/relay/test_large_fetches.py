"""Fetches of thousands of partitions: in parts, with a limit on those that wait, and with memory that is freed."""

import attrs
import pytest

from proxy.cluster.topology import TopicInfo, Topology
from proxy.errors import ClientProtocolError, ErrorCode, LimitReached
from proxy.relay.commands import (
    Command,
    FetchMemoryShort,
    OpenLink,
    Reply,
    RunInThread,
    ThreadFinished,
    Tick,
)
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION
from proxy.wire.fetch import FETCH, FetchOptions, FetchPartition, PartitionKey, Topic, write_request
from proxy.wire.headers import RequestHeader
from tests.relay.playbook import (
    CATCH_UP,
    LONG_POLL,
    Part,
    Play,
    client_responses,
    learnt,
    of_type,
    parts_of,
    topology,
)

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
    assert ticks == 4
    assert [len(asked.offsets) for asked in play.asked] == [1_000]
    assert play.asked[0].max_wait_ms == 0

    play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)))
    assert len(play.asked[-1].offsets) == 2_000
    assert play.asked[-1].max_wait_ms == 0
    play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)), session_id=7)
    while len(play.asked) < 5:
        assert len(play.asked[-1].offsets) == 1_000
        play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)))
    rest = play.asked[-1].offsets
    assert len(rest) == 1_000
    assert {p for asked in play.asked for p in asked.offsets} == set(range(MANY))

    (reply,) = of_type(Reply, [*play.answer(dict.fromkeys(rest, Part(0, 5))), *play.wait(0.5)])
    assert reply.record is not None
    assert reply.record.answered == MANY


def large(
    offset: int = 0,
    partitions: int = MANY,
    correlation_id: int = 1,
    session: tuple[int, int] = (NO_SESSION, FINAL_EPOCH),
) -> bytes:
    """A fetch of ``t`` with its size; *session*: id and epoch."""
    wanted = {PartitionKey("t", partition): FetchPartition(offset, 1 << 20) for partition in range(partitions)}
    header = RequestHeader(FETCH, 11, correlation_id, "the-client")
    return write_request(header, FetchOptions(500, 1), *session, wanted, ())


def finish(play: Play, work: RunInThread) -> list[Command]:
    return play.handle(ThreadFinished(work.worker, work.run()))


def test_large_fetch_is_decoded_in_a_thread_before_the_next_request_is_read() -> None:
    play = Play(topology(MANY), works=False)

    (decoding,) = play.request(large())
    assert isinstance(decoding, RunInThread)
    assert not play.relay.takes_requests
    assert play.relay.is_preparing_fetch
    assert play.relay.has_unanswered
    assert not play.relay.rest(play.now_s)

    assert of_type(OpenLink, finish(play, decoding)) == [OpenLink(LONG_POLL, "the-client")]


@pytest.mark.parametrize("is_known", [True, False])
def test_partitions_of_a_large_fetch_are_adopted_in_a_thread(*, is_known: bool) -> None:
    play = Play(topology(MANY) if is_known else Topology(), works=False)
    (decoding,) = of_type(RunInThread, play.request(large()))
    finish(play, decoding)

    (adopting,) = of_type(RunInThread, play.open(LONG_POLL))
    assert play.relay.reader.state_bytes == 0
    assert play.relay.is_preparing_fetch
    commands = finish(play, adopting)
    if not is_known:
        assert learnt(commands) == [frozenset({"t"})]
        (adopting,) = of_type(RunInThread, play.update_topology(topology(MANY)))
        finish(play, adopting)
    play.wait(0)

    assert play.relay.reader.state_bytes > 0
    assert len(play.asked[0].offsets) == 1_000


@pytest.mark.parametrize(("topics", "partitions"), [(1_001, 1), (1, 1_001)])
def test_errors_of_many_partitions_are_encoded_in_a_thread(topics: int, partitions: int) -> None:
    """Also at the start of a session."""
    names = [f"topic-{number}" for number in range(topics)]
    failed: dict[Topic, TopicInfo] = {
        name: TopicInfo(name, None, ErrorCode.topic_authorization_failed) for name in names
    }
    known = attrs.evolve(topology(), topics=failed)
    play = Play(known, works=False, client_sessions=1)
    numbers = range(partitions)
    wanted = {PartitionKey(name, number): FetchPartition(0, 1 << 20) for name in names for number in numbers}
    header = RequestHeader(FETCH, 11, 1, "the-client")
    play.request(write_request(header, FetchOptions(500, 1), 0, 0, wanted, ()))
    (adopting,) = of_type(RunInThread, play.open(LONG_POLL))
    finish(play, adopting)

    (encoding,) = play.update_topology(known)
    assert isinstance(encoding, RunInThread)
    (answer,) = client_responses(finish(play, encoding))

    assert answer.session_id == 100
    assert [topic.topic for topic in answer.responses] == names
    for topic in answer.responses:
        assert [part.partition_index for part in topic.partitions] == list(numbers)
        assert {int(part.error_code) for part in topic.partitions} == {ErrorCode.topic_authorization_failed}


def test_new_offsets_of_many_partitions_are_written_in_a_thread() -> None:
    play = Play(topology(1_001), works=False, upstream_max_wait_s=10)
    wanted = dict.fromkeys(range(1_001), 0)
    (adopting,) = of_type(RunInThread, [*play.fetch(wanted, max_wait_ms=1_000), *play.open(LONG_POLL)])
    finish(play, adopting)
    play.wait(0)
    while len(play.asked[-1].offsets) < len(wanted):
        play.answer(dict.fromkeys(play.asked[-1].offsets, Part(0, 5)))
    play.answer(dict.fromkeys(wanted, Part(0, 6)))

    (encoding,) = of_type(RunInThread, play.wait(1))
    (answer,) = client_responses(finish(play, encoding))

    assert parts_of(answer) == dict.fromkeys(wanted, (0, 6))


def test_errors_of_a_large_fetch_without_a_broker_are_encoded_in_a_thread() -> None:
    play = Play(topology(MANY), works=False)
    (decoding,) = of_type(RunInThread, play.request(large()))
    finish(play, decoding)

    (encoding,) = of_type(RunInThread, play.lose(LONG_POLL))
    assert finish(play, encoding) == []
    (answer,) = client_responses(play.wait(0.25))

    assert parts_of(answer) == dict.fromkeys(range(MANY), (ErrorCode.not_leader_or_follower, -1))


def test_metadata_that_comes_while_a_thread_adopts_partitions_is_not_missed() -> None:
    """Two refreshes are under way: the first reply lacks the topic, and the second comes during the thread."""
    play = Play(Topology(refreshed_s=1), works=False)
    (decoding,) = of_type(RunInThread, play.request(large()))
    finish(play, decoding)
    finish(play, *of_type(RunInThread, play.open(LONG_POLL)))

    (adopting,) = of_type(RunInThread, play.update_topology(Topology(refreshed_s=2)))
    assert of_type(RunInThread, play.update_topology(attrs.evolve(topology(MANY), refreshed_s=3))) == []
    (adopting_again,) = of_type(RunInThread, finish(play, adopting))
    finish(play, adopting_again)
    play.wait(0)

    assert len(play.asked[0].offsets) == 1_000


def test_repetition_of_a_large_fetch_needs_no_thread() -> None:
    play = Play(topology(MANY), works=False)
    (decoding,) = of_type(RunInThread, play.request(large()))
    finish(play, decoding)

    assert of_type(RunInThread, play.request(large(correlation_id=2))) == []
    assert len(of_type(RunInThread, play.request(large(offset=1, correlation_id=3)))) == 1


@pytest.mark.parametrize(
    ("frame", "expected"), [(large(partitions=20_001), LimitReached), (large()[:-1], ClientProtocolError)]
)
def test_error_of_a_large_fetch_is_raised_after_its_thread(frame: bytes, expected: type[Exception]) -> None:
    play = Play(works=False)
    (decoding,) = of_type(RunInThread, play.request(frame))

    with pytest.raises(expected):
        finish(play, decoding)


@pytest.mark.parametrize("epoch", [0, 1])
def test_refused_fetch_leaves_its_session_to_the_next_connection(epoch: int) -> None:
    """As if the connection had been lost: the client continues the session, or replaces it."""
    play = Play(client_sessions=1)
    play.fetch({0: 0}, session_epoch=0)
    play.open(LONG_POLL)
    play.answer({0: Part(0, 5)})
    play.wait(0.5)
    with pytest.raises(LimitReached):
        play.request(large(partitions=20_001, session=(100, 1)))

    play.reconnect()
    play.fetch({} if epoch else {0: 0}, session_id=100, session_epoch=epoch)
    play.open(LONG_POLL)
    (answer,) = client_responses([*play.answer({0: Part(0, 5)}), *play.wait(0.5)])

    assert (answer.error_code, answer.session_id) == (0, 100 if epoch else 101)
    assert len(play.sessions) == 1


def test_client_that_leaves_while_its_fetch_is_decoded_frees_its_memory() -> None:
    play = Play(topology(MANY), works=False)
    play.request(large())

    play.relay.leave(play.now_s)

    assert play.relay.fetch_bytes == 0
    assert not play.relay.is_preparing_fetch


def test_instant_fetch_of_many_partitions_beside_a_long_poll_is_requested_in_parts() -> None:
    play = Play(topology(MANY), upstream_max_wait_s=10)
    play.established(*range(100))

    play.fetch(dict.fromkeys(range(MANY), 0), max_wait_ms=0)
    play.wait(0)
    play.open(CATCH_UP)
    replies: list[Reply] = []
    while not replies:
        asked = play.asked_on(CATCH_UP)[-1]
        replies = of_type(Reply, play.answer(dict.fromkeys(asked.offsets, Part(0, 5)), link=CATCH_UP))

    asked_of = [set(asked.offsets) for asked in play.asked_on(CATCH_UP)]
    assert [len(each) for each in asked_of] == [1_000] * 5
    assert set.union(*asked_of) == set(range(MANY))


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
