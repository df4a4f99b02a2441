"""Requests that the broker does not serve any more, on their way through a client's relay."""

import struct
from collections.abc import Mapping, Sequence

import pytest
from kio.schema.errors import ErrorCode

from proxy.convert.versions import produce as produce_upgrade
from proxy.demo.messages import encode_request, read_request, read_response
from proxy.errors import BadRecords, BrokerProtocolError, BrokerUnavailable, ClientProtocolError
from proxy.relay.commands import (
    PASS,
    Command,
    GroupCoordinatorResult,
    LinkFrame,
    OpenLink,
    Reply,
    RunInThread,
    SendToGroupCoordinator,
    ThreadFinished,
)
from tests.convert.versions.old import commit, encoded, offset, produce
from tests.pieces import joined
from tests.relay.playbook import Play, of_type
from tests.relay.upgrading import (
    API_VERSIONS,
    CREATE_ACLS,
    HEARTBEAT,
    KAFKA_4,
    KAFKA_39,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    PRODUCE,
    answered,
    list_offsets,
    old,
    serving,
)


def committing(correlation_id: int, group: str = "g") -> bytes:
    body = encoded(commit.OffsetCommitRequest_v1, group, -1, "", [("t", [(0, 10, -1, "")])])
    return old(OFFSET_COMMIT, 1, correlation_id, body)


def producing(correlation_id: int, records: bytes, *, acks: int = 1) -> bytes:
    return old(PRODUCE, 2, correlation_id, encoded(produce.ProduceRequest_v2, acks, 1000, [("t", [(0, records)])]))


def heartbeat(correlation_id: int) -> bytes:
    return encode_request(HEARTBEAT, 3, correlation_id, "the-client", {"group_id": "g"})


def latest(correlation_id: int, reported: int) -> LinkFrame:
    partition = {"partition_index": 0, "offset": reported}
    topics = [{"name": "t", "partitions": [partition]}]
    return answered(LIST_OFFSETS, 1, correlation_id, {"topics": topics})


def code(correlation_id: int, reported: int) -> LinkFrame:
    partition = {"partition_index": 0, "error_code": reported}
    topics = [{"name": "t", "partitions": [partition]}]
    return answered(OFFSET_COMMIT, 2, correlation_id, {"topics": topics})


def produced(correlation_id: int, base_offset: int, error: int = 0) -> LinkFrame:
    partition = {"index": 0, "base_offset": base_offset, "error_code": error}
    responses = [{"name": "t", "partition_responses": [partition]}]
    return answered(PRODUCE, 3, correlation_id, {"responses": responses})


def sent(play: Play) -> list[tuple[int, int, int]]:
    """Return API key, version, correlation id of the requests to the broker."""
    return [struct.unpack(">hhi", frame[4:12]) for frame in _frames(play)]


def _frames(play: Play) -> list[bytes]:
    """Several may go out at once."""
    stream, frames = b"".join(play.passed), []
    while stream:
        size = 4 + int.from_bytes(stream[:4])
        frames.append(stream[:size])
        stream = stream[size:]
    return frames


def replies(commands: list[Command]) -> list[bytes]:
    """Return the responses to the client, without their sizes."""
    reported = [joined(reply.pieces) for reply in of_type(Reply, commands)]
    assert all(int.from_bytes(each[:4]) == len(each) - 4 for each in reported)
    return [each[4:] for each in reported]


def ids(commands: list[Command]) -> list[int]:
    return [int.from_bytes(each[:4]) for each in replies(commands)]


def started(ranges: Mapping[int, tuple[int, int]] | None = KAFKA_4) -> Play:
    """Return a connection whose client has sent ApiVersions, unless *ranges* is None."""
    play = Play(works=False)
    play.request(heartbeat(99))
    play.open(PASS)
    play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 99))))
    if ranges is not None:
        play.request(encode_request(API_VERSIONS, 0, 98, "the-client", {}))
        play.handle(serving(ranges, correlation_id=98))
    play.passed.clear()
    return play


# ------------------------------------------------------------------------- the versions that the broker supports


