"""The settings and the state that all readers of client fetches share."""

from typing import Final, Literal, Self

import attrs

from proxy.cluster.routing import Selector
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.converting import DEFAULT_POLICY, CpuClock, Policy
from proxy.fetch.truncation import TruncationDetector

__all__ = ["FetchConfig"]

_SHARED_CLIENT_ID: Final = "sidefetch"
"""The client id of fetches that clients with several client ids share."""


@attrs.frozen
class FetchConfig:
    """The settings and the state that all readers of the process share, as one principal uses them (see ``of``)."""

    upstream_max_wait_s: float
    """The longest wait of an upstream fetch at the broker if there are no records; 0 for the client's max wait."""
    fetch_buffer_bytes: int
    """The max bytes of an upstream fetch; a single batch may be larger (KIP-74)."""
    response_timeout_s: float
    """The time that a broker may take to answer, beyond the max wait of the request."""
    policy: Policy = DEFAULT_POLICY
    """The settings of record conversion for old clients."""
    rack: str = ""
    """The rack of Sidefetch, and of clients that send none; empty if it is not known."""
    selector: Selector = Selector.BROKER
    """The rule by which the replica to read is selected."""
    preferred_max_age_s: float = 300.0
    """The time for which a preferred replica is read before the leader is asked again."""
    truncations: TruncationDetector = attrs.field(factory=TruncationDetector)
    """The offsets that clients have read, to detect truncation."""
    sessions: ClientSessions = attrs.field(factory=lambda: ClientSessions(0, int))
    """The fetch sessions of clients with Sidefetch."""
    cpu_s: CpuClock = float
    """The clock for the CPU time of conversions; by default it is always 0."""
    reads_ahead: bool = False
    """Whether free fetchers fetch again after a response with records, before the client asks again."""
    checks_liveness: bool = False
    """Whether rule L1 of ``LOG_CACHE.md`` is asserted after every event, at the cost of O(partitions): in tests."""
    records_exchanges: bool = False
    """Whether a telemetry record of each client fetch is created."""

    shares_reads: Literal["off", "client-id", "principal"] = "off"
    """The clients that share upstream fetches: none, those of a principal with one client id, or all of one."""
    principal: str = ""
    """The principal of the clients; empty for all without a login of their own."""

    def sharing(
        self, reader: object, client_id: str | None, *, is_excepted: bool = False
    ) -> tuple[object, str | None]:
        """Return the owner of the log cache that *reader* uses, and the client id of upstream fetches.

        The owner is equal for clients that share. It is *reader* itself, which shares with no other, only if reads
        are not shared or *is_excepted*. Clients whose login cannot be repeated have no reader: their fetches are
        forwarded.

        Args: client_id: the client id of the client.
              is_excepted: whether a rule of ``share-reads-except`` selects the client's fetch.
        """
        match "off" if is_excepted else self.shares_reads:
            case "off":
                return reader, client_id
            case "client-id":
                return (self.principal, client_id), client_id
            case "principal":
                return (self.principal,), _SHARED_CLIENT_ID

    @property
    def sent_rack(self) -> str:
        """The rack in upstream fetches for clients that send none; empty if unknown or if only leaders are read."""
        return "" if self.selector is Selector.LEADER else self.rack

    def of(self, principal: str) -> Self:
        """Return a copy for the clients of *principal*, which sees only its own sessions and read offsets."""
        truncations, sessions = self.truncations.of(principal), self.sessions.of(principal)
        return attrs.evolve(self, truncations=truncations, sessions=sessions, principal=principal)
