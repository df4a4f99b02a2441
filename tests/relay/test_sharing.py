"""Clients that share reads: the requests at the brokers, and how little one client notices of another."""

from datetime import timedelta

import attrs
import pytest

from proxy.cluster.routing import Selector
from proxy.cluster.topology import Topology
from proxy.errors import ErrorCode
from proxy.fetch.commands import FetcherId
from proxy.relay.commands import MetadataUpdated, Tick
from tests.old_clients import batch
from tests.relay.batches import BATCH, SMALL, batches, part
from tests.relay.playbook import CATCH_UP, LIVE, LONG_POLL, Part, fetcher_id, parts_of, topology
from tests.relay.shared import SharedPlay

FOLLOWER = fetcher_id(2)
RACKLESS = fetcher_id(1, rackless=True)
NEWS = batch(100, b"news")
MANY = [f"client-{number}" for number in range(200)]


def waiting(*clients: str, partitions: int = 1) -> SharedPlay:
    """Return a conversation of *clients* whose fetches wait at the end of all partitions, offset 100."""
    play = SharedPlay(clients=clients or ("a", "b"))
    play.at_end(*range(partitions), offset=100)
    play.wait(0.6)
    for name in play.relay.relays:
        assert len(play.answers(name)) == 1
        play.fetch_as(name, dict.fromkeys(range(partitions), 100))
    play.asked.clear()
    return play


# ------------------------------------------------------------------------------------------- at the end


def test_clients_at_the_end_share_one_upstream_request() -> None:
    names = [f"client-{number}" for number in range(20)]
    play = waiting(*names)

    play.answer({0: Part(0, 101, NEWS)})

    assert [play.records(name) for name in names] == [[{0: NEWS}]] * 20
    for name in names:
        play.fetch_as(name, {0: 101})
    assert [(each.link, dict(each.offsets)) for each in play.asked] == [(LONG_POLL, {0: 101})]


def test_idle_clients_cost_one_request_for_each_upstream_wait() -> None:
    play = waiting("a", "b", "c")
    for _ in range(40):
        play.wait(0.5)
        for name in play.relay.relays:
            if play.answers(name):
                play.fetch_as(name, {0: 100})
        if play.now_s % 10 < 0.5 and play.relay.is_busy(LONG_POLL):
            play.answer({})

    assert 1 <= len(play.asked) <= 4


def test_client_that_comes_later_gets_cached_records_without_a_request() -> None:
    play = waiting()
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == play.records("b") == [{0: NEWS}]
    play.fetch_as("a", {0: 101})
    asked = len(play.asked)

    play.fetch_as("b", {0: 100})

    assert play.records("b") == [{0: NEWS}]
    assert len(play.asked) == asked


def test_client_behind_catches_up_and_then_shares_the_request_of_the_others() -> None:
    play = waiting()
    play.wait(0.5)
    assert len(play.answers("b")) == 1
    play.part_bytes = SMALL
    play.fetch_as("b", {0: 0})
    for first in range(0, 100, 20):
        link = play.asked[-1].link
        assert (link, dict(play.asked[-1].offsets)) == (LIVE, {0: first})
        play.answer({0: part(first, 2, end=100)}, link=link)
        assert play.records("b") == [{0: batches(first, 2)}]
        play.fetch_as("b", {0: first + 20})
    asked = len(play.asked)

    assert not play.relay.is_busy(LIVE)
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)})

    assert len(play.asked) == asked
    assert play.records("b") == [{0: NEWS}]
    assert play.records("a")[-1] == {0: NEWS}


# ------------------------------------------------------------------------------------------- errors


def test_out_of_range_of_one_client_is_not_delivered_to_others() -> None:
    play = waiting()
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100})
    play.fetch_as("b", {0: 9999})

    play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=LIVE)
    play.wait(0.1)

    (answer,) = play.answers("b")
    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range
    assert play.answers("a") == []
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]


def test_out_of_range_of_one_client_does_not_drop_cached_records() -> None:
    play = waiting()
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]
    play.fetch_as("a", {0: 9999})
    play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=play.asked[-1].link)
    assert len(play.answers("a")) == 1
    play.answers("b")
    asked = len(play.asked)

    play.fetch_as("b", {0: 100})

    assert play.records("b") == [{0: NEWS}]
    assert len(play.asked) == asked


