"""Exported spans of connections: by the SDK's exporters in memory, and over OTLP/HTTP."""

import io
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from proxy.convert.down import DownConversion
from proxy.convert.types import ConversionTarget
from proxy.demo.batches import DemoRecord, encode_batch
from proxy.demo.old import read_as_in_2015
from proxy.errors import ConfigError
from proxy.net.io.logs import Log
from proxy.net.observability.observers import ConnectionInfo, Observers, SharedCacheInfo
from proxy.net.observability.traces import Traces, exporter_of
from tests.net.proxied import ask, proxied
from tests.telemetry.collector import collector
from tests.telemetry.conversation import TOPOLOGY, conversion, exchange, fetch, reset

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = TRACEPARENT.replace(b"-b7", b"-c8")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)


@attrs.define
class Traced:
    """An observer and its exported spans."""

    traces: Traces
    memory: InMemorySpanExporter
    counts: Counter[str]
    log: io.StringIO

    async def spans(self) -> list[ReadableSpan]:
        await self.traces.close(5)
        return list(self.memory.get_finished_spans())


def tracing() -> Traced:
    memory, counts, stream = InMemorySpanExporter(), Counter[str](), io.StringIO()
    return Traced(Traces([memory], Log("text", "debug", stream), counts, rack="a"), memory, counts, stream)


def who(number: int = 1) -> ConnectionInfo:
    return ConnectionInfo(1, f"127.0.0.1:{40000 + number}", TOPOLOGY, number, "app")


def linked(span: ReadableSpan) -> list[bytes]:
    """Return the links that came from record headers."""
    return [f"00-{it.context.trace_id:032x}-{it.context.span_id:016x}-01".encode() for it in span.links]


def records(*headers: bytes | None) -> memoryview:
    return memoryview(encode_batch([DemoRecord(b"v", headers=(("traceparent", each),)) for each in headers]))


async def test_fetch_spans_of_two_clients_are_exported_below_their_own_poll_spans() -> None:
    it, now_s = tracing(), trio.current_time()
    for turn in range(50):
        at_s = now_s + turn
        for number in (1, 2):
            it.traces.observe(who(number), fetch(at_s, at_s + 0.1, epoch=turn, named=number))
        for number in (2, 1):
            it.traces.observe(who(number), exchange(at_s, at_s + 0.1, session_epoch=turn, named=number))

    spans = await it.spans()

    polls = {span.context.span_id: span for span in spans if span.name == "poll t"}
    fetches = [span for span in spans if span.name == "fetch t"]
    assert (len(polls), len(fetches), it.counts["spans"], it.counts["spans_exported"]) == (100, 100, 200, 200)
    assert len({span.context.trace_id for span in polls.values()}) == 100
    for span in fetches:
        assert span.parent is not None
        poll = polls[span.parent.span_id]
        assert span.context.trace_id == poll.context.trace_id
        for name in ("sidefetch.session.epoch", "sidefetch.partitions.named"):
            assert span.attributes[name] == poll.attributes[name]  # type: ignore[index]


async def test_fetch_of_a_shared_cache_is_a_trace_of_its_own_without_a_client() -> None:
    it, now_s = tracing(), trio.current_time()
    cache = SharedCacheInfo(topology=TOPOLOGY)
    it.traces.observe(cache, fetch(now_s, now_s + 0.1))
    it.traces.observe(who(), exchange(now_s, now_s + 0.1))
    it.traces.end_connection(cache)

    below, poll = sorted(await it.spans(), key=lambda span: span.name)

    assert (below.name, poll.name) == ("fetch t", "poll t")
    assert below.parent is None
    assert below.context.trace_id != poll.context.trace_id
    assert not {"messaging.client.id", "client.address", "sidefetch.connection"} & set(below.attributes or {})


async def test_spans_have_the_times_at_which_things_happened() -> None:
    it, now_s, wall_s = tracing(), trio.current_time(), time.time()
    it.traces.observe(who(), fetch(now_s - 20, now_s - 11))
    it.traces.observe(who(), exchange(now_s - 10, now_s - 8, errors=((1, 1),)))

    below, poll = await it.spans()

    for span, start_s, end_s in ((below, -20, -11), (poll, -10, -8)):
        assert span.start_time / 1e9 - wall_s == pytest.approx(start_s, abs=0.1)  # type: ignore[operator]
        assert span.end_time / 1e9 - wall_s == pytest.approx(end_s, abs=0.1)  # type: ignore[operator]
    assert (poll.kind, poll.status.status_code) == (SpanKind.CLIENT, StatusCode.ERROR)
    assert (below.kind, below.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)