def test_api_versions_is_requested_for_a_client_that_does_not_request_it() -> None:
    play = Play()

    assert of_type(OpenLink, play.request(list_offsets(1))) == [OpenLink(PASS, None)]
    play.open(PASS)
    play.request(heartbeat(2))
    assert sent(play) == [(API_VERSIONS, 0, 0)]
    assert of_type(Reply, play.handle(serving(KAFKA_4))) == []
    assert sent(play)[1:] == [(LIST_OFFSETS, 1, 1), (HEARTBEAT, 3, 2)]

    (answer,) = replies(play.handle(latest(1, 100)))
    assert offset.OffsetResponse_v0.decode(answer[4:]).topics == [("t", [(0, 0, [100])])]


def test_api_versions_is_requested_once_per_connection() -> None:
    play = started(None)
    play.request(list_offsets(1))
    play.request(list_offsets(2))
    play.handle(serving(KAFKA_4))
    play.request(list_offsets(3))

    assert sent(play) == [(API_VERSIONS, 0, 0), *((LIST_OFFSETS, 1, n) for n in (1, 2, 3))]


def test_a_client_that_waits_for_it_is_not_read() -> None:
    play = started(None)
    play.request(list_offsets(1))
    assert not play.relay.takes_requests

    play.handle(serving(KAFKA_4))
    assert play.relay.takes_requests


def test_api_versions_is_not_requested_again_after_the_client_request() -> None:
    play = started(KAFKA_4)

    play.request(list_offsets(1))

    assert sent(play) == [(LIST_OFFSETS, 1, 1)]


def test_api_versions_response_offers_upgraded_versions() -> None:
    play = started(None)
    play.request(encode_request(API_VERSIONS, 3, 1, "the-client", {"client_software_name": "x"}))

    (answer,) = replies(play.handle(serving(KAFKA_4, version=3, correlation_id=1)))

    _, reported = read_response(API_VERSIONS, 3, answer)
    assert {each.api_key: each.min_version for each in reported.api_keys} == dict.fromkeys(KAFKA_4, 0)
    play.request(list_offsets(2))
    assert sent(play)[1:] == [(LIST_OFFSETS, 1, 2)]


def test_api_versions_is_requested_after_an_error_response_to_the_client_request() -> None:
    play = started(None)
    play.request(encode_request(API_VERSIONS, 3, 1, "the-client", {"client_software_name": "x"}))
    play.handle(answered(API_VERSIONS, 0, 1, {"error_code": 35, "api_keys": []}))

    play.request(list_offsets(2))

    assert sent(play)[1:] == [(API_VERSIONS, 0, 0)]


def test_requests_in_versions_that_the_broker_serves_are_forwarded_unchanged() -> None:
    play = started(KAFKA_39)
    requests = [list_offsets(1), committing(2), producing(3, b"set")]

    for request in requests:
        play.request(request)
    (reported,) = replies(play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 1) + b"as it is"))))

    assert play.passed == requests
    assert reported == struct.pack(">i", 1) + b"as it is"


def test_after_a_reconnect_the_broker_may_be_another_version() -> None:
    play = started(KAFKA_39)
    play.lose(PASS)

    play.request(list_offsets(1))
    play.open(PASS)
    play.handle(serving(KAFKA_4))

    assert sent(play) == [(API_VERSIONS, 0, 0), (LIST_OFFSETS, 1, 1)]


def test_a_version_that_the_broker_serves_neither_way_is_refused() -> None:
    play = started({**KAFKA_4, LIST_OFFSETS: (2, 11)})

    with pytest.raises(ClientProtocolError, match="ListOffsets v0, nor v1"):
        play.request(list_offsets(1))


def test_api_versions_error_response_is_a_broker_protocol_error() -> None:
    play = started(None)
    play.request(list_offsets(1))

    with pytest.raises(BrokerProtocolError, match="ApiVersions"):
        play.handle(answered(API_VERSIONS, 0, 0, {"error_code": 35, "api_keys": []}))


def test_broker_lost_during_api_versions_ends_the_client_connection() -> None:
    play = started(None)
    play.request(list_offsets(1))

    with pytest.raises(BrokerUnavailable):
        play.lose(PASS)


# ------------------------------------------------------------------------------------------------- upgrades


def test_responses_keep_the_request_order_if_an_upgrade_needs_two_requests() -> None:
    play = started()
    play.request(list_offsets(1, timestamp=5))
    play.request(heartbeat(2))

    assert ids(play.handle(latest(1, -1))) == []
    assert sent(play) == [(LIST_OFFSETS, 1, 1), (LIST_OFFSETS, 1, 1), (HEARTBEAT, 3, 2)]
    assert ids(play.handle(latest(1, 100))) == [1]
    assert ids(play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 2))))) == [2]


