"""All values of metrics and the status page, at one moment."""

from collections.abc import Mapping
from typing import Literal

import attrs

from proxy.cluster.topology import Topology
from proxy.telemetry.problems import Problem
from proxy.telemetry.state import ReadingState

__all__ = ["BudgetSnapshot", "MetricsSnapshot", "Status"]

Status = Literal["starting", "ready", "stopping"]


@attrs.frozen
class BudgetSnapshot:
    """A memory budget."""

    name: str
    """The option that sets it."""
    limit_bytes: int
    claimed_bytes: int
    waiting: int
    """The number of frames that wait for memory."""


@attrs.frozen
class MetricsSnapshot:
    """The values of one process. Use it at once: ``state`` keeps changing."""

    state: ReadingState
    now_us: int
    version: str
    status: Status
    is_reached: bool | None
    """Whether a broker answered the last request of Sidefetch itself; None if it sends none."""
    topology: Topology
    connections: int
    """The number of client connections."""
    counts: Mapping[str, int]
    """The counters of the final log line, by their names there."""
    ledger_lost: int
    """The number of lost rows."""
    budgets: tuple[BudgetSnapshot, ...]
    client_sessions: int
    client_session_partitions: int
    client_session_evictions: int
    client_session_limit: int
    topics: tuple[tuple[str, int, int], ...]
    """(topic, bytes of records read, bytes of these from another rack)."""
    bypass: str
    """The rules of fetches that are forwarded unchanged; empty if there are none."""
    problems: tuple[Problem, ...]
    certificates: tuple[tuple[str, float], ...] = ()
    """The purpose of each certificate, and the seconds until it expires."""

    @property
    def has_broker_in_rack(self) -> bool | None:
        """Whether a broker is in Sidefetch's rack; None if the rack or the brokers are unknown."""
        if self.state.rack is None or not self.topology.brokers:
            return None
        return any(broker.rack == self.state.rack for broker in self.topology.brokers.values())
