"""The observer for the metrics and the status page."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from proxy.events import ClientRecord, Record
from proxy.fetch.client_sessions import ClientSessions
from proxy.net.io.fetch_memory import FetchMemory
from proxy.net.io.logs import Level, Log, Scalar
from proxy.net.io.memory import Budget
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.reload import ReloadableSettings
from proxy.net.upstream.topology import TopologyService
from proxy.relay.traffic import Traffic
from proxy.telemetry.problems import Problems
from proxy.telemetry.snapshot import BudgetSnapshot, MetricsSnapshot, Status
from proxy.telemetry.state import ReadingState
from proxy.version import VERSION

__all__ = ["ConnectedClient", "SampledValues", "Telemetry"]


class ConnectedClient(Protocol):
    """An open client connection, as the source of its labels, its software and its API usage."""

    @property
    def info(self) -> ConnectionInfo: ...

    def client_record(self) -> ClientRecord | None:
        """Return the client's software, and its requests by API version; None before its first request."""


@attrs.frozen
class SampledValues:
    """The objects whose present values are read at each scrape of the metrics and each view of the status page.

    Among them are the topology, the memory budgets, the client connections and the traffic counters.
    """

    topology: TopologyService
    reads_metadata: bool
    """Whether Sidefetch itself requests the topology from brokers; False if only clients may authenticate."""
    client_sessions: ClientSessions
    """The fetch sessions of clients with Sidefetch."""
    client_session_limit: int
    """The maximum number of these sessions."""
    budgets: Sequence[Budget | FetchMemory]
    traffic: Traffic
    live: ReloadableSettings
    counts: Counter[str]
    """The counters of ``Proxy.counts``."""
    connections: Callable[[], int]
    """Returns the number of client connections."""
    status: Callable[[], Status]
    """Returns whether the proxy is starting, ready or stopping."""
    clients: Callable[[], Iterable[ConnectedClient]]
    """Returns the open client connections."""
    longest_turn_s: Callable[[], float]
    """Returns the duration of the longest recent turn of the event loop."""
    share_reads: str = "off"
    """The option ``share-reads``."""


class Telemetry:
    """An observer that accumulates records and log events, for the metrics and the status page.

    ``snapshot`` returns the accumulated and the sampled values together.
    """

    wants_exchanges = True

    def __init__(
        self,
        rack: str | None,
        sources: SampledValues,
        log: Log,
        *,
        ledger_lost: Callable[[], int],
        certificates: Callable[[], Mapping[str, float]],
    ) -> None:
        """Create the observer, which also receives the events of *log*.

        Args:
            ledger_lost:  returns the number of lost ledger rows.
            certificates: returns expiry times in seconds since 1970 UTC, by side (``listen``, ``upstream``).
        """
        self._sources = sources
        self._ledger_lost = ledger_lost
        self._certificates = certificates
        self._state = ReadingState(rack, _now_us())
        self._problems = Problems()
        log.watch = self._add_problem

    def observe(self, connection: ConnectionInfo, record: Record, /) -> None:
        self._state.observe(connection, record, _now_us())

    def end_connection(self, connection: ConnectionInfo, /) -> None:
        self._state.remove(connection)

    def snapshot(self) -> MetricsSnapshot:
        """Return the present values of all metrics and of the status page.

        Call it in trio's thread: it reads the client connections, and may schedule a Metadata request that checks
        whether a broker responds.
        """
        sources, now_us = self._sources, _now_us()
        self._observe_new_clients(now_us)
        sessions = sources.client_sessions
        return MetricsSnapshot(
            state=self._state,
            now_us=now_us,
            version=VERSION,
            status=sources.status(),
            is_reached=sources.topology.is_reachable() if sources.reads_metadata else None,
            topology=sources.topology.topology,
            connections=sources.connections(),
            counts=sources.counts,
            ledger_lost=self._ledger_lost(),
            budgets=tuple(
                BudgetSnapshot(each.limit, each.limit_bytes, each.claimed_bytes, each.waiting)
                for each in sources.budgets
            ),
            client_sessions=len(sessions),
            client_session_partitions=sessions.partitions,
            client_session_evictions=sessions.evictions,
            client_session_limit=sources.client_session_limit,
            topics=tuple(sources.traffic.topics()),
            bypass=str(sources.live.bypass),
            share_reads_except=str(sources.live.share_reads_except),
            problems=tuple(self._problems.last(now_us)),
            certificates=tuple(
                (name, until_s - now_us / 1_000_000) for name, until_s in self._certificates().items()
            ),
            share_reads=sources.share_reads,
            longest_turn_s=sources.longest_turn_s(),
        )

    def _observe_new_clients(self, now_us: int) -> None:
        """Observe the software of new clients now; the records of their connections follow only after minutes."""
        for client in self._sources.clients():
            if self._state.is_stranger(client.info) and (record := client.client_record()) is not None:
                self._state.observe(client.info, record, now_us)

    def _add_problem(self, level: Level, event: str, fields: Mapping[str, Scalar]) -> None:
        if level != "debug":
            self._problems.add(level, event, fields, _now_us())


def _now_us() -> int:
    return time.time_ns() // 1000
