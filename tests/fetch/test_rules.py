"""The rules of the log cache, L1 to L17 of ``proxy/fetch/LOG_CACHE.md``."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.cluster.routing import Selector
from proxy.demo.messages import encode_request
from proxy.errors import ClientProtocolError, ErrorCode
from proxy.fetch.commands import FetcherKind
from proxy.relay.client import Sasl
from proxy.relay.commands import PASS, Command, LinkAnswering, LinkFrame, Tick
from proxy.wire import sasl
from proxy.wire.frames import Buffer
from proxy.wire.headers import RequestHeader
from tests.convert.logs import marker
from tests.old_clients import batch
from tests.relay.batches import BATCH, SMALL, batches, given, part
from tests.relay.driver import MemoryNeeded
from tests.relay.logging_in import handshake, offered
from tests.relay.playbook import (
    CATCH_UP,
    LIVE,
    LONG_POLL,
    Part,
    Play,
    client_responses,
    fetcher_id,
    parts_of,
    topology,
)
from tests.relay.shared import SharedPlay

NEWS = batch(100, b"news")
AUTHENTICATE = 36
MANY = range(120)
"""More partitions than one fetcher reads if some of them move and others do not."""


def parked(partitions: int = 1, **options: object) -> Play:
    """A client whose partitions wait at the broker, at offset 0; it asks next."""
    play = Play(topology(max(partitions, 3)), upstream_max_wait_s=10, **options)  # type: ignore[arg-type]
    play.established(*range(partitions))
    return play


def waiting(partitions: int = 1, **options: Any) -> SharedPlay:
    """Clients a and b that share a request which waits at the end of all partitions, offset 100; both ask next."""
    play = SharedPlay(topology(max(partitions, 3)), **options)
    play.at_end(*range(partitions), offset=100)
    play.wait(0.6)
    assert len(play.answers("a")) == len(play.answers("b")) == 1
    play.asked.clear()
    return play


def records_of(commands: Sequence[Command]) -> dict[int, bytes]:
    (answer,) = client_responses(commands)
    parts = [each for topic in answer.responses for each in topic.partitions]
    return {each.partition_index: bytes(each.records) for each in parts if each.records}


def test_l1_partition_of_open_fetch_without_fetcher_is_reported_unserved() -> None:
    play = Play()
    play.fetch({0: 0, 1: 0})
    assert play.relay.unserved() == []
    play.open(LONG_POLL)
    assert play.relay.unserved() == []

    lost, other = play.relay.cache._index
    play.relay.cache._leave_fetcher(lost)

    assert play.relay.unserved() == [lost.key.partition]
    assert other.fetcher is not None


def test_l1_log_that_leaves_a_fetcher_while_a_client_waits_is_requested_by_another() -> None:
    play = parked(3)
    play.open_wanted(play.fetch({0: 0, 1: 0, 2: 50}, max_wait_ms=5_000))
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (LIVE, {2: 50})
    play.wait(0.1)

    play.answer({})

    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (LONG_POLL, {2: 50})


def test_l2_log_is_on_one_fetcher_at_a_time() -> None:
    play = parked(len(MANY))
    offsets = dict.fromkeys(MANY, 0)
    for at in range(4):
        play.open_wanted(play.fetch(offsets | {5: at}))
        link = play.asked[-1].link if play.asked else LONG_POLL
        play.answer({5: Part(0, 101 + at, batch(at, b"more"))}, link=link)
        for log in play.relay.cache._index:
            fetchers = [fetcher for each in play.relay.cache._sources.values() for fetcher in each]
            assert [fetcher for fetcher in fetchers if log in fetcher.logs.values()] == (
                [log.fetcher] if log.fetcher is not None else []
            )

    assert {each.link for each in play.asked} == {LONG_POLL, LIVE}


def test_l2_response_to_a_request_of_an_earlier_leader_epoch_is_not_used() -> None:
    play = parked()
    play.fetch({0: 0})

    commands = play.update_topology(topology(epoch=6))
    commands += play.answer({0: Part(records=batch(0, b"of epoch 5"))})

    assert client_responses(commands) == []
    asked = play.asked[-1]
    assert (asked.offsets, asked.leader_epochs) == ({0: 0}, {0: 6})
    commands = play.answer({0: Part(records=batch(0, b"of epoch 6"))}, link=asked.link)
    assert records_of(commands) == {0: batch(0, b"of epoch 6")}


@pytest.mark.parametrize("changed", ["end", "epoch"])
def test_l2_response_is_not_used_if_its_log_has_another_end_or_epoch_by_then(changed: str) -> None:
    play = waiting()
    play.fetch_as("a", {0: 100})
    (log,) = play.relay.cache._index
    if changed == "end":
        assert log.log.append(100, memoryview(batch(100, b"other")))
    else:
        log.key = log.key._replace(epoch=6)
    end = log.log.end

    play.answer({0: Part(0, 101, NEWS)})

    assert log.log.end == end
    assert play.answers("a") == []


def test_l3_each_slice_lists_the_aborted_transactions_that_overlap_it_once() -> None:
    play = Play(upstream_max_wait_s=10)
    play.part_bytes = SMALL
    play.fetch({0: 0}, isolation_level=1)
    play.open(LONG_POLL)

    records = batches(0, 2) + marker(20, 7, commits=False) + batches(21, 5)
    commands = play.answer({0: Part(0, 100, records, aborted=((7, 5), (8, 55)))})
    for first in (20, 31, 51):
        commands += play.fetch({0: first}, isolation_level=1)

    parts = [
        each for answer in client_responses(commands) for topic in answer.responses for each in topic.partitions
    ]
    assert b"".join(bytes(each.records) for each in parts) == records
    listed = [[(one.producer_id, one.first_offset) for one in each.aborted_transactions] for each in parts]
    assert listed == [[(7, 5)], [(7, 5)], [], [(8, 55)]]


def test_l4_grown_leader_epoch_voids_cached_records() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]

    play.update_topology(topology(epoch=6))
    play.fetch_as("b", {0: 100})

    assert play.records("b") == []
    assert (play.asked[-1].offsets, play.asked[-1].leader_epochs) == ({0: 100}, {0: 6})


def test_l4_grown_leader_epoch_ends_the_wait_of_clients_at_an_older_log() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100}, max_wait_ms=5_000)

    play.update_topology(topology(epoch=6))

    assert (play.asked[-1].offsets, play.asked[-1].leader_epochs) == ({0: 100}, {0: 6})


def test_l4_client_with_another_epoch_reads_a_log_of_its_own() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]

    play.fetch_as("b", {0: 100}, epochs={0: 4})

    assert play.records("b") == []
    assert (play.asked[-1].offsets, play.asked[-1].leader_epochs) == ({0: 100}, {0: 4})


def reads_to_100(play: Play) -> None:
    """The old client of *play* reads records up to offset 100, under leader epoch 5."""
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=100, records=batch(0, *[b"x"] * 100))})


def test_l5_look_back_of_one_connection_is_not_lost_to_another_with_its_client_id() -> None:
    play = Play()
    reads_to_100(play)
    first, asked = play.relay, dict(play._correlation_ids)
    play.reconnect()
    play.known = topology(epoch=7)
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=50, records=batch(0, *[b"x"] * 50))})

    play.relay, play._correlation_ids = first, asked
    play.fetch({0: 100}, version=4)

    assert dict(play.asked[-1].looks_back) == {0: 5}


def test_l5_look_back_of_a_connection_is_kept_while_its_client_rests() -> None:
    play = Play()
    reads_to_100(play)
    assert play.relay.rest(play.now_s)
    play.update_topology(topology(epoch=7))

    play.fetch({0: 90}, version=4)
    play.open(LONG_POLL)

    assert dict(play.asked[-1].looks_back) == {0: 5}


@pytest.mark.parametrize(("offset", "looks_back"), [(100, {0: 5}), (99, {}), (40, {})])
def test_l5_after_a_reconnect_only_the_exact_offset_is_looked_back_for(
    offset: int, looks_back: dict[int, int]
) -> None:
    play = Play()
    reads_to_100(play)
    play.reconnect()
    play.known = topology(epoch=7)

    play.fetch({0: offset}, version=4)
    play.open(LONG_POLL)

    assert dict(play.asked[-1].looks_back) == looks_back


def test_l6_catch_up_has_no_session_and_does_not_wait() -> None:
    play = parked(len(MANY))
    offsets = dict.fromkeys(MANY, 0) | {5: 50}
    play.open_wanted(play.fetch(offsets))
    assert play.relay.is_busy(LONG_POLL)
    assert play.relay.is_busy(LIVE)
    play.wait(0.5)

    for at in range(100, 104):
        moved = dict.fromkeys(range(6, 110), at)
        play.open_wanted(play.fetch(offsets | moved))
        assert dict(play.asked_on(CATCH_UP)[-1].offsets) == moved
        play.answer(dict.fromkeys(moved, Part(high_watermark=at)), link=CATCH_UP)
        play.wait(0.5)

    requests = play.asked_on(CATCH_UP)
    assert {(each.session_id, each.epoch, each.max_wait_ms) for each in requests} == {(0, -1, 0)}


def test_l6_catch_up_does_not_delay_readers_at_the_end() -> None:
    play = waiting(2)
    play.part_bytes = SMALL
    play.fetch_as("a", {0: 100, 1: 100})
    for first in range(0, 100, 20):
        play.fetch_as("b", {1: first})
        link = play.asked[-1].link
        assert link != LONG_POLL
        assert play.relay.is_busy(LONG_POLL)
        if first < 80:
            play.answer({1: part(first, 2, end=100)}, link=link)
            assert play.records("b") == [{1: batches(first, 2)}]

    play.answer({0: Part(0, 101, NEWS)})

    assert play.records("a") == [{0: NEWS, 1: b""}]


def test_l6_log_that_is_behind_leaves_the_request_of_other_readers() -> None:
    play = SharedPlay()
    play.opens = False
    play.part_bytes = 4 * BATCH
    play.fetch_as("a", {0: 100}, max_wait_ms=5_000)
    play.fetch_as("b", {1: 0}, max_wait_ms=5_000, min_bytes=4 * BATCH)
    play.opens = True
    play.open(LONG_POLL)
    assert dict(play.asked[-1].offsets) == {0: 100, 1: 0}

    play.answer({0: Part(), 1: part(0, 2)})

    assert dict(play.asked_on(CATCH_UP)[-1].offsets) == {1: 20}
    assert dict(play.asked_on(LONG_POLL)[-1].offsets) == {0: 100}


def test_l7_log_that_arrives_beside_a_long_poll_is_requested_at_once() -> None:
    play = parked(3)

    play.open_wanted(play.fetch({0: 0, 1: 0, 2: 50}))

    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (LIVE, {2: 50})
    assert play.asked[-1].max_wait_ms <= 100


def test_l7_log_that_arrives_beside_two_requests_is_requested_at_once() -> None:
    play = parked(3)
    play.open_wanted(play.fetch({0: 0, 1: 0, 2: 50}))
    play.answer({2: Part(0, 100, batch(50, b"x"))}, link=LIVE)
    play.wait(0.1)
    play.fetch({0: 0, 1: 0, 2: 51})
    assert play.relay.is_busy(LONG_POLL)
    play.wait(0.5)

    play.open_wanted(play.fetch({0: 0, 1: 70, 2: 51}))

    requests = [each for each in play.asked if each.offsets.get(1) == 70]
    assert requests[0].max_wait_ms <= 100


def test_l8_throttled_response_confirms_nothing() -> None:
    play = Play()
    play.established(0, version=7)
    play.fetch({0: 0}, version=7)

    assert client_responses(play.answer({}, throttle_ms=300), version=7) == []
    assert client_responses(play.wait(0.29), version=7) == []
    play.wait(0.02)

    assert play.relay.is_busy(LONG_POLL)
    assert len(client_responses(play.answer({}), version=7)) == 1


def test_l8_throttled_request_is_not_parked() -> None:
    play = parked()
    play.answer({})
    play.fetch({0: 0})
    assert len(client_responses(play.answer({}, throttle_ms=14_000))) == 1

    play.fetch({0: 0})
    assert client_responses(play.wait(13.9)) == []
    assert len(client_responses(play.wait(0.2))) == 1


def test_l9_request_is_parked_after_50_ms_without_a_byte_of_its_response() -> None:
    play = parked(3)
    play.open_wanted(play.fetch({0: 0, 1: 0, 2: 50}))

    assert client_responses(play.answer({1: Part(0, 101, batch(0, b"news"))})) == []
    assert client_responses(play.wait(0.049)) == []
    assert records_of(play.wait(0.002)) == {1: batch(0, b"news")}


def test_l9_request_is_not_parked_once_the_first_byte_of_its_response_has_arrived() -> None:
    play = parked()
    play.fetch({0: 0})
    play.wait(0.4)

    play.handle(LinkAnswering(LONG_POLL))
    assert client_responses(play.wait(3.0)) == []

    assert records_of(play.answer({0: Part(0, 1, batch(0, b"news"))})) == {0: batch(0, b"news")}


def test_l9_request_in_flight_before_the_client_fetch_is_parked_at_once() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100}, max_wait_ms=5_000)
    play.answer({})
    assert play.relay.is_busy(LONG_POLL)

    play.wait(0.01)
    play.fetch_as("b", {0: 100}, max_wait_ms=20)
    play.wait(0.019)
    assert play.answers("b") == []
    play.wait(0.002)

    assert len(play.answers("b")) == 1


def test_l9_parked_request_confirms_records_that_did_not_fit_before() -> None:
    play = parked(2)
    play.fetch({0: 0, 1: 0})
    assert records_of(play.answer({0: Part(0, 1, batch(0, b"news")), 1: Part(0, 5)})) == {0: batch(0, b"news")}
    assert client_responses(play.fetch({0: 1, 1: 0}, max_wait_ms=500)) == []
    assert len(client_responses(play.wait(0.5))) == 1

    assert client_responses(play.fetch({0: 1, 1: 0}, max_wait_ms=500)) == []

    assert len(client_responses(play.wait(0.5))) == 1


def test_l10_cached_entries_live_for_a_second() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]

    play.wait(0.9)
    play.fetch_as("b", {0: 100})
    assert play.records("b") == [{0: NEWS}]
    play.wait(0.2)
    play.fetch_as("b", {0: 100})

    assert play.records("b") == []
    assert play.relay.cache.oldest_s is None


def test_l10_records_below_a_grown_log_start_are_not_delivered() -> None:
    play = waiting()
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 120, batches(100, 1))})
    play.answers("a")
    play.fetch_as("a", {0: 110})
    play.answer({0: Part(0, 120, batches(110, 1), log_start=110)}, link=play.asked[-1].link)
    play.answers("a")

    play.fetch_as("b", {0: 100})

    assert play.records("b") == []
    assert dict(play.asked[-1].offsets) == {0: 100}


def test_l10_topic_authorization_error_drops_the_records_of_the_topic() -> None:
    play = waiting(2)
    play.fetch_as("a", {0: 100, 1: 100})
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS, 1: b""}]
    play.wait(0.2)
    play.fetch_as("a", {1: 100})
    play.answer({1: Part(ErrorCode.topic_authorization_failed, -1)})
    assert len(play.answers("a")) == 1

    play.fetch_as("b", {0: 100})

    assert play.records("b") == []


def test_l11_out_of_range_at_a_follower_sends_only_this_client_to_the_leader() -> None:
    play = SharedPlay(rack="b")
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100})
    play.answer({0: Part(high_watermark=100, preferred=2)})
    play.wait(0.5)
    follower, rackless = fetcher_id(2), fetcher_id(1, rackless=True)
    play.answer({0: Part(high_watermark=100)}, link=follower)
    out_of_range = Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)
    play.answers("a"), play.answers("b")

    play.fetch_as("b", {0: 9999})
    play.answer({0: out_of_range}, link=play.asked[-1].link)
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (rackless, {0: 9999})
    play.answer({0: out_of_range}, link=rackless)

    (answer,) = play.answers("b")
    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)}, link=follower)
    assert play.records("a") == [{0: NEWS}]
    play.fetch_as("a", {0: 50})
    assert (play.asked[-1].link, play.asked[-1].offsets) == (follower, {0: 50})


def test_l11_follower_is_avoided_by_all_once_the_leader_has_accepted_an_offset() -> None:
    play = SharedPlay(rack="b", selector=Selector.RACK_AWARE)
    follower, rackless = fetcher_id(2), fetcher_id(1, rackless=True)
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100})
    play.wait(0.5)
    play.answer({0: Part(high_watermark=100)}, link=follower)
    play.answers("a"), play.answers("b")

    play.fetch_as("b", {0: 50})
    play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=play.asked[-1].link)
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (rackless, {0: 50})
    play.answer({0: part(50, 1, end=60)}, link=rackless)
    assert play.records("b") == [{0: batches(50, 1)}]
    play.fetch_as("a", {0: 90})

    assert play.asked[-1].offsets == {0: 90}
    assert play.asked[-1].link in {fetcher_id(1, kind, rackless=True) for kind in FetcherKind}


def test_l11_error_of_a_follower_is_not_returned_to_clients() -> None:
    play = SharedPlay(rack="b", selector=Selector.RACK_AWARE)
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100})

    play.answer({0: Part(error=ErrorCode.kafka_storage_error, high_watermark=-1)}, link=fetcher_id(2))
    rackless = fetcher_id(1, rackless=True)
    assert (play.asked[-1].link, play.asked[-1].offsets) == (rackless, {0: 100})
    play.answer({0: Part(0, 101, NEWS)}, link=rackless)

    assert play.records("a") == play.records("b") == [{0: NEWS}]


def test_l12_clients_of_different_principals_do_not_share() -> None:
    play = SharedPlay()
    play.relay.relays["b"]._create_reader(play._reading.of("User:bob"))

    play.fetch_as("a", {0: 0})
    play.fetch_as("b", {0: 0})

    assert len(play.relay.caches) == 2


def log_in(play: SharedPlay, name: str, error: ErrorCode = ErrorCode.none) -> None:
    """Log client *name* in as alice with PLAIN, which the broker answers with *error*."""
    play.relay.client = name
    play.request(handshake("PLAIN", version=1))
    play.open(PASS)
    play.handle(LinkFrame(PASS, memoryview(offered())))
    play.request(encode_request(AUTHENTICATE, 2, 1, "c", {"auth_bytes": b"\0alice\0secret"}))
    header = RequestHeader(AUTHENTICATE, 2, 1, "c")
    fields: dict[str, Any] = {"error_code": error, "error_message": None, "auth_bytes": b""}
    play.handle(LinkFrame(PASS, memoryview(sasl.make_response(header, **fields))[4:]))


def test_l12_client_reads_the_log_of_its_principal_only_after_its_own_login() -> None:
    play = SharedPlay(sasl=Sasl.REQUIRED)
    log_in(play, "a")
    play.fetch_as("a", {0: 0})

    with pytest.raises(ClientProtocolError, match="without having logged in"):
        play.fetch_as("b", {0: 0})
    assert play.relay.relays["b"].cache is None
    log_in(play, "b")
    play.fetch_as("b", {0: 0})

    assert [len(cache.readers) for cache in play.relay.caches] == [2]


def test_l12_client_whose_login_the_broker_has_refused_reads_no_log() -> None:
    play = SharedPlay(sasl=Sasl.REQUIRED)
    log_in(play, "a")
    play.fetch_as("a", {0: 0})
    log_in(play, "b", ErrorCode.sasl_authentication_failed)

    with pytest.raises(ClientProtocolError, match="without having logged in"):
        play.fetch_as("b", {0: 0})

    assert [len(cache.readers) for cache in play.relay.caches] == [1]


@pytest.mark.parametrize("options", [{"isolation_level": 1}, {"rack_id": "c"}])
def test_l12_clients_share_only_with_equal_isolation_and_rack(options: dict[str, object]) -> None:
    play = SharedPlay()
    play.fetch_as("a", {0: 0})
    play.fetch_as("b", {0: 0}, **options)

    assert len(play.relay.caches) == 2


def test_l13_cached_records_are_dropped_when_memory_is_needed_and_read_again() -> None:
    play = parked(2)
    play.answer({0: part(0, 2)})
    play.handle(MemoryNeeded())
    assert play.relay.cache.oldest_s is None

    assert client_responses(play.fetch({0: 0, 1: 0})) == []

    assert given(play.answer({0: part(0, 2)})) == {0: (0, 2)}


def fetched_frame() -> tuple[SharedPlay, "weakref.ref[Buffer]"]:
    """A client's open fetch whose response has one batch, and the frame that has it; only the play refers to it."""
    play = waiting()
    play.fetch_as("a", {0: 100})
    data = play.answer_frame({0: part(100, 1)}, LONG_POLL, session_id=7)
    frame = Buffer(len(data))
    frame[:] = data
    play.handle(LinkFrame(LONG_POLL, memoryview(frame)))
    return play, weakref.ref(frame)


