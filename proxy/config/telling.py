"""Options about what is told: to people, to probes, to other programs."""

from typing import Literal

import attrs

from proxy.config.kinds import (
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
from proxy.config.kinds import option as _option

__all__ = ["AdminConfig", "LedgerConfig", "LogConfig", "TelemetryConfig"]


@attrs.frozen
class LogConfig:
    """What is told on stderr."""

    format: Literal["text", "json"] = attrs.field(
        default="text",
        metadata=_option("log-format", choice("text", "json"), "How a log line is written.", "For people's eyes."),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            choice("debug", "info", "warning", "error"),
            "The least level that is written.",
            "A few lines per start, client and fault; none per request.",
        ),
    )


@attrs.frozen
class AdminConfig:
    """For whoever runs this: is it up, does it turn, what does it do."""

    listen: Address | None = attrs.field(
        default=None,
        metadata=_option(
            "admin-listen",
            ADDRESS,
            "Where probes (/startupz, /readyz, /livez), /metrics and the status page (/) are answered over HTTP."
            " 0.0.0.0:9080 in a pod.",
            "Not given: nowhere. Only who runs it knows who may ask.",
        ),
    )
    open: bool = attrs.field(
        default=False,
        metadata=_option(
            "admin-open",
            SWITCH,
            "Whether the status page and its API answer to other hosts, too; probes and metrics always do.",
            "They tell who reads what. From elsewhere: by a forwarded port.",
        ),
    )
    ready_requires_broker: bool = attrs.field(
        default=False,
        metadata=_option(
            "ready-requires-broker",
            SWITCH,
            "Whether /readyz is yes only while a broker can be reached: for a gateway that many share.",
            "An outage of Kafka must not take the application next to a sidecar out of its services.",
        ),
    )


@attrs.frozen
class TelemetryConfig:
    """What is told to other programs."""

    traces: Literal["auto", "on", "off"] = attrs.field(
        default="auto",
        metadata=_option(
            "traces",
            choice("auto", "on", "off"),
            "Whether spans are exported, as OpenTelemetry's own variables say (OTEL_...); on: to a Collector on"
            " this host, unless they say otherwise.",
            "auto: where OTEL_TRACES_EXPORTER or an OTEL_EXPORTER_OTLP_ENDPOINT is set, as in any other program.",
        ),
    )


@attrs.frozen
class LedgerConfig:
    """A row for each exchange and each fetch, for pipelines."""

    folder: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger",
            FOLDER,
            "The folder that rows are written to, as files of JSON lines; it is made if it is not there.",
            "Not given: no files.",
        ),
    )
    topic: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger-topic",
            TOPIC,
            "The topic of the same cluster that rows are produced to; it must be there.",
            "Not given: none. The choice for fleets: a pod's disk goes with the pod.",
        ),
    )
    sample: float = attrs.field(
        default=1.0,
        metadata=_option(
            "ledger-sample",
            SHARE,
            "Share of the exchanges and fetches that get a row; each row tells for how many it stands.",
            "All: then sums are exact. Idle ones are folded, a row a minute.",
        ),
    )
    file_bytes: int = attrs.field(
        default=64 * 1024**2,
        metadata=_option(
            "ledger-file",
            size(64 * 1024, 2**40),
            "The size at which a file is finished, and the next one begun.",
            "What Spark reads at once of a file (128 MiB), and half of that to be sure.",
        ),
    )
    file_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "ledger-file-age",
            seconds(1, 86400),
            "The age at which a file is finished.",
            "How far behind a reader may be: five minutes.",
        ),
    )
    max_bytes: int = attrs.field(
        default=1024**3,
        metadata=_option(
            "ledger-max-size",
            size(128 * 1024, 2**50),
            "The most that all files of the folder may take; the oldest are deleted. At least twice ledger-file.",
            "A pod's ephemeral storage is some GiB as a rule.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=16 * 1024**2,
        metadata=_option(
            "ledger-memory",
            size(64 * 1024, 2**40),
            "The most memory for rows that cannot be written yet; the oldest are dropped, and that is told.",
            "Some 15,000 rows: minutes of a sidecar.",
        ),
    )