@pytest.mark.parametrize("error", [ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch])
def test_leader_epoch_error_of_one_client_is_returned_to_that_client_only(error: ErrorCode) -> None:
    play = waiting()
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100})
    play.fetch_as("b", {0: 100}, epochs={0: 4})
    assert (play.asked[-1].link, play.asked[-1].leader_epochs) == (LIVE, {0: 4})

    play.answer({0: Part(error=error, high_watermark=-1)}, link=LIVE)
    play.wait(0.1)

    (answer,) = play.answers("b")
    assert parts_of(answer)[0][0] == error
    assert play.answers("a") == []
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == [{0: NEWS}]


def test_topic_authorization_error_drops_the_records_for_all_clients() -> None:
    play = waiting(partitions=2)
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == play.records("b") == [{0: NEWS, 1: b""}]
    play.wait(0.2)
    play.fetch_as("a", {0: 101, 1: 100})
    denied = Part(ErrorCode.topic_authorization_failed, -1)
    play.answer({0: denied, 1: denied})
    assert len(play.answers("a")) == 1

    play.fetch_as("b", {0: 100, 1: 100})

    assert play.records("b") == []


# ------------------------------------------------------------------------------------------- speed


def test_paused_client_does_not_delay_others() -> None:
    play = waiting()
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("a") == play.records("b") == [{0: NEWS}]  # b does not ask any more

    began_s = play.now_s
    for at in range(101, 222):
        play.fetch_as("a", {0: at})
        assert dict(play.asked[-1].offsets) == {0: at}
        play.answer({0: Part(0, at + 1, batch(at, b"news"))}, link=play.asked[-1].link)
        assert play.records("a") == [{0: batch(at, b"news")}]
        assert play.relay.cache.oldest_s > play.now_s - 1.5
        play.wait(0.5)
    assert play.now_s - began_s > 60

    play.fetch_as("b", {0: 101})
    assert dict(play.asked[-1].offsets) == {0: 101}


def test_clients_at_two_offsets_of_a_partition_do_not_wake_each_other_without_end() -> None:
    play = waiting()
    play.answer({0: Part(0, 101, NEWS)})
    assert play.records("b") == [{0: NEWS}]
    play.opens = False
    play.fetch_as("b", {0: 20})  # the long-poll fetcher has the log of client a, and is free

    play.handle(Tick())

    assert play.answers("b") == []


def test_client_that_is_behind_does_not_delay_clients_at_the_end() -> None:
    play = waiting(partitions=2)
    play.part_bytes = SMALL
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100, 1: 100})
    play.fetch_as("b", {1: 0})
    play.answer({1: part(0, 2, end=100)}, link=LIVE)
    play.fetch_as("b", {1: 20})
    assert play.relay.is_busy(LIVE)  # the broker reads for b

    play.answer({0: Part(0, 101, NEWS)})

    assert play.records("a") == [{0: NEWS, 1: b""}]
    play.fetch_as("a", {0: 101, 1: 100})
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (LONG_POLL, {0: 101})


def test_probe_client_does_not_make_the_requests_of_others_spin() -> None:
    play = waiting()
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100})
    play.fetch_as("b", {0: 100}, max_wait_ms=0)
    play.asked.clear()

    for _ in range(50):
        assert play.relay.is_busy(CATCH_UP)
        play.answer({0: Part(0, 100)}, link=CATCH_UP)
        assert len(play.answers("b")) == 1
        play.wait(0.01)
        play.fetch_as("b", {0: 100}, max_wait_ms=0)

    assert play.asked_on(LONG_POLL) == []
    assert len(play.asked_on(CATCH_UP)) == 50


def test_probe_client_that_is_behind_does_not_end_the_request_of_another_one() -> None:
    play = SharedPlay()
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100}, max_wait_ms=0)
    play.answer({0: part(100, 2, end=120)})
    assert play.records("a") == play.records("b") == [{0: batches(100, 2)}]
    play.fetch_as("a", {0: 120}, max_wait_ms=0)
    request = play.asked[-1]
    assert dict(request.offsets) == {0: 120}

    play.fetch_as("b", {0: 110}, max_wait_ms=0)
    play.answer({0: part(120, 1, end=130)}, link=request.link)

    assert play.records("a") == [{0: batches(120, 1)}]
    assert play.records("b") == []
    assert dict(play.asked[-1].offsets) == {0: 110}