@pytest.mark.parametrize("first_dropped", ["log", "response"])
def test_l13_frame_is_charged_as_long_as_a_log_or_a_response_views_it(first_dropped: str) -> None:
    play, charged = fetched_frame()

    for dropped in ("log", "response") if first_dropped == "log" else ("response", "log"):
        gc.collect()
        assert charged() is not None
        if dropped == "log":
            play.wait(1.5)
        else:
            assert play.records("a") == [{0: batches(100, 1)}]
    gc.collect()

    assert charged() is None


@pytest.mark.parametrize(("value_bytes", "forgotten"), [(60_000, []), (70_000, [0])])
def test_l13_log_with_64_kib_that_nobody_has_read_leaves_its_fetcher(
    value_bytes: int, forgotten: list[int]
) -> None:
    play = waiting(2)
    play.fetch_as("a", {0: 100})
    play.fetch_as("b", {1: 100}, max_wait_ms=5_000)

    play.answer({0: Part(0, 101, batch(100, bytes(value_bytes)))})
    assert len(play.answers("a")) == 1

    assert play.asked[-1].link == LONG_POLL
    assert play.asked[-1].forgotten == forgotten


def test_l13_memory_of_a_client_that_pauses_is_free_once_records_are_dropped() -> None:
    play, charged = fetched_frame()
    assert play.records("a") == [{0: batches(100, 1)}]

    play.handle(MemoryNeeded())

    assert play.relay.cache is not None
    assert play.relay.cache.oldest_s is None
    assert charged() is None


