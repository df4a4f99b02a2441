"""The memory for the partitions that clients fetch, and the turns of large fetches."""

import io
from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.net.io.fetch_memory import FetchMemory
from proxy.net.io.logs import Log
from tests.net.budgets import MIB

LIMIT = 10 * MIB


class Client:
    """A holder of memory, which it frees if it is idle."""

    def __init__(self, *, is_idle: bool) -> None:
        self.is_idle = is_idle
        self.rests = 0
        self.ends = 0

    def rest(self) -> bool:
        self.rests += self.is_idle
        return self.is_idle

    def end_wait(self) -> None:
        self.ends += 1


def limited() -> tuple[FetchMemory, io.StringIO]:
    stream = io.StringIO()
    return FetchMemory(LIMIT, Log("text", "debug", stream)), stream


def test_small_fetches_are_not_counted() -> None:
    memory, _ = limited()
    client = Client(is_idle=True)

    memory.hold(client, 64 * 1024)
    assert memory.claimed_bytes == 0
    memory.hold(client, MIB)
    memory.hold(client, 3 * MIB)
    assert memory.claimed_bytes == 3 * MIB
    memory.hold(client, 1000)
    assert memory.claimed_bytes == 0
    assert not client.rests


def test_largest_idle_clients_free_their_memory_first() -> None:
    memory, log = limited()
    small, large, new = Client(is_idle=True), Client(is_idle=True), Client(is_idle=False)
    memory.hold(small, 2 * MIB)
    memory.hold(large, 6 * MIB)
    assert "fetch-memory-exhausted" not in log.getvalue()

    memory.hold(new, 3 * MIB)

    assert (small.rests, large.rests, new.ends) == (0, 1, 0)
    assert memory.claimed_bytes == 5 * MIB
    assert "fetch-memory-exhausted" in log.getvalue()


def test_largest_waiting_clients_end_their_wait_if_no_idle_one_suffices() -> None:
    memory, _ = limited()
    idle, small, large = Client(is_idle=True), Client(is_idle=False), Client(is_idle=False)
    memory.hold(idle, MIB)
    memory.hold(small, 4 * MIB)

    memory.hold(large, 8 * MIB)
    assert (idle.rests, small.ends, large.ends) == (1, 0, 1)
    memory.hold(large, 8 * MIB)
    assert large.ends == 1  # it is about to be done

    memory.release(large)
    memory.hold(large, 8 * MIB)
    assert large.ends == 2


async def test_large_fetches_begin_one_after_another_with_pauses(autojump_clock: MockClock) -> None:  # noqa: ARG001
    memory, _ = limited()
    times: list[tuple[float, float]] = []
    began_s = trio.current_time()

    async def fetch(takes_s: float) -> None:
        async with memory.turn():
            times.append((trio.current_time() - began_s, takes_s))
            await trio.sleep(takes_s)

    async with trio.open_nursery() as nursery:
        for takes_s in (0.1, 1.0, 0.1):
            nursery.start_soon(fetch, takes_s)
            await wait_all_tasks_blocked()

    assert [round(at_s, 3) for at_s, _ in times] == [0.0, 0.3, 1.8]
    assert [takes_s for _, takes_s in times] == [0.1, 1.0, 0.1]


async def test_a_turn_waits_for_memory_for_two_seconds(autojump_clock: MockClock) -> None:  # noqa: ARG001
    memory, _ = limited()
    holder = Client(is_idle=False)
    memory.hold(holder, LIMIT + 1)
    began_s = trio.current_time()
    async with memory.turn():
        assert round(trio.current_time() - began_s, 3) == 2.0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_release_after, 0.5, partial(memory.release, holder))
        began_s = trio.current_time()
        async with memory.turn():
            assert round(trio.current_time() - began_s, 3) == 0.5


async def _release_after(seconds: float, release: partial[None]) -> None:
    await trio.sleep(seconds)
    release()


def test_client_that_frees_its_memory_may_wake_others_that_hold_more() -> None:
    memory, _ = limited()
    other = Client(is_idle=False)

    class Waking(Client):
        def rest(self) -> bool:
            memory.hold(other, 9 * MIB)
            return super().rest()

    waking = Waking(is_idle=True)
    memory.hold(waking, 6 * MIB)
    memory.hold(other, 6 * MIB)

    assert waking.rests == 1
    assert memory.claimed_bytes == 9 * MIB
