"""Reads from the closest replica (KIP-392), for a client that knows nothing of racks; brokers follow a script."""

import uuid
from collections.abc import Mapping
from itertools import pairwise

import pytest

from proxy.cluster.routing import Selector
from proxy.cluster.topology import BrokerId
from proxy.errors import ErrorCode
from proxy.events import TruncationRecord
from proxy.relay.commands import CloseLink, Command, EmitRecord, OpenLink, Reply
from tests.old_clients import batch, fetch_frame
from tests.relay.playbook import (
    LONG_POLL,
    Part,
    Play,
    client_responses,
    fetcher_id,
    learnt,
    of_type,
    parts_of,
    topology,
)

FOLLOWER = fetcher_id(2)
RACKLESS = fetcher_id(1, rackless=True)
REDIRECT = Part(preferred=2)
RECORDS = batch(0, b"x")
"""A batch with one record, at offset 0."""


def in_rack_b(**options: object) -> Play:
    """A client in rack b, that of node 2, whose leader is node 1."""
    return Play(rack="b", **options)  # type: ignore[arg-type]


def following(*partitions: int, **options: object) -> Play:
    """Continue until it reads *partitions* from node 2 and waits there."""
    play = in_rack_b(**options)
    play.fetch(dict.fromkeys(partitions, 0))
    play.open(LONG_POLL)
    play.answer(dict.fromkeys(partitions, REDIRECT))
    play.open(FOLLOWER)
    return play


def offsets_of(play: Play) -> list[tuple[object, Mapping[int, int]]]:
    return [(each.link, dict(each.offsets)) for each in play.asked]


def records_in(commands: list[Command], *, version: int = 11) -> dict[int, bytes]:
    (answer,) = client_responses(commands, version=version)
    return {part.partition_index: part.records for topic in answer.responses for part in topic.partitions}


def test_rack_is_sent_to_the_leader() -> None:
    play = in_rack_b()
    play.fetch({0: 0})
    play.open(LONG_POLL)

    assert [each.rack for each in play.asked] == ["b"]


def test_a_redirect_is_followed_within_the_wait_and_not_shown() -> None:
    play = in_rack_b()
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)

    commands = play.answer({0: REDIRECT, 1: Part(high_watermark=0)})
    assert client_responses(commands) == []
    assert of_type(OpenLink, commands) == [OpenLink(FOLLOWER, "the-client")]
    play.open(FOLLOWER)
    commands = play.answer({0: Part(records=RECORDS)}, link=FOLLOWER)
    commands += play.wait(0.05)

    assert offsets_of(play)[0] == (LONG_POLL, {0: 0, 1: 0})
    assert (FOLLOWER, {0: 0}) in offsets_of(play)
    assert records_in(commands) == {0: RECORDS, 1: b""}


def test_of_a_client_with_a_rack_of_its_own_the_redirect_is_passed_on() -> None:
    play = in_rack_b()
    play.fetch({0: 0}, rack_id="c")
    play.open(LONG_POLL)

    (answer,) = client_responses(play.answer({0: Part(preferred=3)}))

    assert [each.rack for each in play.asked] == ["c"]
    assert [part.preferred_read_replica for topic in answer.responses for part in topic.partitions] == [3]


def test_leader_selector_sends_no_rack() -> None:
    play = Play(selector=Selector.LEADER)
    play.fetch({0: 0})
    play.open(LONG_POLL)

    assert [each.rack for each in play.asked] == [""]


def test_request_to_a_follower_contains_the_leader_epoch() -> None:
    play = following(0)

    assert play.asked[-1].link == FOLLOWER
    assert dict(play.asked[-1].leader_epochs) == {0: 5}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.offset_out_of_range,
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.replica_not_available,
        ErrorCode.offset_moved_to_tiered_storage,
        ErrorCode.unknown_server_error,
        ErrorCode.topic_authorization_failed,
    ],
)
def test_follower_error_is_hidden_and_the_fetch_goes_to_the_leader_without_a_rack(error: ErrorCode) -> None:
    play = following(0)

    commands = play.answer({0: Part(error=error, high_watermark=-1)}, link=FOLLOWER)
    assert client_responses(commands) == []
    play.open(RACKLESS)
    assert (play.asked[-1].link, play.asked[-1].rack, dict(play.asked[-1].offsets)) == (RACKLESS, "", {0: 0})

    assert records_in(play.answer({0: Part(records=RECORDS)}, link=RACKLESS)) == {0: RECORDS}


