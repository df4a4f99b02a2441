"""The objects that all client connections of the process share."""

from collections import Counter

import attrs
import trio

from proxy.fetch.fetch_config import FetchConfig
from proxy.net.io.fetch_memory import FetchMemory
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.observability.observers import Observers
from proxy.net.reload import ReloadableSettings
from proxy.net.upstream.access import OPEN, Access
from proxy.net.upstream.log_caches import LogCaches
from proxy.net.upstream.principals import Principals
from proxy.net.upstream.topology import TopologyService
from proxy.relay.client import Sasl
from proxy.relay.limits import DEFAULT_LIMITS, RequestLimits
from proxy.relay.traffic import Traffic

__all__ = ["Services"]

_WORKERS = 8
"""The number of conversion threads. Each may hold a decompressed batch, 64 MiB, the messages converted from it, at
most twice as much, and their compressed form."""


@attrs.frozen
class Services:
    """The objects and settings that all client connections share, each created once at the start.

    Among them are the topology, the fetch settings, the memory budget, the observers, the log and the counters.
    """

    topology: TopologyService
    connect_timeout_s: float
    """The time limit in seconds for connecting to a broker."""
    fetch_config: FetchConfig
    """The settings of fetches."""
    budget: Budget
    """The memory for responses of brokers."""
    observers: Observers
    log: Log
    live: ReloadableSettings
    """The settings that may change while Sidefetch runs."""
    counts: Counter[str]
    """The counters of ``Proxy.counts``."""
    verify_rate: float
    """The share of responses, 0 to 1, that are compared with the broker's own response."""
    traffic: Traffic
    caches: LogCaches
    """The log caches that fetches are answered from."""
    fetch_memory: FetchMemory
    """The memory for the partitions that clients fetch."""
    access: Access = OPEN
    """TLS and login for connections to brokers."""
    sasl: Sasl = Sasl.PASSES
    """The party that authenticates to the brokers: Sidefetch or the client."""
    principals: Principals | None = None
    """Topologies by principal, if brokers authenticate clients by the clients' own credentials."""
    limits: RequestLimits = DEFAULT_LIMITS
    """The limits for the requests of one client connection."""
    workers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_WORKERS))
    """The limiter of threads that convert records for consumers, and replace addresses in responses."""
    upgrader: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """The limiter of the thread that upgrades requests. A small one may decompress to 64 MiB, so that several at a
    time would exceed any memory limit that a sidecar has."""
