"""A real Sidefetch, and requests of many partitions that are each a small bomb: memory is bounded, nobody waits."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs
import pytest
import trio

from proxy.demo.client import connect
from proxy.demo.cluster import EmbeddedCluster
from proxy.wire.records import Codec
from tests.convert.logs import Record, batch, message
from tests.net.proxied import ask
from tests.net.whole import resident_mib, sidefetch_before_brokers

pytestmark = pytest.mark.slow

PARTITIONS: Final = 40
BOMB_MIB: Final = 16
"""All together a good half of a GiB, out of less than a MiB."""
ROOM_MIB: Final = 160
"""The memory for one of them, decompressed, converted and sent, with the allocator's share."""


@attrs.define
class Watched:
    """A Sidefetch while it is asked for too much."""

    cluster: EmbeddedCluster
    address: str
    pid: int
    peak_mib: float = 0.0
    longest_s: float = 0.0
    """The longest wait of another client."""
    took_s: float = 0.0
    """The duration of the request for too much."""

    def assert_bounded(self) -> None:
        """Check the memory, and that the other client never waited for long, by the measure of a busy host."""
        assert self.peak_mib < ROOM_MIB
        assert self.longest_s < max(1, self.took_s / 4)

    async def during(self, hostile: Callable[[str], Awaitable[None]]) -> None:
        """Serve another client meanwhile."""
        async with connect(self.address) as good, trio.open_nursery() as nursery:
            await good.call("metadata", 1, {"topics": []})
            before_mib = resident_mib(self.pid)
            nursery.start_soon(self._watch, before_mib)

            async def ask_on() -> None:
                while True:
                    began_s = trio.current_time()
                    await good.call("metadata", 1, {"topics": []})
                    self.longest_s = max(self.longest_s, trio.current_time() - began_s)
                    await trio.sleep(0.01)

            nursery.start_soon(ask_on)
            began_s = trio.current_time()
            with trio.fail_after(240):
                await hostile(self.address)
            self.took_s = trio.current_time() - began_s
            nursery.cancel_scope.cancel()

    async def _watch(self, before_mib: float) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, resident_mib(self.pid) - before_mib)
            await trio.sleep(0.005)


@asynccontextmanager
async def watched(*options: str) -> AsyncIterator[Watched]:
    async with sidefetch_before_brokers(*options) as (cluster, sidefetch, address):
        cluster.create_topic("bombs", PARTITIONS, assignment=[[1, 2, 3]] * PARTITIONS)
        yield Watched(cluster, address, sidefetch.process.pid)


@pytest.mark.parametrize("codec", ["none", "snappy"])
async def test_fetch_response_of_many_compression_bombs_needs_bounded_memory_and_time(codec: str) -> None:
    bomb = batch([Record(0, 0, None, bytes(BOMB_MIB << 20))], codec=Codec.ZSTD)
    async with watched("--zstd", codec) as it:
        for partition in range(PARTITIONS):
            it.cluster.append_batches("bombs", partition, bomb)

        async def fetch(address: str) -> None:
            async with connect(address) as client:
                no_limit = {"max_bytes": 2**31 - 1, "partition_max_bytes": 2**31 - 1}
                await client.send("fetch", 4, ask(dict.fromkeys(range(PARTITIONS), 0), topic="bombs", **no_limit))
                size = int.from_bytes(await _take(client.stream, 4))
                assert size > PARTITIONS * (BOMB_MIB << 20) // (1 if codec == "none" else 25)
                while size:
                    size -= len(await _take(client.stream, min(size, 1 << 20)))

        await it.during(fetch)

    it.assert_bounded()


async def _take(stream: trio.abc.Stream, size: int) -> bytes:
    taken = await stream.receive_some(size)
    while len(taken) < size:
        more = await stream.receive_some(size - len(taken))
        assert more, "it was hung up on"
        taken += more
    return bytes(taken)


async def test_a_request_of_many_small_bombs_is_converted_one_after_another() -> None:
    wrapped = gzip.compress(message(Record(0, -1, None, bytes(BOMB_MIB << 20)), 0))
    bomb = message(Record(0, -1, None, wrapped), 0, codec=Codec.GZIP)
    async with watched() as it:

        async def produce(address: str) -> None:
            async with connect(address) as client:
                await client.send_frame(_produced("bombs", [bomb] * PARTITIONS))
                answer = await client.receive_frame()
            assert answer is not None
            none_failed = b"".join(number.to_bytes(4) + bytes(2) + bytes(8) for number in range(PARTITIONS))
            assert none_failed in answer

        await it.during(produce)

    it.assert_bounded()


def _produced(topic: str, sets: list[bytes]) -> bytes:
    """Produce v0, acks 1, a message set for each partition."""
    partitions = b"".join(n.to_bytes(4) + len(each).to_bytes(4) + each for n, each in enumerate(sets))
    named = len(topic).to_bytes(2) + topic.encode()
    body = b"\0\1" + (1000).to_bytes(4) + (1).to_bytes(4) + named + len(sets).to_bytes(4) + partitions
    header = bytes(4) + (9).to_bytes(4) + b"\0\1c"
    return (len(header) + len(body)).to_bytes(4) + header + body


async def test_request_of_many_old_offsets_is_decoded_while_others_are_served() -> None:
    partitions = b"".join(number.to_bytes(4) + bytes(8) + b"\0\0" for number in range(70_000))
    topics = (1).to_bytes(4) + b"\0\1t" + (70_000).to_bytes(4) + partitions
    header = (8).to_bytes(2) + bytes(2) + (9).to_bytes(4) + b"\0\1c"
    commit = header + b"\0\1g" + topics
    async with watched() as it:

        async def send(address: str) -> None:
            for _ in range(3):
                async with connect(address) as client:
                    await client.send_frame(len(commit).to_bytes(4) + commit)
                    assert await client.receive_frame() is not None
            async with connect(address) as client:
                await client.send_frame((11 * len(commit)).to_bytes(4) + commit + bytes(10 * len(commit)))
                assert await client.receive_frame() is None

        await it.during(send)

    it.assert_bounded()
