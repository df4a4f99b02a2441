"""TLS handshakes with clients: a storm of them, and those that are begun and never ended, harm nobody else."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.config import DownstreamSecurity, LimitsConfig
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from tests.certificates import Authority
from tests.net.proxied import Proxied, configured, hung_up_on, limits_logged, running
from tests.net.tls_clients import client, read, trusting

DAWDLING_S = 0.4


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setattr("proxy.net.downstream.handshakes._CONTENDED_S", DAWDLING_S)
    return Authority(tmp_path)


@asynccontextmanager
async def with_places(places: int, authority: Authority) -> AsyncIterator[Proxied]:
    """A proxy that makes so many handshakes at once."""
    ours = authority.issue("127.0.0.1", file="sidefetch")
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(
            configured(cluster.bootstrap),
            downstream_security=DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(ours.key)),
            limits=LimitsConfig(max_handshakes=places),
        )
        async with running(cluster, config) as it:
            yield it


async def is_served(it: Proxied, authority: Authority) -> bool:
    async with client(it, trusting(authority)) as connection:
        answer: Any = await read(connection)
        return int(answer.error_code) == 0


async def begin_handshake(connection: KafkaConnection) -> None:
    """Say hello, as TLS has it, and nothing after that."""
    hello, _ = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    half = context.wrap_bio(_, hello, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    await connection.send_frame(hello.read())


async def begun(it: Proxied, stack: AsyncExitStack, count: int) -> list[KafkaConnection]:
    connections = [await stack.enter_async_context(it.client(1)) for _ in range(count)]
    for each in connections:
        await begin_handshake(each)
    await trio.sleep(0.05)
    return connections


async def test_stalled_tls_handshake_is_dropped_when_another_client_waits(authority: Authority) -> None:
    async with with_places(2, authority) as it, AsyncExitStack() as stack:
        dawdling = await begun(it, stack, 2)
        assert it.proxy.counts["limit_max_handshakes"] == 0

        began_s = trio.current_time()
        with trio.fail_after(5):
            assert await is_served(it, authority)
        assert trio.current_time() - began_s > DAWDLING_S / 2, "it did not wait for a place"
        assert it.proxy.counts["limit_max_handshakes"] == 1
        assert len(limits_logged(it, "max-handshakes")) == 1
        for each in dawdling:
            with trio.fail_after(1):
                while await each.receive_frame() is not None:
                    pass
        assert "the TLS handshake timed out" in it.logged("client-tls-failed")[0]


async def test_slow_tls_handshake_is_kept_while_no_other_client_waits(authority: Authority) -> None:
    async with with_places(2, authority) as it, AsyncExitStack() as stack:
        await begun(it, stack, 1)
        await trio.sleep(2 * DAWDLING_S)
        assert await is_served(it, authority)
        assert not it.logged("client-tls-failed")


async def test_silent_connections_do_not_count_against_max_handshakes(authority: Authority) -> None:
    async with with_places(1, authority) as it, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(it.client(1)) for _ in range(5)]
        with trio.fail_after(DAWDLING_S):
            assert await is_served(it, authority)
        assert it.proxy.counts["limit_max_handshakes"] == 0
        assert not await hung_up_on_already(silent[0])


async def hung_up_on_already(connection: KafkaConnection) -> bool:
    with trio.move_on_after(0.05):
        return await hung_up_on(connection)
    return False


async def test_a_storm_is_served_in_turn_and_a_queue_of_those_that_dawdle_lasts_no_longer_than_they_may(
    authority: Authority,
) -> None:
    async with with_places(2, authority) as it, AsyncExitStack() as stack:
        await begun(it, stack, 4)
        served: list[bool] = []

        async def come() -> None:
            served.append(await is_served(it, authority))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(come)
        assert served == [True] * 20
        assert len(limits_logged(it, "max-handshakes")) == 1, "a line in a while, not one for each"
