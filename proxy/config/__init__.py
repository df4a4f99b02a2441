"""The settings of Sidefetch: the options, their meanings and the values that they accept.

The flags, the environment variables, the keys of the file, ``--help`` and the tables of ``OPTIONS.md`` are made
from ``OPTIONS``. ``cli.settings`` creates the ``Config``.
"""

from proxy.config.brokers import RoutingConfig, UpstreamConfig
from proxy.config.clients import ConversionConfig, DownstreamConfig, LimitsConfig
from proxy.config.model import SECTIONS, Config
from proxy.config.observability import AdminConfig, LedgerConfig, LogConfig, TelemetryConfig
from proxy.config.option_types import FILE, ON, Address, PortRange, RackSource, TopicSwitch
from proxy.config.options import ENV_PREFIX, OPTIONS, Option, config_of, option_named
from proxy.config.security import DownstreamSecurity, UpstreamSecurity
from proxy.config.validation import find_contradictions

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
    "RackSource",
    "RoutingConfig",
    "TelemetryConfig",
    "TopicSwitch",
    "UpstreamConfig",
    "UpstreamSecurity",
    "config_of",
    "find_contradictions",
    "option_named",
]