@pytest.mark.usefixtures("sets")
def test_produce_of_several_requests_is_not_overtaken_behind_a_list_offsets_of_two() -> None:
    play = started()
    play.request(producing(1, b"p"))
    play.request(list_offsets(2, offsets=2))
    play.request(producing(3, b"a|b"))
    play.request(producing(4, b"c"))

    play.handle(produced(1, 0))
    play.handle(latest(2, 1))
    assert sent(play) == [(PRODUCE, 3, 1), (LIST_OFFSETS, 1, 2), (LIST_OFFSETS, 1, 2), (PRODUCE, 3, 3)]
    play.handle(latest(2, 0))
    assert sent(play)[4:] == []
    play.handle(produced(3, 1))
    assert sent(play)[4:] == [(PRODUCE, 3, 3), (PRODUCE, 3, 4)]


@pytest.mark.usefixtures("sets")
def test_conversion_blocks_later_requests_while_list_offsets_sends_a_second_request() -> None:
    play = started()
    play.request(list_offsets(1, offsets=2))
    begun = of_type(RunInThread, play.request(producing(2, b"a" * LARGE)))
    play.request(producing(3, b"c"))

    begun += of_type(RunInThread, play.handle(latest(1, 1)))
    (work,) = begun
    ids(play.handle(latest(1, 0)))
    play.handle(ThreadFinished(work.worker, work.run()))

    assert sent(play) == [(LIST_OFFSETS, 1, 1), (LIST_OFFSETS, 1, 1), (PRODUCE, 3, 2), (PRODUCE, 3, 3)]


@pytest.mark.usefixtures("sets")
def test_two_produces_of_several_requests_in_a_row_block_one_after_the_other() -> None:
    play = started()
    play.request(producing(1, b"a|b"))
    play.request(producing(2, b"c|d"))
    play.request(heartbeat(3))

    for number, reported_offset in ((1, 0), (1, 1), (2, 2), (2, 3)):
        play.handle(produced(number, reported_offset))

    assert sent(play) == [(PRODUCE, 3, 1)] * 2 + [(PRODUCE, 3, 2)] * 2 + [(HEARTBEAT, 3, 3)]


def test_list_offsets_that_may_need_another_request_keeps_later_requests_back() -> None:
    """The second request of one for a time would be answered from behind a later produce."""
    play = started()
    play.request(list_offsets(1, timestamp=5))
    play.request(heartbeat(2))

    assert sent(play) == [(LIST_OFFSETS, 1, 1)]
    play.handle(latest(1, 7))
    assert sent(play) == [(LIST_OFFSETS, 1, 1), (HEARTBEAT, 3, 2)]


def test_request_that_needs_no_broker_is_answered_at_once() -> None:
    play = started()

    (answer,) = replies(play.request(list_offsets(1, timestamp=-3)))

    assert offset.OffsetResponse_v0.decode(answer[4:]).topics == [("t", [(0, 35, [])])]


def test_the_client_keeps_its_name() -> None:
    play = started()
    play.request(list_offsets(1))

    assert read_request(_frames(play)[0][4:]).client_id == "the-client"


def test_malformed_request_is_a_client_error_and_malformed_response_a_broker_error() -> None:
    play = started()
    with pytest.raises(ClientProtocolError, match="malformed request"):
        play.request(old(LIST_OFFSETS, 0, 1, b"\0"))

    play = started()
    play.request(list_offsets(1))
    with pytest.raises(BrokerProtocolError, match="malformed answer to API 2 v0"):
        play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 1) + b"\0")))

    play = started()
    play.request(list_offsets(1))
    with pytest.raises(BrokerProtocolError, match="out of order"):
        play.handle(latest(2, 100))


# ------------------------------------------------------------------------------------------------ throttle


def create_acls(correlation_id: int) -> bytes:
    return old(CREATE_ACLS, 0, correlation_id, struct.pack(">i", 0))


def test_response_is_delayed_for_a_client_that_does_not_throttle_itself() -> None:
    play = started({**KAFKA_4, CREATE_ACLS: (1, 3)})
    play.request(create_acls(1))
    play.request(heartbeat(2))

    assert ids(play.handle(answered(CREATE_ACLS, 1, 1, {"throttle_time": 250}))) == []
    assert ids(play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 2))))) == []
    assert play.relay.deadline_s == play.now_s + 0.25
    assert ids(play.wait(0.2)) == []
    assert ids(play.wait(0.1)) == [1, 2]
    assert play.relay.deadline_s is None


