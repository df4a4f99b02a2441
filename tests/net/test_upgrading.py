"""Clients that Kafka 4 turns away, over sockets, in front of an embedded cluster that serves what Kafka 4 does."""

import struct
import time
from collections.abc import Callable, Sequence

import pytest
import trio

from proxy.convert.versions import produce as upgrade
from proxy.demo.batches import decode_records, split_batches
from proxy.demo.client import KafkaConnection
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from tests.conformance.raw import value_batch
from tests.convert.versions.old import encoded, offset, produce
from tests.net.proxied import Proxied, proxied

PRODUCE, LIST_OFFSETS = 0, 2
LARGE = 200_000


async def send(client: KafkaConnection, key: int, version: int, correlation_id: int, body: bytes) -> None:
    header = write_request_header(RequestHeader(key, version, correlation_id, "old"), flexible=False)
    await client.send_frame(with_size(header + body))


async def answer(client: KafkaConnection, correlation_id: int) -> bytes:
    frame = await client.receive_frame()
    assert frame is not None
    assert int.from_bytes(frame[:4]) == correlation_id
    return frame[4:]


def producing(values: bytes, *, acks: int = 1) -> bytes:
    return encoded(produce.ProduceRequest_v1, acks, 1000, [("t", [(0, values)])])


def stored(it: Proxied) -> list[bytes | None]:
    log = it.cluster.partition("t", 0).log
    return [record.value for record in decode_records(split_batches(log.read(0, 1 << 30, at_least_one=True)))]


@pytest.fixture
def upgraded_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record where conversions run; a message set is its values separated by bars, each to be a batch."""
    threads: list[str] = []

    def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes, ...]:
        assert max_batch_bytes
        try:
            trio.lowlevel.current_task()
            threads.append("here")
        except RuntimeError:
            threads.append("in a thread")
        return tuple(value_batch(value) for value in bytes(message_set).split(b"|"))

    monkeypatch.setattr(upgrade, "to_batches", to_batches)
    return threads


async def test_removed_version_is_served_without_api_versions_request() -> None:
    async with proxied() as it, it.client(1) as client:
        it.cluster.append("t", 0, [b"a"] * 5)
        body = encoded(offset.OffsetRequest_v0, -1, [("t", [(0, -1, 2)])])
        await send(client, LIST_OFFSETS, 0, 1, body)

        response = offset.OffsetResponse_v0.decode(await answer(client, 1))

    assert response.topics == [("t", [(0, 0, [5, 0])])]


async def test_upgraded_produce_requests_keep_their_order_regardless_of_size(upgraded_in: list[str]) -> None:
    values = [b"a|b|c", b"L" * LARGE, b"d", b"e|f"]
    async with proxied() as it, it.client(1) as client:
        for number, each in enumerate(values):
            await send(client, PRODUCE, 1, number, producing(each))
        responses = [produce.ProduceResponse_v1.decode(await answer(client, number)) for number in range(4)]
        written = stored(it)

    assert [each.topics[0][1][0] for each in responses] == [(0, 0, base) for base in (0, 3, 4, 5)]
    assert written == [b"a", b"b", b"c", b"L" * LARGE, b"d", b"e", b"f"]
    assert upgraded_in == ["here", "in a thread", "here", "here"]


async def test_produce_behind_a_list_offsets_of_two_requests_keeps_its_order(
    upgraded_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While A is converted, the answer to the first question comes; C must not overtake any part of A."""
    to_batches: Callable[..., Sequence[bytes]] = vars(upgrade)["to_batches"]

    def slowly(message_set: memoryview, *, max_batch_bytes: int) -> Sequence[bytes]:
        if len(message_set) > LARGE:
            time.sleep(0.2)
        return to_batches(message_set, max_batch_bytes=max_batch_bytes)

    monkeypatch.setattr(upgrade, "to_batches", slowly)
    a = [b"A" * LARGE, b"B" * LARGE, b"C" * LARGE]
    async with proxied() as it, it.client(1) as client:
        await send(client, PRODUCE, 1, 0, producing(b"first"))
        await send(client, LIST_OFFSETS, 0, 1, encoded(offset.OffsetRequest_v0, -1, [("t", [(0, -1, 2)])]))
        await send(client, PRODUCE, 1, 2, producing(b"|".join(a)))
        await send(client, PRODUCE, 1, 3, producing(b"last"))
        answers = [await answer(client, number) for number in range(4)]
        written = stored(it)

    assert written == [b"first", *a, b"last"]
    assert offset.OffsetResponse_v0.decode(answers[1]).topics == [("t", [(0, 0, [1, 0])])]
    acknowledged = [produce.ProduceResponse_v1.decode(answers[number]).topics[0][1][0] for number in (2, 3)]
    assert acknowledged == [(0, 0, 1), (0, 0, 4)]
    assert "in a thread" in upgraded_in


async def test_upgraded_produce_requests_with_acks_0_keep_their_order(upgraded_in: list[str]) -> None:
    async with proxied() as it, it.client(1) as client:
        for number, each in enumerate([b"a|b", b"L" * LARGE, b"c"]):
            await send(client, PRODUCE, 1, number, producing(each, acks=0))
        await send(client, PRODUCE, 1, 9, producing(b"d"))
        response = produce.ProduceResponse_v1.decode(await answer(client, 9))
        written = stored(it)

    assert response.topics[0][1][0] == (0, 0, 4)
    assert written == [b"a", b"b", b"L" * LARGE, b"c", b"d"]
    assert "in a thread" in upgraded_in


async def test_upgraded_produce_with_acks_0_is_written_after_client_disconnects(upgraded_in: list[str]) -> None:
    values = [b"a|b", b"L" * LARGE]
    async with proxied() as it:
        async with it.client(1) as client:
            for number, each in enumerate(values):
                await send(client, PRODUCE, 1, number, producing(each, acks=0))
        with trio.fail_after(5):
            while len(stored(it)) < 3:
                await trio.sleep(0.01)

    assert upgraded_in == ["here", "in a thread"]


@pytest.mark.usefixtures("upgraded_in")
async def test_unknown_api_key_closes_the_connection() -> None:
    async with proxied() as it, it.client(1) as client:
        await send(client, 9_999, 0, 1, struct.pack(">i", 0))

        assert await client.receive_frame() is None
        assert "API 9999 v0 is not known" in it.log.getvalue()
