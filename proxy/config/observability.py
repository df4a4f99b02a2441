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
            "Format of the lines of the log on stderr. text: time, level, event and key=value pairs; json: one JSON"
            " object per line.",
            "Default: text, for people.",
        ),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            choice("debug", "info", "warning", "error"),
            "Lowest level of the events that are logged. SIGHUP reloads it from the configuration file, unless a"
            " flag or a variable sets it. The status page shows problems at every level.",
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
            " and the status page (/). It has neither TLS nor a login, and only the status page is restricted"
            " (admin-open). Use 0.0.0.0:9080 in a pod. The port must be none of listen, broker-ports and"
            " transparent.",
            "Default: disabled, because it opens a port; sidefetch health and sidefetch top need it.",
        ),
    )
    open: bool = attrs.field(
        default=False,
        metadata=_option(
            "admin-open",
            SWITCH,
            "Whether the status page and its API (/api/v1/state) answer other hosts, too; there is no login. off:"
            " only requests from this host that address it as localhost or a loopback address. Probes and metrics"
            " always answer.",
            "Default: off, because they show which clients read which topics.",
        ),
    )
    ready_requires_broker: bool = attrs.field(
        default=False,
        metadata=_option(
            "ready-requires-broker",
            SWITCH,
            "Whether the probe /readyz also fails while no broker answers; Sidefetch checks that every 5 s while"
            " the probe is used. Use it for a gateway, whose clients can then go to another pod. It cannot be used"
            " with upstream-sasl client.",
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
            "Whether OpenTelemetry spans of fetches are exported. auto: only if OTEL_TRACES_EXPORTER or an OTLP"
            " endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) is set; on: to a Collector on this host, unless an OTEL_"
            " variable names another exporter or endpoint; off: never. Every fetch has spans, unless"
            " OTEL_TRACES_SAMPLER selects a share; forwarded fetches have none. Metrics are not affected.",
            "Default: OpenTelemetry's own variables suffice to switch traces on.",
        ),
    )


@attrs.frozen
class LedgerConfig:
    """The section ``ledger`` of the settings: output, sampling and limits of the ledger.

    The ledger has rows about the fetches of clients and of Sidefetch, for later analysis.
    """

    folder: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger",
            FOLDER,
            "Folder for the ledger: JSON lines about the fetches of clients and of Sidefetch, which sidefetch"
            " report evaluates. A fetch with records has a row; fetches without records share a row for up to a"
            " minute; fetch sessions and clients have rows, too, and forwarded fetches none. The folder is created"
            " if necessary, several processes may share it, and ledger-max-size limits its size.",
            "Default: no files.",
        ),
    )
    topic: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger-topic",
            TOPIC,
            "Topic of the same cluster to which Sidefetch produces the ledger, in JSON with the rows of the option"
            " ledger; both can be used together. The topic must exist, and Sidefetch's own login must be allowed to"
            " write to it, so that upstream-sasl client is not possible. Use it for fleets, because a pod's disk"
            " disappears with the pod. A row may occur twice, with the same seq.",
            "Default: no topic.",
        ),
    )
    sample: float = attrs.field(
        default=1.0,
        metadata=_option(
            "ledger-sample",
            SHARE,
            "Share of the fetches, of clients and of Sidefetch, that get into the ledger (ledger, ledger-topic). A"
            " row's weight is 1 / this share: multiply sums by it. Rows about sessions and clients are not sampled,"
            " so 0 leaves only these.",
            "Default: all, so that sums are exact. Fetches without records share a row for up to a minute anyway.",
        ),
    )
    file_bytes: int = attrs.field(
        default=64 * 1024**2,
        metadata=_option(
            "ledger-file",
            size(64 * 1024, 2**40),
            "Size at which Sidefetch finishes a file in the folder of ledger and begins the next one;"
            " ledger-file-age may finish it earlier. Only finished files can be read: the open one has a hidden"
            " name.",
            "Default: half of what Spark reads of a file at once (128 MiB).",
        ),
    )
    file_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "ledger-file-age",
            seconds(1, 86400),
            "Age at which Sidefetch finishes a file in the folder of ledger, however small it is; it also finishes"
            " it at the end. Readers do not see rows of an unfinished file.",
            "Default: readers are at most five minutes behind.",
        ),
    )
    max_bytes: int = attrs.field(
        default=1024**3,
        metadata=_option(
            "ledger-max-size",
            size(128 * 1024, 2**50),
            "Largest total size of the files in the folder of ledger, without the open files of other processes;"
            " beyond it Sidefetch deletes the oldest, also those of other processes that share the folder, and"
            " writes a row about the loss. At least twice ledger-file.",
            "Default: a pod usually has some GiB of ephemeral storage.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=16 * 1024**2,
        metadata=_option(
            "ledger-memory",
            size(64 * 1024, 2**40),
            "Memory for rows of the ledger while they wait to be written, for the folder and for the topic each. If"
            " they cannot be written, the oldest rows beyond it are lost, and counted; clients are not affected.",
            "Default: about 15,000 rows, some minutes of a sidecar.",
        ),
    )