def test_offset_out_of_range_from_the_leader_is_returned_to_the_client() -> None:
    play = following(0)
    play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=FOLLOWER)
    play.open(RACKLESS)

    (answer,) = client_responses(
        play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=RACKLESS)
    )

    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range


def test_redirects_back_to_a_follower_that_fails_come_ever_more_seldom() -> None:
    play = following(0)
    racked = []
    for _ in range(400):
        asked = play.asked[-1]
        if asked.link == FOLLOWER:
            commands = play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=FOLLOWER)
        elif asked.link == RACKLESS:
            commands = play.wait(0.5) + play.answer({0: Part(high_watermark=0)}, link=RACKLESS) + play.fetch({0: 0})
        else:
            racked.append(play.now_s)
            commands = play.answer({0: REDIRECT})
        for opening in of_type(OpenLink, commands):
            play.open(opening.link)

    gaps = [later - earlier for earlier, later in pairwise(racked)]
    assert 4 <= len(racked) <= 9
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(gaps))


def test_a_lost_follower_is_read_from_the_leader_within_the_same_wait() -> None:
    play = following(0)

    commands = play.lose(FOLLOWER)

    assert client_responses(commands) == []
    assert play.asked[-1].link == LONG_POLL
    play.answer({0: REDIRECT})
    play.open(RACKLESS)
    assert play.asked[-1].link == RACKLESS
    assert records_in(play.answer({0: Part(records=RECORDS)}, link=RACKLESS)) == {0: RECORDS}


def test_a_follower_that_cannot_be_reached_is_done_without() -> None:
    play = in_rack_b()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.answer({0: REDIRECT})

    commands = play.lose(FOLLOWER)

    assert client_responses(commands) == []
    assert play.asked[-1].link == LONG_POLL


def test_a_follower_that_is_too_old_for_consumers_is_done_without() -> None:
    play = in_rack_b(broker_fetch=10)
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.broker_fetch = 11
    play.asked.clear()
    # A leader that names a follower speaks v11 itself; the follower is behind in a rolling upgrade.
    play = in_rack_b()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.answer({0: REDIRECT})
    play.broker_fetch = 10

    commands = play.open(FOLLOWER)

    assert [each.link for each in of_type(CloseLink, commands)] == [FOLLOWER]
    assert client_responses(commands) == []


def test_a_replica_that_metadata_does_not_list_is_not_used_and_metadata_is_refreshed() -> None:
    play = in_rack_b(known=topology(online=(1, 3), in_sync=(1, 3)))
    play.fetch({0: 0})
    play.open(LONG_POLL)

    commands = play.answer({0: REDIRECT})

    assert learnt(commands) == [frozenset({"t"})]
    assert [each.link for each in of_type(OpenLink, commands)] == [RACKLESS]


def test_preferred_read_replica_expires_after_the_metadata_max_age() -> None:
    play = following(0)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.wait(299)
    play.fetch({0: 0})
    assert play.asked[-1].link == FOLLOWER
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.wait(1)

    play.fetch({0: 0})

    assert (play.asked[-1].link, play.asked[-1].rack) == (LONG_POLL, "b")


def test_the_same_replica_named_again_is_kept_no_longer() -> None:
    play = following(0)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    routes = play.relay.cache.routes(BrokerId(1))
    (key,) = routes._preferred
    play.now_s += 200

    routes.prefer(key, 2, play.known, play.now_s)
    play.wait(100)
    play.fetch({0: 0})

    assert play.asked[-1].link == LONG_POLL


@pytest.mark.parametrize(("broker_fetch", "waits_ms"), [(13, 500), (15, 10_000)])
def test_leaders_that_redirect_late_wait_no_longer_than_the_client(broker_fetch: int, waits_ms: int) -> None:
    play = in_rack_b(upstream_max_wait_s=10, broker_fetch=broker_fetch)
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)})
    play.fetch({0: 0})
    play.answer({0: Part(high_watermark=0)}, session_id=7)

    assert play.asked[-1].max_wait_ms == 10_000
    play.answer({0: Part(high_watermark=1, records=RECORDS)})
    play.fetch({0: 1})

    assert play.asked[-1].max_wait_ms == waits_ms