def test_response_without_throttle_time_is_sent_at_once() -> None:
    play = started({**KAFKA_4, CREATE_ACLS: (1, 3)})
    play.request(create_acls(1))

    assert ids(play.handle(answered(CREATE_ACLS, 1, 1, {}))) == [1]


# ------------------------------------------------------------------------------------ coordinator requests

NOT_COORDINATOR = 16


def errand_done(frame: LinkFrame | None) -> GroupCoordinatorResult:
    return GroupCoordinatorResult(None if frame is None else frame.frame)


def test_not_coordinator_error_redirects_a_commit_to_the_coordinator() -> None:
    play = started()
    play.request(committing(1))

    (errand,) = of_type(SendToGroupCoordinator, play.handle(code(1, NOT_COORDINATOR)))

    assert (errand.group, errand.is_retry) == ("g", False)
    request = read_request(b"".join(errand.pieces)[4:])
    assert (request.key, request.version, request.correlation_id, request.client_id) == (8, 2, 1, "the-client")
    assert ids(play.handle(errand_done(code(1, 0)))) == [1]


def test_errands_run_one_after_another_in_the_order_of_the_requests() -> None:
    play = started()
    for number, group in enumerate("abc"):
        play.request(committing(number, group))
    assert sent(play) == [(OFFSET_COMMIT, 2, 0)]
    run = of_type(SendToGroupCoordinator, play.handle(code(0, NOT_COORDINATOR)))

    run += of_type(SendToGroupCoordinator, play.handle(errand_done(None)))
    run += of_type(SendToGroupCoordinator, play.handle(errand_done(code(0, NOT_COORDINATOR))))
    assert ids(play.handle(errand_done(code(0, 0)))) == [0]
    for number in (1, 2):
        run += of_type(SendToGroupCoordinator, play.handle(code(number, NOT_COORDINATOR)))
        assert ids(play.handle(errand_done(code(number, 0)))) == [number]

    assert [(errand.group, errand.is_retry) for errand in run] == [
        ("a", False),
        ("a", True),
        ("a", True),
        ("b", False),
        ("c", False),
    ]


@pytest.mark.parametrize("why", [14, 15, NOT_COORDINATOR])
def test_commit_waits_for_an_earlier_one_that_is_on_an_errand(why: int) -> None:
    """The client's own broker may be the coordinator by now: the earlier commit would set the offset back."""
    play = started()
    play.request(committing(1))
    play.request(committing(2))
    play.request(heartbeat(3))

    assert sent(play) == [(OFFSET_COMMIT, 2, 1)]
    assert len(of_type(SendToGroupCoordinator, play.handle(code(1, why)))) == 1
    assert sent(play) == [(OFFSET_COMMIT, 2, 1)]
    assert ids(play.handle(errand_done(code(1, 0)))) == [1]
    assert sent(play)[1:] == [(OFFSET_COMMIT, 2, 2)]
    assert ids(play.handle(code(2, 0))) == [2]
    assert sent(play)[2:] == [(HEARTBEAT, 3, 3)]


def test_requests_behind_an_errand_that_fails_go_on() -> None:
    play = started()
    play.request(committing(1))
    play.request(heartbeat(2))
    play.handle(code(1, NOT_COORDINATOR))

    commands = [command for _ in range(5) for command in play.handle(errand_done(None))]

    assert ids(commands) == [1]
    assert sent(play)[1:] == [(HEARTBEAT, 3, 2)]


@pytest.mark.usefixtures("sets")
def test_commit_waits_for_a_produce_of_several_requests_and_the_next_for_its_errand() -> None:
    play = started()
    play.request(producing(1, b"a|b"))
    play.request(committing(2))
    play.request(producing(3, b"c|d"))

    play.handle(produced(1, 0))
    assert sent(play) == [(PRODUCE, 3, 1)] * 2 + [(OFFSET_COMMIT, 2, 2)]
    play.handle(produced(1, 1))
    play.handle(code(2, NOT_COORDINATOR))
    assert sent(play)[3:] == []
    play.handle(errand_done(code(2, 0)))
    play.handle(produced(3, 2))

    assert sent(play)[3:] == [(PRODUCE, 3, 3)] * 2


