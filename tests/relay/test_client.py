"""The relay of one client connection: events in, commands out."""

import struct

import pytest
from kio.index import load_request_schema
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.static.primitive import i16, i32

from proxy.cluster.topology import Topology
from proxy.errors import BrokerProtocolError, BrokerUnavailable, ClientProtocolError
from proxy.relay.commands import PASS, CloseLink, Draining, LinkFrame, OpenLink, Reply, Tick
from proxy.wire import messages
from proxy.wire.headers import RequestHeader, write_request_header
from tests.pieces import joined
from tests.relay.playbook import LONG_POLL, Part, Play, client_responses, learnt, of_type, parts_of, topology
from tests.wire.entities import made

IDLE = Part()
FETCH_VERSIONS = range(4, 19)


def heartbeat(correlation_id: int) -> bytes:
    return messages.request_frame(correlation_id, "the-client", made(HeartbeatRequest))


def produce(correlation_id: int, acks: int) -> bytes:
    kind = load_request_schema(i16(0), i16(9))
    return messages.request_frame(correlation_id, "the-client", made(kind, acks=i16(acks)))


def plain_answer(correlation_id: int, rest: bytes = b"rest") -> LinkFrame:
    return LinkFrame(PASS, memoryview(struct.pack(">i", correlation_id) + rest))


# ------------------------------------------------------------------------------------ sessions upstream


def test_session_is_requested_by_the_second_upstream_fetch_and_used_by_the_third() -> None:
    play = Play()
    offsets, idle = {0: 10, 1: 20}, {0: IDLE, 1: IDLE}

    assert of_type(OpenLink, play.fetch(offsets)) == [OpenLink(LONG_POLL, "the-client")]
    play.open(LONG_POLL)
    play.answer(idle)
    play.fetch(offsets)
    play.answer(idle, session_id=7)
    play.fetch(offsets)

    assert [(asked.session_id, asked.epoch, dict(asked.offsets)) for asked in play.asked] == [
        (0, -1, offsets),
        (0, 0, offsets),
        (7, 1, {}),
    ]
    assert {asked.client_id for asked in play.asked} == {"the-client"}


def test_incremental_fetch_names_only_changed_partitions() -> None:
    play = Play()
    play.established(0, 1, 2)

    play.fetch({0: 0, 1: 5, 2: 0})
    play.answer({})
    play.fetch({0: 0, 1: 5, 2: 0})
    play.answer({})
    play.fetch({0: 0, 1: 5})

    assert [(a.epoch, dict(a.offsets), list(a.forgotten)) for a in play.asked] == [
        (1, {1: 5}, []),
        (2, {}, []),
        (3, {}, [2]),
    ]


@pytest.mark.parametrize("error", [70, 71, 106])
def test_session_error_is_retried_in_full_and_hidden_from_the_client(error: int) -> None:
    play = Play()
    play.established(0)

    play.fetch({0: 0})
    assert client_responses(play.answer({}, error=error)) == []
    (answer,) = client_responses(play.answer({0: IDLE}, session_id=8))

    assert parts_of(answer) == {0: (0, 100)}
    assert dict(play.asked[-1].offsets) == {0: 0}
    assert play.asked[-1].session_id == (0 if error == 70 else 7)


def test_an_evicted_session_is_not_made_again_at_once_since_slots_are_scarce() -> None:
    play = Play()
    play.established(0)

    play.fetch({0: 0})
    play.answer({}, error=70)
    play.answer({0: IDLE})
    play.now_s += 9
    play.fetch({0: 0})
    play.answer({0: IDLE})
    play.now_s += 2
    play.fetch({0: 0})

    assert [asked.epoch for asked in play.asked] == [1, -1, -1, 0]


def test_fetch_of_a_lost_connection_is_retried_in_full_and_replaces_the_session() -> None:
    play = Play()
    play.established(0, 1)

    play.fetch({0: 5, 1: 0})
    assert of_type(OpenLink, play.lose(LONG_POLL)) == [OpenLink(LONG_POLL, "the-client")]
    play.open(LONG_POLL)

    assert (play.asked[-1].session_id, play.asked[-1].epoch) == (7, 0)
    assert dict(play.asked[-1].offsets) == {0: 5, 1: 0}


def test_the_session_is_closed_when_the_client_goes() -> None:
    play = Play()
    play.established(0)

    _, (farewell,) = play.relay.leave(play.now_s)

    asked = play._read_fetch(farewell.fetcher, farewell.frame)
    assert (asked.session_id, asked.epoch, dict(asked.offsets)) == (7, -1, {})
    assert play.relay.leave(play.now_s) == ([], [])


