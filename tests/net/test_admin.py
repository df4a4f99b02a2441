"""The responses of the admin server, and the clients that may see them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.cluster import embedded_cluster
from proxy.net.io.http import HttpRequest
from proxy.net.observability.admin import AdminServer
from proxy.net.observability.probes import PROBES
from proxy.telemetry.instruments import INSTRUMENTS
from tests.net.administered import administered, answer_to, body_of, said, state_of
from tests.net.proxied import Proxied, ask, running

WITH_HOST = b"GET /api/v1/state HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def reading(it: Proxied, times: int = 3) -> AsyncIterator[None]:
    """Read all records as an old client, fetch again, and stay."""
    async with it.client(1) as client:
        for _ in range(times):
            await client.call("fetch", 4, ask({0: 0, 1: 0, 2: 0}))
        yield


async def reads(it: Proxied, times: int = 3) -> None:
    """Do the same, but leave."""
    async with reading(it, times):
        pass


async def test_numbers_of_the_api_and_of_the_metrics_are_those_of_the_records() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        cluster.create_topic("t", 3, assignment=[[1]] * 3)
        cluster.append("t", 0, [b"x" * 1000])
        async with reading(it):
            state = await state_of(it)
            metrics = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(await body_of(it, "/metrics"))
                for sample in family.samples
            }
            fetches = it.fetches

    assert fetches
    assert state["clients"][0]["software"] == "speaks as Kafka 0.11"
    assert state["total"]["broker_fetches"] == len(fetches)
    assert state["total"]["record_bytes"] == sum(each.record_bytes for each in fetches) > 1000
    assert state["brokers"][0]["fetches"] == len(fetches)
    assert metrics["sidefetch_broker_fetch_io_bytes_total", "request"] == sum(
        each.request_bytes for each in fetches
    )
    by_rack = [
        value for (name, *_), value in metrics.items() if name == "sidefetch_broker_fetch_records_io_bytes_total"
    ]
    assert sum(by_rack) == state["total"]["record_bytes"]


async def test_metrics_endpoint_exposes_every_instrument_under_its_name() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        await reads(it)
        _, head, text = await answer_to(it, "/metrics")

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert "Content-Type: text/plain; version=" in head
    for each in INSTRUMENTS:
        family = families[each.prometheus.removesuffix("_total")]
        assert (family.type, family.documentation) == (each.kind, each.meaning)
        assert all(set(sample.labels) == set(each.attributes) for sample in family.samples)
    assert "process_resident_memory_bytes" in families
    delays = [
        each for each in families["sidefetch_client_fetch_delay_seconds"].samples if each.name.endswith("_bucket")
    ]
    assert [each.labels["le"] for each in delays][-2:] == ["30.0", "+Inf"]
    assert delays[-1].value == 3


async def test_metrics_use_openmetrics_format_if_the_request_accepts_it() -> None:
    request = b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        answer = await said(it, request)

    assert b"Content-Type: application/openmetrics-text" in answer
    assert answer.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:9080", b"", b"10.0.0.1", b"localhost.evil.example"]
)
async def test_admin_requests_with_foreign_host_header_are_rejected(host: bytes) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        answers = [
            await said(it, (WITH_HOST % host).replace(b"/api/v1/state", path)) for path in (b"/", b"/api/v1/state")
        ]

    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 403 "] * 2


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:80", b"127.0.0.1:9080", b"127.1.2.3", b"[::1]:9080"])
async def test_admin_requests_with_loopback_host_header_are_accepted(host: bytes) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        answer = await said(it, WITH_HOST % host)

    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_remote_hosts_get_state_and_page_only_if_admin_is_open() -> None:
    async def codes(*, is_open: bool) -> list[int]:
        async with embedded_cluster(brokers=1) as cluster, administered(cluster, open=is_open) as it:
            telemetry = it.proxy.outputs.telemetry
            assert telemetry is not None
            asked = AdminServer(it.config.admin, it.proxy.probe_state, telemetry.snapshot, it.proxy.log)
            answers = [
                await asked._answer(HttpRequest("GET", path, "localhost", "", "10.0.0.9"))
                for path in (*PROBES, "/metrics", "/api/v1/state", "/")
            ]
        return [each.status for each in answers]

    assert await codes(is_open=False) == [200, 200, 200, 200, 403, 403]
    assert await codes(is_open=True) == [200] * 6


async def test_a_browser_may_do_nothing_with_the_page_but_run_it() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        _, head, html = await answer_to(it, "/")

    policy = re.search("Content-Security-Policy: (.*)\r", head)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "frame-ancestors 'none'" in policy[1]
    assert not re.findall(r'(?:src|href)="(?!#|data:|/)', html)
    assert not re.findall(r"style=|\son[a-z]+=|innerHTML|eval\(", html)


async def test_state_lists_problems_with_remedies() -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster, rack="nowhere") as it:
        async with await trio.open_tcp_stream("127.0.0.1", it.port_of(1)) as stream:
            await stream.send_all(b"\xff\xff\xff\xff")
            await stream.receive_some()
        state = await state_of(it)

    problems = {each["event"]: each for each in state["problems"]}
    assert set(problems) == {"client-protocol-error", "no-broker-in-rack"}
    assert all(each["remedy"] and each["times"] == 1 for each in problems.values())


async def test_telemetry_and_log_watch_are_disabled_without_admin_listener() -> None:
    async with embedded_cluster(brokers=1) as cluster, running(cluster) as it:
        assert it.proxy.outputs.telemetry is None
        assert it.proxy.log.watch is None
