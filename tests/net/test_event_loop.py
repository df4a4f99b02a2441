"""A stalled event loop is logged with its place."""

import io
import sys
import time

import pytest
import trio

from proxy.net.io.logs import Log
from proxy.net.observability.event_loop import Heartbeat, LoopTurns, limit_thread_turns


async def logged_for(stand_s: float) -> str:
    """Return the log of a loop that stalls for so long; a beat every 10 ms, five of which may be missed."""
    stream = io.StringIO()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Heartbeat(Log("text", "info", stream), beat_s=0.01).run)
        await trio.sleep(0.05)
        time.sleep(stand_s)
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    return stream.getvalue()


async def test_event_loop_stall_is_logged_once_with_location_and_its_recovery_once() -> None:
    lines = (await logged_for(stand_s=0.5)).splitlines()

    assert len(lines) == 2
    assert " error event-loop-stalled " in lines[0]
    assert "test_event_loop.py" in lines[0]
    assert "time.sleep(stand_s)" in lines[0]
    assert " warning event-loop-recovered " in lines[1]


async def test_responsive_event_loop_is_not_logged() -> None:
    assert await logged_for(stand_s=0) == ""


async def test_longest_turn_of_the_loop_is_that_of_the_task_that_took_longest() -> None:
    turns = LoopTurns()
    trio.lowlevel.add_instrument(turns)
    try:
        for seconds in (0.01, 0.2, 0.02):
            await trio.sleep(0.01)
            time.sleep(seconds)
        await trio.sleep(0.01)
    finally:
        trio.lowlevel.remove_instrument(turns)

    assert turns.longest_s >= 0.2


def test_threads_let_the_event_loop_run_within_a_millisecond() -> None:
    before_s = sys.getswitchinterval()
    try:
        limit_thread_turns()
        assert sys.getswitchinterval() == pytest.approx(0.001)
    finally:
        sys.setswitchinterval(before_s)


def test_longest_turn_is_forgotten_after_two_minutes() -> None:
    now_s = 1000.0
    turns = LoopTurns(lambda: now_s)

    def turn(seconds: float) -> None:
        nonlocal now_s
        turns.after_io_wait(0)
        now_s += seconds
        turns.before_io_wait(0)

    turn(0.5)
    assert turns.longest_s == 0.5
    now_s += 61
    turn(0.1)
    assert turns.longest_s == 0.5
    now_s += 61
    assert round(turns.longest_s, 9) == 0.1
    now_s += 121
    assert turns.longest_s == 0.0