def test_l14_only_the_first_batch_of_the_first_partition_exceeds_a_limit() -> None:
    play = parked(2)
    play.part_bytes = BATCH // 2
    play.answer({0: part(0, 1), 1: part(0, 1)})

    assert given([*play.fetch({0: 0, 1: 0}), *play.wait(0.1)]) == {0: (0, 1)}
    assert given([*play.fetch({0: 10, 1: 0}), *play.answer({})]) == {1: (0, 1)}


def test_l14_large_batch_of_a_later_partition_is_left_for_the_next_response() -> None:
    play = parked(2)
    play.answer({0: part(0, 1), 1: part(0, 1)})
    limit = BATCH * 3 // 2

    assert given([*play.fetch({0: 0, 1: 0}, max_bytes=limit), *play.wait(0.1)]) == {0: (0, 1)}
    assert given([*play.fetch({0: 10, 1: 0}, max_bytes=limit), *play.answer({})]) == {1: (0, 1)}


def test_l14_limits_hold_for_the_whole_response() -> None:
    play = parked(3)
    play.answer({p: part(0, 8) for p in range(3)})

    commands = [*play.fetch(dict.fromkeys(range(3), 0), max_bytes=10 * BATCH), *play.wait(0.1)]

    assert sum(number for _, number in given(commands).values()) == 10


