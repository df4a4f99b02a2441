"""The HTTP server for operators of Sidefetch.

========================= ================================================== =============================
path                      response                                           permitted clients
========================= ================================================== =============================
/startupz /readyz /livez  probes: ``probes``                                 all that reach the port
/metrics                  all instruments in Prometheus' format              all that reach the port
/api/v1/state             ``proxy.telemetry.document``                       this host; all with
/                         a page that shows it                               ``--admin-open``
========================= ================================================== =============================

A request is from this host if its source address is a loopback address and its ``Host`` field names this host, too:
with DNS rebinding, a page of another site reaches the loopback address under the name of that site.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Final

import trio

from proxy.config import AdminConfig
from proxy.errors import ConfigError
from proxy.net.io.http import (
    HttpLimits,
    HttpRequest,
    HttpResponse,
    HttpServer,
    is_loopback,
    json_response,
    text_response,
)
from proxy.net.io.logs import Log
from proxy.net.observability.page import read_page
from proxy.net.observability.probes import PROBES, ProbeState, failure_reason
from proxy.telemetry.document import document
from proxy.telemetry.snapshot import MetricsSnapshot

__all__ = ["AdminServer"]

LIMITS: Final = HttpLimits(
    connections=16, head_bytes=8192, body_bytes=8192, handshake_s=5.0, request_s=5.0, idle_s=5.0
)
"""A kubelet opens three short connections; its requests have some 120 bytes."""
_PATHS: Final = (*PROBES, "/metrics", "/api/v1/state", "/")


class AdminServer:
    """The HTTP server of the admin port: probes, metrics, the state as JSON, and the status page."""

    def __init__(
        self,
        config: AdminConfig,
        state: Callable[[], ProbeState],
        snapshot: Callable[[], MetricsSnapshot],
        log: Log,
    ) -> None:
        """Create the server; *state* returns the values for probes, and *snapshot* those for all other paths."""
        self._config = config
        self._state = state
        self._snapshot = snapshot
        self._log = log

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on the configured address, which must not be None, and answer HTTP requests until cancelled.

        *task_status* is started once the port is open.

        Raises: ConfigError: the port cannot be listened on.
        """
        address = self._config.listen
        assert address is not None, "the caller starts the server only if it has an address"
        try:
            listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        except OSError as wrong:
            raise ConfigError(
                f"admin-listen: {address} cannot be listened on ({wrong}); accepted: a free port of this host"
            ) from wrong
        self._log.info("admin-listening", address=address, open=self._config.open)
        task_status.started()
        await HttpServer(self._answer, LIMITS, self._log).run(listeners)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.path not in _PATHS:
            return text_response(404, f"not found; the paths are {', '.join(_PATHS)}")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        if request.path in PROBES:
            failure = failure_reason(
                request.path, self._state(), requires_broker=self._config.ready_requires_broker
            )
            return text_response(503, failure) if failure else text_response(200, "yes")
        if request.path == "/metrics":
            return await self._answer_metrics(request)
        if not self._config.open and not (is_loopback(request.peer) and is_loopback(request.host)):
            return text_response(403, "only for this host, as localhost: forward the port, or see --admin-open")
        return (
            json_response(document(self._snapshot()))
            if request.path == "/api/v1/state"
            else await self._answer_page()
        )

    async def _answer_metrics(self, request: HttpRequest) -> HttpResponse:
        # Prometheus' text is written by a library that takes megabytes; it is imported at the first scrape.
        module = await trio.to_thread.run_sync(_import_exposition)
        body, content_type = module.encode_metrics(self._snapshot(), request.accept)
        return HttpResponse(200, body, content_type)

    async def _answer_page(self) -> HttpResponse:
        page = await trio.to_thread.run_sync(read_page)
        return HttpResponse(200, page.html, "text/html; charset=utf-8", page.headers)


def _import_exposition() -> ModuleType:
    from proxy.net.observability import exposition

    return exposition
