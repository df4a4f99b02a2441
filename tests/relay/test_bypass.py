"""Fetches that are forwarded unchanged, and the state of the client's reader."""

import struct
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.static.primitive import i16, i32

from proxy.cluster.topology import Topology
from proxy.errors import ClientProtocolError
from proxy.events import SessionRecord
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import (
    PASS,
    Command,
    Delivered,
    Draining,
    OpenLink,
    Reply,
)
from proxy.wire import messages
from tests.pieces import joined
from tests.relay.playbook import (
    LONG_POLL,
    TOPIC_ID,
    Part,
    Play,
    brokers_answer,
    client_responses,
    learnt,
    of_type,
    parts_of,
)
from tests.wire.entities import item_type, made

IDLE = Part()
ALL = FetchRules.parse("all")
BY_TOPIC = FetchRules.parse("topic:t")


def passing(bypass: FetchRules = ALL) -> Play:
    play = Play()
    play.bypass = bypass
    play.open(PASS)
    return play


def correlation_ids(frames: list[bytes]) -> list[int]:
    return [int.from_bytes(frame[8:12]) for frame in frames]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("bypass", ["all", "client:the-client", "topic:t", "client:other,topic:t"])
def test_matching_fetch_and_its_response_are_forwarded_byte_for_byte(version: int, bypass: str) -> None:
    play = passing(FetchRules.parse(bypass))
    kind: Any = load_request_schema(i16(1), i16(version))
    name = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
    topic_type = item_type(kind, "topics")
    topics = (made(topic_type, partitions=(made(item_type(topic_type, "partitions")),), **name),)
    request = messages.request_frame(5, "the-client", made(kind, topics=topics))
    answer, came = brokers_answer(5, version=version)

    play.request(request)
    (reply,) = of_type(Reply, play.handle(came))

    assert play.asked == []
    assert play.passed == [request]
    assert joined(reply.pieces) == answer


@pytest.mark.parametrize("bypass", ["client:another", "topic:u", "client:t", "topic:the-client"])
def test_a_fetch_that_does_not_match_is_read_for(bypass: str) -> None:
    play = Play()
    play.bypass = FetchRules.parse(bypass)

    assert of_type(OpenLink, play.fetch({0: 0})) == [OpenLink(LONG_POLL, "the-client")]


def test_it_opens_the_pass_through_link_like_any_request() -> None:
    play = Play()
    play.bypass = ALL

    assert of_type(OpenLink, play.fetch({0: 0})) == [OpenLink(PASS, None)]
    play.open(PASS)

    assert correlation_ids(play.passed) == [1]


@pytest.mark.parametrize("version", range(16, 19))
def test_broker_addresses_are_replaced_in_a_forwarded_response(version: int) -> None:
    play = passing()
    kind: Any = load_response_schema(i16(1), i16(version))
    end = made(item_type(kind, "node_endpoints"), node_id=i32(2), host="broker.internal", port=i32(19002))
    play.fetch({0: 3}, version=version, correlation_id=5)

    commands = play.handle(brokers_answer(5, version=version, node_endpoints=(end,))[1])

    (answer,) = client_responses(commands, version=version)
    assert [(each.host, each.port) for each in answer.node_endpoints] == [("127.0.0.1", 9095)]


def test_a_followers_fetch_does_not_pass() -> None:
    with pytest.raises(ClientProtocolError, match="replica id 3"):
        passing().fetch({0: 0}, version=11, replica_id=i32(3))


def test_an_id_that_is_not_known_yet_is_learnt_by_reading_and_passes_then() -> None:
    play = passing(BY_TOPIC)
    known, play.known = play.known, Topology()

    commands = play.fetch({0: 0}, version=13)
    commands += play.open(LONG_POLL)
    assert learnt(commands) == [frozenset({TOPIC_ID.bytes})]
    play.update_topology(known)
    play.answer({0: IDLE})
    play.fetch({0: 0}, version=13, correlation_id=2)

    assert correlation_ids(play.passed) == [2]
    assert len(play.asked) == 1


# ------------------------------------------------------------------------------------- the client's session


def starts(play: Play) -> None:
    """The client asks for a session."""
    play.fetch({0: 0}, correlation_id=100, session_id=i32(0), session_epoch=i32(0))


def goes_on(play: Play, epoch: int) -> list[Command]:
    """It fetches within session 7, in which nothing has changed."""
    kind: Any = load_request_schema(i16(1), i16(11))
    body = made(kind, session_id=i32(7), session_epoch=i32(epoch))
    return play.request(messages.request_frame(100 + epoch, "the-client", body))


def test_a_session_is_the_clients_and_the_brokers_own_while_its_topics_match() -> None:
    play = passing(BY_TOPIC)

    starts(play)
    goes_on(play, 1)
    goes_on(play, 2)
    goes_on(play, -1)

    assert correlation_ids(play.passed) == [100, 101, 102, 99]
    assert play.asked == []