def test_a_follower_that_leaves_the_in_sync_set_is_left() -> None:
    play = following(0)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.update_topology(topology(in_sync=(1, 3)))

    play.fetch({0: 0})

    assert play.asked[-1].link == LONG_POLL


def test_a_followers_high_watermark_does_not_bring_that_of_the_leader_down() -> None:
    play = in_rack_b()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=100, preferred=2)})
    play.open(FOLLOWER)

    (answer,) = client_responses(play.answer({0: Part(high_watermark=90, records=RECORDS)}, link=FOLLOWER))

    assert parts_of(answer) == {0: (0, 100)}


def test_last_stable_offset_is_kept_while_the_client_fetches_in_versions_without_it() -> None:
    play = in_rack_b()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=100, preferred=2)})
    play.open(FOLLOWER)
    assert client_responses(play.answer({0: Part(high_watermark=90, records=RECORDS)}, link=FOLLOWER))
    play.request(fetch_frame(3, {0: 0}))
    play.open(FOLLOWER)
    assert of_type(Reply, play.answer({0: Part(high_watermark=90, records=RECORDS)}, link=FOLLOWER))

    play.fetch({0: 0})
    play.open(FOLLOWER)
    (answer,) = client_responses(play.answer({0: Part(high_watermark=90, records=RECORDS)}, link=FOLLOWER))

    (part,) = answer.responses[0].partitions
    assert (part.high_watermark, part.last_stable_offset) == (100, 100)


def test_follower_response_from_before_an_election_changes_no_offset() -> None:
    play = following(0, upstream_max_wait_s=10)
    play.answer({0: Part(high_watermark=100)}, link=FOLLOWER)
    play.wait(0.5)
    play.update_topology(topology(epoch=6, in_sync=(1, 3)))
    play.fetch({0: 50})
    play.answer({0: Part(high_watermark=50)})

    play.answer({0: Part(high_watermark=120)}, link=FOLLOWER)

    (answer,) = client_responses(play.wait(0.5))
    assert parts_of(answer) == {0: (0, 50)}


def test_lost_leader_is_reported_as_not_leader_or_follower() -> None:
    play = in_rack_b()
    play.fetch({0: 0, 1: 0})
    commands = play.lose(LONG_POLL) + play.wait(1)

    (answer,) = client_responses(commands)
    assert {error for error, _ in parts_of(answer).values()} == {ErrorCode.not_leader_or_follower}


def test_new_leader_after_a_follower_error_is_reported_as_not_leader_or_follower() -> None:
    play = following(0)
    commands = play.answer({0: Part(error=ErrorCode.fenced_leader_epoch, high_watermark=-1)}, link=FOLLOWER)
    assert learnt(commands) == [frozenset({"t"})]
    play.open(RACKLESS)
    commands = play.update_topology(topology(leaders={0: 3}, epoch=6))
    commands += play.answer({0: Part(error=ErrorCode.fenced_leader_epoch, high_watermark=-1)}, link=RACKLESS)
    commands += play.fetch({0: 0}) + play.update_topology(play.known)

    assert [parts_of(answer)[0][0] for answer in client_responses(commands)] == [
        ErrorCode.not_leader_or_follower
    ] * 2


def test_request_of_an_earlier_fetch_at_a_follower_does_not_hold_up_a_shorter_fetch() -> None:
    play = in_rack_b(upstream_max_wait_s=10)
    play.fetch({0: 0, 1: 0}, max_wait_ms=30_000)
    play.open(LONG_POLL)
    play.answer({0: REDIRECT, 1: Part(high_watermark=0)})
    play.open(FOLLOWER)
    play.lose(LONG_POLL)
    assert client_responses(play.lose(LONG_POLL) + play.wait(1))

    commands = play.fetch({0: 0}, max_wait_ms=500) + play.wait(0.5)

    assert [parts_of(answer) for answer in client_responses(commands)] == [{0: (0, 100)}]


def test_evicted_session_after_metadata_refreshes_is_no_error_for_the_client() -> None:
    play = Play()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    refused = Part(error=ErrorCode.fenced_leader_epoch, high_watermark=-1)
    for epoch in (6, 7, 8):
        play.answer({0: refused})
        play.update_topology(topology(epoch=epoch))

    commands = play.answer({}, error=ErrorCode.fetch_session_id_not_found)
    assert client_responses(commands) == []
    assert records_in(play.answer({0: Part(records=RECORDS)})) == {0: RECORDS}


