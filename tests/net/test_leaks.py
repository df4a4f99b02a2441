"""A real Sidefetch before and after ten thousand connections of all kinds, good ones and bad ones."""

import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from proxy.demo.client import KafkaConnection, connect
from proxy.demo.messages import encode_request
from proxy.wire.apis import ApiKey
from tests.net.proxied import ask
from tests.net.whole import resident_mib, sidefetch_before_brokers

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
METADATA = encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": []})
AT_ONCE = 40


async def _comes_and_goes(client: KafkaConnection) -> None:
    """A probe."""


async def _asks(client: KafkaConnection) -> None:
    assert (await client.call("metadata", 1, {"topics": []})).brokers


async def _reads(client: KafkaConnection) -> None:
    for _ in range(3):
        response = await client.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}, max_wait=5))
        assert [int(each.error_code) for each in response.responses[0].partitions] == [0, 0, 0]


async def _reads_in_a_session(client: KafkaConnection) -> None:
    response = await client.call("fetch", 11, ask({0: 0, 1: 0}, max_wait=5, session_epoch=0))
    held = {"session_id": response.session_id, "session_epoch": -1}
    await client.call("fetch", 11, {**ask({}, **held), "topics": []})


async def _leaves_half_a_frame(client: KafkaConnection) -> None:
    await client.send_frame(METADATA[:9])


async def _leaves_while_it_waits(client: KafkaConnection) -> None:
    await client.send("fetch", 11, ask({0: 0}, max_wait=30_000))


async def _sends_garbage(client: KafkaConnection) -> None:
    await client.send_frame(random.Random(7).randbytes(100))
    assert await client.receive_frame() is None


async def _resets(client: KafkaConnection) -> None:
    await client.send_frame(METADATA)
    assert isinstance(client.stream, trio.SocketStream)
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


async def _claims_a_large_frame(client: KafkaConnection) -> None:
    await client.send_frame((9 << 20).to_bytes(4) + bytes(100))


KINDS: list[Callable[[KafkaConnection], Awaitable[None]]] = [
    *[_comes_and_goes] * 14,
    *[_asks] * 2,
    *[_leaves_half_a_frame] * 3,
    *[_sends_garbage] * 2,
    *[_resets] * 2,
    _reads,
    _reads_in_a_session,
    _leaves_while_it_waits,
    _claims_a_large_frame,
]


async def _storm(address: str, count: int) -> None:
    """*count* connections, ``AT_ONCE`` at a time."""
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            async with connect(address) as connection:
                await KINDS[number % len(KINDS)](connection)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(client)


@attrs.frozen
class Held:
    """The open files, threads and memory of a process."""

    files: int
    sockets: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Held":
        process = Path(f"/proc/{pid}")
        links = []
        for each in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed since they were listed
                links.append(each.readlink())
        sockets = sum(str(link).startswith("socket:") for link in links)
        return cls(len(links), sockets, len(list((process / "task").iterdir())))


async def _settled(pid: int, before: Held) -> Held:
    """Once all is as it was, or is not within a while."""
    with trio.move_on_after(15):
        while (now := Held.of(pid)).sockets > before.sockets:
            await trio.sleep(0.2)
    await trio.sleep(1)
    return now


@pytest.mark.slow
@pytest.mark.long
async def test_ten_thousand_connections_leave_nothing_behind() -> None:
    async with sidefetch_before_brokers() as (cluster, sidefetch, address):
        pid = sidefetch.process.pid
        rested = Held.of(pid)
        await _storm(address, 5_000)
        warm = await _settled(pid, rested)
        warm_mib, sessions = resident_mib(pid), cluster.sessions
        await _storm(address, 5_000)
        after = await _settled(pid, warm)

        assert after.sockets <= rested.sockets
        assert after.files <= rested.files
        assert after.threads <= warm.threads + 8, "trio keeps idle ones for a while"
        assert cluster.sessions <= sessions + 5, "those being made when their client went"
        if resident_mib(pid) >= warm_mib + 10:  # by more at once on a busy machine; a leak goes on
            warm_mib = resident_mib(pid)
            await _storm(address, 5_000)
            await _settled(pid, warm)
        assert resident_mib(pid) < warm_mib + 10, "2 kB a connection"
        async with connect(address) as client:
            await _reads(client)
