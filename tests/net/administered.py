"""The admin port of a proxy, and its responses."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from proxy.config import Address, AdminConfig
from proxy.demo.cluster import EmbeddedCluster
from tests.net.proxied import Proxied, configured, running
from tests.ports import free_port_range

__all__ = ["HEAD", "administered", "answer_to", "body_of", "port_of", "said", "state_of", "status", "statuses"]

HEAD = (
    b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: kube-probe/1.35\r\n"
    b"Accept: */*\r\nConnection: close\r\n\r\n"
)


@asynccontextmanager
async def administered(
    cluster: EmbeddedCluster, *, rack: str | None = None, **settings: Any
) -> AsyncIterator[Proxied]:
    """A proxy with such a port."""
    admin = AdminConfig(Address("127.0.0.1", free_port_range(1)), **settings)
    async with running(cluster, attrs.evolve(configured(cluster.bootstrap), admin=admin), rack=rack) as it:
        yield it


def port_of(it: Proxied) -> int:
    assert it.config.admin.listen is not None
    return it.config.admin.listen.port


async def said(it: Proxied, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    async with await trio.open_tcp_stream("127.0.0.1", port_of(it)) as stream:
        await stream.send_all(request)
        answer = b""
        with trio.fail_after(5):
            async for chunk in stream:
                answer += chunk
    return answer


async def answer_to(it: Proxied, path: str) -> tuple[int, str, str]:
    """The status, the head and the body."""
    answer = await said(it, HEAD % path.encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    assert len(body) == int(length[1])
    return int(answer.split()[1]), head.decode(), body.decode()


async def status(it: Proxied, path: str) -> int:
    code, _, _ = await answer_to(it, path)
    return code


async def statuses(it: Proxied) -> list[int]:
    """Return the statuses of all probes."""
    return [await status(it, path) for path in ("/startupz", "/readyz", "/livez")]


async def body_of(it: Proxied, path: str) -> str:
    code, _, body = await answer_to(it, path)
    assert code == 200
    return body


async def state_of(it: Proxied) -> Any:
    """Return the state from the API."""
    return json.loads(await body_of(it, "/api/v1/state"))
