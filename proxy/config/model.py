"""The settings as one frozen object; the metadata of its fields defines the options."""

from typing import Final

import attrs

from proxy.config.brokers import RoutingConfig, UpstreamConfig
from proxy.config.clients import ConversionConfig, DownstreamConfig, LimitsConfig
from proxy.config.observability import AdminConfig, LedgerConfig, LogConfig, TelemetryConfig
from proxy.config.option_types import FETCH_RULES, SHARE, seconds
from proxy.config.option_types import option as _option
from proxy.config.security import DownstreamSecurity, UpstreamSecurity
from proxy.fetch_rules import NO_RULES, FetchRules

__all__ = ["SECTIONS", "Config"]


@attrs.frozen
class Config:
    """All settings of Sidefetch, in sections; each part of the program gets only the section that it needs."""

    upstream: UpstreamConfig
    downstream: DownstreamConfig = attrs.field(factory=DownstreamConfig)
    upstream_security: UpstreamSecurity = attrs.field(factory=UpstreamSecurity)
    downstream_security: DownstreamSecurity = attrs.field(factory=DownstreamSecurity)
    limits: LimitsConfig = attrs.field(factory=LimitsConfig)
    routing: RoutingConfig = attrs.field(factory=RoutingConfig)
    conversion: ConversionConfig = attrs.field(factory=ConversionConfig)
    log: LogConfig = attrs.field(factory=LogConfig)
    admin: AdminConfig = attrs.field(factory=AdminConfig)
    telemetry: TelemetryConfig = attrs.field(factory=TelemetryConfig)
    ledger: LedgerConfig = attrs.field(factory=LedgerConfig)
    bypass: FetchRules = attrs.field(
        default=NO_RULES,
        metadata=_option(
            "bypass",
            FETCH_RULES,
            "Fetches that Sidefetch forwards to the client's broker unchanged instead of reading for the client:"
            " all, those of a client id, or those of a topic; a fetch of several topics is forwarded whole if one"
            " matches. It shows whether Sidefetch causes a problem. Fetches below v4 are not forwarded, since Kafka"
            " 4 does not serve them. SIGHUP reloads it from the configuration file, unless a flag or a variable"
            " sets it.",
            "Default: none.",
        ),
    )
    verify_rate: float = attrs.field(
        default=0.0,
        metadata=_option(
            "verify",
            SHARE,
            "Share of the fetch responses whose records, and aborted transactions under read_committed, Sidefetch"
            " compares with a direct fetch from the client's broker; the client does not wait for that. A"
            " difference is logged as verify-mismatch. Not compared are responses with records that were converted"
            " (to an old format, or from zstd), forwarded fetches, responses of over 16 MiB, and further responses"
            " of a connection while one is compared. Of each partition, the first 64 KiB are compared, or the first"
            " batch if it is larger.",
            "Default: none, because each costs the broker a connection and a second read.",
        ),
    )
    grace_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "grace",
            seconds(0, 3600),
            "Longest time that connected clients have to finish after SIGTERM or Ctrl-C; then Sidefetch closes"
            " their connections. It ends earlier once no client is connected; a second signal ends it at once."
            " Closing fetch sessions and writing the last traces and ledger rows may take 7 s more.",
            "Default: well within the 30 s that Kubernetes gives a pod.",
        ),
    )


SECTIONS: Final[dict[str, type[attrs.AttrsInstance]]] = {
    "upstream": UpstreamConfig,
    "downstream": DownstreamConfig,
    "upstream_security": UpstreamSecurity,
    "downstream_security": DownstreamSecurity,
    "limits": LimitsConfig,
    "routing": RoutingConfig,
    "conversion": ConversionConfig,
    "log": LogConfig,
    "admin": AdminConfig,
    "telemetry": TelemetryConfig,
    "ledger": LedgerConfig,
}
"""The class of each section, by the name of its field in ``Config``."""