async def test_records_are_linked_to_the_spans_that_they_were_produced_in() -> None:
    it, now_s = tracing(), trio.current_time()
    observers = Observers(it.traces)
    converted = DownConversion(records(None, OTHER), 1, ConversionTarget(1))
    observers.inspect_response(who(), [b"header", records(None, TRACEPARENT), converted])
    observers.inspect_response(who(), [records(OTHER)])
    for turn in range(3):
        it.traces.observe(who(), exchange(now_s + turn, now_s + turn + 1))

    first, second, third = await it.spans()

    assert [linked(span) for span in (first, second, third)] == [[TRACEPARENT, OTHER], [OTHER], []]
    assert all(link.context.is_remote for link in first.links)
    assert [dict(link.attributes or {}) for link in first.links] == [{"messaging.kafka.offset": 1}] * 2
    assert first.attributes["messaging.batch.message_count"] == 4  # type: ignore[index]


async def test_of_an_exchange_that_the_sampler_leaves_out_nothing_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.2")
    it, now_s = tracing(), trio.current_time()
    for turn in range(500):
        at_s = now_s + turn
        it.traces.observe(who(), fetch(at_s, at_s + 0.1, epoch=turn))
        it.traces.inspect_response(who(), [records(TRACEPARENT)])
        it.traces.observe(who(), exchange(at_s, at_s + 0.1, session_epoch=turn))

    spans = await it.spans()

    polls = [span for span in spans if span.name == "poll t"]
    assert 50 < len(polls) < 160
    assert len(spans) == 2 * len(polls)
    epochs = Counter(span.attributes["sidefetch.session.epoch"] for span in spans)  # type: ignore[index]
    assert set(epochs.values()) == {2}
    assert all(len(poll.links) == 1 for poll in polls)


async def test_connection_trace_id_is_set_only_for_sampled_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    it, now_s, asker = tracing(), trio.current_time(), who()
    reported = []
    for turn in range(50):
        it.traces.observe(asker, exchange(now_s + turn, now_s + turn + 0.1))
        reported.append(asker.trace_id)

    spans = await it.spans()

    assert [each for each in reported if each is not None] == [f"{span.context.trace_id:032x}" for span in spans]
    assert None in reported


async def test_pending_spans_of_disconnected_client_are_exported() -> None:
    it, now_s = tracing(), trio.current_time()
    it.traces.observe(who(), fetch(now_s - 2, now_s - 1))
    it.traces.observe(who(), conversion())
    it.traces.observe(who(), reset())
    it.traces.end_connection(who())
    it.traces.end_connection(who(2))

    spans = await it.spans()

    assert sorted(span.name for span in spans) == ["convert", "fetch t", "reset", "unclaimed"]
    assert it.traces.connections == 0


async def test_close_does_not_wait_for_stuck_collector_and_logs_dropped_spans() -> None:
    class Stuck(InMemorySpanExporter):
        def export(self, _: Any) -> Any:
            time.sleep(0.5)
            raise OSError("away")

    log, counts = io.StringIO(), Counter[str]()
    traces = Traces([Stuck()], Log("text", "info", log), counts)
    now_s = trio.current_time()
    traces.observe(who(), exchange(now_s, now_s))

    await traces.close(0.05)

    assert trio.current_time() - now_s < 0.4
    assert "spans-dropped-at-shutdown spans=1" in log.getvalue()
    await trio.sleep(0.6)
    assert counts["spans_not_exported"] == 1


@pytest.mark.parametrize(("name", "value"), [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_BSP_SCHEDULE_DELAY", "-1")])
async def test_variables_of_the_sdk_that_are_wrong_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match="OTEL_BSP"):
        tracing()


@contextmanager
def exporting(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[Any]:
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.endpoint)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield collected


async def test_collector_receives_poll_and_fetch_spans_of_a_client_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "OTEL_SERVICE_NAME": "orders",
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=orders-1,service.instance.id=me",
    }
    with exporting(monkeypatch, **said) as collected:
        async with proxied() as it:
            it.cluster.append("t", 0, [DemoRecord(b"one", headers=(("traceparent", TRACEPARENT),)), b"two"])
            async with it.client(1) as client:
                await client.call("fetch", 11, ask({0: 0}, max_wait=0))

    assert collected.resources[0]["service.name"] == "orders"
    assert collected.resources[0]["service.instance.id"] == "me"
    assert collected.resources[0]["k8s.pod.name"] == "orders-1"
    (poll,) = collected.named("poll t")
    (below,) = collected.below(poll)
    assert (below.name, below.trace_id) == ("fetch t", poll.trace_id)
    assert poll.start_us <= below.start_us <= below.end_us <= poll.end_us
    assert poll.attributes["messaging.batch.message_count"] == 2
    assert poll.attributes["sidefetch.fetch.version"] == 11
    assert poll.attributes["sidefetch.records.source_bytes"] == below.attributes["sidefetch.records.bytes"] > 0
    assert poll.attributes["server.port"] == below.attributes["server.port"] == it.cluster.state.addresses[1][1]
    assert [f"00-{trace}-{span}-01".encode() for trace, span in poll.links] == [TRACEPARENT]
    assert it.proxy.counts["spans_exported"] == it.proxy.counts["spans"] == 2


