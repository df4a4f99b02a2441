"""HTTP/1.1 over TLS, as the API server speaks it to a webhook: connections that stay, requests with a body."""

import ssl
import traceback
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import h11
import trio

from proxy.net.io.logs import Log

__all__ = ["HttpsRequest", "HttpsResponse", "HttpsServer"]

_MOST_AT_ONCE: Final = 256
"""Connections; the one used longest ago goes for one more. An API server has one for each pod under way."""
_MOST_BYTES: Final = 8 * 1024**2
"""Of a request: the API server takes 3 MiB of its own clients, and a review may hold an object twice."""
_MOST_HEAD_BYTES: Final = 16 * 1024
_HANDSHAKE_S: Final = 10.0
_REQUEST_S: Final = 10.0
"""From its first byte to the last of its answer: what the API server waits by default."""
_IDLE_S: Final = 120.0
"""Longer than the 90 s after which Go's clients drop a connection: it is not closed on one about to be used."""
_CLOSING_S: Final = 1.0


@attrs.frozen
class HttpsRequest:
    """Complete."""

    method: str
    path: str
    """Without what follows a question mark."""
    body: bytes


@attrs.frozen
class HttpsResponse:
    """To a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


@attrs.define(eq=False)
class HttpsServer:
    """Has *answer* answer all requests."""

    tls: Callable[[], ssl.SSLContext | None]
    """Is asked at each connection, since certificates change; there may be none yet."""
    answer: Callable[[HttpsRequest], HttpsResponse]
    log: Log
    _is_stopping: bool = attrs.field(default=False, init=False)
    _idle: dict[trio.CancelScope, None] = attrs.field(factory=dict, init=False)
    """Connections between two requests."""
    _open: dict[trio.CancelScope, None] = attrs.field(factory=dict, init=False)
    """All, the one first that was used longest ago."""

    async def run(self, listeners: Sequence[trio.SocketListener], stop: trio.Event, drain_s: float) -> None:
        """Serve until *stop*, and then for *drain_s* more; whoever comes then is told not to stay.

        The API server is told late that this is no endpoint of the service any more: until then it still comes.
        """
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(self._accept, listeners, connections)
                await stop.wait()
                self._is_stopping = True
                self._end(self._idle)
                await trio.sleep(drain_s)
                accepting.cancel_scope.cancel()
            self._end(self._idle)
            connections.cancel_scope.deadline = trio.current_time() + _REQUEST_S

    async def _accept(self, listeners: Sequence[trio.SocketListener], connections: trio.Nursery) -> None:
        await trio.serve_listeners(self._serve, list(listeners), handler_nursery=connections)

    @staticmethod
    def _end(scopes: dict[trio.CancelScope, None]) -> None:
        for scope in scopes:
            scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        context = self.tls()
        if context is None:
            await stream.aclose()
            return
        if len(self._open) >= _MOST_AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        with trio.CancelScope(deadline=trio.current_time() + _HANDSHAKE_S) as scope:
            self._open[scope] = None
            secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
            try:
                await secured.do_handshake()
                await self._converse(secured, scope)
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError) as broken:
                # An API server that does not believe the certificate says so, and asks no more.
                tell = self.log.warning if isinstance(broken.__cause__, ssl.SSLError) else self.log.debug
                tell("connection-lost", every_s=60, reason=broken.__cause__ or broken)
            except Exception:
                self.log.error("unhandled-exception", where="connection", traceback=traceback.format_exc())
            finally:
                self._open.pop(scope, None)
                self._idle.pop(scope, None)
                with trio.move_on_after(_CLOSING_S, shield=True):
                    await secured.aclose()

    async def _converse(self, stream: trio.SSLStream[trio.SocketStream], scope: trio.CancelScope) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD_BYTES)
        while True:
            request = await self._request(http, stream, scope)
            if request is None:
                return
            answer = request if isinstance(request, HttpsResponse) else self.answer(request)
            is_head = isinstance(request, HttpsRequest) and request.method == "HEAD"
            is_last = self._is_stopping or isinstance(request, HttpsResponse)
            await stream.send_all(_written(http, answer, is_head=is_head, is_last=is_last))
            if http.our_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _request(
        self, http: h11.Connection, stream: trio.SSLStream[trio.SocketStream], scope: trio.CancelScope
    ) -> HttpsRequest | HttpsResponse | None:
        """The next one; what to say where it is too large; None at the end."""
        self._rest(scope)
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                chunk = await stream.receive_some(64 * 1024)
                if scope in self._idle and chunk:
                    self._work(scope)
                http.receive_data(bytes(chunk))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MOST_BYTES:
                    return HttpsResponse(413, f"more than {_MOST_BYTES} bytes\n".encode())
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                path = head.target.decode("latin-1").partition("?")[0]
                return HttpsRequest(head.method.decode("ascii"), path, bytes(body))
            else:
                return None

    def _rest(self, scope: trio.CancelScope) -> None:
        """Nothing of a request has come yet."""
        scope.deadline = trio.current_time() + _IDLE_S
        self._idle[scope] = None

    def _work(self, scope: trio.CancelScope) -> None:
        scope.deadline = trio.current_time() + _REQUEST_S
        self._idle.pop(scope, None)
        if scope in self._open:
            del self._open[scope]
            self._open[scope] = None


def _written(http: h11.Connection, answer: HttpsResponse, *, is_head: bool, is_last: bool) -> bytes:
    """*is_head*: whether only the head of it is wanted."""
    headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
    if is_last:
        headers.append(("Connection", "close"))
    events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
    if not is_head:
        events.append(h11.Data(data=answer.body))
    events.append(h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)
