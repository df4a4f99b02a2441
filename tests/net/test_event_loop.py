"""A stalled event loop is logged with its place."""

import io
import time

import trio

from proxy.net.io.logs import Log
from proxy.net.observability.event_loop import Heartbeat


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