def test_broker_without_sessions_gets_every_partition_in_each_fetch() -> None:
    play = Play(broker_fetch=6)

    for _ in range(3):
        play.fetch({0: 0, 1: 0})
        if not play.asked:
            play.open(LONG_POLL)
        play.answer({0: IDLE, 1: IDLE})

    assert [dict(asked.offsets) for asked in play.asked] == [{0: 0, 1: 0}] * 3


@pytest.mark.parametrize(("partitions", "epoch"), [(1000, 0), (1001, -1)])
def test_a_session_by_names_is_not_made_larger_than_a_broker_bears(partitions: int, epoch: int) -> None:
    play = Play(topology(partitions), broker_fetch=12)
    offsets = dict.fromkeys(range(partitions), 0)

    play.fetch(offsets)
    play.open(LONG_POLL)
    play.wait(0)
    while len(play.asked[-1].offsets) < partitions:
        play.answer(dict.fromkeys(play.asked[-1].offsets, IDLE))
    play.answer(dict.fromkeys(offsets, IDLE))
    play.fetch(offsets)

    assert len(play.asked[-1].offsets) == partitions
    assert play.asked[-1].epoch == epoch


# ------------------------------------------------------------------------------------------ full answers


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_response_has_every_partition_in_client_order_with_its_last_offsets(version: int) -> None:
    play = Play()
    play.fetch({2: 0, 0: 0, 1: 0}, version=version)
    play.open(LONG_POLL)
    play.answer({2: Part(0, 12), 0: Part(0, 10), 1: Part(0, 11)})
    play.fetch({2: 0, 0: 0, 1: 0}, version=version)
    play.answer({2: Part(0, 12), 0: Part(0, 10), 1: Part(0, 11)}, session_id=7)
    play.fetch({2: 0, 0: 0, 1: 0}, version=version)

    (answer,) = client_responses(play.answer({0: Part(0, 15)}), version=version)

    assert list(parts_of(answer).items()) == [(2, (0, 12)), (0, (0, 15)), (1, (0, 11))]


def test_partition_that_returned_records_is_requested_last_in_the_next_fetch() -> None:
    """So that a limit that holds one batch gives every partition its turn."""
    play = Play(broker_fetch=6)
    at, turns = dict.fromkeys(range(3), 0), []
    play.fetch(at, version=5)
    play.open(LONG_POLL)
    for _ in range(6):
        first = next(iter(play.asked[-1].offsets))
        turns.append(first)
        play.answer({p: Part(records=b"x" if p == first else b"") for p in at})
        at[first] += 1
        play.fetch(at, version=5)

    assert turns == [0, 1, 2, 0, 1, 2]


def test_partition_error_is_returned_once_and_not_cached() -> None:
    play = Play()
    play.established(0, 1)

    play.fetch({0: 0, 1: 0})
    (first,) = client_responses(play.answer({1: Part(1, 100)}))
    play.fetch({0: 0, 1: 0})
    (second,) = client_responses(play.answer({}))

    assert parts_of(first) == {0: (0, 100), 1: (1, 100)}
    assert parts_of(second) == {0: (0, 100), 1: (0, 100)}


def test_records_are_passed_on_and_not_kept() -> None:
    play = Play()
    play.established(0, 1)

    play.fetch({0: 0, 1: 0})
    (first,) = of_type(Reply, play.answer({1: Part(records=b"RECORDS")}))
    play.fetch({0: 0, 1: 0})
    (second,) = of_type(Reply, play.answer({}))

    assert joined(first.pieces).count(b"RECORDS") == 1
    assert b"RECORDS" not in joined(second.pieces)


def test_a_code_that_the_clients_version_does_not_know_becomes_an_older_one() -> None:
    play = Play()
    play.established(0, version=5)

    play.fetch({0: 0}, version=5)
    (answer,) = client_responses(play.answer({0: Part(56, 100)}), version=5)

    assert parts_of(answer)[0][0] == 6


def test_partition_led_by_another_broker_is_not_requested_and_gets_error_6() -> None:
    play = Play(topology(leaders={1: 2}))

    commands = play.fetch({0: 0, 1: 0})
    commands += play.open(LONG_POLL)
    assert learnt(commands) == [frozenset({"t"})]
    play.update_topology(topology(leaders={1: 2}))
    (answer,) = client_responses(play.answer({0: IDLE}))

    assert dict(play.asked[-1].offsets) == {0: 0}
    assert parts_of(answer) == {0: (0, 100), 1: (6, -1)}


def test_known_leader_epoch_is_sent_for_a_client_that_sends_none() -> None:
    play = Play(topology(epoch=5))
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)

    assert dict(play.asked[-1].leader_epochs) == {0: 5}


