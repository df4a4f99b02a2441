"""An HTTP/1.1 server on h11: for probes, Prometheus and the status page in plaintext, for the webhook over TLS.

Connections stay open between requests (RFC 9112, 9.3). Connections, bytes of a request and times have bounds. A
request that breaks a bound or the protocol gets a short response, and its connection is closed.
"""

import ipaddress
import json
import re
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import h11
import trio

from proxy.net.io.logs import Log

__all__ = [
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "is_loopback",
    "json_response",
    "text_response",
]

_RECEIVE_BYTES: Final = 64 * 1024
_CLOSING_S: Final = 1.0
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/@]+)(?::[0-9]{1,5})?")

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@attrs.frozen
class HttpRequest:
    """A complete HTTP request: method, path, Host and Accept fields, the client's IP address and the body."""

    method: str
    path: str
    """The path of the request target, without its query."""
    host: str
    """The host in the ``Host`` field, without the port; empty if the client sends none."""
    accept: str
    """The ``Accept`` field; empty if the client sends none."""
    peer: str
    """The IP address of the client."""
    body: bytes = b""


@attrs.frozen
class HttpResponse:
    """An HTTP response: status code, body, content type, and further header fields."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class HttpLimits:
    """The limits of one ``HttpServer``: connections, sizes of requests in bytes, and timeouts in seconds."""

    connections: int
    """The maximum number of open connections; a further one closes the connection that was used least recently."""
    head_bytes: int
    """The maximum size of the request line and the header fields; the response to a larger one is 431."""
    body_bytes: int
    """The maximum size of a request's body; the response to a larger one is 413."""
    handshake_s: float
    """The longest time of a TLS handshake."""
    request_s: float
    """The longest time from the first byte of a request to the last byte of its response."""
    idle_s: float
    """The longest time between two requests, and before the first one."""


def text_response(status: int, text: str) -> HttpResponse:
    """Return a response with the status code *status* whose body is *text* and a line break, as plain text."""
    return HttpResponse(status, f"{text}\n".encode())


def json_response(document: Any) -> HttpResponse:
    """Return a response with the status code 200 whose body is *document*, encoded as JSON without spaces."""
    return HttpResponse(200, json.dumps(document, separators=(",", ":")).encode(), "application/json")


