"""The records of exchanges: shape, bytes, sources and causes of waits."""

from collections.abc import Mapping

import pytest

from proxy.errors import ErrorCode
from proxy.events import Cause, ExchangeRecord, SourceShare
from proxy.relay.commands import Command, LinkAnswering, Reply
from tests.old_clients import batch
from tests.relay.playbook import LONG_POLL, Part, Play, fetcher_id, of_type

FOLLOWER = fetcher_id(2)
RECORDS = batch(0, b"x")
BYTES = len(RECORDS)
ENTRY_BYTES = 4 + 4 + 8 + 8 + 4
"""The size of a partition in a fetch v11: index, leader epoch, fetch offset, log start, max bytes."""


def record_in(commands: list[Command]) -> ExchangeRecord:
    (reply,) = of_type(Reply, commands)
    assert reply.record is not None
    assert reply.record.response_bytes == sum(map(len, reply.pieces))
    return reply.record


def waited(record: ExchangeRecord) -> Mapping[Cause, int]:
    reported = dict(record.waited_us)
    assert sum(reported.values()) == pytest.approx((record.ended_s - record.started_s) * 1e6, abs=10)
    return reported


def test_record_contains_shape_bytes_and_source_of_a_response() -> None:
    play = Play()
    play.fetch({0: 0, 1: 0, 2: 0})
    play.open(LONG_POLL)

    record = record_in(play.answer({0: Part(records=RECORDS), 1: Part(), 2: Part()}))

    assert (record.node, record.client_id, record.version) == (1, "the-client", 11)
    assert (record.wanted, record.named, record.answered, record.with_data) == (3, 3, 3, 1)
    assert (record.source_bytes, record.held_bytes, record.delivered_bytes) == (BYTES, 0, BYTES)
    assert record.sources == (SourceShare("t", 1, 1, 3, BYTES, 3 * ENTRY_BYTES),)
    assert record.errors == ()


def test_the_bytes_of_a_request_are_those_of_its_frame() -> None:
    play = Play()
    few = record_in([*play.fetch({0: 0}), *play.open(LONG_POLL), *play.answer({0: Part(records=RECORDS)})])
    more = record_in(
        [*play.fetch({0: 0, 1: 0, 2: 0}), *play.answer({0: Part(records=RECORDS), 1: Part(), 2: Part()})]
    )

    assert more.request_bytes - few.request_bytes == 2 * ENTRY_BYTES


def test_connection_wait_counts_as_broker_time_and_long_poll_as_poll_time() -> None:
    play = Play()
    play.fetch({0: 0}, max_wait_ms=500)
    play.wait(0.1)
    play.open(LONG_POLL)
    play.wait(0.3)
    play.handle(LinkAnswering(LONG_POLL))
    play.now_s += 0.05

    reported = waited(record_in(play.answer({0: Part(records=RECORDS)})))

    assert reported == {"broker": 150_000, "poll": 300_000}


def test_a_client_that_is_throttled_without_knowing_it_waits_for_that() -> None:
    play = Play()
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part(records=RECORDS)}, throttle_ms=2000)

    reported = waited(record_in(play.wait(3)))

    assert reported == {"throttle": 2_000_000}


def test_records_from_a_follower_are_attributed_to_it() -> None:
    play = Play(rack="b")
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)
    play.answer({0: Part(preferred=2), 1: Part(high_watermark=0)})
    play.open(FOLLOWER)

    commands = play.answer({0: Part(records=RECORDS)}, link=FOLLOWER)
    record = record_in([*commands, *play.wait(0.1)])

    assert record.sources == (
        SourceShare("t", 2, 1, 1, BYTES, ENTRY_BYTES),
        SourceShare("t", 1, 1, 1, 0, ENTRY_BYTES),
    )


def test_records_cached_before_the_client_fetch_are_recorded_as_held() -> None:
    play = Play(upstream_max_wait_s=10)
    play.established(0, 1)
    play.answer({0: Part(records=RECORDS)}, session_id=7)
    play.now_s += 0.01

    play.fetch({0: 0, 1: 0})
    record = record_in(play.answer({}))

    assert (record.source_bytes, record.held_bytes) == (BYTES, BYTES)


def test_named_and_answered_counts_exclude_unchanged_partitions_of_a_session() -> None:
    play = Play(client_sessions=1)
    play.fetch({0: 0, 1: 0, 2: 0}, session_epoch=0)
    play.open(LONG_POLL)
    made = record_in(play.answer({0: Part(records=RECORDS), 1: Part(), 2: Part()}))
    assert (made.session_id, made.session_epoch) == (100, 0)

    play.fetch({0: 1}, session_id=100, session_epoch=1)
    record = record_in(play.answer({0: Part(records=RECORDS), 1: Part(), 2: Part()}))

    assert (record.session_id, record.session_epoch) == (100, 1)
    assert (record.wanted, record.named, record.answered, record.with_data) == (3, 1, 1, 1)


def test_errors_are_counted_those_of_partitions_and_of_the_whole() -> None:
    play = Play()
    play.fetch({0: 0, 1: 0, 2: 0})
    play.open(LONG_POLL)
    gone = Part(error=ErrorCode.offset_out_of_range)
    record = record_in(play.answer({0: gone, 1: gone, 2: Part(error=ErrorCode.topic_authorization_failed)}))
    assert record.errors == ((ErrorCode.offset_out_of_range, 2), (ErrorCode.topic_authorization_failed, 1))

    refused = Play(client_sessions=1)
    record = record_in(refused.fetch({}, session_id=5, session_epoch=3))
    assert record.errors == ((ErrorCode.fetch_session_id_not_found, 1),)
    assert (record.wanted, record.answered) == (0, 0)


def test_reply_has_no_record_if_recording_is_disabled() -> None:
    play = Play(records_exchanges=False)
    play.fetch({0: 0})
    play.open(LONG_POLL)

    (reply,) = of_type(Reply, play.answer({0: Part(records=RECORDS)}))

    assert reply.record is None
