"""Takes spans over OTLP/HTTP, as a Collector does."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collected", "Received", "collector", "value_of"]


@attrs.frozen
class Received:
    """A span as it was exported."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_us: int
    end_us: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """Trace and span."""
    is_error: bool
    message: str


@attrs.define
class Collected:
    """The received data."""

    endpoint: str
    resources: list[dict[str, Any]] = attrs.field(factory=list)
    spans: list[Received] = attrs.field(factory=list)
    status: int = 200
    """That exports are answered with."""
    requests: int = 0

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            self.resources.append({each.key: value_of(each.value) for each in group.resource.attributes})
            self.spans += [_received(span) for scope in group.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def below(self, parent: Received) -> list[Received]:
        return [span for span in self.spans if span.parent_id == parent.span_id]


def value_of(value: Any) -> Any:
    """Return the value of an attribute, from protobuf."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(value_of(each) for each in value.array_value.values)
    return getattr(value, kind)


def _received(span: Any) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano // 1000,
        span.end_time_unix_nano // 1000,
        {each.key: value_of(each.value) for each in span.attributes},
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.status.code == 2,
        span.status.message,
    )


@contextmanager
def collector() -> Iterator[Collected]:
    """One on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collected.requests += 1
            if collected.status == 200 and self.path == "/v1/traces":
                collected.take(body)
            self.send_response(collected.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collected = Collected(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
