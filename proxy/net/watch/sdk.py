"""OpenTelemetry's SDK, as it is used here: who we are, and what it has to say."""

import logging
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from proxy.net.logs import Log

__all__ = ["SdkLog", "resource"]

_EVERY_S: Final = 60.0


def resource() -> Resource:
    """Of this process; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` say more, and win."""
    return Resource.create({"service.name": "sidefetch"}).merge(OTELResourceDetector().detect())


class SdkLog(logging.Handler):
    """Has what the SDK logs told by our log, seldom: a Collector that is away is told of once a minute."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._from = logging.getLogger("opentelemetry")
        self._propagated = self._from.propagate

    def begin(self) -> None:
        self._from.addHandler(self)
        self._from.propagate = False

    def end(self) -> None:
        self._from.removeHandler(self)
        self._from.propagate = self._propagated

    def emit(self, record: logging.LogRecord) -> None:
        self._log.warning(
            "telemetry-failed", every_s=_EVERY_S, per=(record.name, record.msg), reason=record.getMessage()
        )
