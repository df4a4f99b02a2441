"""A Sidefetch with the options of a default sidecar: its largest client and all connections fit into its limit."""

import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
import trio

from proxy.config import LimitsConfig
from proxy.demo.client import connect
from proxy.kube.sizes import limit_bytes, max_connections, request_memory_bytes
from tests.net.proxied import ask
from tests.net.whole import resident_mib, sidefetch_before_brokers

MEMORY: Final = 64 * 1024**2
"""The default of the chart's value ``injection.memory``."""
LIMITS: Final = LimitsConfig(
    request_memory_bytes=request_memory_bytes(MEMORY), max_connections=max_connections(MEMORY)
)
OPTIONS: Final = (
    *("--memory", str(MEMORY), "--request-memory", str(LIMITS.request_memory_bytes)),
    *("--max-connections", str(LIMITS.max_connections)),
)


@pytest.fixture
def open_files() -> Iterator[None]:
    """Raise the limit of open files: the embedded brokers have theirs in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("open_files")
async def test_largest_client_and_all_connections_of_a_sidecar_fit_into_its_limit() -> None:
    most = LIMITS.max_fetch_partitions
    async with sidefetch_before_brokers(*OPTIONS) as (cluster, sidefetch, leader), AsyncExitStack() as stack:
        cluster.create_topic("large", most, assignment=[[1, 2, 3]] * most)
        cluster.create_topic("small", 50, assignment=[[1, 2, 3]] * 50)
        large = await stack.enter_async_context(connect(leader))
        small = [await stack.enter_async_context(connect(leader)) for _ in range(LIMITS.max_connections - 1)]
        for each in small:
            await each.send("fetch", 11, ask(dict.fromkeys(range(50), 0), "small", max_wait=60_000))

        with trio.fail_after(60):
            response = await large.call("fetch", 11, ask(dict.fromkeys(range(most), 0), "large", session_epoch=0))
            again = await large.call("fetch", 11, ask({}, session_id=response.session_id, session_epoch=1))

        assert (int(response.error_code), int(again.error_code)) == (0, 0)
        assert sum(len(topic.partitions) for topic in response.responses) == most
        assert {int(each.error_code) for topic in response.responses for each in topic.partitions} == {0}
        assert " limit-reached " not in sidefetch.log_text()
        assert resident_mib(sidefetch.process.pid) < limit_bytes(MEMORY, LIMITS) / 1024**2
        async with connect(leader) as one_more:
            assert await one_more.receive_frame() is None