def test_client_on_an_errand_is_read_until_it_sends_a_request() -> None:
    """If the client leaves, the errand must end with it: it may commit on its next connection."""
    play = started()
    play.request(committing(1))
    assert not play.relay.takes_requests

    play.handle(code(1, NOT_COORDINATOR))
    assert play.relay.takes_requests
    play.request(heartbeat(2))
    assert not play.relay.takes_requests
    play.handle(errand_done(code(1, 0)))
    assert play.relay.takes_requests


def test_requests_behind_an_errand_open_a_lost_connection_again() -> None:
    play = started()
    play.request(committing(1))
    play.handle(code(1, NOT_COORDINATOR))
    play.request(heartbeat(2))
    play.request(list_offsets(3))

    assert play.lose(PASS) == []
    assert of_type(OpenLink, play.handle(errand_done(code(1, 0)))) == [OpenLink(PASS, None)]
    play.open(PASS)
    play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 2))))
    play.handle(serving(KAFKA_4))

    assert sent(play)[1:] == [(HEARTBEAT, 3, 2), (API_VERSIONS, 0, 0), (LIST_OFFSETS, 1, 3)]


def test_an_errand_outlives_an_idle_connection() -> None:
    play = started()
    play.request(committing(1))
    play.handle(code(1, NOT_COORDINATOR))

    assert play.lose(PASS) == []
    assert ids(play.handle(errand_done(code(1, 0)))) == [1]


def test_coordinator_response_out_of_order_is_a_broker_protocol_error() -> None:
    play = started()
    play.request(committing(1))
    play.handle(code(1, NOT_COORDINATOR))

    with pytest.raises(BrokerProtocolError, match="out of order"):
        play.handle(errand_done(code(2, 0)))


# ------------------------------------------------------------------------------------------------- produce

