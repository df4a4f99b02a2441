"""Connections to brokers that are closed while everything else ends, too."""

import errno
import gc
import io
import os
import re
from collections import Counter
from collections.abc import Callable

import pytest
import trio

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.config import Address, LogConfig
from proxy.demo.cluster import embedded_cluster
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket
from proxy.net.upstream.access import OPEN
from proxy.net.upstream.connections import ConnectOptions, UpstreamConnections
from proxy.relay.commands import Event, LinkLost, LinkOpened
from tests.ports import open_ends

LINK = FetcherId(Source(BrokerId(1)), FetcherKind.LONG_POLL)


class Connections:
    """The connections to a broker, with their events and their log."""

    def __init__(self, address: Address, handle: Callable[[Event], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.log = io.StringIO()
        log = Log(LogConfig().format, "debug", self.log)
        self.links = UpstreamConnections(
            ConnectOptions(lambda _: address, 5, 5, Budget(1 << 20, log), log, self._count),
            OPEN,
            handle=handle,
            add_memory_wait=lambda _: None,
            observe=lambda _: None,
            node_id=BrokerId(1),
            wait_until_drained=trio.lowlevel.checkpoint,
        )

    def _count(self) -> None:
        self.counts["opened"] += 1


@pytest.mark.parametrize("is_hung_up", [True, False])
async def test_upstream_connection_closes_when_client_ends_even_right_after_disconnect(is_hung_up: bool) -> None:
    opened = trio.Event()

    def handle(event: Event) -> None:
        assert isinstance(event, LinkOpened)
        opened.set()

    async with embedded_cluster() as cluster:
        address = Address.parse(cluster.bootstrap.split(",")[0])
        it = Connections(address, handle)
        async with trio.open_nursery() as nursery:
            it.links.nursery = nursery
            it.links.open(LINK, "client")
            await opened.wait()
            assert open_ends(address.port) == 2
            if is_hung_up:
                it.links.disconnect(LINK)
            nursery.cancel_scope.cancel()
        it.links.close()
        gc.collect()
        assert it.counts["opened"] == 1
        with trio.fail_after(5):
            while open_ends(address.port):
                await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (TimeoutError("no byte of the rest of a frame within 5 s"), "response-stalled"),
        (OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), "broker-connection-timed-out"),
        (OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), None),
    ],
)
async def test_lost_connection_is_logged_with_the_side_that_ended_it(
    error: OSError, event: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(frames: FrameSocket) -> None:  # noqa: ARG001
        raise error

    events: list[type[Event]] = []

    def handle(event: Event) -> None:
        events.append(type(event))
        monkeypatch.setattr(FrameSocket, "receive", fail)

    async with embedded_cluster() as cluster:
        it = Connections(Address.parse(cluster.bootstrap.split(",")[0]), handle)
        async with trio.open_nursery() as nursery:
            it.links.nursery = nursery
            it.links.open(LINK, "client")

    assert events == [LinkOpened, LinkLost]
    assert re.findall(r"warning (\S+) node=1", it.log.getvalue()) == ([event] if event else [])
