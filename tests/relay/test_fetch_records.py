"""The records of Sidefetch's own fetches: each sent fetch, and the used part of its response."""

from collections.abc import Iterable

from proxy.errors import ErrorCode
from proxy.events import FetchRecord
from proxy.relay.commands import Command, EmitRecord
from tests.old_clients import batch
from tests.relay.playbook import LIVE, LONG_POLL, Part, Play, of_type, topology


def fetches_in(commands: Iterable[Command]) -> list[FetchRecord]:
    return [note.record for note in of_type(EmitRecord, commands) if isinstance(note.record, FetchRecord)]


def parked() -> Play:
    """Two partitions, at their ends, wait at the broker in session 7."""
    play = Play(topology(2), upstream_max_wait_s=10)
    play.established(0, 1)
    play.answer({})
    play.fetch({0: 0, 1: 0})
    return play


def test_records_of_a_log_without_readers_are_recorded_as_dropped() -> None:
    play = parked()
    play.wait(0.5)
    play.fetch({0: 0, 1: 50}, max_wait_ms=2000)
    play.open(LIVE)
    play.wait(1.1)
    play.answer({1: Part()}, link=LIVE)

    wanted, unwanted = batch(0, b"wanted"), batch(0, b"of the old place")
    (record,) = fetches_in(play.answer({0: Part(records=wanted), 1: Part(records=unwanted)}))

    assert (record.record_bytes, record.dropped_bytes) == (len(wanted) + len(unwanted), len(unwanted))


def test_fetch_of_a_lost_connection_is_recorded_without_a_response() -> None:
    play = parked()
    sent = play.asked[-1]
    play.now_s += 3

    (record,) = fetches_in(play.lose(LONG_POLL))

    assert record.error == ErrorCode.network_exception
    assert (record.fetcher, record.kind, record.epoch) == ("long-poll", "incremental", sent.epoch)
    assert (record.request_bytes, record.response_bytes, record.answered) == (sent.frame_bytes, 0, 0)
    assert record.answered_s - record.sent_s == 3


def test_in_flight_fetch_and_session_close_are_recorded_when_the_client_disconnects() -> None:
    play = parked()

    notes, (farewell,) = play.relay.leave(play.now_s)
    assert play._read_fetch(farewell.fetcher, farewell.frame).epoch == -1
    answer = play.answer_frame({}, farewell.fetcher, session_id=0)
    closing = farewell.record(answer, play.now_s + 1)

    (left,) = [note.record for note in notes if isinstance(note.record, FetchRecord)]
    assert (left.error, left.request_bytes) == (ErrorCode.network_exception, play.asked[-1].frame_bytes)
    assert (closing.error, closing.epoch, closing.size, closing.kind) == (0, -1, 0, "sessionless")
    assert (closing.request_bytes, closing.response_bytes) == (len(farewell.frame), 4 + len(answer))
    assert closing.answered_s - closing.sent_s == 1