def is_loopback(host: str) -> bool:
    """Return whether *host* is a loopback IP address, with or without brackets, or the name ``localhost``.

    No other name is accepted, even if it resolves to a loopback address: a website could use such a name to have
    browsers on this host send requests here (DNS rebinding).
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@attrs.define(eq=False)
class HttpServer:
    """An HTTP server that passes each complete request to ``answer``, and sends the response which that returns.

    Each connection is served in a task of its own. If there are too many, the one that was used least recently is
    closed. An error in ``answer`` is logged, and closes the connection.
    """

    answer: Callable[[HttpRequest], Awaitable[HttpResponse]]
    limits: HttpLimits
    log: Log
    tls: Callable[[], ssl.SSLContext | None] | None = None
    """Returns the TLS context for a new connection, since
    certificates change; if it returns None, the connection is closed. Without such a function, the server speaks
    plaintext."""
    _is_stopping: bool = attrs.field(default=False, init=False)
    _open: dict[trio.CancelScope, None] = attrs.field(factory=dict, init=False)
    """All connections, the least recently used first."""
    _idle: dict[trio.CancelScope, None] = attrs.field(factory=dict, init=False)
    """The connections that wait for a request."""

    async def run(self, listeners: Sequence[trio.SocketListener], connections: trio.Nursery | None = None) -> None:
        """Accept connections from *listeners* and serve them, until cancelled.

        The tasks of the connections run in the nursery *connections*; by default, in one that ends with this call.
        """
        await trio.serve_listeners(self._serve, list(listeners), handler_nursery=connections)

    async def run_until(self, stop: trio.Event, listeners: Sequence[trio.SocketListener], drain_s: float) -> None:
        """Serve until *stop* is set, then for *drain_s* seconds more, with ``Connection: close`` in every response.

        Idle connections are closed at once when *stop* is set. At the end, no further connections are accepted, and
        open requests are completed within ``limits.request_s``. Clients may connect after *stop*, since Kubernetes
        removes a stopping pod from the endpoints of its Service with a delay.
        """
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(self.run, listeners, connections)
                await stop.wait()
                self._is_stopping = True
                self._close_idle()
                await trio.sleep(drain_s)
                accepting.cancel_scope.cancel()
            self._close_idle()
            connections.cancel_scope.deadline = trio.current_time() + self.limits.request_s

    def _close_idle(self) -> None:
        for scope in self._idle:
            scope.cancel()

    async def _serve(self, socket: trio.SocketStream) -> None:
        stream = self._wrap_in_tls(socket)
        if stream is None:
            await socket.aclose()
            return
        if len(self._open) >= self.limits.connections:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        with trio.CancelScope(deadline=trio.current_time() + self.limits.handshake_s) as scope:
            self._open[scope] = None
            try:
                if isinstance(stream, trio.SSLStream):
                    await stream.do_handshake()
                await self._serve_requests(stream, scope, str(socket.socket.getpeername()[0]))
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as broken:
                # A client that rejects the certificate sends a TLS alert, and no request.
                write = self.log.warning if isinstance(broken.__cause__, ssl.SSLError) else self.log.debug
                write("connection-lost", every_s=60, reason=broken.__cause__ or broken)
            except Exception:
                self.log.error("unhandled-exception", every_s=60, where="http", traceback=traceback.format_exc())
            finally:
                self._open.pop(scope, None)
                self._idle.pop(scope, None)
                with trio.move_on_after(_CLOSING_S, shield=True):
                    await stream.aclose()

    def _wrap_in_tls(self, socket: trio.SocketStream) -> Stream | None:
        if self.tls is None:
            return socket
        context = self.tls()
        if context is None:
            return None
        return trio.SSLStream(socket, context, server_side=True, https_compatible=True)

    async def _serve_requests(self, stream: Stream, scope: trio.CancelScope, peer: str) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=self.limits.head_bytes)
        while True:
            request = await self._receive(http, stream, scope, peer)
            if request is None:
                return
            response = request if isinstance(request, HttpResponse) else await self.answer(request)
            is_head = isinstance(request, HttpRequest) and request.method == "HEAD"
            is_last = self._is_stopping or isinstance(request, HttpResponse)
            await stream.send_all(_encode(http, response, is_head=is_head, is_last=is_last))
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                await _send_eof(stream)
                return
            http.start_next_cycle()

    async def _receive(
        self, http: h11.Connection, stream: Stream, scope: trio.CancelScope, peer: str
    ) -> HttpRequest | HttpResponse | None:
        """Return the next request, the response to an invalid request, or None if the connection has ended."""
        self._set_idle(scope)
        head: h11.Request | None = None
        body = bytearray()
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    chunk = await stream.receive_some(_RECEIVE_BYTES)
                    if chunk:
                        self._set_busy(scope)
                    http.receive_data(bytes(chunk))
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > self.limits.body_bytes:
                        return text_response(413, f"the body has more than {self.limits.body_bytes} bytes")
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    return _parse_request(head, bytes(body), peer)
                else:
                    return None
        except h11.RemoteProtocolError as wrong:
            if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return None
            return text_response(wrong.error_status_hint, f"{wrong}")

    def _set_idle(self, scope: trio.CancelScope) -> None:
        scope.deadline = trio.current_time() + self.limits.idle_s
        self._idle[scope] = None

    def _set_busy(self, scope: trio.CancelScope) -> None:
        if scope not in self._idle:
            return
        del self._idle[scope]
        scope.deadline = trio.current_time() + self.limits.request_s
        if scope in self._open:
            del self._open[scope]
            self._open[scope] = None


def _parse_request(head: h11.Request, body: bytes, peer: str) -> HttpRequest | HttpResponse:
    fields = {bytes(name): value.decode("latin-1") for name, value in head.headers}
    given = fields.get(b"host", "")
    host = _HOST.fullmatch(given)
    path = head.target.decode("latin-1").partition("?")[0]
    if not path.startswith("/"):
        return text_response(400, "the request target must be a path")
    if host is None and given:
        return text_response(400, "the Host field must be HOST or HOST:PORT")
    return HttpRequest(
        head.method.decode("ascii"), path, host[1] if host else "", fields.get(b"accept", ""), peer, body
    )


def _encode(http: h11.Connection, response: HttpResponse, *, is_head: bool, is_last: bool) -> bytes:
    headers = [
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers.items(),
    ]
    if is_last:
        headers.append(("Connection", "close"))
    events: list[h11.Event] = [h11.Response(status_code=response.status, headers=headers)]
    if not is_head:
        events.append(h11.Data(data=response.body))
    events.append(h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


async def _send_eof(stream: Stream) -> None:
    """Send a FIN and wait for the client's FIN: a close with unread bytes resets the connection (RFC 9112, 9.6)."""
    if isinstance(stream, trio.SocketStream):
        await stream.send_eof()
        await stream.receive_some(_RECEIVE_BYTES)