def test_client_that_wants_many_bytes_does_not_delay_others() -> None:
    play = waiting()
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100})
    play.fetch_as("b", {0: 100}, min_bytes=10 * BATCH, max_wait_ms=30_000)

    for at in range(100, 110):
        record = batch(at, b"news")
        play.answer({0: Part(0, at + 1, record)}, link=play.asked[-1].link if play.asked else LONG_POLL)
        assert play.records("a") == [{0: record}]
        play.fetch_as("a", {0: at + 1})
        assert (play.asked[-1].min_bytes, dict(play.asked[-1].offsets)) == (1, {0: at + 1})

    assert play.answers("b") == []
    play.answer({0: part(110, 10)}, link=play.asked[-1].link)
    (delivered,) = play.records("b")
    assert delivered == {0: b"".join(batch(at, b"news") for at in range(100, 110)) + batches(110, 10)}


def test_log_stays_in_the_long_poll_however_many_cached_records_all_clients_have() -> None:
    play = waiting(partitions=2)
    play.answer({0: Part(0, 101, batch(100, bytes(70_000)))})
    for name in ("a", "b"):
        assert len(play.answers(name)) == 1
    play.fetch_as("a", {0: 101, 1: 100})
    play.answer({0: Part(0, 102, batch(101, b"news"))})
    assert play.records("a") == [{0: batch(101, b"news"), 1: b""}]

    play.fetch_as("b", {0: 101, 1: 100})

    assert (play.asked[-1].link, play.asked[-1].offsets.get(0)) == (LONG_POLL, 102)


def test_client_that_wants_more_bytes_than_are_cached_has_the_rest_read() -> None:
    play = SharedPlay()
    play.part_bytes = 2 * BATCH
    play.fetch_as("a", {0: 0})
    play.answer({0: Part(0, 100, batches(0, 1))})
    play.answers("a")
    play.fetch_as("a", {1: 0})
    play.answer({1: Part(high_watermark=0)}, link=play.asked[-1].link)

    play.fetch_as("b", {0: 0}, min_bytes=2 * BATCH, max_wait_ms=8_000)

    asked = play.asked[-1]
    assert asked.offsets[0] == 10
    play.answer({0: Part(0, 100, batches(10, 1))}, link=asked.link)
    assert play.records("b") == [{0: batches(0, 2)}]


