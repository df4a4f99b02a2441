"""The port for whoever runs Sidefetch.

========================= ================================================== =============================
path                      what                                               who may ask
========================= ================================================== =============================
/startupz /readyz /livez  probes: ``probes``                                 whoever reaches the port
/metrics                  all instruments, as Prometheus reads them          the same
/api/v1/state             ``proxy.telemetry.document``                       this host; with
/                         a page that shows it                               ``--admin-open`` the same
========================= ================================================== =============================

This host is told by the address that a request comes from, and by the name that it gives to us: a page from
elsewhere whose name was made to mean this host (DNS rebinding) gives its own.
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
"""A kubelet has three connections, for a moment each; its requests have some 120 bytes."""
_PATHS: Final = (*PROBES, "/metrics", "/api/v1/state", "/")


class AdminServer:
    """The port, if there is to be one."""

    def __init__(
        self, config: AdminConfig, state: Callable[[], ProbeState], facts: Callable[[], MetricsSnapshot], log: Log
    ) -> None:
        self._config = config
        self._state = state
        self._facts = facts
        self._log = log

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer for ever.

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
            return text_response(404, f"there are {', '.join(_PATHS)}")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        if request.path in PROBES:
            no = failure_reason(request.path, self._state(), requires_broker=self._config.ready_requires_broker)
            return text_response(503, no) if no else text_response(200, "yes")
        if request.path == "/metrics":
            return await self._metrics(request)
        if not self._config.open and not (is_loopback(request.peer) and is_loopback(request.host)):
            return text_response(403, "only to this host, as localhost: forward the port, or see --admin-open")
        return json_response(document(self._facts())) if request.path == "/api/v1/state" else await self._page()

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        # What Prometheus reads is written by a library that takes megabytes; only who is asked needs it.
        module = await trio.to_thread.run_sync(_exposition)
        body, content_type = module.exposition(self._facts(), request.accept)
        return HttpResponse(200, body, content_type)

    async def _page(self) -> HttpResponse:
        page = await trio.to_thread.run_sync(read_page)
        return HttpResponse(200, page.html, "text/html; charset=utf-8", page.headers)


def _exposition() -> ModuleType:
    from proxy.net.observability import exposition

    return exposition