@pytest.mark.parametrize("is_known_before", [True, False])
def test_fetch_is_retried_if_the_leader_rejects_an_epoch_the_client_did_not_send(*, is_known_before: bool) -> None:
    play = Play()
    play.fetch({0: 0})
    play.open(LONG_POLL)
    commands = []
    if is_known_before:
        commands += play.update_topology(topology(epoch=7))
    commands += play.answer({0: Part(error=ErrorCode.fenced_leader_epoch, high_watermark=-1)})
    if not is_known_before:
        assert learnt(commands) == [frozenset({"t"})]
        commands += play.update_topology(topology(epoch=7))
    commands += play.answer({0: Part(records=RECORDS)})

    assert [asked.leader_epochs for asked in play.asked[:2]] == [{0: 5}, {0: 7}]
    assert records_in(commands) == {0: RECORDS}


def test_error_of_the_leader_does_not_wait_for_offsets_of_a_follower() -> None:
    play = in_rack_b(selector=Selector.RACK_AWARE, upstream_max_wait_s=0)
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.open(FOLLOWER)
    play.answer({0: Part(error=ErrorCode.replica_not_available, high_watermark=-1)}, link=FOLLOWER)
    play.open(RACKLESS)
    assert client_responses(play.answer({0: Part(records=RECORDS)}, link=RACKLESS))
    play.fetch({0: 5, 1: 5}, max_wait_ms=8_000, min_bytes=1_000)

    assert [asked.max_wait_ms for asked in play.asked_on(FOLLOWER)[1:]] == [0]
    play.answer({1: Part(high_watermark=5)}, link=FOLLOWER)
    commands = play.answer({0: Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)}, link=RACKLESS)
    commands += play.wait(0.1)

    (answer,) = client_responses(commands)
    assert [error for error, _ in parts_of(answer).values()] == [ErrorCode.offset_out_of_range, ErrorCode.none]


def test_topic_created_again_is_read_from_the_leader_first() -> None:
    play = following(0, broker_fetch=12)
    play.answer({0: Part(records=RECORDS)}, link=FOLLOWER)
    play.known = topology(topic_id=uuid.UUID(int=9))

    play.fetch({0: 0})
    play.open(RACKLESS)

    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (RACKLESS, {0: 0})


def test_high_watermark_does_not_fall_when_responses_of_a_leader_overtake_each_other() -> None:
    play = following(0, upstream_max_wait_s=10)
    play.answer({0: Part(error=ErrorCode.replica_not_available, high_watermark=-1)}, link=FOLLOWER)
    play.open(RACKLESS)
    commands = play.answer({0: Part(high_watermark=105)}, link=RACKLESS)
    assert client_responses([*commands, *play.wait(1)])
    play.wait(2)
    play.fetch({0: 0})
    assert play.asked[-1].link == LONG_POLL

    commands = play.answer({0: Part(high_watermark=107)}, link=RACKLESS)
    commands += play.answer({0: Part(high_watermark=106)})

    (answer,) = client_responses([*commands, *play.wait(1)])
    assert parts_of(answer) == {0: (ErrorCode.none, 107)}


# --------------------------------------------------------------------------------------- our own selector


def test_rack_aware_selector_reads_a_replica_in_our_rack_without_the_leader() -> None:
    play = in_rack_b(selector=Selector.RACK_AWARE)
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.open(FOLLOWER)

    assert offsets_of(play) == [(FOLLOWER, {0: 0})]


@pytest.mark.parametrize(
    "known",
    [
        topology(in_sync=(1, 3)),
        topology(racks=("b", "b", "c")),
        topology(racks=("a", "B", "c")),
        topology(racks=("a", None, "c")),
        topology(online=(1, 3), in_sync=(1, 3)),
    ],
    ids=["not in sync", "the leader is as close", "another rack", "no rack", "offline"],
)
def test_rack_aware_the_leader_is_read_where_no_other_is_as_good(known: object) -> None:
    play = in_rack_b(selector=Selector.RACK_AWARE, known=known)
    play.fetch({0: 0})
    play.open(LONG_POLL)

    assert offsets_of(play) == [(LONG_POLL, {0: 0})]


