"""The values that the metrics and the status page show, at one moment."""

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
    """The state of one memory budget: its limit, the bytes in use, and the waiting frames or connections."""

    name: str
    """The option that sets the budget, ``memory`` or ``request-memory``; or ``fetches``: partitions of fetches."""
    limit_bytes: int
    claimed_bytes: int
    """The bytes in use."""
    waiting: int
    """The number of frames that wait for memory; for fetches, of connections that were asked to free some."""


@attrs.frozen
class MetricsSnapshot:
    """All values of one process that the metrics and the status page show.

    Use it at once: ``state`` is the live object, which later events change.
    """

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
    share_reads_except: str
    """The rules of fetches that share with no other client; empty if there are none."""
    problems: tuple[Problem, ...]
    certificates: tuple[tuple[str, float], ...] = ()
    """The purpose of each certificate, and the seconds until it expires."""
    share_reads: str = "off"
    """The option ``share-reads``: which clients share upstream fetches."""
    longest_turn_s: float = 0.0
    """The duration of the longest turn of the event loop in the last one to two minutes."""

    @property
    def has_broker_in_rack(self) -> bool | None:
        """Whether any broker has the rack of this process; None if that rack or the brokers are unknown."""
        if self.state.rack is None or not self.topology.brokers:
            return None
        return any(broker.rack == self.state.rack for broker in self.topology.brokers.values())
