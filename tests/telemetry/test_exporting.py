"""The exporters of spans, by OpenTelemetry's variables."""

from typing import Literal

import pytest

from proxy.errors import ConfigError
from proxy.telemetry.exporting import metric_exporters, trace_exporters

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
TRACES_ENDPOINT = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}


@pytest.mark.parametrize(
    ("traces", "environ", "exporters"),
    [
        ("auto", {}, []),
        ("auto", {"OTEL_TRACES_EXPORTER": " "}, []),
        ("auto", ENDPOINT, ["otlp-http"]),
        ("auto", TRACES_ENDPOINT, ["otlp-http"]),
        ("auto", {"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp-http"]),
        ("auto", {"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp-http", "console"]),
        ("auto", {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, []),
        ("auto", {**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, []),
        ("auto", {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp-grpc"]),
        (
            "auto",
            {
                **ENDPOINT,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            ["otlp-http"],
        ),
        ("on", {}, ["otlp-http"]),
        ("on", {"OTEL_TRACES_EXPORTER": "console"}, ["console"]),
        ("on", {"OTEL_SDK_DISABLED": "true"}, []),
        ("off", ENDPOINT, []),
    ],
)
def test_spans_go_where_the_environment_says(
    traces: Literal["auto", "on", "off"], environ: dict[str, str], exporters: list[str]
) -> None:
    assert trace_exporters(traces, environ) == exporters


def test_unknown_exporter_or_protocol_is_refused_with_accepted_values() -> None:
    with pytest.raises(ConfigError, match=r"zipkin.*accepted: otlp, console or none"):
        trace_exporters("auto", {"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(ConfigError, match=r"http/json.*accepted: http/protobuf or grpc"):
        trace_exporters("on", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, []),
        (TRACES_ENDPOINT, []),
        (ENDPOINT, ["otlp-http"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, ["otlp-http"]),
        (
            {"OTEL_METRICS_EXPORTER": "otlp,console", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ["otlp-grpc", "console"],
        ),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "prometheus"}, []),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, []),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_metric_exporters_follow_opentelemetry_variables(environ: dict[str, str], exporters: list[str]) -> None:
    assert metric_exporters(environ) == exporters


def test_an_exporter_of_metrics_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"OTEL_METRICS_EXPORTER: 'statsd' .* otlp, console, prometheus or none"):
        metric_exporters({"OTEL_METRICS_EXPORTER": "statsd"})
