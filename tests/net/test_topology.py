"""The topology is refreshed when it must be, by one request at a time, and never as a storm."""

import trio

from proxy.demo.cluster import embedded_cluster
from tests.net.proxied import Proxied, ask, proxied, running


def refreshes(it: Proxied) -> int:
    return len(it.told("topology-refreshed"))


async def test_many_clients_that_miss_a_topic_at_once_cost_a_request_or_two() -> None:
    async with proxied() as it:
        before = refreshes(it)

        async def read() -> None:
            async with it.client(1) as client:
                for _ in range(5):
                    await client.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}))

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(read)
        assert 1 <= refreshes(it) - before <= 3


async def test_a_topic_that_is_not_there_is_looked_up_twice_a_second_at_most() -> None:
    async with proxied() as it, it.client(1) as client:
        before, started = refreshes(it), trio.current_time()
        while trio.current_time() < started + 1.2:
            response = await client.call("fetch", 11, ask({0: 0}, topic="nowhere"))
            assert [each.error_code for each in response.responses[0].partitions] == [3]
        assert 2 <= refreshes(it) - before <= 4


async def test_a_leader_that_moved_is_found_by_who_comes_to_it_first() -> None:
    async with proxied() as it, it.client(1) as at_one, it.client(2) as at_two:
        it.cluster.append("t", 0, [b"record"])
        assert (await at_one.call("fetch", 11, ask({0: 0}))).responses[0].partitions[0].records
        it.cluster.move_leader("t", 0, 2)
        await trio.sleep(0.6)
        response = await at_two.call("fetch", 11, ask({0: 0}))
        assert response.responses[0].partitions[0].records
        response = await at_one.call("fetch", 11, ask({0: 0}))
        assert [each.error_code for each in response.responses[0].partitions] == [6]


async def test_the_broker_that_was_asked_last_may_go() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[3]])
        async with running(cluster) as it:
            for node in (1, 2):
                cluster.stop(node)
                async with it.client(3) as client:
                    response = await client.call("fetch", 11, ask({0: 0}, topic=f"t{node}"))
                    assert [each.error_code for each in response.responses[0].partitions] == [3]
