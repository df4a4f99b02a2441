"""A proxy in front of an embedded cluster, both in this process."""

import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from proxy.config import Address, Config, DownstreamConfig, LogConfig, PortRange, UpstreamConfig
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.events import FetchRecord, Record
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.observability.observers import ConnectionInfo
from tests.ports import free_port_range

__all__ = ["Proxied", "ask", "configured", "hung_up_on", "limits_logged", "proxied", "running"]

PORTS = 10


def configured(bootstrap: str, **downstream: Any) -> Config:
    """A configuration on free ports."""
    port = free_port_range(1 + PORTS)
    settings = {
        "listen": (Address("127.0.0.1", port),),
        "broker_ports": PortRange(port + 1, port + PORTS),
        **downstream,
    }
    servers = tuple(Address.parse(each) for each in bootstrap.split(","))
    return Config(UpstreamConfig(servers, connect_timeout_s=2), DownstreamConfig(**settings), grace_s=5)


@attrs.define
class Proxied:
    """A cluster, the proxy in front of it, and its log and records."""

    cluster: EmbeddedCluster
    config: Config
    proxy: Proxy
    log: io.StringIO
    records: list[Record] = attrs.field(factory=list)

    @property
    def bootstrap(self) -> str:
        return str(self.config.downstream.listen[0])

    def port_of(self, node_id: int) -> int:
        return self.config.downstream.broker_ports.first + node_id

    @property
    def fetches(self) -> list[FetchRecord]:
        return [each for each in self.records if isinstance(each, FetchRecord)]

    @property
    def reads(self) -> list[FetchRecord]:
        """The answered fetches, except for those that close sessions."""
        return [each for each in self.fetches if each.size and each.response_bytes]

    @asynccontextmanager
    async def client(self, node_id: int | None = None) -> AsyncIterator[KafkaConnection]:
        """A connection to the bootstrap listener, or to that of a broker."""
        address = self.bootstrap if node_id is None else f"127.0.0.1:{self.port_of(node_id)}"
        async with connect(address) as connection:
            yield connection

    def logged(self, event: str) -> list[str]:
        """The log's lines of an event."""
        return [line for line in self.log.getvalue().splitlines() if f" {event} " in f"{line} "]

    async def listening(self, node_id: int) -> None:
        """Wait until a broker has its listener."""
        with trio.fail_after(10):
            while not any(f"node={node_id}" in line for line in self.logged("listening")):
                await trio.sleep(0.01)


class _Kept:
    """An observer that keeps all records of a proxy."""

    wants_exchanges = True

    def __init__(self) -> None:
        self.records: list[Record] = []

    def observe(self, _: ConnectionInfo, record: Record, /) -> None:
        self.records.append(record)

    def end_connection(self, connection: ConnectionInfo, /) -> None:
        """Do nothing: the records are kept."""


@asynccontextmanager
async def running(
    cluster: EmbeddedCluster,
    config: Config | None = None,
    *,
    upstream_max_wait_s: float = 10.0,
    rack: str | None = None,
) -> AsyncIterator[Proxied]:
    """A proxy in *rack*, in front of *cluster*; it must have met no bug in the end, and leave nothing."""
    config = config or configured(cluster.bootstrap)
    config = attrs.evolve(config, upstream=attrs.evolve(config.upstream, upstream_max_wait_s=upstream_max_wait_s))
    stream = io.StringIO()
    kept = _Kept()
    proxy = Proxy(config, Log(LogConfig().format, "debug", stream), [kept], rack=rack)
    it = Proxied(cluster, config, proxy, stream, kept.records)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        await it.listening(min(cluster.state.alive))
        try:
            yield it
        finally:
            nursery.cancel_scope.cancel()
    assert proxy.counts["bugs"] == 0, stream.getvalue()


@asynccontextmanager
async def proxied(*, upstream_max_wait_s: float = 10.0, **options: Any) -> AsyncIterator[Proxied]:
    """An embedded cluster with topic ``t``: three partitions, each led by broker 1; and a proxy in front of it."""
    async with embedded_cluster(**options) as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        async with running(cluster, upstream_max_wait_s=upstream_max_wait_s) as it:
            yield it


def ask(
    offsets: dict[int, int], topic: str = "t", *, partition_max_bytes: int = 1 << 20, **options: Any
) -> dict[str, Any]:
    """Return a fetch of v4 to v12 as a mapping."""
    partitions = [
        {"partition": p, "fetch_offset": o, "partition_max_bytes": partition_max_bytes, "current_leader_epoch": -1}
        for p, o in offsets.items()
    ]
    said = {"max_wait": 20, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    return {**said, "topics": [{"topic": topic, "partitions": partitions}], **options}


async def hung_up_on(client: KafkaConnection, within_s: float = 5) -> bool:
    with trio.fail_after(within_s):
        try:
            return await client.receive_frame() is None
        except (trio.BrokenResourceError, OSError):
            return True


def limits_logged(it: Proxied, limit: str) -> list[str]:
    """Return the log lines with the limit, the peer and the remedy."""
    lines = [line for line in it.logged("limit-reached") if f"limit={limit} " in line]
    assert all(re.search(r"client=127\.0\.0\.1:\d+ reason=.+ remedy=.+", line) for line in lines)
    return lines