LARGE = 100_000


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message set is its batches with bars in between, or an exclamation mark: its CRC is wrong."""

    def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes, ...]:
        assert max_batch_bytes < 1_048_588
        if bytes(message_set[:1]) == b"!":
            raise BadRecords(ErrorCode.corrupt_message, "as the test says")
        return tuple(bytes(message_set).split(b"|"))

    monkeypatch.setattr(produce_upgrade, "to_batches", to_batches)


@pytest.mark.usefixtures("sets")
def test_a_small_set_is_converted_on_its_way() -> None:
    play = started()
    play.request(producing(1, b"a"))
    play.request(heartbeat(2))

    assert sent(play) == [(PRODUCE, 3, 1), (HEARTBEAT, 3, 2)]
    (answer,) = replies(play.handle(produced(1, 7)))
    assert produce.ProduceResponse_v2.decode(answer[4:]).topics == [("t", [(0, 0, 7, -1)])]


@pytest.mark.usefixtures("sets")
def test_large_message_set_is_converted_in_a_thread_and_later_requests_wait() -> None:
    play = started()

    (work,) = of_type(RunInThread, play.request(producing(1, b"a" * LARGE)))
    assert not play.relay.takes_requests
    play.request(heartbeat(2))
    assert sent(play) == []

    play.handle(ThreadFinished(work.worker, work.run()))
    assert sent(play) == [(PRODUCE, 3, 1), (HEARTBEAT, 3, 2)]
    assert play.relay.takes_requests


@pytest.mark.usefixtures("sets")
def test_request_after_a_produce_of_several_requests_waits_until_the_last_is_sent() -> None:
    play = started()
    play.request(producing(1, b"a|b|c"))
    play.request(producing(2, b"d"))

    assert sent(play) == [(PRODUCE, 3, 1)]
    assert ids(play.handle(produced(1, 7))) == []
    assert sent(play) == [(PRODUCE, 3, 1)] * 2
    play.handle(produced(1, 8))
    assert sent(play) == [(PRODUCE, 3, 1)] * 3 + [(PRODUCE, 3, 2)]
    assert ids(play.handle(produced(1, 9))) == [1]
    assert ids(play.handle(produced(2, 10))) == [2]


@pytest.mark.usefixtures("sets")
def test_error_in_a_produce_of_several_requests_releases_waiting_requests() -> None:
    play = started()
    play.request(producing(1, b"a|b|c"))
    play.request(producing(2, b"d"))

    (answer,) = replies(play.handle(produced(1, -1, error=6)))

    assert produce.ProduceResponse_v2.decode(answer[4:]).topics == [("t", [(0, 6, -1, -1)])]
    assert sent(play) == [(PRODUCE, 3, 1), (PRODUCE, 3, 2)]


@pytest.mark.usefixtures("sets")
def test_produce_with_acks_0_expects_no_response_and_reports_a_lost_connection() -> None:
    play = started()
    play.request(producing(1, b"a|b", acks=0))
    play.request(heartbeat(2))

    assert sent(play) == [(PRODUCE, 3, 1), (PRODUCE, 3, 1), (HEARTBEAT, 3, 2)]
    assert ids(play.handle(LinkFrame(PASS, memoryview(struct.pack(">i", 2))))) == [2]
    play.request(producing(3, b"a", acks=0))
    with pytest.raises(BrokerUnavailable):
        play.lose(PASS)


@pytest.mark.usefixtures("sets")
def test_unconvertible_produce_with_acks_0_is_a_client_protocol_error() -> None:
    with pytest.raises(ClientProtocolError):
        started().request(producing(1, b"!", acks=0))


@pytest.mark.usefixtures("sets")
def test_a_connection_that_is_lost_while_a_set_is_converted_is_made_again() -> None:
    play = started()
    (work,) = of_type(RunInThread, play.request(producing(1, b"a" * LARGE)))

    play.lose(PASS)
    assert of_type(OpenLink, play.handle(ThreadFinished(work.worker, work.run()))) == [OpenLink(PASS, None)]
    play.open(PASS)

    assert sent(play) == [(PRODUCE, 3, 1)]


# ------------------------------------------------------------------------------------------- large requests


def committing_many(correlation_id: int, partitions: int) -> bytes:
    body = encoded(
        commit.OffsetCommitRequest_v1, "g", -1, "", [("t", [(number, 10, -1, "") for number in range(partitions)])]
    )
    return old(OFFSET_COMMIT, 1, correlation_id, body)


def code_of_many(correlation_id: int, partitions: int) -> LinkFrame:
    reported = [{"partition_index": number, "error_code": 0} for number in range(partitions)]
    return answered(OFFSET_COMMIT, 2, correlation_id, {"topics": [{"name": "t", "partitions": reported}]})


def test_large_request_and_response_are_decoded_in_a_thread_and_later_requests_wait() -> None:
    play = started()
    (decoding,) = of_type(RunInThread, play.request(committing_many(1, 5_000)))
    play.request(heartbeat(2))
    assert (sent(play), play.relay.takes_requests) == ([], False)

    play.handle(ThreadFinished(decoding.worker, decoding.run()))
    assert sent(play) == [(OFFSET_COMMIT, 2, 1)]
    (reading,) = of_type(RunInThread, play.handle(code_of_many(1, 5_000)))
    assert sent(play) == [(OFFSET_COMMIT, 2, 1)]
    (answer,) = replies(play.handle(ThreadFinished(reading.worker, reading.run())))

    assert sent(play) == [(OFFSET_COMMIT, 2, 1), (HEARTBEAT, 3, 2)]
    ((_, partitions),) = commit.OffsetCommitResponse_v1.decode(answer[4:]).topics
    assert partitions == [(number, 0) for number in range(5_000)]


def test_malformed_large_request_closes_the_connection_after_its_thread() -> None:
    play = started()
    framed = committing_many(1, 5_000)
    longer = (len(framed) - 3).to_bytes(4) + framed[4:] + b"\0"
    (decoding,) = of_type(RunInThread, play.request(longer))

    with pytest.raises(ClientProtocolError, match="malformed request"):
        play.handle(ThreadFinished(decoding.worker, decoding.run()))


def test_request_that_is_too_large_to_be_upgraded_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ClientProtocolError, match=r"OffsetCommit v1 of \d+ bytes cannot be upgraded"):
        started().request(committing_many(1, 60_000))


@pytest.mark.parametrize(
    "partitions",
    [{"t": range(10_001)}, {"t": range(5_000), "u": range(5_001)}, {"t": [0] * 10_001}],
    ids=["one-topic", "two-topics", "repeated"],
)
def test_produce_request_for_too_many_partitions_is_refused(partitions: dict[str, Sequence[int]]) -> None:
    topics = [(topic, [(number, b"") for number in numbers]) for topic, numbers in partitions.items()]
    body = encoded(produce.ProduceRequest_v2, 1, 1000, topics)

    with pytest.raises(ClientProtocolError, match="more than 10000 partitions"):
        started().request(old(PRODUCE, 2, 1, body))
