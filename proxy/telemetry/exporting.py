"""The export of traces and metrics by OpenTelemetry's standard environment variables."""

from collections.abc import Mapping
from typing import Final, Literal

from proxy.errors import ConfigError

__all__ = ["Exporter", "metric_exporters", "trace_exporters"]

Exporter = Literal["otlp-http", "otlp-grpc", "console"]

_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_BY_PROTOCOL: Final[Mapping[str, Exporter]] = {"http/protobuf": "otlp-http", "grpc": "otlp-grpc"}


def trace_exporters(traces: Literal["auto", "on", "off"], environ: Mapping[str, str]) -> list[Exporter]:
    """Return the exporters of spans; none if tracing is off.

    Raises: ConfigError: a variable has an unsupported value.
    """
    return [] if traces == "off" else _exporters("TRACES", environ, is_wanted=traces == "on")


def metric_exporters(environ: Mapping[str, str]) -> list[Exporter]:
    """Return the exporters of metrics, besides ``/metrics``, which is always available (``prometheus``).

    Raises: ConfigError: a variable has an unsupported value.
    """
    return _exporters("METRICS", environ, elsewhere=("prometheus",))


def _exporters(
    signal: str, environ: Mapping[str, str], *, is_wanted: bool = False, elsewhere: tuple[str, ...] = ()
) -> list[Exporter]:
    if _first(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return []
    variable = f"OTEL_{signal}_EXPORTER"
    named = _first(environ, variable)
    if not named and (is_wanted or _first(environ, *_variables("ENDPOINT", signal))):
        named = "otlp"
    found: list[Exporter] = []
    for name in (each.strip() for each in named.split(",")):
        if name == "otlp":
            found.append(_otlp(signal, environ))
        elif name == "console":
            found.append("console")
        elif name not in ("", "none", *elsewhere):
            accepted = ", ".join(("otlp", "console", *elsewhere))
            raise ConfigError(f"{variable}: {name!r} from environment; accepted: {accepted} or none")
    return found


def _otlp(signal: str, environ: Mapping[str, str]) -> Exporter:
    protocol = _first(environ, *_variables("PROTOCOL", signal)) or "http/protobuf"
    exporter = _BY_PROTOCOL.get(protocol)
    if exporter is None:
        raise ConfigError(f"{_PROTOCOL}: {protocol!r} from environment; accepted: {' or '.join(_BY_PROTOCOL)}")
    return exporter


def _variables(what: str, signal: str) -> tuple[str, str]:
    """Return the variable for this signal, and the one for all signals."""
    return f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"


def _first(environ: Mapping[str, str], *names: str) -> str:
    """Return the value of the first variable that is set; OpenTelemetry treats an empty one as not set."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