@pytest.mark.parametrize("names", ["a", "ab"])
def test_l15_min_bytes_is_1_upstream(names: str) -> None:
    play = waiting()
    for name in names:
        play.fetch_as(name, {0: 100}, min_bytes=5 * BATCH)

    play.answer({0: part(100, 1)})
    play.wait(0.06)

    assert [each.min_bytes for each in play.asked] == [1]


def test_l15_client_that_shares_with_nobody_and_got_less_has_its_min_bytes_upstream() -> None:
    play = parked()
    play.fetch({0: 0}, min_bytes=5 * BATCH)
    assert play.asked == []

    play.answer({0: part(0, 1)})
    assert [each.min_bytes for each in play.asked] == [4 * BATCH]
    assert given(play.answer({0: part(10, 4)})) == {0: (0, 5)}
    play.fetch({0: 50}, min_bytes=5 * BATCH)

    assert play.asked[-1].min_bytes == 5 * BATCH


def test_l15_requests_are_50_ms_apart_while_all_clients_want_more_than_there_is() -> None:
    play = waiting()
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100}, min_bytes=100_000, max_wait_ms=5_000)
    end = 100
    for _ in range(50):
        if play.relay.is_busy(LONG_POLL):
            play.answer({0: Part(0, end + 1, batch(end, b"news"))})
            end += 1
        play.wait(0.01)

    assert 8 <= len(play.asked) <= 11