def test_client_that_requests_a_session_gets_none() -> None:
    play = Play()
    play.fetch({0: 0}, session_id=i32(0), session_epoch=i32(0))
    play.open(LONG_POLL)
    (answer,) = client_responses(play.answer({0: IDLE}))

    assert answer.session_id == 0
    (lost,) = client_responses(play.fetch({}, session_id=i32(7), session_epoch=i32(1)))
    assert lost.error_code == 70


@pytest.mark.parametrize("version", range(4))
def test_a_follower_is_refused_in_the_versions_that_kio_does_not_know(version: int) -> None:
    header = write_request_header(RequestHeader(1, version, 1, None), flexible=False)
    limit = struct.pack(">i", 1 << 20) if version == 3 else b""
    frame = header + struct.pack(">iii", 3, 0, 0) + limit + struct.pack(">i", 0)

    with pytest.raises(ClientProtocolError, match="replica id 3"):
        Play().request(struct.pack(">i", len(frame)) + frame)


def test_a_follower_is_refused() -> None:
    with pytest.raises(ClientProtocolError, match="replica id 3"):
        Play().fetch({0: 0}, version=11, replica_id=i32(3))


# --------------------------------------------------------------------------------------------------- time


def test_the_broker_is_given_the_clients_wait() -> None:
    play = Play()
    play.fetch({0: 0})
    play.open(LONG_POLL)

    assert play.asked[-1].max_wait_ms == 500


def test_a_client_that_knows_no_throttling_is_held_as_long() -> None:
    play = Play()
    play.established(0, version=7)

    play.fetch({0: 0}, version=7)
    assert client_responses(play.answer({0: Part(records=b"x")}, throttle_ms=300), version=7) == []
    assert play.relay.deadline_s == pytest.approx(play.now_s + 0.3)
    play.now_s += 0.31
    (answer,) = client_responses(play.handle(Tick()), version=7)

    assert parts_of(answer) == {0: (0, 100)}


def test_throttled_fetch_is_sent_again_for_a_client_that_does_not_throttle_itself() -> None:
    play = Play()
    play.established(0, version=7)

    play.fetch({0: 0}, version=7)
    assert client_responses(play.answer({}, throttle_ms=300), version=7) == []
    play.now_s += 0.31
    play.handle(Tick())

    assert [asked.epoch for asked in play.asked] == [1, 2]
    (answer,) = client_responses(play.answer({}), version=7)
    assert parts_of(answer) == {0: (0, 100)}
    assert answer.throttle_time.total_seconds() == 0.3


def test_throttle_time_is_returned_at_once_to_a_client_that_throttles_itself() -> None:
    play = Play()
    play.established(0, version=8)

    play.fetch({0: 0}, version=8)
    (answer,) = client_responses(play.answer({}, throttle_ms=300), version=8)

    assert answer.throttle_time.total_seconds() == 0.3


def test_waiting_client_fetch_is_answered_at_once_when_draining() -> None:
    play = Play()
    play.established(0, 1)

    play.fetch({0: 0, 1: 0})
    (answer,) = client_responses(play.handle(Draining()))

    assert parts_of(answer) == {0: (0, 100), 1: (0, 100)}


def test_upstream_fetch_while_draining_waits_100_ms() -> None:
    play = Play()
    play.established(0)
    play.handle(Draining())

    play.fetch({0: 0})

    assert play.asked[-1].max_wait_ms == 100


# ---------------------------------------------------------------------------------- order and pass-through


def test_passed_through_requests_and_responses_keep_their_bytes() -> None:
    play = Play()

    assert of_type(OpenLink, play.request(heartbeat(1))) == [OpenLink(PASS, None)]
    play.open(PASS)
    play.request(heartbeat(2))
    (reply,) = of_type(Reply, play.handle(plain_answer(1)))

    assert play.passed == [heartbeat(1), heartbeat(2)]
    assert joined(reply.pieces) == struct.pack(">ii", 8, 1) + b"rest"


def test_response_waits_for_the_response_to_an_earlier_fetch() -> None:
    play = Play()
    play.established(0)
    play.request(heartbeat(1))
    play.open(PASS)
    play.handle(plain_answer(1))

    play.fetch({0: 0}, correlation_id=2)
    play.request(heartbeat(3))
    assert of_type(Reply, play.handle(plain_answer(3))) == []
    replies = of_type(Reply, play.answer({}))

    assert [joined(reply.pieces)[4:8] for reply in replies] == [struct.pack(">i", n) for n in (2, 3)]


def test_a_fetch_that_waits_stops_nothing_behind_it_upstream() -> None:
    play = Play()
    play.established(0)
    play.request(heartbeat(1))
    play.open(PASS)

    play.fetch({0: 0}, correlation_id=2)
    play.request(heartbeat(3))

    assert play.passed == [heartbeat(1), heartbeat(3)]


