"""Common parts of traces and metrics by OpenTelemetry's SDK: the resource, OTLP exporters, and the SDK's log."""

import logging
from importlib import import_module
from types import ModuleType
from typing import Final, Literal

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from proxy.errors import ConfigError
from proxy.net.io.logs import Log

__all__ = ["SdkLog", "create_resource", "import_otlp"]

_EVERY_S: Final = 60.0


def create_resource() -> Resource:
    """Return OpenTelemetry's resource, which describes this process in each export: the service ``sidefetch``.

    The variables ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` replace or add attributes.
    """
    return Resource.create({"service.name": "sidefetch"}).merge(OTELResourceDetector().detect())


def import_otlp(over: Literal["otlp-http", "otlp-grpc"], signal: Literal["trace", "metric"]) -> ModuleType:
    """Import and return OpenTelemetry's module with the exporter of *signal* for OTLP over HTTP or gRPC.

    The exporter takes its settings from ``OTEL_...`` variables.

    Raises: ConfigError: the package for gRPC is not installed.
    """
    try:
        return import_module(f"opentelemetry.exporter.otlp.proto.{over.removeprefix('otlp-')}.{signal}_exporter")
    except ModuleNotFoundError as missing:
        if over != "otlp-grpc":
            raise
        raise ConfigError(
            f"OTLP over gRPC needs {missing.name}, which is not installed: pip install 'sidefetch[grpc]',"
            " or OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        ) from missing


class SdkLog(logging.Handler):
    """A handler that writes warnings of OpenTelemetry's SDK to Sidefetch's log, each at most once a minute."""

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
            "telemetry-export-failed", every_s=_EVERY_S, per=(record.name, record.msg), reason=record.getMessage()
        )
