"""A real Sidefetch with hostile clients all around, while a good one reads."""

import gzip
import random
import re
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest
import trio

from proxy.demo.client import KafkaConnection, connect
from proxy.demo.messages import encode_request
from proxy.wire.apis import ApiKey
from tests.convert.logs import Record, batch, message
from tests.net.proxied import ask
from tests.net.whole import resident_mib, sidefetch_before_brokers

METADATA = encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": []})
TIMEOUTS = ("--request-timeout", "1", "--handshake-timeout", "1", "--send-timeout", "1")
CORRUPT_MESSAGE = (2).to_bytes(2)
BOMB = gzip.compress(bytes(200 << 20))


async def _is_closed(client: KafkaConnection) -> None:
    with trio.fail_after(10):
        with suppress(OSError):
            assert await client.receive_frame() is None


async def _dribbles(client: KafkaConnection) -> None:
    """Slow loris: there is always one byte more."""
    with trio.fail_after(10), suppress(OSError):
        await client.send_frame((1 << 20).to_bytes(4))
        while True:
            await client.send_frame(b"\0")
            await trio.sleep(0.05)


async def _stops_in_the_middle(client: KafkaConnection) -> None:
    await client.send_frame(METADATA[:-3])
    await _is_closed(client)


async def _says_nothing(client: KafkaConnection) -> None:
    await _is_closed(client)


async def _sends_garbage(client: KafkaConnection) -> None:
    # A valid size and an unknown API key; the rest is random.
    await client.send_frame((200).to_bytes(4) + b"\x7f" + random.randbytes(199))
    await _is_closed(client)


async def _claims_too_much(client: KafkaConnection) -> None:
    await client.send_frame((2**31 - 1).to_bytes(4))
    await _is_closed(client)


async def _claims_less_than_nothing(client: KafkaConnection) -> None:
    await client.send_frame((-5).to_bytes(4, signed=True))
    await _is_closed(client)


async def _speaks_tls(client: KafkaConnection) -> None:
    await client.send_frame(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500))
    await _is_closed(client)