def test_probe_client_gets_no_records_that_were_cached_for_other_probe_clients() -> None:
    play = SharedPlay(clients=("a", "b", "c"))
    for name, offset in (("a", 10), ("b", 0)):
        records = batches(offset, 2 - offset // 10)
        play.fetch_as(name, {0: offset}, max_wait_ms=0)
        play.answer({0: Part(0, 20, records)}, link=play.asked[-1].link)
        assert play.records(name) == [{0: records}]
    play.asked.clear()

    play.fetch_as("c", {0: 10}, max_wait_ms=0)

    assert play.records("c") == []
    assert [each.offsets for each in play.asked] == [{0: 10}]
    play.answer({0: Part(0, 30, batches(10, 2))}, link=play.asked[-1].link)
    assert play.records("c") == [{0: batches(10, 2)}]


def test_high_watermark_does_not_fall_for_a_client_that_changes_its_isolation_level() -> None:
    play = SharedPlay()
    play.fetch_as("a", {0: 0})
    play.answer({0: Part(0, 10, batches(0, 1))})
    assert play.records("a") == [{0: batches(0, 1)}]
    play.wait(0.1)
    play.fetch_as("b", {0: 0}, isolation_level=1)
    play.answer({0: Part(0, 20, batches(0, 1))}, link=play.asked[-1].link)
    assert [parts_of(answer)[0] for answer in play.answers("b")] == [(0, 20)]

    play.fetch_as("b", {1: 0})
    play.answer({1: Part(0, 20, batches(0, 1)), 0: Part(high_watermark=10)})
    assert len(play.answers("b")) == 1
    play.fetch_as("b", {0: 0})

    assert play.answers("b") == []
    play.answer({0: Part(0, 20, batches(0, 1))}, link=play.asked[-1].link)
    assert [parts_of(answer)[0] for answer in play.answers("b")] == [(0, 20)]


def test_topology_older_than_that_of_another_client_drops_no_records() -> None:
    play = waiting()
    older = Topology("cluster", play.known.brokers, {}, refreshed_s=1.0)
    play.known = attrs.evolve(play.known, refreshed_s=2.0)
    play.update_topology(play.known)
    play.answer({0: Part(0, 101, NEWS)})
    for name in ("a", "b"):
        assert len(play.answers(name)) == 1

    play.handle(MetadataUpdated(older))
    play.fetch_as("b", {0: 100})

    assert play.records("b") == [{0: NEWS}]


def test_client_that_leaves_does_not_end_the_request_of_others() -> None:
    play = waiting()
    play.leave("b")
    assert play.relay.is_busy(LONG_POLL)

    play.answer({0: Part(0, 101, NEWS)})

    assert play.records("a") == [{0: NEWS}]


def test_client_with_a_small_limit_gets_less_than_others_from_the_same_response() -> None:
    play = waiting()
    play.wait(0.5)
    play.answers("a"), play.answers("b")
    play.fetch_as("a", {0: 100})
    play.part_bytes = BATCH
    play.fetch_as("b", {0: 100})

    play.answer({0: part(100, 3)})

    assert play.records("a") == [{0: batches(100, 3)}]
    assert play.records("b") == [{0: batches(100, 1)}]


# ------------------------------------------------------------------------- a connection that many clients share


@pytest.mark.parametrize("then", ["opens again", "is refused", "is lost four times"])
def test_200_clients_whose_connection_is_lost_are_answered_within_2_s(then: str) -> None:
    play = waiting(*MANY)
    began_s = play.now_s
    play.opens = then != "is refused"

    play.lose(LONG_POLL)
    if then == "opens again":
        play.wait(0.1)
        play.answer({0: Part(0, 101, NEWS)})
    else:
        for _ in range(1 if then == "is refused" else 3):
            play.lose(LONG_POLL)
    play.wait(began_s + 2 - play.now_s)

    expected = (0, 101) if then == "opens again" else (ErrorCode.not_leader_or_follower, -1)
    for name in MANY:
        (answer,) = play.answers(name)
        assert parts_of(answer) == {0: expected}


def beside_another_broker(version: int) -> SharedPlay:
    """Return a conversation of 200 clients of broker 1, Fetch *version*, and one of broker 2, all at the end."""
    clients = dict.fromkeys(MANY, 1) | {"other": 2}
    play = SharedPlay(topology(2, leaders={0: 1, 1: 2}), clients=clients)
    idle = Part(high_watermark=100)

    def fetch_all() -> None:
        for name in MANY:
            play.answers(name, version=version)
            play.fetch_as(name, {0: 100}, version=version)
        play.answers("other")
        play.fetch_as("other", {1: 100})

    fetch_all()
    play.wait(0.5)
    for session_id in (0, 7):
        play.answer({0: idle}, session_id=session_id)
        play.answer({1: idle}, link=fetcher_id(2), session_id=session_id)
        play.wait(0.5)
        fetch_all()
    return play


@pytest.mark.parametrize("version", [7, 11])
def test_200_clients_of_a_broker_that_throttles_are_answered_within_2_s(version: int) -> None:
    play = beside_another_broker(version)
    began_s = play.now_s

    play.answer({}, throttle_ms=1_500)
    play.answer({1: Part(0, 101, NEWS)}, link=fetcher_id(2))
    assert play.records("other") == [{1: NEWS}]
    play.wait(1.6)
    if version == 7:  # these clients do not know throttling, so Sidefetch waits for them
        play.answer({0: Part(0, 101, NEWS)})
    play.wait(began_s + 2 - play.now_s)

    for name in MANY:
        (answer,) = play.answers(name, version=version)
        assert answer.throttle_time == timedelta(seconds=1.5)
        assert parts_of(answer) == ({0: (0, 101)} if version == 7 else {})


# ------------------------------------------------------------------------------------------- followers


def at_follower() -> SharedPlay:
    """Clients in rack b that read partition 0 from node 2, at its end, offset 100."""
    play = SharedPlay(rack="b", selector=Selector.RACK_AWARE)
    for name in ("a", "b"):
        play.fetch_as(name, {0: 100})
    play.wait(0.5)
    play.answer({0: Part(high_watermark=100)}, link=FOLLOWER)
    for name in ("a", "b"):
        assert len(play.answers(name)) == 1
    return play


def test_out_of_range_at_a_follower_sends_only_that_client_to_the_leader() -> None:
    play = at_follower()
    play.fetch_as("b", {0: 9999})
    out_of_range = Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)
    play.answer({0: out_of_range}, link=play.asked[-1].link)
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (RACKLESS, {0: 9999})
    play.answer({0: out_of_range}, link=RACKLESS)
    (answer,) = play.answers("b")
    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range

    asked = len(play.asked)
    play.fetch_as("a", {0: 100})
    play.answer({0: Part(0, 101, NEWS)}, link=FOLLOWER)

    assert play.records("a") == [{0: NEWS}]
    assert RACKLESS not in [each.link for each in play.asked[asked:]]


