"""Clients that stop sharing reads by a rule while they read, and share again when it is removed."""

import pytest

from proxy.fetch_rules import NO_RULES, FetchRules
from tests.old_clients import batch
from tests.relay.playbook import LIVE, Part, Play
from tests.relay.shared import SharedPlay

FIRST, SECOND, THIRD = (batch(offset, b"record") for offset in (100, 101, 102))
BY_CLIENT = FetchRules.parse("client:a")


def waiting() -> SharedPlay:
    """Return a conversation of clients a and b, whose fetches wait at the end of partition 0, offset 100."""
    play = SharedPlay()
    play.at_end(0, offset=100)
    play.wait(0.6)
    for name in "ab":
        assert len(play.answers(name)) == 1
        fetch(play, name, 100)
    play.asked.clear()
    return play


def fetch(play: SharedPlay, name: str, offset: int, **options: int) -> None:
    """Handle a fetch of client *name*, whose client id is that name."""
    play.fetch_as(name, {0: offset}, client_id=name, **options)


def requests(play: SharedPlay) -> list[tuple[str | None, dict[int, int]]]:
    """Return the client id and the offsets of each upstream fetch since the last call."""
    asked, play.asked = play.asked, []
    return [(each.client_id, dict(each.offsets)) for each in asked]


@pytest.mark.parametrize("rules", ["all", "client:a", "topic:t", "client:other,topic:t"])
def test_client_of_a_rule_has_upstream_fetches_of_its_own_from_its_next_fetch_on(rules: str) -> None:
    play = waiting()
    play.share_reads_except = FetchRules.parse(rules)

    play.answer({0: Part(0, 101, FIRST)})
    assert play.records("a") == play.records("b") == [{0: FIRST}]
    assert requests(play) == []
    fetch(play, "a", 101)

    assert requests(play) == [("a", {0: 101})]
    play.answer({0: Part(0, 102, SECOND)})
    assert play.records("a") == [{0: SECOND}]
    assert play.relay.relays["a"].cache.key.is_exclusive


@pytest.mark.parametrize("rules", ["client:b", "client:the-client", "topic:u", "topic:a"])
def test_client_that_no_rule_selects_shares_as_before(rules: str) -> None:
    play = waiting()
    play.answer({0: Part(0, 101, FIRST)})
    play.share_reads_except = FetchRules.parse(rules)

    fetch(play, "a", 101)

    assert requests(play) == [("sidefetch", {0: 101})]


def test_client_shares_again_without_loss_or_repetition_when_its_rule_is_removed() -> None:
    play = waiting()
    play.share_reads_except = BY_CLIENT
    play.answer({0: Part(0, 101, FIRST)})
    fetch(play, "b", 101)
    fetch(play, "a", 101)
    assert requests(play) == [("sidefetch", {0: 101}), ("a", {0: 101})]
    play.answer({0: Part(0, 102, SECOND)})
    assert play.records("a") == [{0: FIRST}, {0: SECOND}]
    assert play.records("b") == [{0: FIRST}]

    play.share_reads_except = NO_RULES
    fetch(play, "a", 102)
    assert len(play.relay.caches) == 1
    play.answer({0: Part(0, 103, SECOND + THIRD)})
    play.wait(0.1)

    assert play.records("b") == [{0: SECOND + THIRD}]
    assert play.records("a") == [{0: THIRD}]
    requests(play)
    fetch(play, "a", 103)
    fetch(play, "b", 103)
    assert requests(play) == [("sidefetch", {0: 103})]


def test_client_that_stops_sharing_leaves_the_long_poll_of_the_others_in_flight() -> None:
    play = waiting()
    play.wait(0.6)
    assert len(play.answers("a")) == len(play.answers("b")) == 1
    fetch(play, "b", 100)
    assert requests(play) == []
    play.share_reads_except = BY_CLIENT
    fetch(play, "a", 100)
    assert requests(play) == [("a", {0: 100})]
    play.answer({0: Part(high_watermark=100)})

    play.relay.client = "b"
    play.answer({0: Part(0, 101, FIRST)})

    assert play.records("b") == [{0: FIRST}]
    assert play.answers("a") == []
    fetch(play, "b", 101)
    assert requests(play)[-1] == ("sidefetch", {0: 101})


def test_shared_fetches_lose_a_partition_when_its_only_reader_stops_sharing() -> None:
    play = SharedPlay()
    play.at_end(0, 1, offset=100)
    play.wait(0.6)
    fetch(play, "b", 100)
    play.share_reads_except = BY_CLIENT
    play.fetch_as("a", {0: 100, 1: 100}, client_id="a")
    assert requests(play) == [("a", {0: 100, 1: 100})]

    play.relay.client = "b"
    play.answer({0: Part(0, 101, FIRST)})
    fetch(play, "b", 101)

    (asked,) = play.asked
    assert (asked.client_id, dict(asked.offsets), asked.forgotten) == ("sidefetch", {0: 101}, [1])


def test_undelivered_shared_records_are_read_again_by_a_client_that_stops_sharing() -> None:
    play = waiting()
    play.wait(0.6)
    play.answers("a")
    play.share_reads_except = BY_CLIENT
    play.answer({0: Part(0, 101, FIRST)})
    assert play.answers("a") == []

    fetch(play, "a", 100)
    assert requests(play) == [("a", {0: 100})]
    play.answer({0: Part(0, 101, FIRST)})

    assert play.records("a") == [{0: FIRST}]


def test_rule_for_a_topic_applies_to_a_fetch_that_names_it_only_in_its_session() -> None:
    play = SharedPlay(clients=("a",), client_sessions=10)
    fetch(play, "a", 100, session_epoch=0)
    play.answer({0: Part(high_watermark=100)}, link=play.asked[-1].link)
    play.wait(0.6)
    (answer,) = play.answers("a")
    play.share_reads_except = FetchRules.parse("topic:t")
    requests(play)

    play.fetch_as("a", {}, client_id="a", session_id=answer.session_id, session_epoch=1)

    assert requests(play) == [("a", {0: 100})]


def test_rule_for_a_topic_applies_to_a_fetch_that_names_it_by_id() -> None:
    play = SharedPlay(clients=("a",))
    play.share_reads_except = FetchRules.parse("topic:t")

    fetch(play, "a", 100, version=13)

    assert requests(play) == [("a", {0: 100})]


def test_rule_changes_nothing_for_clients_that_do_not_share() -> None:
    play = Play(upstream_max_wait_s=10)
    play.established(0)
    cache = play.relay.cache
    play.share_reads_except = FetchRules.parse("all")

    play.fetch({0: 0})

    assert play.relay.cache is cache
    assert play.asked_on(LIVE) == []
