"""How readers read: the figures that a user may set, and what they share."""

from typing import Self

import attrs

from proxy.cluster.routing import Selector
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.converting import DEFAULT_POLICY, CpuClock, Policy
from proxy.fetch.seen import Seen

__all__ = ["Reading"]


@attrs.frozen
class Reading:
    """What all readers of a process have in common."""

    upstream_max_wait_s: float
    """How long a fetch may wait at the broker for partitions that are at their end; 0 for as long as its client."""
    fetch_buffer_bytes: int
    """The most that one fetch asks for; a single batch may be larger (KIP-74)."""
    ask_timeout_s: float
    """How long a broker may take to answer beyond the wait that it was given."""
    policy: Policy = DEFAULT_POLICY
    """What clients get that cannot read everything."""
    rack: str = ""
    """Where we are, and clients that do not say otherwise; empty if that is not known."""
    selector: Selector = Selector.BROKER
    preferred_max_age_s: float = 300.0
    """How long a replica is read before the leader is asked again which one to read."""
    seen: Seen = attrs.field(factory=Seen)
    sessions: ClientSessions = attrs.field(factory=lambda: ClientSessions(0, int))
    """Those that clients have with Sidefetch."""
    cpu_s: CpuClock = float
    """For what conversions cost; by default nothing."""
    reads_ahead: bool = False
    """Whether clients that read on are read for before they ask."""
    checks_liveness: bool = False
    """Whether the rule of ``liveness`` is asserted after every event, at the cost of O(partitions): in tests."""
    tells_exchanges: bool = False
    """Whether anybody wants to be told what each exchange has come to."""

    @property
    def told_rack(self) -> str:
        """What brokers are told of where we are: nothing where leaders are to be read."""
        return "" if self.selector is Selector.LEADER else self.rack

    def of(self, principal: str) -> Self:
        """As clients of *principal* read: they share no session, and no memory of what was read, with others."""
        return attrs.evolve(self, seen=self.seen.of(principal), sessions=self.sessions.of(principal))
