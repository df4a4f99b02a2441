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
    """The section ``log`` of the settings: format and lowest level of the log on stderr."""

    format: Literal["text", "json"] = attrs.field(
        default="text",
        metadata=_option(
            "log-format",
            choice("text", "json"),
            "Format of the lines of the log on stderr. text: key=value pairs; json: one JSON object per line.",
            "Default: for people.",
        ),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            choice("debug", "info", "warning", "error"),
            "Lowest level of the events that are logged; SIGHUP reloads it from the file.",
            "Default: a few lines for each start, client and fault; none for each request.",
        ),
    )


@attrs.frozen
class AdminConfig:
    """The section ``admin`` of the settings: the HTTP listener for probes, metrics and the status page."""

    listen: Address | None = attrs.field(
        default=None,
        metadata=_option(
            "admin-listen",
            ADDRESS,
            "Address of an HTTP server for probes (/startupz, /readyz, /livez), metrics for Prometheus (/metrics)"
            " and the status page (/). Use 0.0.0.0:9080 in a pod.",
            "Default: disabled, because it opens a port.",
        ),
    )
    open: bool = attrs.field(
        default=False,
        metadata=_option(
            "admin-open",
            SWITCH,
            "Whether the status page and its API (/api/v1/state) answer other hosts, too; probes and metrics"
            " always do.",
            "Default: off, because they show which clients read which topics.",
        ),
    )
    ready_requires_broker: bool = attrs.field(
        default=False,
        metadata=_option(
            "ready-requires-broker",
            SWITCH,
            "Whether the probe /readyz also fails while no broker answers. Use it for a gateway, whose clients can"
            " then go to another pod.",
            "Default: off, because a broker outage would also remove the application next to a sidecar from"
            " its Services.",
        ),
    )


@attrs.frozen
class TelemetryConfig:
    """The section ``telemetry`` of the settings: whether traces are exported."""

    traces: Literal["auto", "on", "off"] = attrs.field(
        default="auto",
        metadata=_option(
            "traces",
            choice("auto", "on", "off"),
            "Whether OpenTelemetry spans of fetches are exported. auto: only if OTEL_TRACES_EXPORTER or"
            " OTEL_EXPORTER_OTLP_ENDPOINT is set; on: to a Collector on this host, unless an OTEL_ variable names"
            " another; off: never.",
            "Default: as other programs with OpenTelemetry.",
        ),
    )


@attrs.frozen
class LedgerConfig:
    """The section ``ledger`` of the settings: output, sampling and limits of the ledger.

    The ledger has a row for each client fetch and for each of Sidefetch's own fetches, for later analysis.
    """

    folder: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger",
            FOLDER,
            "Folder for the ledger: JSON lines with a row for each fetch of a client and of Sidefetch, which"
            " sidefetch report evaluates. The folder is created if necessary.",
            "Default: no files.",
        ),
    )
    topic: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger-topic",
            TOPIC,
            "Existing topic of the same cluster to which Sidefetch produces the ledger: a row in JSON for each"
            " fetch of a client and of Sidefetch. Use it for fleets, because a pod's disk disappears with the pod.",
            "Default: no topic.",
        ),
    )
    sample: float = attrs.field(
        default=1.0,
        metadata=_option(
            "ledger-sample",
            SHARE,
            "Share of the fetches, of clients and of Sidefetch, that get a row in the ledger (ledger,"
            " ledger-topic); the row's weight says how many fetches it stands for.",
            "Default: all, so that sums are exact. Fetches without records are folded into a row per minute"
            " anyway.",
        ),
    )
    file_bytes: int = attrs.field(
        default=64 * 1024**2,
        metadata=_option(
            "ledger-file",
            size(64 * 1024, 2**40),
            "Size at which Sidefetch finishes a file in the folder of ledger and begins the next one; only"
            " finished files can be read.",
            "Default: half of what Spark reads of a file at once (128 MiB).",
        ),
    )
    file_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "ledger-file-age",
            seconds(1, 86400),
            "Age at which Sidefetch finishes a file in the folder of ledger, however small it is.",
            "Default: readers are at most five minutes behind.",
        ),
    )
    max_bytes: int = attrs.field(
        default=1024**3,
        metadata=_option(
            "ledger-max-size",
            size(128 * 1024, 2**50),
            "Largest total size of the files in the folder of ledger; beyond it Sidefetch deletes the oldest. At"
            " least twice ledger-file.",
            "Default: a pod usually has some GiB of ephemeral storage.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=16 * 1024**2,
        metadata=_option(
            "ledger-memory",
            size(64 * 1024, 2**40),
            "Memory for rows of the ledger (one for each fetch) while they cannot be written to the folder or"
            " topic; beyond it the oldest rows are lost, and counted.",
            "Default: about 15,000 rows, some minutes of a sidecar.",
        ),
    )
