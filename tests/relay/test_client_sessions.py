"""Sessions of clients with Sidefetch, over a whole connection: the contents and times of responses."""

from typing import Any

import pytest
from kio.index import load_request_schema
from kio.static.primitive import i16, i32

from proxy.events import SessionRecord
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import PASS, Command, Delivered, EmitRecord, OpenLink, Reply
from proxy.wire import messages
from tests.old_clients import batch
from tests.pieces import joined
from tests.relay.playbook import LONG_POLL, Part, Play, brokers_answer, client_responses, of_type, parts_of
from tests.wire.entities import item_type, made

IDLE = Part()
BOTH = {0: IDLE, 1: IDLE}
EVERY_VERSION = pytest.mark.parametrize("version", [7, 8, 11, 12, 13, 18])


def fetch(play: Play, session_id: int, epoch: int, *offsets: tuple[int, int], version: int = 11) -> list[Command]:
    """The client's fetch; *offsets* are (partition, offset) of those that it names."""
    return play.fetch(dict(offsets), version=version, session_id=i32(session_id), session_epoch=i32(epoch))


def session(play: Play, version: int = 11) -> int:
    """Create a session of partitions 0 and 1, from offset 100 on, both at their end."""
    fetch(play, 0, 0, (0, 100), (1, 100), version=version)
    play.open(LONG_POLL)
    play.wait(0.5)
    (answer,) = client_responses(play.answer(BOTH), version=version)
    assert answer.error_code == 0
    assert list(parts_of(answer)) == [0, 1]
    return int(answer.session_id)


def shown(commands: list[Command], version: int = 11) -> tuple[int, int, dict[int, tuple[int, int]]]:
    (answer,) = client_responses(commands, version=version)
    return int(answer.error_code), answer.session_id, parts_of(answer)


@EVERY_VERSION
def test_unchanged_partitions_are_omitted_within_a_client_session(version: int) -> None:
    play = Play(client_sessions=1)
    assert session(play, version) == 100

    fetch(play, 100, 1, version=version)
    commands = play.answer(BOTH, session_id=7)
    assert play.asked[-1].offsets == {0: 100, 1: 100}
    assert shown(commands + play.wait(0.5), version) == (0, 100, {})


@EVERY_VERSION
def test_client_session_returns_records_and_its_fetches_name_only_changed_partitions(version: int) -> None:
    play = Play(client_sessions=1, upstream_max_wait_s=10)
    session_id = session(play, version)

    fetch(play, session_id, 1, version=version)
    play.answer(BOTH, session_id=7)
    commands = play.answer({0: Part(high_watermark=102, records=batch(100, b"one", b"two"))})
    assert shown(commands, version) == (0, session_id, {0: (0, 102)})

    fetch(play, session_id, 2, (0, 102), version=version)
    assert play.asked[-1].offsets == {0: 102}
    assert shown(play.wait(0.5), version) == (0, session_id, {})


def test_client_session_survives_a_reconnect_and_omits_unchanged_partitions() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    play.reconnect()

    assert of_type(OpenLink, fetch(play, session_id, 1)) == [OpenLink(LONG_POLL, "the-client")]
    play.open(LONG_POLL)
    assert (play.asked[-1].epoch, play.asked[-1].offsets) == (-1, {0: 100, 1: 100})
    play.wait(0.5)
    commands = play.answer({0: IDLE, 1: Part(high_watermark=101)})

    assert shown(commands) == (0, session_id, {1: (0, 101)})


def test_next_fetch_on_another_connection_ends_the_waiting_one_with_error_71() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    fetch(play, session_id, 1)
    first, asked = play.relay, dict(play._correlation_ids)
    play.reconnect()
    fetch(play, session_id, 2)
    play.open(LONG_POLL)
    second, play.relay = play.relay, first
    others, play._correlation_ids = play._correlation_ids, asked

    overtaken = play.wait(0.5) + play.answer(BOTH, session_id=7)
    play.relay, play._correlation_ids = second, others

    assert shown(overtaken) == (71, session_id, {})
    assert shown(play.answer(BOTH, session_id=0)) == (0, session_id, {})


@pytest.mark.parametrize(("session_id", "epoch", "error"), [(7, 1, 70), (100, 2, 71)])
def test_a_fetch_in_no_session_or_out_of_step_is_refused_at_once(session_id: int, epoch: int, error: int) -> None:
    play = Play(client_sessions=1)
    session(play)
    play.asked.clear()

    assert shown(fetch(play, session_id, epoch)) == (error, 0, {})
    assert play.asked == []


