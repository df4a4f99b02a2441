"""The choice of exporters for traces and metrics by OpenTelemetry's standard environment variables."""

from collections.abc import Mapping
from typing import Final, Literal

from proxy.errors import ConfigError

__all__ = ["Exporter", "metric_exporters", "trace_exporters"]

Exporter = Literal["otlp-http", "otlp-grpc", "console"]

_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_BY_PROTOCOL: Final[Mapping[str, Exporter]] = {"http/protobuf": "otlp-http", "grpc": "otlp-grpc"}


def trace_exporters(traces: Literal["auto", "on", "off"], environ: Mapping[str, str]) -> list[Exporter]:
    """Return the exporters for spans that the variables in *environ* select; an empty list disables tracing.

    Args:   traces: the option ``--traces``. ``off``: no exporters; ``on``: OTLP if no variable selects an exporter;
                    ``auto``: no exporters if no variable selects one or sets an OTLP endpoint.
    Raises: ConfigError: a variable has an unsupported value.
    """
    return [] if traces == "off" else _exporters("TRACES", environ, is_wanted=traces == "on")


def metric_exporters(environ: Mapping[str, str]) -> list[Exporter]:
    """Return the exporters that push metrics, as the variables in *environ* select them.

    They are those of ``OTEL_METRICS_EXPORTER``; without it, OTLP if an OTLP endpoint is set, and otherwise none.
    The value ``prometheus`` of ``OTEL_METRICS_EXPORTER`` is accepted and adds no exporter: the admin port serves
    ``/metrics`` in any case.

    Raises: ConfigError: a variable has an unsupported value.
    """
    return _exporters("METRICS", environ, elsewhere=("prometheus",))


def _exporters(
    signal: str, environ: Mapping[str, str], *, is_wanted: bool = False, elsewhere: tuple[str, ...] = ()
) -> list[Exporter]:
    """Return the exporters for *signal*, ``TRACES`` or ``METRICS``.

    Args: is_wanted: export by OTLP even if no variable selects an exporter or sets an endpoint.
          elsewhere: accepted names of exporters that need no exporter here.
    """
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
    """Return the names of two variables, by precedence: the one for *signal*, and the one for all signals."""
    return f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"


def _first(environ: Mapping[str, str], *names: str) -> str:
    """Return the value of the first variable of *names* that is set and not empty, or an empty string."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
