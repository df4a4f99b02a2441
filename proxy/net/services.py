"""The objects that all client connections of the process share."""

from collections import Counter

import attrs
import trio

from proxy.fetch.reading import Reading
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.observability.observers import Observers
from proxy.net.reload import ReloadableSettings
from proxy.net.upstream.access import OPEN, Access
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
    """The shared objects, each created once at the start."""

    topology: TopologyService
    connect_timeout_s: float
    reading: Reading
    budget: Budget
    observers: Observers
    log: Log
    live: ReloadableSettings
    counts: Counter[str]
    verify_rate: float
    traffic: Traffic
    access: Access = OPEN
    sasl: Sasl = Sasl.PASSES
    principals: Principals | None = None
    """Topologies by principal, if brokers authenticate clients by the clients' own credentials."""
    limits: RequestLimits = DEFAULT_LIMITS
    workers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_WORKERS))
    """The limiter of threads that convert records."""
