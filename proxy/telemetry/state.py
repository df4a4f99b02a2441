"""The statistics of a running Sidefetch process: clients, sessions, brokers, waits and errors.

Event records update them; there is one ``ReadingState`` for the whole process. Its memory is bounded by the number
of connections, and by the limits in this module; everything beyond a limit is counted together.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final, Protocol, TypeVar

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.events import (
    Cause,
    ClientRecord,
    ConversionRecord,
    DamageRecord,
    ExchangeRecord,
    FetcherName,
    FetchKind,
    FetchRecord,
    Record,
    RouteKind,
    SessionRecord,
    StalledFetchRecord,
    TruncationRecord,
    UsedApi,
)
from proxy.telemetry.durations import Durations, delay_s
from proxy.telemetry.sums import Minutes, Rate, Sums

__all__ = [
    "OTHER",
    "BrokerReads",
    "ClientKey",
    "ClientSummary",
    "ConnectionLabels",
    "ReaderConnection",
    "ReadingState",
    "SessionSummary",
]

OTHER: Final = "(other)"
"""The name for everything beyond a limit."""
_MOST_CLIENTS: Final = 200
_MOST_BROKERS: Final = 500
_MOST_CHARS: Final = 120
"""The longest client id or software name, in characters."""
_MOST_REASONS: Final = 50
_MOST_ERRORS: Final = 150
"""The most error codes; Kafka has fewer."""
_MOST_APIS: Final = 500
"""The most pairs of API and version; Kafka has some 400."""

_K = TypeVar("_K", bound=Hashable)


class ConnectionLabels(Protocol):
    """The client connection, or the shared log cache, of a record: its number, address, client id and topology.

    ``ConnectionInfo`` of ``proxy.net.observability.observers`` implements it.
    """

    number: int
    """A number that is unique in the process."""

    @property
    def connection_id(self) -> int | None:
        """The number of a client connection; None for a log cache that clients share."""

    peer: str
    """Host and port of the client."""
    topology: Topology
    client_id: str | None


@attrs.frozen
class ClientKey:
    """The identity of a client in the statistics: its client id and host.

    All connections with equal values count as one client; a client has one to each broker.
    """

    client_id: str
    """The client id; empty if the client sends none."""
    host: str


@attrs.frozen
class SessionSummary:
    """An open fetch session of Sidefetch at a broker: the broker, the session id and the number of partitions."""

    node: int
    session_id: int
    partitions: int


@attrs.define
class ReaderConnection:
    """One open client connection: its software, its last fetch and its fetch sessions."""

    software: str = ""
    """The client's library and version; empty if they are not known yet."""
    is_guess: bool = True
    """Whether ``software`` is a guess."""
    version: int | None = None
    """The client's Fetch version."""
    wanted: int = 0
    """The number of partitions of the client's last fetch."""
    session_id: int = 0
    """The client's fetch session with Sidefetch; 0 for none."""
    sessions: dict[str, SessionSummary] = attrs.field(factory=dict)
    """Sidefetch's sessions at brokers for this connection, by fetcher id."""
    apis: tuple[UsedApi, ...] = ()


@attrs.define
class ClientSummary:
    """The statistics of one client with at least one open connection: fetches, bytes, rates and connections."""

    readers: dict[int, ReaderConnection] = attrs.field(factory=dict)
    """The open connections, by number."""
    fetches: int = 0
    """Answered fetches of the client."""
    delivered_bytes: int = 0
    """Bytes of records in the responses to the client."""
    shared_fetches: int = 0
    """The part of ``fetches`` that were answered from a log cache that clients share."""
    broker_fetches: int = 0
    """Upstream fetches of Sidefetch on behalf of this client alone, without shared ones."""
    saved_bytes: int = 0
    """Protocol bytes saved by the fetches that are not shared; savings of shared ones are in the totals only."""
    converted_records: int = 0
    byte_rate: Rate = attrs.field(factory=Rate)
    """The rate of record bytes from brokers; of shared reads, of those that the client got."""
    fetch_rate: Rate = attrs.field(factory=Rate)


