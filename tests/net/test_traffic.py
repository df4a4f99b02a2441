"""What reading costs is told while it goes on, and at the end."""

import io

import trio
from trio.testing import MockClock

from proxy.net.logs import Log
from proxy.net.traffic import tell_traffic
from proxy.relay.traffic import Traffic
from tests.net.proxied import proxied


async def test_it_is_told_every_five_minutes_in_which_something_was_read(autojump_clock: MockClock) -> None:  # noqa: ARG001
    stream, traffic = io.StringIO(), Traffic()
    lines = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_traffic, traffic, Log("text", "info", stream))
        await trio.sleep(1)
        for size in (10, 0, 5, 0, 0):
            traffic.add("t", "a", True, size)
            await trio.sleep(300)
            lines.append(stream.getvalue().count(" info traffic "))
        nursery.cancel_scope.cancel()

    assert lines == [1, 1, 2, 2, 2]
    assert "record_bytes=15" in stream.getvalue()


async def test_it_is_told_when_sidefetch_stops() -> None:
    async with proxied() as it:
        it.proxy.traffic.add("t", "a", True, 10)
        it.proxy.stop()
        with trio.fail_after(5):
            while not it.told("stopped"):
                await trio.sleep(0.01)

    assert "crossed_bytes=10" in it.told("stopped")[0]
