"""Spans through a real Collector that runs with the config of deploy/."""

import subprocess
from pathlib import Path

import pytest
import trio

from proxy.demo.batches import DemoRecord
from tests.net.proxied import ask, proxied
from tests.ports import free_ports
from tests.telemetry.collector import collector
from tests.telemetry.otelcol import CONFIG, program, running, started

pytestmark = pytest.mark.telemetry

_TURNS = 200


def test_the_config_in_deploy_is_one() -> None:
    done = subprocess.run(
        [str(program()), "validate", "--config", str(CONFIG)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_no_span_of_a_conversation_is_lost_on_its_way(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpc, http = free_ports(2)
    log = tmp_path / "otelcol.log"
    with collector() as backend:
        listens = {"OTLP_GRPC_ENDPOINT": f"127.0.0.1:{grpc}", "OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http}"}
        with running(program(), log, {**listens, "TRACES_ENDPOINT": backend.endpoint}):
            await started(log)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            port = grpc if protocol == "grpc" else http
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
            async with proxied() as it, it.client(1) as client:
                for turn in range(_TURNS):
                    header = ("traceparent", f"00-{turn + 1:032x}-{turn + 1:016x}-01".encode())
                    it.cluster.append("t", 0, [DemoRecord(b"value", headers=(header,))])
                    await client.call("fetch", 11, ask({0: turn}, max_wait=500))
            with trio.move_on_after(20):
                while len(backend.spans) < it.proxy.counts["spans"]:
                    await trio.sleep(0.05)

    assert len(backend.spans) == it.proxy.counts["spans"] == it.proxy.counts["spans_exported"]
    assert {resource["service.name"] for resource in backend.resources} == {"orders"}
    polls = sorted(backend.named("poll t"), key=lambda span: span.start_us)
    assert [int(span, 16) for poll in polls for _, span in poll.links] == list(range(1, _TURNS + 1))
    assert all(poll.attributes["messaging.batch.message_count"] == 1 for poll in polls)
    reads = [span for poll in polls for span in backend.below(poll) if span.name == "fetch t"]
    assert len(reads) == _TURNS
    delivered = sum(poll.attributes["sidefetch.records.delivered_bytes"] for poll in polls)
    assert delivered == sum(read.attributes["sidefetch.records.bytes"] for read in reads)
    assert {span.trace_id for span in backend.spans} == {
        poll.trace_id for poll in backend.spans if not poll.parent_id
    }
