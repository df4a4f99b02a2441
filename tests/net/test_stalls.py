"""Brokers that stop in the middle of a response with their connection up, or send it slowly."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from proxy.demo import broker as broker_module
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from tests.net.proxied import Proxied, ask, configured, running

RESPONSE_TIMEOUT_S = 0.4
RECORD_BYTES = 300_000
FETCH, LIST_OFFSETS = 1, 2
RETRIABLE = {3, 5, 6, 7, 9}
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT and so on."""

Send = Callable[[trio.SocketStream, bytes], Awaitable[None]]


async def stall(stream: trio.SocketStream, frame: bytes) -> None:
    """Send a half, and nothing more for as long as the peer does not hang up."""
    await stream.send_all(frame[: len(frame) // 2])
    await stream.receive_some(1)


async def stall_in_the_size(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_all(frame[:3])
    await stream.receive_some(1)


async def drip(stream: trio.SocketStream, frame: bytes) -> None:
    """Send for three times as long as a broker may be silent, but never be silent for half of that."""
    pieces = 8
    size = len(frame) // pieces + 1
    for at in range(0, len(frame), size):
        await stream.send_all(frame[at : at + size])
        await trio.sleep(3 * RESPONSE_TIMEOUT_S / pieces)


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> dict[int, Send]:
    """Replace how the embedded brokers send responses, by API key."""
    by_key: dict[int, Send] = {}

    async def serve(self: Any, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                frames = broker_module._Frames(stream)
                while (frame := await frames.next()) is not None:
                    if answer := await self._answer(frame):
                        await by_key.get(int.from_bytes(frame[:2]), trio.SocketStream.send_all)(stream, answer)
        except trio.BrokenResourceError:
            pass

    monkeypatch.setattr(broker_module.EmbeddedBroker, "_serve_client", serve)
    return by_key


@asynccontextmanager
async def client_of_a_cluster() -> AsyncIterator[tuple[Proxied, KafkaConnection]]:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1, 2, 3]])
        cluster.append("t", 0, [bytes(RECORD_BYTES)])
        config = configured(cluster.bootstrap)
        config = attrs.evolve(config, upstream=attrs.evolve(config.upstream, response_timeout_s=RESPONSE_TIMEOUT_S))
        async with running(cluster, config) as it, it.client(1) as client:
            yield it, client


def latest_offset() -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    return {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}


@pytest.mark.parametrize("how", [stall, stall_in_the_size])
async def test_client_is_disconnected_when_broker_stalls_in_a_forwarded_response(
    sends: dict[int, Send], how: Send
) -> None:
    sends[LIST_OFFSETS] = how
    async with client_of_a_cluster() as (it, client):
        await client.send("list_offsets", 5, latest_offset())
        with trio.fail_after(5 * RESPONSE_TIMEOUT_S):
            assert await client.receive_frame() is None

    assert "node=1" in it.logged("response-stalled")[0]


async def test_passed_response_that_comes_slowly_is_not_cut(sends: dict[int, Send]) -> None:
    sends[LIST_OFFSETS] = drip
    async with client_of_a_cluster() as (_, client):
        reported = await client.call("list_offsets", 5, latest_offset())

    assert reported.topics[0].partitions[0].offset == 1


@pytest.mark.parametrize("how", [stall, stall_in_the_size])
async def test_fetch_is_retriable_when_its_broker_stops_in_the_response(sends: dict[int, Send], how: Send) -> None:
    sends[FETCH] = how
    async with client_of_a_cluster() as (_, client):
        await client.send("fetch", 11, ask({0: 0}))
        with trio.fail_after(4 + 5 * RESPONSE_TIMEOUT_S):
            try:
                reported = await client.receive()
            except ConnectionResetError:
                return

    assert int(reported.responses[0].partitions[0].error_code) in RETRIABLE


async def test_fetch_is_served_over_another_connection_when_a_response_stalls(sends: dict[int, Send]) -> None:
    async def stall_once(stream: trio.SocketStream, frame: bytes) -> None:
        del sends[FETCH]
        await stall(stream, frame)

    sends[FETCH] = stall_once
    async with client_of_a_cluster() as (_, client):
        with trio.fail_after(20 * RESPONSE_TIMEOUT_S):
            while not (records := bytes((await fetch(client)).records or b"")):
                pass

    assert len(records) > RECORD_BYTES


async def test_fetch_response_that_comes_slowly_is_not_cut(sends: dict[int, Send]) -> None:
    sends[FETCH] = drip
    async with client_of_a_cluster() as (it, client):
        reported = await fetch(client)

    assert int(reported.error_code) == 0
    assert len(bytes(reported.records)) > RECORD_BYTES
    assert it.cluster.counters.fetches == 1


async def fetch(client: KafkaConnection) -> Any:
    return (await client.call("fetch", 11, ask({0: 0}))).responses[0].partitions[0]
