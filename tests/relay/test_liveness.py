"""No client fetch is forgotten, whatever a client leaves out and however little it takes at once."""

import pytest
from kio.schema.metadata.v1 import MetadataRequest, MetadataResponse
from kio.schema.types import BrokerId

from proxy.errors import ErrorCode
from proxy.events import StalledFetchRecord
from proxy.relay.commands import PASS, EmitRecord, LinkFrame, OpenLink, Reply
from proxy.wire import messages
from tests.relay.batches import BATCH, SMALL, given, part
from tests.relay.playbook import (
    LIVE,
    LONG_POLL,
    Part,
    Play,
    client_responses,
    fetcher_id,
    of_type,
    parts_of,
    topology,
)

ALL = (0, 1, 2)
RACKLESS = fetcher_id(1, rackless=True)
NO_METADATA = MetadataResponse(brokers=(), controller_id=BrokerId(-1), topics=())


def at(offset: int) -> dict[int, int]:
    return dict.fromkeys(ALL, offset)


def parked() -> Play:
    """A client whose three partitions wait at the broker; it asks next."""
    play = Play(topology(3), upstream_max_wait_s=10)
    play.established(*ALL)
    return play


def redirected(max_wait_ms: int, *, upstream_max_wait_s: float) -> Play:
    """A client whose leader has named node 2 as the replica to read from; the connection there is being opened."""
    play = Play(topology(1), rack="b", upstream_max_wait_s=upstream_max_wait_s)
    play.fetch({0: 0}, max_wait_ms=max_wait_ms)
    play.open(LONG_POLL)
    play.answer({0: Part(preferred=2)})
    return play


def test_fetch_of_partitions_left_out_before_is_answered_if_their_records_do_not_fit() -> None:
    play = Play(topology(3), upstream_max_wait_s=10, reads_ahead=True)
    play.part_bytes = SMALL
    play.established(*ALL)
    for offset in (0, 20):
        play.fetch(at(offset))
        assert len(given(play.answer({p: part(offset, 2) for p in ALL}))) == 3
    play.answer({p: part(40, 4) for p in ALL})
    assert given(play.fetch({0: 40})) == {0: (40, 2)}

    commands = play.fetch({0: 60, 1: 40, 2: 40}, max_bytes=SMALL)
    commands += play.open_wanted(commands)
    if play.relay.is_busy(LIVE):
        commands += play.answer({1: part(40, 2), 2: part(40, 2)}, link=LIVE)

    assert given([*commands, *play.wait(0.1)])


def test_records_of_one_partition_are_cut_to_the_max_bytes_of_the_response() -> None:
    play = parked()
    play.answer({0: part(0, 8)})

    assert given([*play.fetch(at(0), max_bytes=3 * BATCH + 1), *play.answer({})]) == {0: (0, 3)}


def test_first_batch_larger_than_max_bytes_is_delivered_alone() -> None:
    play = parked()
    play.answer({0: part(0, 2), 1: part(0, 2)})

    assert given([*play.fetch(at(0), max_bytes=10), *play.answer({})]) == {0: (0, 1)}


def test_batch_larger_than_its_partition_limit_is_delivered_alone_in_its_turn() -> None:
    play = Play(topology(3), upstream_max_wait_s=10)
    play.part_bytes = BATCH // 2
    play.established(*ALL)
    play.answer({0: part(0, 1), 1: part(0, 1)})

    assert given([*play.fetch(at(0)), *play.answer({})]) == {0: (0, 1)}
    assert given([*play.fetch({0: 10, 1: 0, 2: 0}), *play.answer({})]) == {1: (0, 1)}


def test_records_that_were_cached_for_more_than_a_second_are_fetched_again() -> None:
    play = parked()
    play.answer({0: part(0, 2)})
    play.wait(1.1)
    asked = len(play.asked)

    play.fetch(at(0))

    (fetch,) = play.asked[asked:]
    assert list(fetch.forgotten) == []
    assert given(play.answer({0: part(0, 1)})) == {0: (0, 1)}


def test_cached_records_are_dropped_when_the_client_requests_metadata() -> None:
    play = parked()
    play.answer({0: part(0, 2)})

    play.request(messages.request_frame(2, "the-client", MetadataRequest(topics=None)))

    assert play.relay.cache.oldest_s is None


