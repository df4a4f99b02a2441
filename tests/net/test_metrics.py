"""Metrics as a Collector gets them, and as a real Prometheus does."""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from proxy.demo.cluster import embedded_cluster
from proxy.telemetry.durations import BOUNDS_S
from proxy.telemetry.instruments import DELAY, INSTRUMENTS
from tests.net.administered import administered, body_of, port_of
from tests.net.consumers import consume
from tests.net.proxied import ask, running
from tests.ports import free_port_range
from tests.prerequisites import require


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """Receive metrics over OTLP/HTTP; yield its address and the metrics."""
    got: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """It has nothing to say."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_metrics_arrive_at_a_collector_with_the_numbers_of_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver() as (endpoint, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{endpoint}/v1/metrics")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=p")
        async with embedded_cluster(brokers=1) as cluster:
            cluster.create_topic("t", 3, assignment=[[1]] * 3)
            cluster.append("t", 0, [b"x" * 1000])
            async with running(cluster) as it, it.client(1) as client:
                for _ in range(3):
                    await client.call("fetch", 4, ask({0: 0, 1: 0, 2: 0}))

    (last,) = got  # at its end, since the interval is an hour
    (group,) = last.resource_metrics
    metrics = {each.name: each for scope in group.scope_metrics for each in scope.metrics}
    about = {each.key: each.value.string_value for each in group.resource.attributes}
    sent = sum(point.as_int for point in metrics["sidefetch.broker.fetch.io"].sum.data_points)
    assert sent == sum(each.request_bytes + each.response_bytes for each in it.fetches) > 1000
    assert metrics["sidefetch.client.fetches"].sum.data_points[0].as_int == 3
    assert metrics["sidefetch.client.fetches"].sum.is_monotonic
    assert metrics["sidefetch.memory.limit"].HasField("gauge")
    (delays,) = metrics["sidefetch.client.fetch.delay"].histogram.data_points
    assert (delays.count, list(delays.explicit_bounds)) == (3, list(BOUNDS_S))
    assert 0 < delays.sum < 5
    assert {each.name: (each.unit, each.meaning) for each in (*INSTRUMENTS, DELAY) if each.name in metrics} == {
        name: (each.unit, each.description) for name, each in metrics.items()
    }
    assert (about["service.name"], about["k8s.pod.name"]) == ("sidefetch", "p")


async def test_unreachable_collector_does_not_delay_fetches_or_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port_range(1)}")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setattr("proxy.net.observability.metrics._LAST_S", 0.2)
    async with embedded_cluster(brokers=1) as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        began_s = trio.current_time()
        async with running(cluster) as it, it.client(1) as client:
            await client.call("fetch", 4, ask({0: 0}))

    assert trio.current_time() - began_s < 5


@pytest.mark.telemetry
async def test_promtool_reports_no_problems_in_sidefetch_metrics() -> None:
    require("prometheus")
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        text = await body_of(it, "/metrics")
    checked = await trio.run_process(
        ["promtool", "check", "metrics"], stdin=text.encode(), capture_stdout=True, capture_stderr=True, check=False
    )

    reported = [line for line in (checked.stdout + checked.stderr).decode().splitlines() if "sidefetch" in line]
    assert reported == []


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[str]:
    """A real one that reads *target* each second: its address."""
    binary = shutil.which("prometheus")
    assert binary is not None
    address = f"127.0.0.1:{free_port_range(1)}"
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "sidefetch", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.run_process, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        try:
            yield f"http://{address}"
        finally:
            nursery.cancel_scope.cancel()


async def queried(base: str, query: str) -> float | None:
    """The value, None where there is none yet."""

    def ask() -> Any:
        with urlopen(f"{base}/api/v1/query?query={quote(query)}", timeout=5) as answer:
            return json.load(answer)

    try:
        result = (await trio.to_thread.run_sync(ask))["data"]["result"]
    except OSError:
        return None
    return float(result[0]["value"][1]) if result else None


@pytest.mark.telemetry
async def test_a_real_prometheus_reads_it_and_sees_it_grow(tmp_path: Path) -> None:
    require("prometheus")
    query = "sum(sidefetch_broker_fetch_records_io_bytes_total)"
    async with embedded_cluster(brokers=1) as cluster, administered(cluster, rack="a") as it:
        cluster.create_topic("t", 1, assignment=[[1]])
        cluster.append("t", 0, [b"x" * 1000])
        async with prometheus(tmp_path, f"127.0.0.1:{port_of(it)}") as base, trio.open_nursery() as nursery:
            nursery.start_soon(consume, it, "reader", 1, [0])
            with trio.fail_after(40):
                while not (first := await queried(base, query)):
                    await trio.sleep(0.2)
                cluster.append("t", 0, [b"y" * 3000])
                while (await queried(base, query) or 0) <= first:
                    await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
            with trio.fail_after(20):
                read = sum(each.record_bytes for each in it.fetches)
                while await queried(base, query) != read:
                    read = sum(each.record_bytes for each in it.fetches)
                    await trio.sleep(0.2)
