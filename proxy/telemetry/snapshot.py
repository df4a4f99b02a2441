"""All that metrics and the status page are made of, at one moment."""

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
    """A bound on memory."""

    name: str
    """The option that sets it."""
    limit_bytes: int
    claimed_bytes: int
    waiting: int
    """Frames that wait for some."""


@attrs.frozen
class MetricsSnapshot:
    """Of one process. To be used at once: ``state`` goes on."""

    state: ReadingState
    now_us: int
    version: str
    status: Status
    is_reached: bool | None
    """Whether a broker has answered when one was asked last; None where Sidefetch itself asks none."""
    topology: Topology
    connections: int
    """That clients have."""
    counts: Mapping[str, int]
    """As told to the log in the end, by the names that they have there."""
    ledger_lost: int
    """Rows that could not be kept."""
    budgets: tuple[BudgetSnapshot, ...]
    client_sessions: int
    client_session_partitions: int
    client_session_evictions: int
    client_session_limit: int
    topics: tuple[tuple[str, int, int], ...]
    """Each with the bytes of records that were read of it, and those of them that came from another rack."""
    bypass: str
    """Whose fetches pass as they came; empty for nobody's."""
    problems: tuple[Problem, ...]
    certificates: tuple[tuple[str, float], ...] = ()
    """What each is for, and the seconds until it is out of date."""

    @property
    def has_broker_in_rack(self) -> bool | None:
        """None where that cannot be said."""
        if self.state.rack is None or not self.topology.brokers:
            return None
        return any(broker.rack == self.state.rack for broker in self.topology.brokers.values())