async def test_missing_grpc_exporter_is_reported_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)

    with pytest.raises(ConfigError, match=r"pip install 'sidefetch\[grpc\]'.*http/protobuf"):
        exporter_of("otlp-grpc")


def test_opentelemetry_sdk_is_not_imported_without_exporters() -> None:
    program = (
        "import io, sys\n"
        "from proxy.config import Address, Config, UpstreamConfig\n"
        "from proxy.net.app import Proxy\n"
        "from proxy.net.io.logs import Log\n"
        "config = Config(UpstreamConfig((Address('kafka', 9092),)))\n"
        "Proxy(config, Log('text', 'info', sys.stderr))\n"
        "print(*(name for name in sys.modules if name.startswith(('opentelemetry', 'google', 'requests'))))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}

    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


async def test_a_client_that_gets_no_headers_is_linked_to_producers_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with exporting(monkeypatch) as collected:
        async with proxied() as it:
            for partition in range(3):
                header = ("traceparent", TRACEPARENT.replace(b"b7", f"b{partition}".encode(), 1))
                it.cluster.append("t", partition, [DemoRecord(b"v" * 100, headers=(header,))] * 50)
            heard = await read_as_in_2015(it.bootstrap, "t", range(3), 150)

    assert heard.messages == 150
    converted = [poll for poll in collected.named("poll t") if "sidefetch.converted.records" in poll.attributes]
    assert sum(poll.attributes["sidefetch.converted.records"] for poll in converted) == 150
    assert {poll.attributes["sidefetch.converted.to_magic"] for poll in converted} == {0}
    assert len({link for poll in converted for link in poll.links}) == 3
    below = [span for poll in converted for span in collected.below(poll) if span.name == "convert"]
    assert sum(span.attributes["sidefetch.converted.records"] for span in below) == 150


async def test_a_fetch_that_waited_at_the_broker_is_below_the_poll_that_got_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with exporting(monkeypatch) as collected:
        async with proxied() as it, it.client(1) as client:
            for _ in range(3):
                await client.call("fetch", 11, ask({0: 0}, max_wait=20))
            it.cluster.append("t", 0, [b"late"])
            with trio.fail_after(5):
                while not any(fetch.record_bytes for fetch in it.fetches):
                    await trio.sleep(0.01)
            await client.call("fetch", 11, ask({0: 0}, max_wait=1000))

    *before, last = sorted(
        (span for span in collected.spans if span.name.startswith("poll")), key=lambda span: span.start_us
    )
    assert not collected.below(before[-1])
    (read,) = [span for span in collected.below(last) if span.name == "fetch t"]
    assert read.attributes["sidefetch.ahead"] is True
    assert read.start_us < before[-1].end_us < read.end_us < last.start_us
    assert last.attributes["sidefetch.records.held_bytes"] == read.attributes["sidefetch.records.bytes"] > 0
    assert last.attributes["sidefetch.waited.node"] == 1


async def test_session_refused_by_broker_is_exported_as_reset_span_below_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with exporting(monkeypatch) as collected:
        async with proxied(slots=0, upstream_max_wait_s=0.05) as it, it.client(1) as client:
            for _ in range(8):
                await client.call("fetch", 11, ask({0: 0}, max_wait=60))

    resets = collected.named("reset")
    assert resets
    assert {span.attributes["sidefetch.session.event"] for span in resets} == {"refused"}
    assert all(span.is_error and span.message == "the broker has granted none" for span in resets)
    polls = {span.span_id: span for span in collected.spans if span.name.startswith("poll")}
    assert all(polls[span.parent_id].attributes["sidefetch.session.resets"] >= 1 for span in resets)
