"""The settings: what there are, what they mean, which values they take.

From ``OPTIONS`` come the flags, the names in the environment, the keys of the file, ``--help`` and the README's
table. ``cli.settings`` fills the model in.
"""

from proxy.config.checks import problems_between
from proxy.config.kinds import FILE, ON, Address, PortRange, RackPlace, TopicSwitch
from proxy.config.model import (
    SECTIONS,
    AdminConfig,
    Config,
    ConversionConfig,
    DownstreamConfig,
    LedgerConfig,
    LimitsConfig,
    LogConfig,
    RoutingConfig,
    TelemetryConfig,
    UpstreamConfig,
)
from proxy.config.options import ENV_PREFIX, OPTIONS, Option
from proxy.config.security import DownstreamSecurity, UpstreamSecurity

__all__ = [
    "ENV_PREFIX",
    "FILE",
    "ON",
    "OPTIONS",
    "SECTIONS",
    "Address",
    "AdminConfig",
    "Config",
    "ConversionConfig",
    "DownstreamConfig",
    "DownstreamSecurity",
    "LedgerConfig",
    "LimitsConfig",
    "LogConfig",
    "Option",
    "PortRange",
    "RackPlace",
    "RoutingConfig",
    "TelemetryConfig",
    "TopicSwitch",
    "UpstreamConfig",
    "UpstreamSecurity",
    "problems_between",
]
