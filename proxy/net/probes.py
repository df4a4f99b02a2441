"""Answers probes as Kubernetes makes them, over HTTP/1.1, as little of it as they need.

======== ========================================================= ====================================
path     200 where                                                 503 where
======== ========================================================= ====================================
/startup clients can connect                                       not yet
/ready   clients can connect, and it has not been told to stop;    else
         with ``--ready-requires-broker``: and a broker answers
/live    always: the event loop has turned, or nobody had answered never; a loop that stands says nothing
======== ========================================================= ====================================

None of them asks Kafka, but for the gateway's: an outage of Kafka would take applications out of their services, or
restart them, which helps nobody.
"""

import re
from collections.abc import Callable
from typing import Final

import attrs
import trio

from proxy.config import HealthConfig
from proxy.errors import ConfigError
from proxy.net.logs import Log

__all__ = ["Probes", "State"]

_MOST_AT_ONCE: Final = 16
"""Connections; the oldest goes for one more. A kubelet has three, for a moment each."""
_MOST_HEAD_BYTES: Final = 8192
"""Of a request: what web servers take as a rule. A kubelet's has some 120."""
_TIMEOUT_S: Final = 5.0
"""For a request to come and its answer to go."""
_REQUEST: Final = re.compile(rb"([!-~]+) (/[!-~]*) HTTP/1\.[01]\r?\n")
_END: Final = re.compile(rb"\r?\n\r?\n")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@attrs.frozen
class State:
    """What probes ask for."""

    is_listening: bool
    is_stopping: bool
    reaches_broker: Callable[[], bool]
    """Asked only where it matters: it may have a broker asked."""


class Probes:
    """The port for probes, if there is to be one."""

    def __init__(self, config: HealthConfig, state: Callable[[], State], log: Log) -> None:
        self._config = config
        self._state = state
        self._log = log
        self._open: dict[trio.CancelScope, None] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer for ever.

        Raises: ConfigError: the port cannot be listened on.
        """
        address = self._config.listen
        if address is None:
            task_status.started()
            return
        try:
            listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        except OSError as wrong:
            raise ConfigError(
                f"health-listen: {address} cannot be listened on ({wrong}); accepted: a free port of this host"
            ) from wrong
        self._log.info("answering-probes", address=address)
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        """One connection, one answer."""
        if len(self._open) >= _MOST_AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        try:
            async with stream:
                with trio.move_on_after(_TIMEOUT_S) as scope:
                    self._open[scope] = None
                    await self._converse(stream)
        except trio.BrokenResourceError:
            pass  # it has gone: it asks again
        finally:
            self._open.pop(scope, None)

    async def _converse(self, stream: trio.SocketStream) -> None:
        head = bytearray()
        while _END.search(head) is None and len(head) <= _MOST_HEAD_BYTES:
            chunk = await stream.receive_some(_MOST_HEAD_BYTES)
            if not chunk:
                return
            head += chunk
        status, text = self._answer(head)
        await stream.send_all(_response(status, text, has_body=not head.startswith(b"HEAD ")))
        # To close with something unread would reset the connection, and the answer could be lost.
        await stream.send_eof()
        await stream.receive_some(_MOST_HEAD_BYTES)

    def _answer(self, head: bytearray) -> tuple[int, str]:
        end = _END.search(head)
        if end is None or end.start() > _MOST_HEAD_BYTES:
            return 431, f"more than {_MOST_HEAD_BYTES} bytes"
        request = _REQUEST.match(head)
        if request is None:
            return 400, "not HTTP/1.1"
        method, target = request[1], request[2].partition(b"?")[0].decode()
        if target not in ("/startup", "/ready", "/live"):
            return 404, "there are /startup, /ready and /live"
        if method not in (b"GET", b"HEAD"):
            return 405, "only GET and HEAD"
        why_not = self._why_not(target)
        return (503, why_not) if why_not else (200, "yes")

    def _why_not(self, target: str) -> str:
        state = self._state()
        if target == "/live":
            return ""
        if not state.is_listening:
            return "no: does not listen yet"
        if target == "/startup":
            return ""
        if state.is_stopping:
            return "no: is stopping"
        if self._config.ready_requires_broker and not state.reaches_broker():
            return "no: no broker answers"
        return ""


def _response(status: int, text: str, *, has_body: bool) -> bytes:
    body = f"{text}\n".encode()
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status == 405 else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (body if has_body else b"")
