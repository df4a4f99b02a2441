"""The memory budget for brokers' responses: who waits for whom, and who never waits."""

import gc
from collections.abc import Sequence
from functools import partial

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.demo.old import read_as_in_2015
from proxy.net.io.memory import RESERVE_BYTES, Account, Budget
from proxy.wire.frames import Buffer
from tests.net.budgets import LIMIT, MIB, Holders, budgeted, take
from tests.net.proxied import ask, configured, running


@pytest.fixture
def budget() -> Budget:
    return budgeted().budget


@attrs.define
class Taker:
    """A claimant of memory in a task of its own."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    views: list[memoryview] | None = None

    async def run(self, budget: Budget, size_bytes: int, account: Account | None) -> None:
        with self.scope:
            self.views = await take(budget, size_bytes, account)


async def started(
    nursery: trio.Nursery, budget: Budget, *sizes_bytes: int, account: Account | None = None
) -> list[Taker]:
    """One taker a size, in that order, all as far as they come."""
    takers = []
    for size_bytes in sizes_bytes:
        takers.append(Taker())
        nursery.start_soon(takers[-1].run, budget, size_bytes, account)
        await wait_all_tasks_blocked()
    return takers


def served(takers: Sequence[Taker]) -> list[bool]:
    return [taker.views is not None for taker in takers]


# --------------------------------------------------------------------------------------------------- claims


async def test_a_claim_lasts_until_the_last_view_of_the_buffer_is_gone(budget: Budget) -> None:
    views = await take(budget, MIB)
    views.append(views[0][5:7].toreadonly())

    del views[0]
    assert budget.claimed_bytes == MIB
    views.clear()
    assert budget.claimed_bytes == 0


async def test_claim_waits_until_memory_is_released(budget: Budget) -> None:
    views = await take(budget, LIMIT)
    async with trio.open_nursery() as nursery:
        (waiter,) = await started(nursery, budget, MIB)
        assert (served([waiter]), budget.waiting) == ([False], 1)

        views.clear()

    assert served([waiter]) == [True]
    assert (budget.claimed_bytes, budget.waiting) == (MIB, 0)


async def test_waiting_claims_are_served_in_order(budget: Budget) -> None:
    first, second = await take(budget, 10 * MIB), await take(budget, 4 * MIB)
    async with trio.open_nursery() as nursery:
        takers = await started(nursery, budget, 12 * MIB, MIB)
        second.clear()
        await wait_all_tasks_blocked()
        assert served(takers) == [False, False]

        first.clear()

    assert served(takers) == [True, True]


async def test_connection_that_holds_least_is_served_first(budget: Budget) -> None:
    much, little = budget.open_account("a"), budget.open_account("a")
    held = await take(budget, 8 * MIB, much)
    kept = await take(budget, 6 * MIB, little)
    async with trio.open_nursery() as nursery:
        (late,) = await started(nursery, budget, 6 * MIB, account=much)
        (early,) = await started(nursery, budget, 6 * MIB, account=little)
        kept.clear()
        await wait_all_tasks_blocked()
        assert served([late, early]) == [False, True]

        held.clear()

    assert served([late]) == [True]


async def test_connections_of_a_host_share_what_is_due_to_it(budget: Budget) -> None:
    held = [await take(budget, 2 * MIB, budget.open_account("many")) for _ in range(7)]
    other = await take(budget, 2 * MIB, budget.open_account("few"))
    async with trio.open_nursery() as nursery:
        (late,) = await started(nursery, budget, 2 * MIB, account=budget.open_account("many"))
        (early,) = await started(nursery, budget, 2 * MIB, account=budget.open_account("few"))
        held.pop()
        await wait_all_tasks_blocked()
        assert served([late, early]) == [False, True]

        other.clear()

    assert served([late]) == [True]


@pytest.mark.usefixtures("autojump_clock")
async def test_who_holds_much_is_passed_for_ten_seconds_at_most(budget: Budget) -> None:
    account = budget.open_account("a")
    held = [await take(budget, 8 * MIB, account)]
    others = [await take(budget, 2 * MIB) for _ in range(4)]
    async with trio.open_nursery() as nursery:
        (passed,) = await started(nursery, budget, 2 * MIB, account=account)
        (other,) = await started(nursery, budget, 2 * MIB)
        others.pop()
        await wait_all_tasks_blocked()
        assert served([passed, other]) == [False, True]

        await trio.sleep(10)
        (last,) = await started(nursery, budget, 2 * MIB)
        others.pop()
        await wait_all_tasks_blocked()
        assert served([passed, last]) == [True, False]

        held.clear()

    assert served([last]) == [True]


async def test_small_frames_pass_while_all_is_used_up_and_others_wait(budget: Budget) -> None:
    views = await take(budget, LIMIT)
    async with trio.open_nursery() as nursery:
        takers = await started(nursery, budget, RESERVE_BYTES + 1, RESERVE_BYTES)
        assert served(takers) == [False, True]
        assert budget.claimed_bytes == LIMIT
        views.clear()


async def test_a_frame_larger_than_the_budget_passes_alone(budget: Budget) -> None:
    views = await take(budget, MIB)
    async with trio.open_nursery() as nursery:
        takers = await started(nursery, budget, LIMIT + 1, MIB)
        assert served(takers) == [False, False]

        views.clear()
        await wait_all_tasks_blocked()
        assert served(takers) == [True, False]

        takers[0].views = None

    assert served(takers[1:]) == [True]


async def test_cancelled_waiting_claim_unblocks_the_next_claim(budget: Budget) -> None:
    views = await take(budget, 10 * MIB)
    async with trio.open_nursery() as nursery:
        takers = await started(nursery, budget, 10 * MIB, MIB)

        takers[0].scope.cancel()

    assert served(takers) == [False, True]
    assert budget.claimed_bytes == 11 * MIB
    views.clear()
    assert budget.claimed_bytes == MIB


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_claim_cancelled_during_memory_release_keeps_nothing(budget: Budget, cancelled_first: bool) -> None:
    views = await take(budget, LIMIT)
    async with trio.open_nursery() as nursery:
        takers = await started(nursery, budget, LIMIT, LIMIT)
        if cancelled_first:
            takers[0].scope.cancel()
            views.clear()
        else:
            views.clear()
            takers[0].scope.cancel()
        with trio.fail_after(5):
            while takers[1].views is None:
                await trio.sleep(0.001)
                takers[0].views = None

    assert budget.claimed_bytes == LIMIT


async def test_claim_of_a_buffer_grows_and_ends_with_it(budget: Budget) -> None:
    buffer, account = Buffer(4 * MIB), Account()
    for size_bytes, claimed_bytes in (
        (RESERVE_BYTES, 0),
        (MIB, MIB),
        (MIB, MIB),
        (4 * MIB, 4 * MIB),
        (MIB, 4 * MIB),
    ):
        await budget.admit(buffer, size_bytes, account)
        assert budget.claimed_bytes == claimed_bytes

    del buffer
    assert budget.claimed_bytes == 0


async def test_first_of_frames_that_all_wait_for_the_rest_of_their_memory_gets_it(budget: Budget) -> None:
    done: list[int] = []

    async def receive(number: int) -> None:
        buffer, account = Buffer(LIMIT), Account()
        await budget.admit(buffer, LIMIT // 4, account)
        await wait_all_tasks_blocked()
        await budget.admit(buffer, LIMIT, account)
        assert budget.claimed_bytes <= LIMIT + 3 * LIMIT // 4
        done.append(number)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(receive, number)

    assert len(done) == 4
    assert budget.claimed_bytes == 0


async def test_frame_that_is_complete_is_waited_for_before_the_limit_is_exceeded(budget: Budget) -> None:
    views = await take(budget, MIB)
    buffer, account = Buffer(LIMIT), Account()
    await budget.admit(buffer, MIB, account)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.admit, buffer, LIMIT, account)
        await wait_all_tasks_blocked()
        assert (budget.waiting, budget.claimed_bytes) == (1, 2 * MIB)

        views.clear()

    assert budget.claimed_bytes == LIMIT


async def test_memory_released_in_another_thread_serves_waiting_claim(budget: Budget) -> None:
    views = await take(budget, LIMIT)
    async with trio.open_nursery() as nursery:
        (waiter,) = await started(nursery, budget, MIB)
        await trio.to_thread.run_sync(views.clear)

    assert served([waiter]) == [True]


async def test_memory_waits_are_logged_at_most_once_a_minute() -> None:
    it = budgeted()
    views = await take(it.budget, LIMIT)
    async with trio.open_nursery() as nursery:
        await started(nursery, it.budget, *[MIB] * 5)
        views.clear()

    (line,) = it.log.getvalue().splitlines()
    assert f"memory-exhausted wanted_bytes={MIB} claimed_bytes={LIMIT} waiting=1" in line


# --------------------------------------------------------------------------------------------- what is held


async def test_no_holder_is_requested_to_drop_while_memory_suffices(budget: Budget) -> None:
    holders = Holders(budget)
    await holders.hold("only", 8 * MIB, 1.0)

    await take(budget, 8 * MIB)

    assert holders.asked == []


async def test_oldest_holders_drop_first_and_no_more_than_needed(budget: Budget) -> None:
    holders = Holders(budget)
    for name, since_s in (("newest", 3.0), ("oldest", 1.0), ("newer", 2.0), ("new", 2.5)):
        await holders.hold(name, 4 * MIB, since_s)

    await take(budget, 6 * MIB)

    assert holders.asked == ["oldest", "newer"]


async def test_next_holder_is_requested_to_drop_after_the_previous_one_has_dropped(budget: Budget) -> None:
    holders = Holders(budget)
    for number, name in enumerate(("a", "b", "c")):
        await holders.hold(name, 5 * MIB, number, at_once=False)
    async with trio.open_nursery() as nursery:
        (waiter,) = await started(nursery, budget, 8 * MIB)
        assert holders.asked == ["a"]
        holders.drop("a")
        await wait_all_tasks_blocked()
        assert holders.asked == ["a", "b"]
        assert served([waiter]) == [False]

        holders.drop("b")

    assert served([waiter]) == [True]
    assert holders.asked == ["a", "b"]


async def test_a_thousand_that_hold_nothing_are_passed_over(budget: Budget) -> None:
    for number in range(1000):
        budget.register_holder(number, number, partial(budget.remove_holder, number))
    holders = Holders(budget)
    await holders.hold("all", LIMIT, 1000.0)

    await take(budget, LIMIT)

    assert holders.asked == ["all"]


async def test_released_holder_is_not_requested_to_drop(budget: Budget) -> None:
    holders = Holders(budget)
    await holders.hold("gone", 4 * MIB, 1.0)
    await holders.hold("here", 12 * MIB, 2.0)
    holders.drop("gone")

    await take(budget, 8 * MIB)

    assert holders.asked == ["here"]


async def test_holder_registered_during_a_memory_wait_is_requested_to_drop(budget: Budget) -> None:
    holders = Holders(budget)
    views = await take(budget, LIMIT)
    async with trio.open_nursery() as nursery:
        await started(nursery, budget, MIB)

        budget.register_holder("late", 1.0, lambda: holders.asked.append("late"))
        await wait_all_tasks_blocked()

        assert holders.asked == ["late"]
        views.clear()


# --------------------------------------------------------------------------------------- in the whole proxy


async def read(client: KafkaConnection, offset: int, size_bytes: int) -> int:
    """Return the number of record bytes."""
    said = ask({0: offset}, max_bytes=size_bytes)
    said["topics"][0]["partitions"][0]["partition_max_bytes"] = size_bytes
    response = await client.call("fetch", 11, said)
    return len(response.responses[0].partitions[0].records or b"")


async def test_clients_that_read_more_than_the_memory_are_served_and_long_polls_claim_none() -> None:
    clients, passes = 8, 2
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        for _ in range(10):
            cluster.append("t", 0, [bytes(MIB)])
        plain = configured(cluster.bootstrap)
        config = attrs.evolve(plain, upstream=attrs.evolve(plain.upstream, memory_bytes=LIMIT))
        async with running(cluster, config) as it:
            stay = trio.Event()
            done = 0

            async def one() -> None:
                nonlocal done
                async with it.client(1) as client:
                    for _ in range(passes):
                        assert await read(client, 0, 9 * MIB) > 7 * MIB
                    await client.send("fetch", 11, ask({0: 10}, max_wait=60_000))
                    done += 1
                    await stay.wait()

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    for _ in range(clients):
                        nursery.start_soon(one)
                    while done < clients:
                        await trio.sleep(0.01)
                    stay.set()
            assert it.logged("memory-exhausted")


async def test_memory_of_downconverted_records_is_released_after_client_disconnects() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        cluster.append("t", 0, [bytes(50_000)] * 10)
        async with running(cluster, configured(cluster.bootstrap)) as it:
            gc.disable()  # a connection's garbage is collected once a minute
            try:
                heard = await read_as_in_2015(it.bootstrap, "t", [0], 10)
                assert heard.messages == 10
                with trio.fail_after(5):
                    while it.proxy.services.budget.claimed_bytes:
                        await trio.sleep(0.01)
            finally:
                gc.enable()