@EVERY_VERSION
def test_end_of_a_partition_error_is_reported_within_a_client_session(version: int) -> None:
    play = Play(client_sessions=1)
    session_id = session(play, version)

    fetch(play, session_id, 1, version=version)
    commands = play.answer({0: Part(error=3, high_watermark=-1), 1: IDLE}, session_id=7)
    assert shown(commands, version) == (0, session_id, {0: (3, -1)})
    fetch(play, session_id, 2, version=version)
    assert shown(play.wait(0.5) + play.answer({0: IDLE}), version) == (0, session_id, {0: (0, 100)})


def test_a_throttled_client_keeps_its_session() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    fetch(play, session_id, 1)

    (answer,) = client_responses(play.answer({}, throttle_ms=300, session_id=0))

    assert (answer.throttle_time.total_seconds(), answer.session_id, parts_of(answer)) == (0.3, session_id, {})
    fetch(play, session_id, 2)
    assert shown(play.answer(BOTH, session_id=0) + play.wait(0.5)) == (0, session_id, {})


def test_fetch_that_closes_its_session_gets_an_empty_response_at_once() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)

    commands = fetch(play, session_id, -1)

    assert shown(commands) == (0, 0, {})
    assert [note.record for note in of_type(EmitRecord, commands)] == [SessionRecord(1, 100, "closed", 2, "client")]
    assert len(play.sessions) == 0


def test_delivered_notice_contains_all_partitions_of_the_client_session() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    fetch(play, session_id, 1)

    (delivered,) = of_type(
        Delivered, play.answer({0: Part(high_watermark=102, records=b"R"), 1: IDLE}, session_id=7)
    )

    assert [section.topic for section in delivered.request.sections] == ["t"]
    assert len(delivered.request.sections[0].entries) == 2 * 28


# ------------------------------------------------------------------------------------------------- bypass

BYPASSES = pytest.mark.parametrize("bypass", ["all", "client:the-client", "topic:t"])


@BYPASSES
@EVERY_VERSION
def test_new_bypass_ends_the_session_with_error_70_and_forwards_the_next_fetch(bypass: str, version: int) -> None:
    play = Play(client_sessions=1)
    session_id = session(play, version)
    play.open(PASS)
    play.bypass = FetchRules.parse(bypass)

    assert shown(fetch(play, session_id, 1, version=version), version) == (70, 0, {})
    assert len(play.sessions) == 0
    fetch(play, 0, 0, (0, 100), (1, 100), version=version)

    assert len(play.passed) == 1


@BYPASSES
def test_a_full_fetch_that_passes_closes_the_session_with_sidefetch(bypass: str) -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    play.open(PASS)
    play.bypass = FetchRules.parse(bypass)

    fetch(play, session_id, 0, (0, 100), (1, 100))

    assert (len(play.passed), len(play.sessions)) == (1, 0)


def test_client_session_continues_if_other_topics_and_clients_are_bypassed() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    play.bypass = FetchRules.parse("topic:u,client:other")

    fetch(play, session_id, 1)

    assert shown(play.answer(BOTH, session_id=7) + play.wait(0.5)) == (0, session_id, {})
    assert play.passed == []


def test_end_of_a_bypass_closes_the_broker_session_and_allows_a_client_session() -> None:
    play = Play(client_sessions=1)
    play.broker_fetch = 11
    play.open(PASS)
    play.bypass = FetchRules.parse("all")
    fetch(play, 0, 0, (0, 100), (1, 100))
    play.handle(brokers_answer(1, session_id=i32(7))[1])

    play.bypass = FetchRules()
    assert shown(fetch(play, 7, 1)) == (70, 0, {})
    closing = play._read_fetch(PASS, play.passed.pop())
    assert (closing.session_id, closing.epoch) == (7, -1)
    play.handle(brokers_answer(1)[1])
    assert session(play) == 100


def test_client_session_ends_with_error_70_if_a_bypassed_topic_is_added() -> None:
    play = Play(client_sessions=1)
    session_id = session(play)
    play.open(PASS)
    play.bypass = FetchRules.parse("topic:u")
    kind: Any = load_request_schema(i16(1), i16(11))
    topic_type = item_type(kind, "topics")
    topic = made(topic_type, topic="u", partitions=(made(item_type(topic_type, "partitions")),))
    body = made(kind, session_id=i32(session_id), session_epoch=i32(1), topics=(topic,))

    (reply,) = of_type(Reply, play.request(messages.request_frame(1, "the-client", body)))

    assert joined(reply.pieces)[12:14] == (70).to_bytes(2)