def test_second_fetch_begins_after_the_response_to_the_first() -> None:
    play = Play()
    play.established(0)

    play.fetch({0: 0}, correlation_id=1)
    play.fetch({0: 5}, correlation_id=2)
    assert len(play.asked) == 1
    (first,) = of_type(Reply, play.answer({}))
    (second,) = of_type(Reply, play.answer({}))

    assert [dict(asked.offsets) for asked in play.asked] == [{}, {0: 5}]
    assert [joined(reply.pieces)[4:8] for reply in (first, second)] == [struct.pack(">i", n) for n in (1, 2)]


def test_queued_fetch_begins_with_the_metadata_that_arrived_meanwhile() -> None:
    play = Play(Topology())
    play.fetch({0: 0}, correlation_id=1)
    play.open(LONG_POLL)
    play.fetch({0: 0}, correlation_id=2)
    play.update_topology(topology())

    assert learnt(play.answer({0: IDLE})) == []
    assert [dict(asked.offsets) for asked in play.asked] == [{0: 0}, {0: 0}]


def test_produce_request_with_acks_0_expects_no_response() -> None:
    play = Play()
    play.request(produce(1, acks=0))
    play.open(PASS)
    play.request(heartbeat(2))

    (reply,) = of_type(Reply, play.handle(plain_answer(2)))

    assert joined(reply.pieces)[4:8] == struct.pack(">i", 2)


def test_response_out_of_order_or_without_a_request_is_a_broker_protocol_error() -> None:
    play = Play()
    play.request(heartbeat(1))
    play.open(PASS)
    with pytest.raises(BrokerProtocolError, match="out of order"):
        play.handle(plain_answer(2))

    play = Play()
    with pytest.raises(BrokerProtocolError, match="to nothing"):
        play.handle(plain_answer(1))


def test_response_to_another_fetch_closes_its_connection_only() -> None:
    play = Play()
    play.established(0)
    play.fetch({0: 0})
    play._correlation_ids[LONG_POLL] += 1

    commands = play.answer({})

    assert [command.link for command in of_type(CloseLink, commands)] == [LONG_POLL]
    assert of_type(OpenLink, commands) == [OpenLink(LONG_POLL, "the-client")]


def test_client_connection_is_not_read_while_64_responses_are_pending() -> None:
    play = Play()
    play.request(heartbeat(0))
    play.open(PASS)
    for number in range(1, 63):
        play.request(heartbeat(number))
        assert play.relay.takes_requests
    play.request(heartbeat(63))
    assert not play.relay.takes_requests

    play.handle(plain_answer(0))
    assert play.relay.takes_requests


def test_client_connection_is_not_read_while_requests_wait_for_a_broker_connection() -> None:
    play = Play()
    play.request(produce(1, acks=0))
    assert not play.relay.takes_requests

    play.open(PASS)
    assert play.relay.takes_requests


def test_a_broker_that_closes_an_idle_connection_is_not_shown_to_the_client() -> None:
    play = Play()
    play.request(heartbeat(1))
    play.open(PASS)
    play.handle(plain_answer(1))

    assert play.lose(PASS) == []
    assert of_type(OpenLink, play.request(heartbeat(2))) == [OpenLink(PASS, None)]


def test_broker_lost_before_a_pending_response_ends_the_client_connection() -> None:
    play = Play()
    play.request(heartbeat(1))
    play.open(PASS)

    with pytest.raises(BrokerUnavailable):
        play.lose(PASS)


@pytest.mark.parametrize("frame", [b"", b"\0\1", b"\0\1\0\x0b\0\0\0\1\xff\xff\0"])
def test_a_request_that_is_cut_short_is_the_clients_fault(frame: bytes) -> None:
    with pytest.raises(ClientProtocolError, match="malformed request"):
        Play().request(struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize(("key", "version"), [(9_999, 0), (3, 14), (60, 3)])
def test_an_api_that_might_carry_addresses_unseen_is_refused(key: int, version: int) -> None:
    frame = write_request_header(RequestHeader(key, version, 1, None), flexible=True)

    with pytest.raises(ClientProtocolError, match=f"API {key} v{version}"):
        Play().request(struct.pack(">i", len(frame)) + frame)


def test_unsupported_version_of_api_versions_gets_error_35_without_the_broker() -> None:
    play = Play()
    frame = write_request_header(RequestHeader(18, 5, 1, None), flexible=True)

    (reply,) = of_type(Reply, play.request(struct.pack(">i", len(frame)) + frame))

    assert joined(reply.pieces)[8:10] == struct.pack(">h", 35)
    assert play.passed == []
