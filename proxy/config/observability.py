"""Options of the log, the probes and status page, the traces and the ledger."""

from typing import Literal

import attrs

from proxy.config.option_types import (
    ADDRESS,
    FOLDER,
    SHARE,
    SWITCH,
    TOPIC,
    Address,
    choice,
    seconds,
    size,
)
from proxy.config.option_types import option as _option

__all__ = ["AdminConfig", "LedgerConfig", "LogConfig", "TelemetryConfig"]


@attrs.frozen
class LogConfig:
    """Options of the log on stderr."""

    format: Literal["text", "json"] = attrs.field(
        default="text",
        metadata=_option("log-format", choice("text", "json"), "Format of a log line.", "Default: for people."),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            choice("debug", "info", "warning", "error"),
            "Lowest level that is logged.",
            "Default: a few lines per start, client and fault; none per request.",
        ),
    )


@attrs.frozen
class AdminConfig:
    """Options of the HTTP listener for probes, metrics and the status page."""

    listen: Address | None = attrs.field(
        default=None,
        metadata=_option(
            "admin-listen",
            ADDRESS,
            "Address for HTTP: probes (/startupz, /readyz, /livez), /metrics and the status page (/). Use"
            " 0.0.0.0:9080 in a pod.",
            "Default: disabled, because it opens an HTTP port.",
        ),
    )
    open: bool = attrs.field(
        default=False,
        metadata=_option(
            "admin-open",
            SWITCH,
            "Whether the status page and its API answer other hosts, too; probes and metrics always do.",
            "Default: off, because they show who reads which topic.",
        ),
    )
    ready_requires_broker: bool = attrs.field(
        default=False,
        metadata=_option(
            "ready-requires-broker",
            SWITCH,
            "Whether /readyz also requires that a broker answers; for a gateway.",
            "Default: off, because a broker outage would also remove the application next to a sidecar from"
            " its Services.",
        ),
    )


@attrs.frozen
class TelemetryConfig:
    """Options of the exported traces."""

    traces: Literal["auto", "on", "off"] = attrs.field(
        default="auto",
        metadata=_option(
            "traces",
            choice("auto", "on", "off"),
            "Whether spans are exported. auto: if OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT is set;"
            " on: to a Collector on this host, unless an OTEL_ variable names another.",
            "Default: as other programs with OpenTelemetry.",
        ),
    )


@attrs.frozen
class LedgerConfig:
    """Options of the ledger: a row for each client fetch and each upstream fetch, for pipelines."""

    folder: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger",
            FOLDER,
            "Folder for the ledger's rows, as files of JSON lines; it is created if necessary.",
            "Default: no files.",
        ),
    )
    topic: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger-topic",
            TOPIC,
            "Existing topic of the same cluster for the ledger's rows. Use it for fleets, because a pod's disk"
            " disappears with the pod.",
            "Default: no topic.",
        ),
    )
    sample: float = attrs.field(
        default=1.0,
        metadata=_option(
            "ledger-sample",
            SHARE,
            "Share of client fetches and own fetches that get a row; the row has its weight.",
            "Default: all, so that sums are exact. Idle fetches are folded into a row per minute.",
        ),
    )
    file_bytes: int = attrs.field(
        default=64 * 1024**2,
        metadata=_option(
            "ledger-file",
            size(64 * 1024, 2**40),
            "Size at which a file is closed and the next one begins.",
            "Default: half of what Spark reads of a file at once (128 MiB).",
        ),
    )
    file_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "ledger-file-age",
            seconds(1, 86400),
            "Age at which a file is closed.",
            "Default: readers are at most five minutes behind.",
        ),
    )
    max_bytes: int = attrs.field(
        default=1024**3,
        metadata=_option(
            "ledger-max-size",
            size(128 * 1024, 2**50),
            "Largest size of all files in the folder; the oldest are deleted. At least twice ledger-file.",
            "Default: a pod usually has some GiB of ephemeral storage.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=16 * 1024**2,
        metadata=_option(
            "ledger-memory",
            size(64 * 1024, 2**40),
            "Memory for rows that cannot be written; the oldest are dropped and counted.",
            "Default: about 15,000 rows, some minutes of a sidecar.",
        ),
    )
