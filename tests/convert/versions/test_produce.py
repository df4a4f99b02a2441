"""Produce v0 to v2: partitions whose message sets convert to none, one or several batches."""

import datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from proxy.convert.versions import produce as module
from proxy.convert.versions.upgrade import Compute, SendToBroker
from proxy.errors import BadRecords, ClientProtocolError, MalformedFrame
from tests.convert.versions.old import encoded, produce
from tests.convert.versions.upgrading import asked, play

APPENDED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
BAD_CRC = b"!2"


@pytest.fixture(autouse=True)
def _sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message set is its batches with bars in between, or ``!`` and an error."""

    def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes, ...]:
        assert max_batch_bytes == 1_000_000
        text = bytes(message_set)
        if text.startswith(b"!"):
            raise BadRecords(ErrorCode(int(text[1:])), "as the test says")
        return tuple(text.split(b"|")) if text else ()

    monkeypatch.setattr(module, "to_batches", to_batches)


def sent(sets: dict[str, dict[int, bytes]], *, acks: int = 1) -> bytes:
    """The body of a request; it is the same in v0 to v2."""
    topics = [(topic, list(partitions.items())) for topic, partitions in sets.items()]
    return encoded(produce.ProduceRequest_v2, acks, 1500, topics)


def done(*partitions: tuple[int, int, int], topic: str = "t", **more: Any) -> dict[str, Any]:
    """*partitions*: index, error, base offset."""
    partition_responses = [
        {"index": index, "error_code": code, "base_offset": offset, "log_append_time": APPENDED}
        for index, code, offset in partitions
    ]
    return {"responses": [{"name": topic, "partition_responses": partition_responses}], **more}


def upgraded(played: Any) -> list[dict[tuple[str, int], bytes]]:
    """Return the fields of each request to the broker."""
    requests = [asked(0, 3, body) for body in played.bodies]
    return [
        {(topic.name, each.index): each.records for topic in request.topic_data for each in topic.partition_data}
        for request in requests
    ]


def decoded(version: int, body: bytes | None) -> list[tuple[Any, ...]]:
    kind = (produce.ProduceResponse_v0, produce.ProduceResponse_v1, produce.ProduceResponse_v2)[version]
    response = kind.decode(body)
    assert response.encode() == body
    return [each for _, partitions in response.topics for each in partitions]


@pytest.mark.parametrize("version", range(3))
def test_a_set_becomes_a_batch_in_a_request_of_no_transaction(version: int) -> None:
    played = play(0, version, sent({"t": {0: b"a", 1: b"b"}, "u": {0: b"c"}}), [done((0, 0, 7), (1, 0, 8))])

    request = asked(0, 3, played.bodies[0])
    assert (request.transactional_id, request.acks, request.timeout.total_seconds()) == (None, 1, 1.5)
    assert upgraded(played) == [{("t", 0): b"a", ("t", 1): b"b", ("u", 0): b"c"}]


def test_response_has_the_fields_of_its_version() -> None:
    answers = [done((0, 0, 7), throttle_time=30)]
    body = sent({"t": {0: b"a"}})

    assert decoded(0, play(0, 0, body, answers).body) == [(0, 0, 7)]
    assert decoded(1, play(0, 1, body, answers).body) == [(0, 0, 7)]
    assert decoded(2, play(0, 2, body, answers).body) == [(0, 0, 7, int(APPENDED.timestamp() * 1000))]
    last = [play(0, version, body, answers).body for version in (1, 2)]
    assert [each[-4:] for each in last if each is not None] == [(30).to_bytes(4)] * 2


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (0, 3, 3),
        (0, 10, 10),
        (0, 20, 20),
        (0, 29, -1),
        (1, 29, 29),
        (1, 32, -1),
        (2, 32, 32),
        (2, 56, 6),
        (2, 87, 2),
        (2, 89, -1),
    ],
)
def test_produce_error_maps_to_a_code_that_the_version_knows(version: int, code: int, expected: int) -> None:
    played = play(0, version, sent({"t": {0: b"a"}}), [done((0, code, -1))])

    assert decoded(version, played.body)[0][:3] == (0, expected, -1)


def test_unconvertible_partition_is_not_sent_and_the_others_are() -> None:
    played = play(0, 2, sent({"t": {0: BAD_CRC, 1: b"b"}}), [done((1, 0, 8))])

    assert upgraded(played) == [{("t", 1): b"b"}]
    assert [each[:3] for each in decoded(2, played.body)] == [(0, 2, -1), (1, 0, 8)]


def test_nothing_is_sent_if_nothing_can_be() -> None:
    played = play(0, 2, sent({"t": {0: BAD_CRC, 1: b""}}), [])

    assert played.bodies == []
    assert [each[:3] for each in decoded(2, played.body)] == [(0, 2, -1), (1, 0, -1)]


def test_a_large_set_is_sent_in_several_requests_one_after_another() -> None:
    played = play(
        0,
        1,
        sent({"t": {0: b"a|b|c", 1: b"d"}}),
        [done((0, 0, 7), (1, 0, 1), throttle_time=1), done((0, 0, 8), throttle_time=9), done((0, 0, 9))],
    )

    assert upgraded(played) == [{("t", 0): b"a", ("t", 1): b"d"}, {("t", 0): b"b"}, {("t", 0): b"c"}]
    assert [step.is_last for step in played.steps if isinstance(step, SendToBroker)] == [False, False, True]
    assert decoded(1, played.body) == [(0, 0, 7), (1, 0, 1)]
    assert played.body is not None
    assert played.body[-4:] == (9).to_bytes(4)


def test_the_first_error_ends_a_partition_and_no_other() -> None:
    played = play(
        0,
        0,
        sent({"t": {0: b"a|b|c", 1: b"d|e|f"}}),
        [done((0, 0, 7), (1, 0, 1)), done((0, 19, -1), (1, 0, 2)), done((1, 0, 3))],
    )

    assert upgraded(played)[2] == {("t", 1): b"f"}
    assert decoded(0, played.body) == [(0, 19, -1), (1, 0, 1)]


def test_an_error_of_all_ends_the_request() -> None:
    played = play(0, 0, sent({"t": {0: b"a|b"}}), [done((0, 6, -1))])

    assert decoded(0, played.body) == [(0, 6, -1)]


def test_partition_missing_in_the_broker_response_gets_an_error() -> None:
    assert decoded(0, play(0, 0, sent({"t": {0: b"a"}}), [{"responses": []}]).body) == [(0, -1, -1)]


def test_without_acknowledgement_nothing_is_waited_for() -> None:
    played = play(0, 2, sent({"t": {0: b"a|b"}}, acks=0), [])

    assert upgraded(played) == [{("t", 0): b"a"}, {("t", 0): b"b"}]
    assert {asked(0, 3, body).acks for body in played.bodies} == {0}
    assert played.body is None


def test_bad_records_with_acks_0_end_the_connection_after_the_rest_is_acknowledged() -> None:
    body = sent({"t": {0: BAD_CRC, 1: b"b"}}, acks=0)
    with pytest.raises(ClientProtocolError):
        play(0, 2, body, [done((1, 0, 8))])

    steps = module.UPGRADES[2].steps
    assert steps is not None
    running = steps(memoryview(body))
    work = next(running)
    assert isinstance(work, Compute)
    ask = running.send(work.run())
    assert isinstance(ask, SendToBroker)
    assert asked(0, 3, b"".join(ask.body)).acks == 1


def test_compute_step_has_the_size_of_the_request() -> None:
    body = sent({"t": {0: b"a" * 1000}})

    (work,) = [step for step in play(0, 2, body, [done((0, 0, 7))]).steps if isinstance(step, Compute)]

    assert work.size_bytes == len(body)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_request_that_is_cut_short_is_malformed(cut: int) -> None:
    body = sent({"t": {0: b"a"}, "u": {}})

    with pytest.raises(MalformedFrame):
        play(0, 2, body[:-cut], [])
    with pytest.raises(MalformedFrame):
        play(0, 2, body + b"x", [])


def test_a_set_that_is_null_is_an_empty_one() -> None:
    body = sent({"t": {0: b""}})

    played = play(0, 0, body[:-4] + b"\xff\xff\xff\xff", [])

    assert decoded(0, played.body) == [(0, 0, -1)]
