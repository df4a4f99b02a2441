"""Proxies with TLS, and their clients."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from proxy.config import DownstreamSecurity, LimitsConfig, UpstreamSecurity
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.net.io.tls import client_context
from tests.certificates import Authority
from tests.net.proxied import Proxied, ask, configured, running

__all__ = ["client", "read", "secured", "trusting"]


def trusting(authority: Authority, **more: Any) -> ssl.SSLContext:
    return client_context(UpstreamSecurity(tls=True, tls_ca=str(authority.path), **more))


@asynccontextmanager
async def secured(security: DownstreamSecurity, limits: LimitsConfig | None = None) -> AsyncIterator[Proxied]:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        cluster.append("t", 0, [b"news"])
        config = attrs.evolve(
            configured(cluster.bootstrap, client_sessions=10),
            downstream_security=security,
            limits=limits or LimitsConfig(),
        )
        async with running(cluster, config) as it:
            yield it


@asynccontextmanager
async def client(it: Proxied, context: ssl.SSLContext, node_id: int = 1) -> AsyncIterator[KafkaConnection]:
    stream = await trio.open_ssl_over_tcp_stream(
        "127.0.0.1", it.port_of(node_id), ssl_context=context, https_compatible=True
    )
    async with stream:
        yield KafkaConnection(stream)


async def read(connection: KafkaConnection, **options: Any) -> Any:
    return await connection.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}, **options))
