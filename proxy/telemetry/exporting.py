"""Whether and how traces are exported, by OpenTelemetry's standard environment variables."""

from collections.abc import Mapping
from typing import Final, Literal

from proxy.errors import ConfigError

__all__ = ["Exporter", "trace_exporters"]

Exporter = Literal["otlp-http", "otlp-grpc", "console"]

_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_BY_PROTOCOL: Final[Mapping[str, Exporter]] = {"http/protobuf": "otlp-http", "grpc": "otlp-grpc"}


def trace_exporters(traces: Literal["auto", "on", "off"], environ: Mapping[str, str]) -> list[Exporter]:
    """Where spans go; none: nobody wants them.

    Raises: ConfigError: a variable asks for what there is not.
    """
    if traces == "off" or _first(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return []
    named = _first(environ, _EXPORTERS)
    if not named and (traces == "on" or _first(environ, *_ENDPOINTS)):
        named = "otlp"
    found: list[Exporter] = []
    for name in (each.strip() for each in named.split(",")):
        if name == "otlp":
            found.append(_otlp(environ))
        elif name == "console":
            found.append("console")
        elif name not in ("", "none"):
            raise ConfigError(f"{_EXPORTERS}: {name!r} from environment; accepted: otlp, console or none")
    return found


def _otlp(environ: Mapping[str, str]) -> Exporter:
    protocol = _first(environ, *_PROTOCOLS) or "http/protobuf"
    exporter = _BY_PROTOCOL.get(protocol)
    if exporter is None:
        raise ConfigError(f"{_PROTOCOLS[1]}: {protocol!r} from environment; accepted: {' or '.join(_BY_PROTOCOL)}")
    return exporter


def _first(environ: Mapping[str, str], *names: str) -> str:
    """The value of the first that is set; as OpenTelemetry says, an empty one is not."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