def test_l16_log_without_readers_leaves_its_fetcher() -> None:
    play = waiting(2)
    play.fetch_as("a", {0: 100, 1: 100})
    play.fetch_as("b", {0: 100})
    play.leave("a")

    play.answer({0: Part(0, 101, NEWS)})
    play.fetch_as("b", {0: 101})

    assert play.asked[-1].forgotten == [1]


def test_l16_response_for_a_log_that_was_dropped_is_not_kept() -> None:
    play = waiting(2)
    play.fetch_as("a", {1: 100}, max_wait_ms=5_000)
    play.fetch_as("b", {0: 100}, max_wait_ms=5_000)
    play.leave("a")
    play.wait(1.5)
    play.handle(Tick())
    assert [log.key.partition.partition for log in play.relay.cache._index] == [0]

    play.answer({1: Part(0, 101, NEWS)})

    assert play.relay.cache.oldest_s is None


@pytest.mark.parametrize("limit", ["partition", "response"])
def test_l17_batch_larger_than_all_limits_is_delivered_alone(limit: str) -> None:
    play = waiting(2)
    if limit == "partition":
        play.part_bytes = 10
    max_bytes = 10 if limit == "response" else 1 << 20
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100, 1: 100}, max_bytes=max_bytes)

    play.answer({0: part(100, 1), 1: part(100, 1)})

    for name in ("a", "b"):
        (delivered,) = play.records(name)
        assert sorted(delivered.values()) == [b"", batches(100, 1)]


def test_l17_entry_that_cannot_be_split_is_delivered_to_each_client_at_its_offset() -> None:
    play = waiting()
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100})
    incomplete = batches(100, 1)[: BATCH // 2]

    play.answer({0: Part(0, 110, incomplete)})

    assert play.records("a") == play.records("b") == [{0: incomplete}]