def test_rack_aware_partitions_are_spread_over_the_replicas_in_our_rack() -> None:
    play = in_rack_b(selector=Selector.RACK_AWARE, known=topology(racks=("a", "b", "b")))
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)
    play.open(fetcher_id(2))
    play.open(fetcher_id(3))

    assert sorted(offsets_of(play), key=str) == [(fetcher_id(2), {0: 0}), (fetcher_id(3), {1: 0})]


def test_rack_aware_a_replica_that_is_in_sync_again_is_read_again() -> None:
    play = in_rack_b(selector=Selector.RACK_AWARE, known=topology(in_sync=(1, 3)))
    play.fetch({0: 0})
    play.open(LONG_POLL)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)})
    play.update_topology(topology())

    play.fetch({0: 0})
    play.open(FOLLOWER)

    assert offsets_of(play)[-1] == (FOLLOWER, {0: 0})


# ------------------------------------------------------------------------------------------ several brokers


def test_min_bytes_hold_over_all_brokers_together() -> None:
    play = in_rack_b()
    play.fetch({0: 0, 1: 0}, min_bytes=2 * len(RECORDS))
    play.open(LONG_POLL)
    play.answer({0: REDIRECT, 1: Part(high_watermark=0)})
    play.open(FOLLOWER)
    assert {each.link: each.min_bytes for each in play.asked[1:]} == dict.fromkeys(
        (LONG_POLL, FOLLOWER), len(RECORDS)
    )

    assert client_responses(play.answer({0: Part(records=RECORDS)}, link=FOLLOWER)) == []

    assert records_in(play.answer({1: Part(records=RECORDS)})) == {0: RECORDS, 1: RECORDS}


def test_idle_follower_and_leader_get_one_request_per_upstream_max_wait() -> None:
    play = in_rack_b(upstream_max_wait_s=10)
    offsets = dict.fromkeys(range(3), 0)
    idle = dict.fromkeys(range(3), Part(high_watermark=0))
    play.fetch(offsets)
    play.open(LONG_POLL)
    play.answer(idle | {0: REDIRECT})
    play.open(FOLLOWER)
    play.asked.clear()
    for _ in range(200):
        commands = play.wait(0.5)
        for answered in (LONG_POLL, FOLLOWER):
            waiting = play.asked_on(answered)
            if waiting and play.now_s % 10 < 0.5 and play.relay.is_busy(answered):
                play.answer({}, link=answered)
        if client_responses(commands):
            play.fetch(offsets)

    assert len(play.asked_on(FOLLOWER)) <= 13
    assert len(play.asked_on(LONG_POLL)) <= 13


def test_a_source_that_nothing_is_read_from_is_left_and_its_session_closed() -> None:
    play = following(0, upstream_max_wait_s=10)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER)
    play.fetch({0: 0})
    play.answer({0: Part(high_watermark=0)}, link=FOLLOWER, session_id=9)
    play.wait(0.5)
    play.update_topology(topology(in_sync=(1, 3)))
    play.fetch({0: 0})
    left: list[Command] = []
    for _ in range(150):
        for answered in (LONG_POLL, FOLLOWER):
            if play.relay.is_busy(answered):
                idle = {} if play.asked_on(answered)[-1].epoch else {0: Part(high_watermark=0)}
                left += play.answer(idle, link=answered)
        left += play.wait(0.5)
        left += play.fetch({0: 0})

    assert (play.asked_on(FOLLOWER)[-1].session_id, play.asked_on(FOLLOWER)[-1].epoch) == (9, -1)
    assert [each.link for each in of_type(CloseLink, left)] == [FOLLOWER]


# ------------------------------------------------------------------------------------------- truncated logs


def read_to(play: Play, offset: int) -> None:
    """Records up to *offset* are read from the leader, by an old client."""
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=offset, records=batch(0, *[b"x"] * offset))})


def test_truncation_is_reported_to_an_old_client_as_offset_out_of_range() -> None:
    play = Play()
    read_to(play, 100)
    play.update_topology(topology(epoch=7))

    commands = play.fetch({0: 100}, version=4)
    assert dict(play.asked[-1].looks_back) == {0: 5}
    commands = play.answer({0: Part(high_watermark=200, diverging=(5, 90))})

    (answer,) = client_responses(commands, version=4)
    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range
    notes = [note.record for note in of_type(EmitRecord, commands) if isinstance(note.record, TruncationRecord)]
    assert notes == [TruncationRecord(1, "t", 0, 100, 5, 5, 90)]


