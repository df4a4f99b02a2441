"""The table of phases in LOG_CACHE.md, which all tests of this folder assert, and its rare transitions."""

from typing import get_args

import pytest

from proxy.fetch import reader
from proxy.fetch.phases import Phase
from proxy.relay.commands import Reply, Tick
from tests import old_clients
from tests.old_clients import batch, fetch_frame
from tests.relay.phases import ANSWERED, TRANSITIONS
from tests.relay.playbook import LONG_POLL, Part, Play, client_responses, of_type


def test_table_has_all_phases_and_each_can_be_reached() -> None:
    names = {each.__name__ for each in get_args(Phase)}

    assert {phase for phase, _ in TRANSITIONS} == names
    assert {following for _, following in TRANSITIONS} == names - {"Connecting"} | {ANSWERED}


def test_converted_records_are_delayed_for_a_client_that_does_not_throttle_itself() -> None:
    play = Play()
    play.request(fetch_frame(2, {0: 10}))
    play.open(LONG_POLL)

    assert of_type(Reply, play.answer({0: Part(records=batch(10, b"record"))}, throttle_ms=300)) == []
    assert of_type(Reply, play.wait(0.29)) == []
    (reply,) = of_type(Reply, play.wait(0.01))

    assert [each.value for each in old_clients.heard(reply.pieces, 2)[0].records] == [b"record"]


def test_logs_of_a_lost_connection_are_found_again_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_FOUND_AT_ONCE", 1)
    play = Play(upstream_max_wait_s=10)
    play.fetch({0: 5, 1: 5, 2: 5})
    play.open(LONG_POLL)
    play.wait(0)
    (asked,) = play.asked

    play.lose(LONG_POLL)
    ticks = 0
    while play.relay.deadline_s == play.now_s:
        play.handle(Tick())
        ticks += 1
    play.open(LONG_POLL)
    (answer,) = client_responses(play.answer({0: Part(), 1: Part(records=batch(5, b"record")), 2: Part()}))

    assert ticks == 2
    assert play.asked[1].offsets == asked.offsets == {0: 5, 1: 5, 2: 5}
    assert [part.partition_index for part in answer.responses[0].partitions if part.records] == [1]
