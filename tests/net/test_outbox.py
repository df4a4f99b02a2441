"""Responses on a connection, and the time when lazy chunks are made."""

import socket
import threading
import time
from collections.abc import AsyncIterator

import attrs
import pytest
import trio

from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.wire.frames import QUICK_BYTES, Chunks

LARGE = 1 << 20
"""More than is made without a thread."""


@attrs.define(eq=False)
class Slowly:
    """*count* chunks of *size* bytes each."""

    count: int
    size: int
    is_quick: bool = False
    takes_s: float = 0.0
    made: int = 0
    threads: set[int] = attrs.field(factory=set)

    def __len__(self) -> int:
        return self.count * self.size

    def next_chunk(self) -> bytes | None:
        self.threads.add(threading.get_ident())
        if self.made == self.count:
            return None
        self.made += 1
        time.sleep(self.takes_s)
        return bytes([self.made % 256]) * self.size


@attrs.frozen
class Pair:
    sender: FrameSocket
    peer: trio.SocketStream

    async def receive(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            got += await self.peer.receive_some(size - len(got))
        return bytes(got)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE)
        async with await listener.accept() as peer:
            with FrameSocket(ours, 1 << 20) as sender:
                yield Pair(sender, peer)


async def test_lazily_produced_chunks_are_sent_in_the_order_of_put(pair: Pair) -> None:
    small, large = Slowly(3, 100), Slowly(4, LARGE)
    outbox = Outbox(pair.sender)

    async with trio.open_nursery() as nursery:
        outbox.put([b"head", small, b"", memoryview(b"middle"), large, b"tail"])
        nursery.start_soon(outbox.flush)
        got = await pair.receive(4 + 300 + 6 + 4 * LARGE + 4)

    expected = [
        b"head",
        *(bytes([n]) * 100 for n in (1, 2, 3)),
        b"middle",
        *(bytes([n]) * LARGE for n in (1, 2, 3, 4)),
    ]
    assert got == b"".join([*expected, b"tail"])


async def test_more_than_a_socket_takes_at_once_is_sent_in_order(pair: Pair) -> None:
    pieces = [bytes([n % 256]) * 20_000 for n in range(600)]
    outbox = Outbox(pair.sender)

    async with trio.open_nursery() as nursery:
        outbox.put(pieces[:500])
        outbox.put(pieces[500:])
        nursery.start_soon(outbox.flush)
        got = await pair.receive(sum(map(len, pieces)))

    assert got == b"".join(pieces)
    assert outbox.is_empty


async def test_nothing_more_is_made_for_a_peer_that_does_not_read(pair: Pair) -> None:
    large = Slowly(100, LARGE)
    outbox = Outbox(pair.sender)
    outbox.put([large])

    with trio.move_on_after(0.3):
        await outbox.flush()
    made_unread = large.made
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.flush)
        await pair.receive(10 * LARGE)
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()

    assert 1 <= made_unread <= 10
    assert 10 <= large.made <= 30  # the sockets hold some


async def test_large_chunks_are_produced_in_a_thread_and_small_ones_inline(pair: Pair) -> None:
    small, large = Slowly(3, 100), Slowly(2, LARGE)
    outbox = Outbox(pair.sender)

    outbox.put([small])
    made_at_once = small.made
    async with trio.open_nursery() as nursery:
        outbox.put([large])
        nursery.start_soon(outbox.flush)
        await pair.receive(300 + 2 * LARGE)

    assert made_at_once == 3
    assert threading.get_ident() not in large.threads
    assert small.threads == {threading.get_ident()}


async def test_quick_chunks_are_produced_without_a_thread_at_any_size(pair: Pair) -> None:
    quick = Slowly(4, LARGE, is_quick=True)
    outbox = Outbox(pair.sender)

    async with trio.open_nursery() as nursery:
        outbox.put([quick])
        nursery.start_soon(outbox.flush)
        await pair.receive(4 * LARGE)

    assert quick.threads == {threading.get_ident()}


async def test_others_get_their_turn_while_much_is_made_that_is_quick(pair: Pair) -> None:
    quick = Slowly(20, QUICK_BYTES, is_quick=True, takes_s=0.001)
    outbox = Outbox(pair.sender)
    outbox.put([quick])
    made_at_turns: set[int] = set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.receive, len(quick))
        nursery.start_soon(outbox.flush)
        while quick.made < quick.count:
            await trio.lowlevel.checkpoint()
            made_at_turns.add(quick.made)

    assert len(made_at_turns) >= quick.count // 2


async def test_callback_runs_once_after_all_chunks_are_produced(pair: Pair) -> None:
    reported: list[Chunks] = []
    small = Slowly(2, 10)
    outbox = Outbox(pair.sender, lambda chunks, _: reported.append(chunks))

    outbox.put([b"head", small])
    await outbox.flush()

    assert reported == [small]
    assert await pair.receive(24) == b"head" + b"\1" * 10 + b"\2" * 10


async def test_sent_callback_of_each_response_runs_after_its_last_byte_is_sent(pair: Pair) -> None:
    sent: list[str] = []
    outbox = Outbox(pair.sender)

    outbox.put([b"one"], lambda _: sent.append("one"))
    assert sent == ["one"]
    outbox.put([bytes(32 * LARGE)], lambda _: sent.append("large"))
    outbox.put([b"last"], lambda _: sent.append("last"))
    assert sent == ["one"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.flush)
        await pair.receive(3 + 32 * LARGE + 4)

    assert sent == ["one", "large", "last"]


async def test_sent_callback_reports_time_spent_producing_chunks(pair: Pair) -> None:
    made_s: list[float] = []
    outbox = Outbox(pair.sender)

    async with trio.open_nursery() as nursery:
        outbox.put([Slowly(2, LARGE)], made_s.append)
        outbox.put([b"made already"], made_s.append)
        nursery.start_soon(outbox.flush)
        await pair.receive(2 * LARGE + 12)

    made, nothing = made_s
    assert made > 0 == nothing
