"""Connections to brokers that are closed while everything else ends, too."""

import gc
import io
from collections import Counter

import pytest
import trio

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.config import Address, LogConfig
from proxy.demo.cluster import embedded_cluster
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.upstream.access import OPEN
from proxy.net.upstream.connections import ConnectOptions, UpstreamConnections
from proxy.relay.commands import Event, LinkOpened
from tests.ports import open_ends


@pytest.mark.parametrize("is_hung_up", [True, False])
async def test_upstream_connection_closes_when_client_ends_even_right_after_disconnect(is_hung_up: bool) -> None:
    link = FetcherId(Source(BrokerId(1)), FetcherKind.LONG_POLL)
    counts: Counter[str] = Counter()
    opened = trio.Event()

    def handle(event: Event) -> None:
        assert isinstance(event, LinkOpened)
        opened.set()

    async def drained() -> None:
        pass

    async with embedded_cluster() as cluster:
        address = Address.parse(cluster.bootstrap.split(",")[0])
        log = Log(LogConfig().format, "debug", io.StringIO())
        ways = ConnectOptions(lambda _: address, 5, 5, Budget(1 << 20, log), log, lambda: counts.update(["opened"]))
        links = UpstreamConnections(
            ways,
            OPEN,
            handle=handle,
            add_memory_wait=lambda _: None,
            observe=lambda _: None,
            node_id=BrokerId(1),
            wait_until_drained=drained,
        )
        async with trio.open_nursery() as nursery:
            links.nursery = nursery
            links.open(link, "client")
            await opened.wait()
            assert open_ends(address.port) == 2
            if is_hung_up:
                links.disconnect(link)
            nursery.cancel_scope.cancel()
        links.close()
        gc.collect()
        assert counts["opened"] == 1
        with trio.fail_after(5):
            while open_ends(address.port):
                await trio.sleep(0.01)
