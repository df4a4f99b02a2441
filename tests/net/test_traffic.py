"""The bytes read are logged during the run, and at its end."""

import io
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

from proxy.config import RoutingConfig
from proxy.demo.cluster import embedded_cluster
from proxy.net.io.logs import Log
from proxy.net.observability.traffic import log_traffic
from proxy.relay.traffic import Traffic
from tests.net.proxied import ask, configured, proxied, running


async def test_traffic_summary_is_logged_for_each_five_minutes_with_records(autojump_clock: MockClock) -> None:  # noqa: ARG001
    stream, traffic = io.StringIO(), Traffic()
    lines = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log_traffic, traffic, Log("text", "info", stream))
        await trio.sleep(1)
        for size in (10, 0, 5, 0, 0):
            traffic.add_records("t", "a", True, size)
            await trio.sleep(300)
            lines.append(stream.getvalue().count(" info traffic-summary "))
        nursery.cancel_scope.cancel()

    assert lines == [1, 1, 2, 2, 2]
    assert "record_bytes=15" in stream.getvalue()


async def test_traffic_totals_are_logged_at_shutdown() -> None:
    async with proxied() as it:
        it.proxy.traffic.add_records("t", "a", True, 10)
        it.proxy.stop()
        with trio.fail_after(5):
            while not it.logged("stopped"):
                await trio.sleep(0.01)

    assert "crossed_bytes=10" in it.logged("stopped")[0]


@pytest.mark.parametrize("is_rack_aware", [True, False], ids=["brokers choose", "brokers don't"])
@pytest.mark.parametrize("rack", ["b", "a", "nowhere", None])
@pytest.mark.parametrize("selector", ["broker", "rack-aware", "leader"])
async def test_sidefetch_and_the_brokers_agree_on_where_the_records_came_from(
    selector: Literal["broker", "rack-aware", "leader"], rack: str | None, is_rack_aware: bool
) -> None:
    async with embedded_cluster(is_rack_aware=is_rack_aware) as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), routing=RoutingConfig(replica_selector=selector))
        async with running(cluster, config, rack=rack) as it, it.client(1) as client:
            for offset in range(3):
                for partition in range(3):
                    cluster.append("t", partition, [b"record"])
                missing = set(range(3))
                with trio.fail_after(5):
                    while missing:
                        response = await client.call("fetch", 11, ask(dict.fromkeys(missing, offset)))
                        reported = [each for topic in response.responses for each in topic.partitions]
                        missing -= {each.partition_index for each in reported if each.records}
            counted = it.proxy.traffic

    by_rack = cluster.record_bytes
    assert {source.rack: size for source, size in counted.record_bytes.items()} == {
        name: size for name, size in by_rack.items() if size
    }
    closest = rack == "b" and (selector == "rack-aware" or (selector == "broker" and is_rack_aware))
    assert {name for name, size in by_rack.items() if size} == {"b" if closest else "a"}
    (crossed,) = {source.crossed for source in counted.record_bytes}
    assert crossed is (None if rack is None else not closest and rack != "a")
    share = counted.closest_share
    assert share is not None
    assert (share > 0) is closest
