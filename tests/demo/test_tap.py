"""The tap's counts equal those of the brokers."""

from proxy.demo.client import connect
from proxy.demo.cluster import embedded_cluster
from proxy.demo.costs import FetchCost
from proxy.demo.processes import find_free_ports
from proxy.demo.tap import tap


async def test_tap_costs_equal_broker_counters() -> None:
    asks = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(3)]
    fetch = {"max_bytes": 5000, "session_epoch": -1, "topics": [{"topic": "t", "partitions": asks}]}
    async with embedded_cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=3)
        cluster.append("t", 1, [b"x" * 500])
        (_, port) = cluster.state.addresses[1]
        tapped = find_free_ports(1)
        async with tap({tapped: port}) as seen, connect(f"127.0.0.1:{tapped}") as connection:
            await connection.call("metadata", 12, {"topics": []})
            answers = [await connection.call("fetch", 11, fetch) for _ in range(2)]
        counted = cluster.counters

    assert len(answers[0].responses[0].partitions) == 3
    assert seen.cost == FetchCost(
        counted.fetches, counted.partitions_named, counted.fetch_request_bytes, counted.fetch_response_bytes
    )
    assert (seen.fetches, seen.named) == (2, 6)
    assert seen.record_bytes == {port: counted.record_bytes}
    assert counted.record_bytes == 2 * len(answers[0].responses[0].partitions[1].records) > 1000


async def test_a_broker_that_is_away_shows_as_a_closed_connection() -> None:
    tapped = find_free_ports(2)
    async with tap({tapped: tapped + 1}) as seen, connect(f"127.0.0.1:{tapped}") as connection:
        assert await connection.receive_frame() is None
    assert seen.cost == FetchCost()
