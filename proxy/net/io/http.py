"""As much of HTTP/1.1 as probes, Prometheus and one page need: a request without a body, an answer, the end.

A connection is for one request. Whoever is slow, sends too much or something else is told so briefly, and closed.
"""

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

__all__ = [
    "HttpRequest",
    "HttpResponse",
    "is_loopback",
    "json_response",
    "read_request",
    "serve_http",
    "text_response",
]

_MOST_AT_ONCE: Final = 16
"""Connections; the oldest goes for one more. A kubelet has three, for a moment each."""
_MOST_HEAD_BYTES: Final = 8192
"""Of a request: what web servers take as a rule. A kubelet's has some 120."""
_TIMEOUT_S: Final = 5.0
"""For a request to come and its answer to go."""
_REQUEST: Final = re.compile(rb"([!-~]+) (/[!-~]*) HTTP/1\.[01]\r?\n")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n]*)\r?\n")
_END: Final = re.compile(rb"\r?\n\r?\n")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@attrs.frozen
class HttpRequest:
    """A GET or HEAD, or something else that is refused."""

    method: str
    path: str
    """Without what follows a question mark."""
    host: str
    """That the client says it talks to, without the port; empty where it does not say."""
    accept: str
    peer: str
    """The IP address that it comes from."""


@attrs.frozen
class HttpResponse:
    """To be followed by the end of the connection."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def written(self, *, has_body: bool) -> bytes:
        head = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join([*head, "", ""]).encode() + (self.body if has_body else b"")


def text_response(status: int, text: str) -> HttpResponse:
    """For people, and for those who look at the status only."""
    return HttpResponse(status, f"{text}\n".encode(), headers={"Allow": "GET, HEAD"} if status == 405 else {})


def json_response(document: Any) -> HttpResponse:
    """200, with a document."""
    return HttpResponse(200, json.dumps(document, separators=(",", ":")).encode(), "application/json")


def is_loopback(host: str) -> bool:
    """Whether that is this host, and no other could take its name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_request(head: bytes, peer: str) -> HttpRequest | HttpResponse:
    """What is asked for, or what to say where that is no request. *head* is what has come, up to too much."""
    end = _END.search(head)
    if end is None or end.start() > _MOST_HEAD_BYTES:
        return text_response(431, f"more than {_MOST_HEAD_BYTES} bytes")
    found = _REQUEST.match(head)
    if found is None:
        return text_response(400, "not HTTP/1.1")
    fields: dict[str, str] = {}
    at = found.end()
    while at < end.end() and (field := _FIELD.match(head, at)) is not None:
        name = field[1].decode().lower()
        if name == "host" and name in fields:
            break
        fields[name] = field[2].decode("latin-1").strip(" \t")
        at = field.end()
    if head[at : end.end()] not in (b"\r\n", b"\n"):
        return text_response(400, "no header field")
    host = _HOST.fullmatch(fields.get("host", ""))
    if host is None and fields.get("host"):
        return text_response(400, "no host")
    path = found[2].partition(b"?")[0].decode()
    return HttpRequest(found[1].decode(), path, host[1] if host else "", fields.get("accept", ""), peer)


async def serve_http(
    listeners: Sequence[trio.SocketListener], answer: Callable[[HttpRequest], Awaitable[HttpResponse]]
) -> None:
    """Answer for ever. *answer* is asked for GET and HEAD of any path."""
    await trio.serve_listeners(_Server(answer).serve, list(listeners))


class _Server:
    def __init__(self, answer: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self._answer = answer
        self._open: dict[trio.CancelScope, None] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one answer."""
        if len(self._open) >= _MOST_AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        with trio.CancelScope(deadline=trio.current_time() + _TIMEOUT_S) as scope:
            self._open[scope] = None
            try:
                async with stream:
                    await self._converse(stream)
            except (trio.BrokenResourceError, OSError):
                pass  # it has gone: it asks again
            finally:
                self._open.pop(scope, None)

    async def _converse(self, stream: trio.SocketStream) -> None:
        peer = str(stream.socket.getpeername()[0])
        head = bytearray()
        while _END.search(head) is None and len(head) <= _MOST_HEAD_BYTES:
            chunk = await stream.receive_some(_MOST_HEAD_BYTES)
            if not chunk:
                return
            head += chunk
        request = read_request(bytes(head), peer)
        said = request if isinstance(request, HttpResponse) else await self._answer(request)
        await stream.send_all(said.written(has_body=not head.startswith(b"HEAD ")))
        # To close with something unread would reset the connection, and the answer could be lost.
        await stream.send_eof()
        await stream.receive_some(_MOST_HEAD_BYTES)