async def _speaks_http(client: KafkaConnection) -> None:
    await client.send_frame(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await _is_closed(client)


async def _lies_about_counts(client: KafkaConnection) -> None:
    """Send an OffsetCommit v0, which is decoded and upgraded, with a wrong count of partitions."""
    body = b"\0\1g" + (2**31 - 1).to_bytes(4) + bytes(30)
    header = (8).to_bytes(2) + bytes(2) + (1).to_bytes(4) + b"\0\1c"
    await client.send_frame((len(header) + len(body)).to_bytes(4) + header + body)
    await _is_closed(client)


def _produced(message_set: bytes) -> bytes:
    """Produce v0, acks 1, one set for partition 2 of topic t."""
    partition = (2).to_bytes(4) + len(message_set).to_bytes(4) + message_set
    body = b"\0\1" + (1000).to_bytes(4) + (1).to_bytes(4) + b"\0\1t" + (1).to_bytes(4) + partition
    header = bytes(4) + (9).to_bytes(4) + b"\0\1c"
    return (len(header) + len(body)).to_bytes(4) + header + body


async def _is_refused(client: KafkaConnection, message_set: bytes) -> None:
    await client.send_frame(_produced(message_set))
    with trio.fail_after(30):
        answer = await client.receive_frame()
    assert answer is not None
    assert answer[:11] == (9).to_bytes(4) + (1).to_bytes(4) + b"\0\1t"
    assert answer[11:21] == (1).to_bytes(4) + (2).to_bytes(4) + CORRUPT_MESSAGE


async def _sends_a_bomb(client: KafkaConnection) -> None:
    await _is_refused(client, message(Record(0, -1, None, BOMB), 0, codec=1))


async def _nests_wrappers(client: KafkaConnection) -> None:
    inner = message(Record(0, -1, None, b"x"), 0)
    for _ in range(20):
        inner = message(Record(0, -1, None, gzip.compress(inner)), 0, codec=1)
    await _is_refused(client, inner)


HOSTILE: list[Callable[[KafkaConnection], Awaitable[None]]] = [
    _dribbles,
    _stops_in_the_middle,
    _says_nothing,
    _sends_garbage,
    _claims_too_much,
    _claims_less_than_nothing,
    _speaks_tls,
    _speaks_http,
    _lies_about_counts,
    _sends_a_bomb,
    _nests_wrappers,
]
EACH = 3


@pytest.mark.slow
async def test_client_reads_all_records_in_order_while_hostile_clients_are_disconnected() -> None:
    async with sidefetch_before_brokers(*TIMEOUTS) as (cluster, sidefetch, address):
        pid, before_mib = sidefetch.process.pid, resident_mib(sidefetch.process.pid)
        read: list[int] = []
        written = 0
        is_over = trio.Event()

        async def write() -> None:
            nonlocal written
            while not is_over.is_set():
                cluster.append("t", 0, [b"<record %d>" % written])
                written += 1
                await trio.sleep(0.02)

        async def reads() -> None:
            async with connect(address) as client:
                while not is_over.is_set() or len(read) < written:
                    with trio.fail_after(10):
                        response = await client.call("fetch", 11, ask({0: len(read)}, max_wait=100))
                    (partition,) = response.responses[0].partitions
                    assert int(partition.error_code) == 0
                    read.extend(int(each) for each in re.findall(rb"<record (\d+)>", partition.records or b""))

        async def attack(kind: Callable[[KafkaConnection], Awaitable[None]]) -> None:
            for _ in range(EACH):
                async with connect(address) as client:
                    await kind(client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(reads)
            async with trio.open_nursery() as attackers:
                for kind in HOSTILE:
                    attackers.start_soon(attack, kind)
            is_over.set()

        assert read == list(range(written))
        assert written > 50
        assert resident_mib(pid) < before_mib + 400, "two bombs at once, before and after"


async def test_size_fields_of_requests_take_no_memory_and_delay_nobody() -> None:
    async with sidefetch_before_brokers() as (_, sidefetch, address), AsyncExitStack() as claimants:
        before_mib = resident_mib(sidefetch.process.pid)
        for _ in range(30):
            client = await claimants.enter_async_context(connect(address))
            await client.send_frame((90 << 20).to_bytes(4) + METADATA[4:])
        async with connect(address) as good:
            topics = [{"name": f"{'x' * 200}{number}"} for number in range(4000)]
            with trio.fail_after(20):
                for _ in range(5):
                    assert len((await good.call("metadata", 5, {"topics": topics})).topics) == 4000

        assert resident_mib(sidefetch.process.pid) < before_mib + 60
        assert " memory-exhausted " not in sidefetch.log_text()


def _large_request(api_key: int, version: int) -> bytes:
    """A request of 10 MiB whose header is valid, and whose body is not."""
    content = struct.pack(">hhih", api_key, version, 1, 1) + b"c" + b"\x7f" * (10 << 20)
    return struct.pack(">i", len(content)) + content


async def _waits_until_refused(address: str, request: bytes) -> None:
    async with connect(address) as hostile:
        with suppress(OSError), trio.move_on_after(5):
            await hostile.send_frame(request)
            await hostile.receive_frame()


async def _leaves_behind_a_waiting_fetch(address: str, request: bytes) -> None:
    async with connect(address) as hostile:
        await hostile.send("fetch", 4, ask({0: 0}, topic="t", max_wait=60_000))
        with suppress(OSError), trio.move_on_after(1):
            await hostile.send_frame(request)


@pytest.mark.parametrize("attack", [_waits_until_refused, _leaves_behind_a_waiting_fetch])
@pytest.mark.parametrize(("api_key", "version"), [(8, 0), (0, 0), (1, 4)])
async def test_memory_of_refused_requests_is_free_at_once(
    api_key: int, version: int, attack: Callable[[str, bytes], Awaitable[None]]
) -> None:
    records = batch([Record(0, 1_000, None, bytes(900_000))])
    partition = {"index": 0, "records": records}
    values = {"acks": 1, "timeout": 5000, "topic_data": [{"name": "t", "partition_data": [partition]}]}
    async with sidefetch_before_brokers("--request-memory", "32MiB") as (_, _, address):
        for _ in range(4):
            await attack(address, _large_request(api_key, version))
        async with connect(address) as client:
            with trio.fail_after(5):
                response = await client.call("produce", 7, values)

    assert response.responses[0].partition_responses[0].error_code == 0
