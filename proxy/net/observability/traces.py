"""Traces: spans of client fetches, built after the response and exported by OpenTelemetry's SDK in its own thread.

An exchange is one client fetch and its response. The SDK's sampler decides once per exchange, before any span is
built; if it samples the exchange, all spans of it are exported. Records of other exchanges are dropped without
inspection.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from proxy.convert.down import DownConversion
from proxy.errors import ConfigError
from proxy.events import ExchangeRecord, Record
from proxy.net.io.logs import Log
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.observability.sdk import SdkLog, create_resource, import_otlp
from proxy.telemetry import attributes as semconv
from proxy.telemetry.exporting import Exporter
from proxy.telemetry.producers import Producer, Producers
from proxy.telemetry.spans import PendingSpans, Span, SpanSubject, shared_span
from proxy.wire.frames import Piece

__all__ = ["Traces", "exporter_of", "traces_of"]

_SCOPE: Final = "sidefetch"
_KINDS: Final = {"client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_ROOT: Final = Context()


def traces_of(kinds: Sequence[Exporter], log: Log, counts: Counter[str], rack: str | None) -> "Traces":
    """Create the ``Traces`` observer with one exporter of each of *kinds*, and log that tracing has started.

    Args:
        counts: gets the number of spans, see ``Traces``.
        rack:   the rack of this process; None if it is not known.

    Raises: ConfigError: a required package is not installed, or an ``OTEL_...`` variable has a wrong value.
    """
    traces = Traces([exporter_of(kind) for kind in kinds], log, counts, rack=rack)
    log.info("tracing-started", exporters=",".join(kinds))
    return traces


def exporter_of(kind: Exporter) -> SpanExporter:
    """Create a span exporter of *kind*; it takes its endpoint and other settings from ``OTEL_...`` variables.

    Raises: ConfigError: a required package is not installed.
    """
    if kind == "console":
        return ConsoleSpanExporter()
    exporter: SpanExporter = import_otlp(kind, "trace").OTLPSpanExporter()
    return exporter


@attrs.frozen
class _Trace:
    """The trace of one exchange, which may be sampled or not."""

    trace_id: int
    sampling: SamplingResult
    """The decision of the sampler."""
    producers: Producers = attrs.field(factory=Producers)
    """The producers of the delivered records."""

    @property
    def is_wanted(self) -> bool:
        return self.sampling.decision is Decision.RECORD_AND_SAMPLE


@attrs.frozen(eq=False)
class _TracedConnection:
    """The spans and traces of one client connection that are not exported yet."""

    pending: PendingSpans = attrs.field(factory=PendingSpans)
    """The records that become spans of the next exchange."""
    being_sent: deque[_Trace] = attrs.field(factory=deque)
    """The traces of exchanges whose responses are being sent."""


class Traces:
    """An observer that exports a trace for each client fetch that OpenTelemetry's sampler selects.

    At the end of a connection, it may export another one, ``unclaimed``, for reads that no fetch has used.
    """

    wants_exchanges: Final = True

    def __init__(
        self, exporters: Sequence[SpanExporter], log: Log, counts: Counter[str], *, rack: str | None = None
    ) -> None:
        """Create the observer; *counts* gets ``spans``, and of them ``spans_exported`` and ``spans_not_exported``.

        Raises: ConfigError: an environment variable of the SDK has a wrong value.
        """
        self._rack = rack or ""
        self._counts = counts
        self._log = log
        self._sdk_log = SdkLog(log)
        self._sdk_log.begin()
        self._clients: dict[int, _TracedConnection] = {}
        self._ids = _TraceIds()
        self._sampler = _EnvironmentSampler()
        provider = TracerProvider(self._sampler, create_resource(), shutdown_on_exit=False, id_generator=self._ids)
        try:
            provider.add_span_processor(BatchSpanProcessor(_CountingExporter(exporters, counts)))
        except ValueError as wrong:
            raise ConfigError(f"OTEL_BSP_...: {wrong}") from wrong
        self._provider = provider
        self._tracer = provider.get_tracer(_SCOPE)

    @property
    def connections(self) -> int:
        """The number of client connections whose records this observer keeps."""
        return len(self._clients)

    # ------------------------------------------------------------------------------------------------ records

    def observe(self, connection: ConnectionInfo, record: Record, /) -> None:
        if connection.connection_id is None:
            self._observe_shared(connection, record)
            return
        client = self._client(connection)
        if not isinstance(record, ExchangeRecord):
            client.pending.add(record, trio.current_time())
            return
        trace = client.being_sent.popleft() if client.being_sent else self._begin_trace()
        connection.trace_id = f"{trace.trace_id:032x}" if trace.is_wanted else None
        if trace.is_wanted:
            self._emit(trace, client.pending.make_span(record, self._subject_of(connection), trace.producers))
        else:
            client.pending.drop(record)

    def _observe_shared(self, connection: ConnectionInfo, record: Record) -> None:
        """Export a span of an upstream fetch or session that clients share as a trace of its own."""
        span = shared_span(record, trio.current_time(), self._subject_of(connection))
        if span is not None and (trace := self._begin_trace()).is_wanted:
            self._emit(trace, span)

    def inspect_response(self, connection: ConnectionInfo, pieces: Iterable[Piece], /) -> None:
        trace = self._begin_trace()
        self._client(connection).being_sent.append(trace)
        if not trace.is_wanted:
            return
        for piece in pieces:
            if isinstance(piece, memoryview):
                trace.producers.search(piece)
            elif isinstance(piece, DownConversion):
                trace.producers.search(piece.source, piece.offset)

    def end_connection(self, connection: ConnectionInfo, /) -> None:
        client = self._clients.pop(connection.number, None)
        if client is not None and client.pending and (trace := self._begin_trace()).is_wanted:
            self._emit(trace, client.pending.make_unclaimed_span(self._subject_of(connection), trio.current_time()))

    async def close(self, within_s: float) -> None:
        """Export all remaining spans and end the SDK, in at most *within_s* seconds.

        Spans that are left then are lost; a warning with their number is logged.
        """
        with trio.move_on_after(within_s, shield=True) as scope:
            await trio.to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)
        self._sdk_log.end()
        if scope.cancelled_caught:
            left = self._counts["spans"] - self._counts["spans_exported"] - self._counts["spans_not_exported"]
            self._log.warning("spans-dropped-at-shutdown", spans=left, waited_s=within_s)

    # ------------------------------------------------------------------------------------------------ spans

    def _client(self, connection: ConnectionInfo) -> _TracedConnection:
        client = self._clients.get(connection.number)
        if client is None:
            client = self._clients[connection.number] = _TracedConnection()
        return client

    def _subject_of(self, connection: ConnectionInfo) -> SpanSubject:
        return SpanSubject(
            connection.number, connection.peer, connection.client_id, connection.topology, self._rack
        )

    def _begin_trace(self) -> _Trace:
        trace_id = RandomIdGenerator.generate_trace_id(self._ids)
        return _Trace(trace_id, self._sampler.decide(trace_id))

    def _emit(self, trace: _Trace, span: Span) -> None:
        self._ids.next_trace_id, self._sampler.decided = trace.trace_id, trace.sampling
        self._export(span, _ROOT, time.time() - trio.current_time())

    def _export(self, span: Span, parent: Context, offset_s: float) -> None:
        at_ns = partial(_at_ns, offset_s)
        exported = self._tracer.start_span(
            span.name,
            parent,
            _KINDS[span.type.kind],
            links=[_link(producer) for producer in span.links],
            start_time=at_ns(span.start_s),
        )
        exported.set_attributes({attribute.name: value for attribute, value in span.attributes.items()})
        if span.error:
            exported.set_status(Status(StatusCode.ERROR, span.error))
        if span.children:
            context = set_span_in_context(exported, parent)
            for each in span.children:
                self._export(each, context, offset_s)
        self._counts["spans"] += 1
        exported.end(at_ns(span.end_s))


def _at_ns(offset_s: float, at_s: float) -> int:
    return round((offset_s + at_s) * 1e6) * 1000


def _link(producer: Producer) -> Link:
    context = SpanContext(
        producer.trace_id, producer.span_id, is_remote=True, trace_flags=TraceFlags(producer.flags)
    )
    return Link(context, {semconv.LINK_OFFSET.name: producer.offset})


class _TraceIds(RandomIdGenerator):
    """An id generator that returns ``next_trace_id``, the id for which the sampler has decided."""

    next_trace_id = 0

    def generate_trace_id(self) -> int:
        return self.next_trace_id


class _EnvironmentSampler(Sampler):
    """A sampler that calls the sampler of the ``OTEL_TRACES_SAMPLER`` variable once per trace."""

    def __init__(self) -> None:
        # Only a provider reads the environment's choice of a sampler.
        self._configured = TracerProvider(shutdown_on_exit=False).sampler
        self.decided = SamplingResult(Decision.DROP)

    def decide(self, trace_id: int) -> SamplingResult:
        """Return the decision of the environment's sampler for a new trace."""
        return self._configured.should_sample(_ROOT, trace_id, semconv.POLL.name, SpanKind.CLIENT)

    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        """Return ``decided``, the decision for the trace that is being exported, for each of its spans."""
        return self.decided

    def get_description(self) -> str:
        return self._configured.get_description()


class _CountingExporter(SpanExporter):
    """An exporter that passes spans to several exporters and counts exported ones; called in the SDK's thread."""

    def __init__(self, exporters: Sequence[SpanExporter], counts: Counter[str]) -> None:
        self._exporters = exporters
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        is_done = False
        try:
            results = [each.export(spans) for each in self._exporters]
            is_done = set(results) == {SpanExportResult.SUCCESS}
        finally:
            self._counts["spans_exported" if is_done else "spans_not_exported"] += len(spans)
        return SpanExportResult.SUCCESS if is_done else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        for each in self._exporters:
            each.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return all(each.force_flush(timeout_millis) for each in self._exporters)