@attrs.define
class BrokerReads:
    """The statistics of Sidefetch's fetches from one broker: their number, record bytes, rate and partitions."""

    rack: str | None = None
    fetches: int = 0
    record_bytes: int = 0
    byte_rate: Rate = attrs.field(factory=Rate)
    partitions: Counter[RouteKind] = attrs.field(factory=Counter)
    """Partitions of these fetches, by the reason that this broker was read."""


@attrs.frozen
class FetchShape:
    """The kind, fetcher and route of upstream fetches: the labels of the metric ``sidefetch.broker.fetches``."""

    kind: FetchKind
    fetcher: FetcherName
    route: RouteKind


@attrs.define
class ReadingState:
    """The statistics of one Sidefetch process, which event records update."""

    rack: str | None
    """The rack of this process; None if it is unknown."""
    started_us: int
    """The start of the process, in microseconds since 1970."""
    total: Sums = attrs.field(factory=Sums, init=False)
    minutes: Minutes = attrs.field(factory=Minutes, init=False)
    clients: dict[ClientKey, ClientSummary] = attrs.field(factory=dict, init=False)
    brokers: dict[int, BrokerReads] = attrs.field(factory=dict, init=False)
    """The reads by the broker's node id; -1 for all brokers beyond the limit."""
    fetches: Counter[FetchShape] = attrs.field(factory=Counter, init=False)
    session_events: Counter[tuple[str, str, str]] = attrs.field(factory=Counter, init=False)
    """The number of session events by side, event and reason."""
    _software: set[tuple[str, bool]] = attrs.field(factory=set, init=False)
    """The kinds of client software that ``software`` has returned."""
    waited_us: Counter[Cause] = attrs.field(factory=Counter, init=False)
    delays: Durations = attrs.field(factory=Durations, init=False)
    """The delays of client fetches."""
    throttled_ms: int = attrs.field(default=0, init=False)
    """The sum of the throttle times in brokers' responses."""
    errors: Counter[int] = attrs.field(factory=Counter, init=False)
    """Errors in responses to clients, by code."""
    converted: Counter[int] = attrs.field(factory=Counter, init=False)
    """Converted records, by their new format (magic)."""
    damaged: int = attrs.field(default=0, init=False)
    truncated: int = attrs.field(default=0, init=False)
    stalled: int = attrs.field(default=0, init=False)
    """Client fetches that the watchdog answered."""
    requests: Counter[tuple[int, int, int]] = attrs.field(factory=Counter, init=False)
    """Client requests by API key, version and the version sent to the broker."""
    byte_rate: Rate = attrs.field(factory=Rate, init=False)
    _keys: dict[int, ClientKey] = attrs.field(factory=dict, init=False)
    """The client of each connection."""
    _shared_sessions: dict[int, dict[str, SessionSummary]] = attrs.field(factory=dict, init=False)
    """Sidefetch's sessions at brokers for log caches that clients share, by the cache's number and fetcher id."""

    def observe(self, of: ConnectionLabels, record: Record, now_us: int) -> None:
        """Update the statistics with *record*, an event of the client connection or shared log cache *of*.

        The first record of a connection adds it to its client, by client id and host. Upstream fetches and sessions
        of a log cache that clients share count in the totals, and for no client.

        Args: now_us: the present time in microseconds since 1970.
        """
        if of.connection_id is None:
            self._observe_shared(of, record, now_us)
            return
        client, reader = self._reader(of, record)
        match record:
            case FetchRecord():
                self._fetch(of, record, now_us)
                client.broker_fetches += 1
                client.saved_bytes -= record.request_bytes + record.response_bytes - record.record_bytes
                client.byte_rate.add(record.record_bytes, now_us)
                _resize(reader.sessions, record)
            case ExchangeRecord():
                self._exchange(client, reader, record, now_us)
            case SessionRecord():
                self._session(reader.sessions, record, now_us)
            case ClientRecord():
                self._client(reader, record)
            case ConversionRecord():
                self._conversion(client, record, now_us)
            case DamageRecord():
                self.damaged += 1
            case TruncationRecord():
                self.truncated += 1
            case StalledFetchRecord():
                self.stalled += 1

    def _observe_shared(self, of: ConnectionLabels, record: Record, now_us: int) -> None:
        sessions = self._shared_sessions.setdefault(of.number, {})
        match record:
            case FetchRecord():
                self._fetch(of, record, now_us)
                for sums in (self.total, self.minutes.sums(now_us)):
                    sums.shared_fetched_bytes += record.record_bytes
                _resize(sessions, record)
            case SessionRecord():
                self._session(sessions, record, now_us)
            case _:
                pass

    def remove(self, of: ConnectionLabels) -> None:
        """Remove the connection *of*, which has ended, and its client if it has no other connection.

        *of* may also be a shared log cache that has ended. Totals and the statistics of brokers are kept.
        """
        self._shared_sessions.pop(of.number, None)
        key = self._keys.pop(of.number, None)
        if key is None:
            return
        client = self.clients[key]
        client.readers.pop(of.number, None)
        if not client.readers:
            del self.clients[key]

    def is_stranger(self, of: ConnectionLabels) -> bool:
        """Return whether the connection *of* is in the statistics without the name of its client software."""
        key = self._keys.get(of.number)
        return key is not None and not self.clients[key].readers[of.number].software

    def sessions(self) -> list[SessionSummary]:
        """Return all open fetch sessions of Sidefetch at brokers, for all clients and shared log caches."""
        readers = (reader for client in self.clients.values() for reader in client.readers.values())
        held = [*(reader.sessions for reader in readers), *self._shared_sessions.values()]
        return [session for sessions in held for session in sessions.values()]

    def software(self) -> Counter[tuple[str, bool]]:
        """Return the number of open client connections by (client software, whether that is a guess).

        The software is an empty string if it is unknown. It is ``(other)`` if it is not among the first 200 kinds
        since the start: clients choose the name, and each is a time series.
        """
        found: Counter[tuple[str, bool]] = Counter()
        for client in self.clients.values():
            for reader in client.readers.values():
                kind = reader.software, reader.is_guess
                if len(self._software) < _MOST_CLIENTS:
                    self._software.add(kind)
                found[kind if kind in self._software else (OTHER, True)] += 1
        return found

    def _reader(self, of: ConnectionLabels, record: Record) -> tuple[ClientSummary, ReaderConnection]:
        client_id = record.client_id if isinstance(record, ExchangeRecord | ClientRecord) else of.client_id
        client_id = client_id and client_id[:_MOST_CHARS]
        known = self._keys.get(of.number)
        if known is not None and (client_id is None or client_id == known.client_id or known.client_id == OTHER):
            return self.clients[known], self.clients[known].readers[of.number]
        reader = ReaderConnection()
        if known is not None:
            reader = self.clients[known].readers[of.number]
            self.remove(of)
        key = ClientKey(client_id or "", of.peer.rpartition(":")[0])
        if key not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            key = ClientKey(OTHER, "")
        self._keys[of.number] = key
        client = self.clients.setdefault(key, ClientSummary())
        client.readers[of.number] = reader
        return client, reader

    def _fetch(self, of: ConnectionLabels, record: FetchRecord, now_us: int) -> None:
        known = of.topology.brokers.get(BrokerId(record.node))
        rack = None if known is None else known.rack
        is_crossing = None if rack is None or self.rack is None else rack != self.rack
        for sums in (self.total, self.minutes.sums(now_us)):
            sums.broker_fetches += 1
            sums.broker_request_bytes += record.request_bytes
            sums.broker_response_bytes += record.response_bytes
            sums.record_bytes += record.record_bytes
            sums.broker_named += record.named
            sums.broker_partitions += record.size
            sums.own_rack_bytes += record.record_bytes if is_crossing is False else 0
            sums.crossed_bytes += record.record_bytes if is_crossing else 0
        self.fetches[FetchShape(record.kind, record.fetcher, record.route)] += 1
        self.throttled_ms += record.throttle_ms
        self.byte_rate.add(record.record_bytes, now_us)
        node = record.node if record.node in self.brokers or len(self.brokers) < _MOST_BROKERS else -1
        broker = self.brokers.setdefault(node, BrokerReads())
        broker.rack = rack if node >= 0 else None
        broker.fetches += 1
        broker.record_bytes += record.record_bytes
        broker.byte_rate.add(record.record_bytes, now_us)
        broker.partitions[record.route] += record.size

    def _exchange(
        self, client: ClientSummary, reader: ReaderConnection, record: ExchangeRecord, now_us: int
    ) -> None:
        talk_bytes = record.request_bytes + record.response_bytes - record.delivered_bytes
        has_failed = sum(times for _, times in record.errors) >= max(record.answered, 1)
        for sums in (self.total, self.minutes.sums(now_us)):
            sums.client_fetches += 1
            sums.failed_fetches += has_failed
            sums.failed_talk_bytes += talk_bytes if has_failed else 0
            sums.client_request_bytes += record.request_bytes
            sums.client_response_bytes += record.response_bytes
            sums.delivered_bytes += record.delivered_bytes
            sums.held_bytes += record.held_bytes
            sums.shared_delivered_bytes += record.source_bytes if record.is_shared else 0
            sums.client_partitions += record.wanted
        for cause, us in record.waited_us:
            self.waited_us[cause] += us
        self.delays.add(delay_s(record))
        for code, times in record.errors:
            _count(self.errors, code, times, _MOST_ERRORS, -1)
        reader.version, reader.wanted, reader.session_id = record.version, record.wanted, record.session_id
        client.fetches += 1
        client.delivered_bytes += record.delivered_bytes
        if record.is_shared:
            client.shared_fetches += 1
            client.byte_rate.add(record.source_bytes, now_us)
        elif not has_failed:
            client.saved_bytes += talk_bytes
        client.fetch_rate.add(1, now_us)

    def _session(self, sessions: dict[str, SessionSummary], record: SessionRecord, now_us: int) -> None:
        counted = (record.side, record.event, record.reason)
        _count(self.session_events, counted, 1, _MOST_REASONS, (record.side, record.event, OTHER))
        if record.side == "client":
            return
        if record.event == "created":
            sessions[record.fetcher_id] = SessionSummary(record.node, record.session_id, record.partitions)
        elif record.event != "refused":
            sessions.pop(record.fetcher_id, None)
        if record.event in ("reset", "refused", "evicted"):
            for sums in (self.total, self.minutes.sums(now_us)):
                sums.resets += 1

    def _client(self, reader: ReaderConnection, record: ClientRecord) -> None:
        before = {(api.key, api.version, api.upgraded_to): api.requests for api in reader.apis}
        for api in record.apis:
            key = (api.key, api.version, api.upgraded_to)
            _count(self.requests, key, api.requests - before.get(key, 0), _MOST_APIS, (-1, -1, -1))
        reader.apis, reader.software, reader.is_guess = record.apis, record.software[:_MOST_CHARS], record.is_guess

    def _conversion(self, client: ClientSummary, record: ConversionRecord, now_us: int) -> None:
        for sums in (self.total, self.minutes.sums(now_us)):
            sums.converted_records += record.records
            sums.converted_in_bytes += record.in_bytes
            sums.converted_out_bytes += record.out_bytes
            sums.padding_bytes += record.padding_bytes
            sums.conversion_cpu_us += record.cpu_us
        self.converted[record.to_magic] += record.records
        client.converted_records += record.records


def by_rack(brokers: Mapping[int, BrokerReads]) -> dict[str | None, int]:
    """Return the bytes of records by the rack of the brokers that sent them; the key None: brokers without a rack.

    Args: brokers: the statistics by node id.
    """
    found: Counter[str | None] = Counter()
    for broker in brokers.values():
        found[broker.rack] += broker.record_bytes
    return dict(found)


def _resize(sessions: dict[str, SessionSummary], record: FetchRecord) -> None:
    """Set the number of partitions of the fetcher's session to that of its last fetch."""
    session = sessions.get(record.fetcher_id)
    if session is not None and session.session_id == record.session_id:
        sessions[record.fetcher_id] = attrs.evolve(session, partitions=record.size)


def _count(counter: Counter[_K], key: _K, amount: int, most: int, other: _K) -> None:
    """Add *amount* to *key*; to *other* if the key is new and *counter* has *most* keys already."""
    counter[key if key in counter or len(counter) < most else other] += amount
