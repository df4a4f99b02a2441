"""The settings as one frozen model. The metadata of its fields defines the options."""

from typing import Final

import attrs

from proxy.bypass import Bypass
from proxy.config.brokers import RoutingConfig, UpstreamConfig
from proxy.config.clients import ConversionConfig, DownstreamConfig, LimitsConfig
from proxy.config.observability import AdminConfig, LedgerConfig, LogConfig, TelemetryConfig
from proxy.config.option_types import BYPASS, SHARE, seconds
from proxy.config.option_types import option as _option
from proxy.config.security import DownstreamSecurity, UpstreamSecurity

__all__ = ["SECTIONS", "Config"]


@attrs.frozen
class Config:
    """All settings, in sections; each part of the program gets its own section only."""

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
    bypass: Bypass = attrs.field(
        default=Bypass(),
        metadata=_option(
            "bypass",
            BYPASS,
            "Fetches that are forwarded unchanged; SIGHUP reloads it.",
            "Default: none.",
        ),
    )
    verify_rate: float = attrs.field(
        default=0.0,
        metadata=_option(
            "verify",
            SHARE,
            "Share of the responses with records that are compared with a separate fetch from the broker.",
            "Default: none, because each costs the broker a second read.",
        ),
    )
    grace_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "grace",
            seconds(0, 3600),
            "Longest time that connected clients have to finish after SIGTERM or Ctrl-C.",
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