def test_old_client_fetch_after_a_reported_truncation_has_no_last_fetched_epoch() -> None:
    play = Play()
    read_to(play, 100)
    play.update_topology(topology(epoch=7))
    play.fetch({0: 100}, version=4)
    play.answer({0: Part(high_watermark=200, diverging=(5, 90))})

    play.fetch({0: 95}, version=4)

    assert dict(play.asked[-1].looks_back) == {}


def test_the_last_fetched_epoch_of_a_client_is_kept_and_its_divergence_is_reported() -> None:
    play = Play()
    read_to(play, 100)
    play.update_topology(topology(epoch=7))

    play.fetch({0: 100}, version=12, last_fetched_epochs={0: 6})
    assert dict(play.asked[-1].looks_back) == {0: 6}

    (answer,) = client_responses(play.answer({0: Part(high_watermark=200, diverging=(5, 90))}), version=12)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.diverging_epoch.epoch) == (ErrorCode.none, 5)


def test_an_epoch_without_records_of_its_own_is_no_truncation() -> None:
    play = Play()
    read_to(play, 100)
    play.update_topology(topology(epoch=7))
    play.fetch({0: 100}, version=4)

    assert client_responses(play.answer({0: Part(high_watermark=200, diverging=(4, 100))}), version=4) == []
    assert (dict(play.asked[-1].offsets), dict(play.asked[-1].looks_back)) == ({0: 100}, {})


def test_out_of_range_with_a_last_fetched_epoch_is_retried_without_it() -> None:
    play = Play()
    read_to(play, 100)
    play.update_topology(topology(epoch=7))
    play.fetch({0: 100}, version=4)

    out_of_range = Part(error=ErrorCode.offset_out_of_range, high_watermark=-1)
    assert client_responses(play.answer({0: out_of_range}), version=4) == []
    assert dict(play.asked[-1].looks_back) == {}
    (answer,) = client_responses(play.answer({0: out_of_range}), version=4)
    assert parts_of(answer)[0][0] == ErrorCode.offset_out_of_range


def test_last_fetched_epoch_is_sent_for_an_old_client_after_a_leader_change() -> None:
    play = Play()
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part(high_watermark=100, records=batch(0, *[b"x"] * 100))})
    play.update_topology(topology(epoch=7))

    play.fetch({0: 100}, version=4)
    assert dict(play.asked[-1].looks_back) == {0: 5}


def test_last_fetched_epoch_is_sent_to_the_leader_without_a_rack() -> None:
    play = Play(rack="b")
    read_to(play, 100)
    play.update_topology(topology(epoch=7))

    play.fetch({0: 100}, version=4)
    play.open(RACKLESS)

    assert (play.asked[-1].link, dict(play.asked[-1].looks_back)) == (RACKLESS, {0: 5})


def test_once_the_leader_has_found_nothing_missing_the_closest_is_read_again() -> None:
    play = Play(rack="b")
    read_to(play, 100)
    play.update_topology(topology(epoch=7))
    play.fetch({0: 100}, version=4)
    play.open(RACKLESS)
    play.wait(0.5)
    play.answer({0: Part(high_watermark=100)}, link=RACKLESS)

    play.fetch({0: 100}, version=4)

    assert (play.asked[-1].link, dict(play.asked[-1].looks_back)) == (LONG_POLL, {})


def test_cached_records_are_fetched_again_when_there_is_another_leader() -> None:
    play = in_rack_b()
    play.fetch({0: 0, 1: 0})
    play.open(LONG_POLL)
    play.answer({0: REDIRECT, 1: Part(preferred=3)})
    play.open(FOLLOWER)
    assert client_responses(play.answer({0: Part(records=RECORDS)}, link=FOLLOWER)) == []

    play.update_topology(topology(epoch=6))
    assert (play.asked[-1].link, dict(play.asked[-1].offsets)) == (FOLLOWER, {0: 0})
    play.open(fetcher_id(3))

    commands = play.answer({1: Part(records=RECORDS)}, link=fetcher_id(3))
    commands += play.wait(0.1)
    assert records_in(commands) == {0: b"", 1: RECORDS}
