"""Probes as a kubelet makes them."""

import pytest
import trio

from proxy.demo.cluster import embedded_cluster
from proxy.net.observability.probes import PROBES, ProbeState, failure_reason
from tests.net.administered import administered, status, statuses


async def test_an_outage_of_kafka_changes_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.net.upstream.topology._PROBE_S", 0.0)
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        with_kafka = await statuses(it)
        cluster.stop(1)
        for _ in range(20):
            assert await statuses(it) == with_kafka
            await trio.sleep(0.02)

    assert with_kafka == [200, 200, 200]


async def test_gateway_readiness_follows_availability_of_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.net.upstream.topology._PROBE_S", 0.05)
    async with embedded_cluster(brokers=1) as cluster, administered(cluster, ready_requires_broker=True) as it:

        async def until_ready_is(wanted: int) -> None:
            with trio.fail_after(10):
                while await status(it, "/readyz") != wanted:
                    await trio.sleep(0.02)

        await until_ready_is(200)
        cluster.stop(1)
        await until_ready_is(503)
        assert [await status(it, path) for path in ("/startupz", "/livez")] == [200, 200]
        await cluster.start(1)
        await until_ready_is(200)


async def test_gateway_readiness_probes_limit_metadata_requests() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster, ready_requires_broker=True) as it:
        for _ in range(30):
            await status(it, "/readyz")

    assert len(it.logged("metadata-refreshed")) <= 2


async def test_it_is_not_ready_from_the_moment_that_it_is_to_stop_and_lives_on() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it, it.client(1) as client:
        await client.call("metadata", 5, {})
        it.proxy.stop()
        stopping = await statuses(it)

    assert stopping == [200, 503, 200]


def test_only_liveness_probe_succeeds_before_listening() -> None:
    state = ProbeState(is_listening=False, is_stopping=False, reaches_broker=lambda: True)

    found = {path: not failure_reason(path, state, requires_broker=False) for path in PROBES}

    assert found == {"/startupz": False, "/readyz": False, "/livez": True}