@pytest.mark.parametrize("bypass", ["", "topic:u"])
def test_when_it_matches_no_more_its_client_starts_over_and_is_read_for(bypass: str) -> None:
    play = passing(BY_TOPIC)
    play.broker_fetch = 11
    starts(play)
    play.handle(brokers_answer(100)[1])

    play.bypass = FetchRules.parse(bypass)
    (lost,) = client_responses(goes_on(play, 1))
    closing = play._read_fetch(PASS, play.passed.pop())
    assert (closing.session_id, closing.epoch, dict(closing.offsets)) == (7, -1, {})
    assert of_type(Reply, play.handle(brokers_answer(101)[1])) == []
    play.fetch({0: 0}, session_id=i32(0), session_epoch=i32(0))
    play.open(LONG_POLL)
    (answer,) = client_responses(play.answer({0: IDLE}))

    assert lost.error_code == 70
    assert answer.session_id == 0
    assert correlation_ids(play.passed) == [100]


def test_fetch_in_a_broker_session_from_an_earlier_bypass_gets_error_70() -> None:
    play = passing(BY_TOPIC)
    starts(play)
    play.handle(brokers_answer(100)[1])
    play.bypass = FetchRules()
    goes_on(play, 1)

    play.bypass = BY_TOPIC
    (lost,) = client_responses(goes_on(play, 2))

    assert lost.error_code == 70


# ------------------------------------------------------------------------------------ in the midst of reading


def test_fetch_in_the_reader_is_finished_there_and_responses_keep_their_order() -> None:
    play = Play()
    play.established(0)
    play.open(PASS)
    play.fetch({0: 0}, correlation_id=1)
    play.bypass = ALL
    play.fetch({0: 0}, correlation_id=2)

    assert of_type(Reply, play.handle(brokers_answer(2)[1])) == []
    replies = of_type(Reply, play.answer({}))

    assert correlation_ids(play.passed) == [2]
    assert [joined(reply.pieces)[4:8] for reply in replies] == [struct.pack(">i", n) for n in (1, 2)]


def left(play: Play, fetches: int = 3) -> list[Any]:
    """Forward so many fetches; return the commands of the last."""
    commands: list[Any] = []
    for number in range(fetches):
        commands = play.fetch({0: 0}, correlation_id=50 + number)
        commands += play.handle(brokers_answer(50 + number)[1])
    return commands


def read_before() -> Play:
    play = Play()
    play.established(0)
    play.open(PASS)
    play.bypass = ALL
    return play


def test_the_session_of_a_client_that_has_left_is_closed() -> None:
    play = read_before()
    left(play, 2)
    assert play.relay.take_left() == ([], [])

    play.fetch({0: 0}, correlation_id=9)

    (note,), (closed,) = play.relay.take_left()
    closing = play._read_fetch(PASS, closed.frame)
    assert (closing.session_id, closing.epoch) == (7, -1)
    assert isinstance(note.record, SessionRecord)
    assert (note.record.session_id, note.record.event, note.record.partitions) == (7, "closed", 1)
    assert play.relay.leave(play.now_s) == ([], [])
    play.handle(brokers_answer(9)[1])
    left(play)
    assert play.relay.take_left() == ([], [])


def test_log_cache_is_kept_while_the_reader_has_a_pending_response() -> None:
    play = Play()
    play.established(0)
    play.open(PASS)
    play.fetch({0: 0}, correlation_id=1)
    play.bypass = ALL
    left(play)
    assert play.relay.take_left() == ([], [])

    commands = play.answer({})

    assert len(of_type(Reply, commands)) == 4
    assert len(play.relay.take_left()[1]) == 1


def test_client_returns_from_bypass_to_a_reader_without_earlier_state() -> None:
    play = read_before()
    left(play)
    play.bypass = FetchRules()
    play.asked.clear()

    assert of_type(OpenLink, play.fetch({0: 5})) == [OpenLink(LONG_POLL, "the-client")]
    play.open(LONG_POLL)
    (answer,) = client_responses(play.answer({0: Part(high_watermark=8)}))

    assert [(asked.session_id, asked.epoch, dict(asked.offsets)) for asked in play.asked] == [(0, -1, {0: 5})]
    assert parts_of(answer) == {0: (0, 8)}


def test_fetches_that_pass_now_and_then_cost_the_others_no_session() -> None:
    play = read_before()
    for _ in range(3):
        left(play, 2)
        play.bypass = FetchRules()
        play.fetch({0: 0})
        play.answer({})
        assert play.relay.take_left() == ([], [])
        play.bypass = ALL

    assert [asked.epoch for asked in play.asked] == [1, 2, 3]


def test_client_that_returns_from_bypass_while_draining_waits_100_ms() -> None:
    play = read_before()
    play.handle(Draining())
    left(play)
    play.bypass = FetchRules()

    play.fetch({0: 0})
    play.open(LONG_POLL)

    assert play.asked[-1].max_wait_ms == 100


def test_delivered_notice_is_sent_for_read_fetches_and_not_for_forwarded_ones() -> None:
    play = Play()
    play.established(0)
    play.fetch({0: 4})
    (delivered,) = of_type(Delivered, play.answer({0: Part(records=b"R")}))
    play.open(PASS)
    play.bypass = ALL

    assert delivered.request.version == 11
    assert b"R" in b"".join(delivered.pieces)
    assert of_type(Delivered, left(play)) == []
