"""The admission webhook: the API server calls it over TLS for each pod that is to be created.

======================  ===========================================================================
``POST /inject``        takes and returns an AdmissionReview
``GET /healthz``        200; 503 after a stop signal, so that its Service sends it no more requests
``GET /metrics``        the number of pods by outcome, for Prometheus
======================  ===========================================================================

These counts are its only state, so that any number of replicas may run.
"""

import json
import signal
import ssl
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import attrs
import trio

from proxy.config import Address
from proxy.errors import ConfigError
from proxy.kube.annotations import Defaults
from proxy.kube.api import Api
from proxy.kube.certificates import from_folder
from proxy.kube.review import OUTCOMES, Verdict, verdict_on
from proxy.kube.rotation import Rotation
from proxy.net.io.http import HttpLimits, HttpRequest, HttpResponse, HttpServer
from proxy.net.io.logs import Log
from proxy.net.signals import stop_on

__all__ = ["SelfSigned", "Webhook", "WebhookConfig", "serve"]

LIMITS: Final = HttpLimits(
    connections=256,  # the API server uses one for each concurrent request
    head_bytes=16 * 1024,
    body_bytes=8 * 1024**2,  # the API server accepts 3 MiB from its clients, and a review may hold an object twice
    handshake_s=10.0,
    request_s=10.0,  # the API server's default timeout
    idle_s=120.0,  # longer than the 90 s after which Go's clients drop a connection
)
_FAILED: Final = "failed"
_LOG_EVERY_S: Final = 1.0
_QUICK_BYTES: Final = 128 * 1024
"""A review up to this size is decided within milliseconds."""


@attrs.frozen
class SelfSigned:
    """The settings for a generated certificate: its Secret, the configuration that trusts it, and its lifetime."""

    api: Api
    secret: str
    """The name of the Secret that stores it, in this pod's namespace."""
    configuration: str
    """The name of the MutatingWebhookConfiguration that gets its authority."""
    life_s: float


@attrs.frozen
class WebhookConfig:
    """The settings of the admission webhook: address, certificate and grace period, and the defaults for pods."""

    listen: Address
    defaults: Defaults
    certificate: Path | SelfSigned
    """The folder of the certificate, or the settings for a generated one."""
    grace_s: float
    """The time for which requests are still answered after a stop signal."""


@attrs.define(eq=False)
class Webhook:
    """The HTTPS server of the admission webhook, which answers AdmissionReviews and counts pods by outcome."""

    defaults: Defaults
    log: Log
    counts: Counter[str] = attrs.field(factory=lambda: Counter(dict.fromkeys([*OUTCOMES, _FAILED], 0)))
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _large: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)
    """Reviews of large pods are decided one after another, in a thread, so that others do not wait for them."""

    async def run(
        self, listeners: list[trio.SocketListener], tls: Callable[[], ssl.SSLContext | None], grace_s: float
    ) -> None:
        """Serve HTTPS until ``stop`` is called, and for *grace_s* seconds more; then log the counts.

        *tls* returns the TLS context for a new connection; while it returns None, new connections are closed.
        """
        await HttpServer(self.answer, LIMITS, self.log, tls).run_until(self._stop, listeners, grace_s)
        self.log.info("stopped", **{name.replace("-", "_"): count for name, count in self.counts.items()})

    def stop(self) -> None:
        """Make ``run`` end after its grace period; until then it answers requests, but ``/healthz`` with 503.

        The grace period is for API servers that still use this replica, until its Service is updated.
        """
        self._stop.set()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request for ``/inject`` (a review), ``/healthz``, ``/metrics``, or an error."""
        match request.path, request.method:
            case "/inject", "POST":
                return await self._review(request.body)
            case "/healthz", "GET":
                return HttpResponse(503, b"stopping\n") if self._stop.is_set() else HttpResponse(200, b"ok\n")
            case "/metrics", "GET":
                return HttpResponse(200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case (("/inject" | "/healthz" | "/metrics"), _):
                return HttpResponse(405, b"POST /inject, GET /healthz, GET /metrics\n")
            case _:
                return HttpResponse(404, b"POST /inject, GET /healthz, GET /metrics\n")

    async def _review(self, body: bytes) -> HttpResponse:
        try:
            if len(body) <= _QUICK_BYTES:
                verdict = verdict_on(body, self.defaults)
            else:
                verdict = await trio.to_thread.run_sync(verdict_on, body, self.defaults, limiter=self._large)
        except ValueError as wrong:
            return HttpResponse(400, f"{wrong}\n".encode())
        except Exception:
            # The API server then follows the configuration's failurePolicy.
            self.counts[_FAILED] += 1
            trace = traceback.format_exc()
            self.log.error("unhandled-exception", every_s=_LOG_EVERY_S, where="inject", traceback=trace)
            return HttpResponse(500, b"a bug: see the log\n")
        if not verdict.is_dry_run:
            self.counts[verdict.outcome] += 1
        self._log_verdict(verdict)
        return HttpResponse(200, json.dumps(verdict.review).encode(), "application/json")

    def _log_verdict(self, verdict: Verdict) -> None:
        match verdict.outcome:
            case "refused":
                self.log.warning("injection-refused", pod=verdict.pod, reason="; ".join(verdict.reasons))
            case "skipped":
                self.log.debug("injection-skipped", pod=verdict.pod)
            case "injected":
                self.log.info("pod-injected", pod=verdict.pod, dry_run=verdict.is_dry_run)
            case "removed":
                self.log.info("injection-removed", pod=verdict.pod, dry_run=verdict.is_dry_run)

    def _metrics(self) -> bytes:
        name = "sidefetch_webhook_pods_total"
        lines = [f"# HELP {name} Pods that the API server asked about, by outcome.", f"# TYPE {name} counter"]
        lines += [f'{name}{{outcome="{outcome}"}} {count}' for outcome, count in self.counts.items()]
        return "\n".join([*lines, ""]).encode()


async def _listening(address: Address) -> list[trio.SocketListener]:
    """Return listeners on *address*. Raises: ConfigError: it is not available."""
    try:
        return await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as wrong:
        raise ConfigError(f"listen: {address}: {wrong}; accepted: an address of this host") from None


async def serve(
    config: WebhookConfig, log: Log, *, task_status: trio.TaskStatus[Webhook] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the admission webhook until SIGTERM or Ctrl-C, and for its grace period; keep its certificate up to date.

    ``task_status`` gets the webhook once it listens.

    Raises: ConfigError: the address is not available, or the folder has no certificate; SystemExit: a second signal
        came.
    """
    webhook = Webhook(config.defaults, log)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on, signals, webhook.stop, log)
            tls = _certificate(config.certificate, nursery, log)
            listeners = await _listening(config.listen)
            log.info("listening", address=config.listen)
            task_status.started(webhook)
            await webhook.run(listeners, tls, config.grace_s)
            nursery.cancel_scope.cancel()


def _certificate(given: Path | SelfSigned, nursery: trio.Nursery, log: Log) -> Callable[[], ssl.SSLContext | None]:
    """Return a function that returns the present TLS context, or None; a task in *nursery* keeps it up to date."""
    if isinstance(given, Path):
        watched = from_folder(given, log)
        nursery.start_soon(watched.run)
        return lambda: watched.value
    life = timedelta(seconds=given.life_s)
    rotation = Rotation(given.api, given.secret, given.configuration, life, _now, log)
    nursery.start_soon(rotation.run)
    return lambda: rotation.context


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
