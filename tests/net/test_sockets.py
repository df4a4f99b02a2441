"""Connections that share a budget, over real sockets."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
import trio

from proxy.config import Address
from proxy.net.io.memory import RESERVE_BYTES, Budget
from proxy.net.io.sockets import FrameSocket
from proxy.net.upstream.brokers import connect
from proxy.wire import frames
from proxy.wire.frames import Buffer, with_size
from tests.net.budgets import LIMIT, MIB, Holders, budgeted, take
from tests.net.whole import resident_mib


@pytest.fixture
def budget() -> Budget:
    return budgeted().budget


@asynccontextmanager
async def connections(budget: Budget, *answers: Sequence[int]) -> AsyncIterator[list[FrameSocket]]:
    """Connections to a broker that sends frames of these sizes, each of its own number over and over."""

    async def send(stream: trio.SocketStream) -> None:
        number = (await stream.receive_some(1))[0]
        with suppress(trio.BrokenResourceError):
            for size_bytes in answers[number]:
                await stream.send_all(with_size(bytes([number]) * size_bytes))
            await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, send, 0)
        address = Address("127.0.0.1", listeners[0].socket.getsockname()[1])
        with ExitStack() as stack:
            opened = []
            for number in range(len(answers)):
                connection = await connect(address, connect_timeout_s=5, budget=budget)
                opened.append(stack.enter_context(connection))
                await connection.send([bytes([number])])
            yield opened
        nursery.cancel_scope.cancel()


async def receive_one(connection: FrameSocket) -> memoryview:
    (frame,) = await connection.receive()
    return frame


class Read:
    """A reader of connections that reads to their end, and holds each frame for a while."""

    def __init__(self) -> None:
        self.sizes: dict[int, list[int]] = {}

    async def all_of(self, number: int, connection: FrameSocket, count: int) -> None:
        sizes = self.sizes.setdefault(number, [])
        while len(sizes) < count:
            for frame in await connection.receive():
                assert {frame[0], frame[len(frame) // 2], frame[-1]} == {number}
                sizes.append(len(frame))
                await trio.sleep(0.001)
                del frame


class Live:
    """The memory of the buffers of all readers, by their own count."""

    def __init__(self) -> None:
        self.bytes = 0
        self.peak_bytes = 0

    def add(self, more_bytes: int) -> None:
        self.bytes += more_bytes
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def counting(self) -> type[Buffer]:
        live = self

        class Counted(Buffer):
            def __setattr__(self, name: str, value: int) -> None:
                live.add(value - getattr(self, name))
                super().__setattr__(name, value)

            def __del__(self) -> None:
                live.add(-self.usable_bytes)

        return Counted


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    live = Live()
    monkeypatch.setattr(frames, "Buffer", live.counting())
    return live


async def read_all(budget: Budget, *answers: Sequence[int]) -> None:
    read = Read()
    with trio.fail_after(30):
        async with connections(budget, *answers) as opened, trio.open_nursery() as nursery:
            for number, connection in enumerate(opened):
                nursery.start_soon(read.all_of, number, connection, len(answers[number]))
    assert [read.sizes[number] for number in range(len(answers))] == [list(sizes) for sizes in answers]
    assert (budget.claimed_bytes, budget.waiting) == (0, 0)


async def test_eight_connections_share_memory_that_suffices_for_three(budget: Budget, live: Live) -> None:
    sizes = [5 * MIB, 3 * MIB + 1, 70_000, 5 * MIB, RESERVE_BYTES, 4 * MIB]

    await read_all(budget, *[sizes[number % 3 :] + sizes[: number % 3] for number in range(8)])

    assert 8 * MIB < live.peak_bytes <= LIMIT + 5 * MIB + 8 * RESERVE_BYTES


async def test_connections_with_frames_larger_than_the_budget_take_turns(budget: Budget, live: Live) -> None:
    large = [LIMIT + MIB, MIB, LIMIT + MIB]

    await read_all(budget, large, large, [2 * MIB] * 4)

    assert LIMIT + MIB <= live.peak_bytes <= LIMIT + LIMIT + MIB + 8 * RESERVE_BYTES


async def test_connection_that_waits_for_memory_has_read_only_what_needs_no_claim(
    budget: Budget,
) -> None:
    views = await take(budget, LIMIT)
    async with connections(budget, [MIB]) as (connection,), trio.open_nursery() as nursery:
        nursery.start_soon(receive_one, connection)
        with trio.fail_after(5):
            while not budget.waiting:
                await trio.sleep(0.001)

        assert budget.claimed_bytes == LIMIT
        assert connection._frames._filled == RESERVE_BYTES
        views.clear()


async def test_a_connection_takes_small_frames_while_all_is_used_up(budget: Budget) -> None:
    views = await take(budget, LIMIT)
    async with connections(budget, [RESERVE_BYTES]) as (connection,):
        with trio.fail_after(5):
            assert len(await receive_one(connection)) == RESERVE_BYTES
    views.clear()


async def test_memory_reserved_for_next_frame_is_claimed_until_another_claim_needs_it(budget: Budget) -> None:
    holders = Holders(budget)
    await holders.hold("held", 6 * MIB, 0.0)
    async with connections(budget, [9 * MIB]) as (connection,):
        await receive_one(connection)
        assert budget.claimed_bytes == 15 * MIB

        await take(budget, 9 * MIB)

        assert holders.asked == []
        assert budget.claimed_bytes == 6 * MIB


async def test_nothing_is_kept_for_the_next_frame_beyond_the_budget(budget: Budget) -> None:
    async with connections(budget, [LIMIT + 1]) as (connection,):
        await receive_one(connection)

        assert budget.claimed_bytes == 0


async def test_the_same_claim_serves_for_frame_after_frame(budget: Budget) -> None:
    async with connections(budget, [6 * MIB, 5 * MIB, 6 * MIB]) as (connection,):
        for _ in range(3):
            await receive_one(connection)
            assert budget.claimed_bytes == 6 * MIB


async def test_a_connection_that_is_closed_keeps_nothing(budget: Budget) -> None:
    async with connections(budget, [MIB]) as (connection,):
        await receive_one(connection)
        connection.close()

        assert budget.claimed_bytes == 0


@pytest.mark.parametrize("size_bytes", [20_000, MIB])
async def test_each_large_frame_is_reported_also_if_its_buffer_is_kept(budget: Budget, size_bytes: int) -> None:
    reported: list[int] = []
    async with connections(budget, [size_bytes] * 5) as (connection,):
        connection.on_large_frame = lambda: reported.append(connection.received_frames)
        for _ in range(5):
            await receive_one(connection)

    assert reported == [0, 1, 2, 3, 4]


async def test_a_large_frame_that_dribbles_in_is_not_woken_up_for_with_each_drop(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, drops = with_size(bytes(400_000)), 20
    looks = 0
    space = frames.FrameReader.get_space

    def counted(self: frames.FrameReader) -> memoryview:
        nonlocal looks
        looks += 1
        return space(self)

    async def dribble(stream: trio.SocketStream) -> None:
        for at in range(0, len(frame), len(frame) // drops):
            await stream.send_all(frame[at : at + len(frame) // drops])
            await trio.sleep(0.01)
        await stream.send_all(with_size(b"small"))
        await stream.receive_some(1)

    monkeypatch.setattr(frames.FrameReader, "get_space", counted)
    with trio.fail_after(10):
        await dribbled(budget, dribble)

    assert looks < drops


async def dribbled(budget: Budget, dribble: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    """Receive a large frame and a small one."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, dribble, 0)
        address = Address("127.0.0.1", listeners[0].socket.getsockname()[1])
        with await connect(address, connect_timeout_s=5, budget=budget) as connection:
            assert len(await receive_one(connection)) == 400_000
            assert bytes(await receive_one(connection)) == b"small"
        nursery.cancel_scope.cancel()


async def test_size_field_of_two_gib_takes_no_memory(budget: Budget) -> None:
    async def send(stream: trio.SocketStream) -> None:
        await stream.send_all((2**31 - 1).to_bytes(4) + bytes(100_000))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, send, 0)
        address = Address("127.0.0.1", listeners[0].socket.getsockname()[1])
        before_mib = resident_mib(os.getpid())
        with await connect(address, connect_timeout_s=5, budget=budget) as connection:
            with trio.move_on_after(0.5):
                await connection.receive()

            assert RESERVE_BYTES < connection._frames._filled <= 100_000  # the low-water mark holds back the rest
            assert resident_mib(os.getpid()) < before_mib + 20
            assert budget.claimed_bytes == 4 * RESERVE_BYTES
        nursery.cancel_scope.cancel()