def test_cached_records_of_a_topic_are_dropped_when_the_broker_refuses_to_serve_it() -> None:
    play = parked()
    play.answer({0: part(0, 2)})
    play.wait(0.2)
    play.fetch(at(0))

    denied = Part(ErrorCode.topic_authorization_failed, -1)
    commands = play.answer({1: denied, 2: denied})
    asked = play.asked[-1]
    commands += play.answer({0: denied}, link=asked.link)

    (answer,) = client_responses(commands)
    assert parts_of(answer) == dict.fromkeys(ALL, (ErrorCode.topic_authorization_failed, -1))


def test_fetch_that_does_not_wait_gets_no_records_that_were_cached_before() -> None:
    play = parked()
    play.answer({0: part(0, 2)})
    play.wait(0.1)

    play.asked.clear()
    commands = play.fetch(at(0), max_wait_ms=0)
    commands += play.open_wanted(commands)

    assert client_responses(commands) == []
    assert [(each.max_wait_ms, each.forgotten) for each in play.asked] == [(0, [])]


def test_fetch_begins_when_the_requests_before_it_are_answered() -> None:
    play = parked()
    play.request(messages.request_frame(2, "the-client", MetadataRequest(topics=())))
    play.open(PASS)

    assert play.fetch({0: 5}) == []
    commands = play.handle(LinkFrame(PASS, memoryview(messages.response_frame(2, NO_METADATA))[4:]))

    assert [type(each) for each in commands] == [Reply, OpenLink]


def test_high_watermark_stays_when_a_partition_returns_after_it_was_left_out() -> None:
    play = parked()
    play.answer({0: Part(0, 100), 1: Part(0, 100), 2: Part(0, 150)})
    play.fetch(at(0))
    play.wait(0.5)
    play.fetch({0: 0, 1: 0})
    play.wait(0.5)
    play.fetch(at(0))
    play.wait(0.1)
    link = play.asked[-1].link

    (answer,) = client_responses([*play.answer({2: Part(0, 120)}, link=link), *play.wait(1)])

    assert parts_of(answer)[2] == (0, 150)


def test_stalled_fetch_gets_a_retriable_error_once_it_outlived_its_wait() -> None:
    play = Play(topology(3), upstream_max_wait_s=0)
    play.fetch(at(0), max_wait_ms=500)
    play.open(LONG_POLL)

    assert client_responses(play.wait(4.9)) == []
    commands = play.wait(1)

    (answer,) = client_responses(commands)
    assert parts_of(answer) == dict.fromkeys(ALL, (ErrorCode.not_leader_or_follower, -1))
    (note,) = [each.record for each in of_type(EmitRecord, commands) if isinstance(each.record, StalledFetchRecord)]
    assert (note.partitions, note.unserved) == (3, 0)


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_fetch_goes_to_the_leader_if_the_connection_to_a_follower_does_not_open(max_wait_ms: int) -> None:
    play = redirected(max_wait_ms, upstream_max_wait_s=5)

    assert client_responses(play.wait(4.9)) == []
    commands = play.wait(0.2)
    assert [asked.link for asked in play.asked[1:]] == [LONG_POLL]
    commands += play.answer({0: Part(preferred=2)})
    commands += play.open(RACKLESS)
    commands += play.answer({0: Part(records=b"records")}, link=RACKLESS)

    (answer,) = client_responses(commands)
    assert parts_of(answer)[0][0] == ErrorCode.none


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_fetch_goes_to_the_leader_if_a_follower_does_not_respond(max_wait_ms: int) -> None:
    play = redirected(max_wait_ms, upstream_max_wait_s=0)
    play.wait(0.1)
    play.open(fetcher_id(2))

    if client_responses(play.wait(4.95)):
        play.fetch({0: 0}, max_wait_ms=max_wait_ms)
    commands = play.wait(0.2)
    assert [asked.link for asked in play.asked[2:]] == [LONG_POLL]
    commands += play.answer({0: Part(records=b"records")})

    (answer,) = client_responses(commands)
    assert parts_of(answer)[0][0] == ErrorCode.none