def test_follower_is_avoided_by_all_clients_if_the_leader_accepts_the_offset() -> None:
    play = at_follower()
    play.fetch_as("b", {0: 50})
    play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=play.asked[-1].link)
    play.answer({0: part(50, 1, end=60)}, link=RACKLESS)
    assert play.records("b") == [{0: batches(50, 1)}]
    play.answer({0: Part(high_watermark=100)}, link=FOLLOWER)

    play.fetch_as("a", {0: 90})

    link = play.asked[-1].link
    assert isinstance(link, FetcherId)
    assert (link.source, dict(play.asked[-1].offsets)) == (RACKLESS.source, {0: 90})


def test_error_of_a_broker_that_leads_and_follows_reaches_the_right_client() -> None:
    known = topology(2, leaders={0: 1, 1: 2}, in_sync=(1, 2))
    play = SharedPlay(known, clients={"a": 1, "b": 2}, rack="b")
    play.fetch_as("a", {0: 0})
    play.answer({0: Part(preferred=2)})
    play.fetch_as("b", {1: 9999})
    asked = next(each for each in reversed(play.asked) if 1 in each.offsets)

    out_of_range = Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)
    replies = {p: out_of_range if p == 1 else Part(high_watermark=0) for p in asked.offsets}
    play.answer(replies, link=asked.link)
    play.wait(0.1)

    (answer,) = play.answers("b")
    assert parts_of(answer) == {1: (ErrorCode.offset_out_of_range, -1)}
    assert play.answers("a") == []


# ------------------------------------------------------------------------------------------- many quiet logs


def beside_many_quiet() -> SharedPlay:
    """Return a conversation after a long poll for partition 0 of client a brought records.

    150 partitions of client b came later, and have waited in a live request for 10 ms.
    """
    play = SharedPlay(topology(151))
    play.at_end(0, offset=100)
    play.wait(0.5)
    play.fetch_as("a", {0: 100})
    quiet = dict.fromkeys(range(1, 151), Part())
    play.fetch_as("b", dict.fromkeys(quiet, 100))
    play.answer(quiet, link=LIVE)
    play.answers("b")
    play.fetch_as("b", dict.fromkeys(quiet, 100))
    while play.asked[-1].max_wait_ms == 0:
        play.answer(quiet, link=LIVE, session_id=8)
    play.wait(0.01)
    play.asked.clear()
    play.answer({0: Part(0, 101, NEWS)})
    play.fetch_as("a", {0: 101})
    return play


def test_many_quiet_logs_of_the_live_fetcher_return_from_a_request_in_flight() -> None:
    play = beside_many_quiet()

    assert [(each.link, set(each.offsets)) for each in play.asked] == [(LONG_POLL, set(range(151)))]


@pytest.mark.parametrize("version", [7, 11])
def test_client_of_another_broker_is_not_throttled(version: int) -> None:
    play = SharedPlay(topology(2, leaders={0: 1, 1: 2}), clients={"a": 1, "b": 2})
    play.fetch_as("a", {0: 100}, version=version)
    play.fetch_as("b", {1: 100}, version=version)
    play.answer({}, throttle_ms=1_500)
    play.answer({1: Part(0, 101, NEWS)}, link=fetcher_id(2))

    (answer,) = play.answers("b", version=version)
    assert answer.throttle_time.total_seconds() == 0
