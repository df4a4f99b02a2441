"""The creation of spans from event records, at the end of each client fetch.

A broker may answer an upstream fetch while no client fetch is open: its span belongs to the next client fetch, with
its own times. So does a fetch that is answered while a response is being written, since that response cannot
contain its records.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.errors import ErrorCode
from proxy.events import ConversionRecord, ExchangeRecord, FetchRecord, Record, SessionRecord
from proxy.telemetry import attributes as told
from proxy.telemetry.attributes import Attribute, SpanType, Value
from proxy.telemetry.producers import Producer, Producers

__all__ = ["PendingSpans", "Span", "SpanSubject", "shared_span"]

_MOST_BELOW: Final = 128
"""The most child spans: OpenTelemetry's default limit of links, and more than a person reads."""
_MOST_SOURCES: Final = 64
"""The most brokers that are listed."""
_ROUNDING_S: Final = 10e-6
"""The rounding error of times in seconds with waits in microseconds."""
_ENDS: Final = ("refused", "reset", "evicted")
"""Session events that indicate a problem."""

_WAITS: Final = {
    "poll": told.WAITED_POLL,
    "broker": told.WAITED_BROKER,
    "budget": told.WAITED_BUDGET,
    "convert": told.WAITED_CONVERT,
    "throttle": told.WAITED_THROTTLE,
    "write": told.WAITED_WRITE,
}

Attributes = dict[Attribute, Value]
_Below = FetchRecord | SessionRecord | ConversionRecord


@attrs.frozen
class SpanSubject:
    """The client connection of a span, with values for attributes: address, client id, topology, own rack."""

    connection: int
    """The number of the connection, unique within the process."""
    peer: str
    """Host and port of the client."""
    client_id: str | None
    topology: Topology
    rack: str
    """Sidefetch's own rack; empty if it is unknown."""


@attrs.frozen
class Span:
    """A span to be exported, with its times, attributes, error, links and child spans.

    Times are seconds of the process's clock.
    """

    type: SpanType
    start_s: float
    end_s: float
    attributes: Attributes
    destination: str = ""
    """The topic; empty if there are several or none."""
    error: str = ""
    """The name of the error; empty for the status OK."""
    below: tuple["Span", ...] = ()
    """The child spans."""
    links: tuple[Producer, ...] = ()
    """The producers' spans to link to."""

    @property
    def name(self) -> str:
        return f"{self.type.name} {self.destination}".rstrip()


@attrs.define
class PendingSpans:
    """The event records of one client connection that wait to become child spans of its next client fetch.

    At most 128 are kept; beyond that, the oldest is dropped and counted.
    """

    _told: deque[tuple[float, _Below]] = attrs.field(factory=deque, init=False)
    _left_out: int = attrs.field(default=0, init=False)

    def __bool__(self) -> bool:
        return bool(self._told)

    def add(self, record: Record, now_s: float) -> None:
        """Keep *record* for a child span; ignore the types of records that have no child span.

        Upstream fetches, conversions, and sessions that were refused, reset or evicted have one.

        Args: now_s: the time of the record; of an upstream fetch, the time of its response is used instead.
        """
        if isinstance(record, FetchRecord):
            now_s = record.answered_s
        elif not isinstance(record, ConversionRecord | SessionRecord) or not _is_told(record):
            return
        if len(self._told) >= _MOST_BELOW:
            self._told.popleft()
            self._left_out += 1
        self._told.append((now_s, record))

    def drop(self, exchange: ExchangeRecord) -> None:
        """Drop the records that would be child spans of *exchange*, a client fetch that is not sampled.

        Upstream fetches that were answered after its response was composed stay, for the next client fetch.
        """
        self._take(_handed_out_s(exchange))

    def exchange(self, record: ExchangeRecord, about: SpanSubject, producers: Producers | None = None) -> Span:
        """Return the span of the client fetch *record*; the kept records become its child spans, and are removed.

        Upstream fetches that were answered after its response was composed stay, for the next client fetch.

        Args: producers: the producers' spans of the delivered records; None if the records were not searched.
        """
        below, left_out = self._take(_handed_out_s(record))
        return _exchange(record, below, left_out, about, producers)

    def unclaimed(self, about: SpanSubject, now_s: float) -> Span:
        """Return a span ``unclaimed`` that has all kept records as child spans, and remove them.

        Called at the end of the connection: no further client fetch can have them. The span ends at *now_s*.
        """
        below, left_out = self._take(float("inf"))
        spans = tuple(_below(at_s, each, about) for at_s, each in below)
        start_s = min((each.start_s for each in spans), default=now_s)
        attributes = _client(about) | {
            told.READS: sum(each.type is told.FETCH for each in spans),
            told.LEFT_OUT: left_out,
        }
        return Span(told.UNCLAIMED, start_s, now_s, _known(attributes), below=spans)

    def _take(self, until_s: float) -> tuple[list[tuple[float, _Below]], int]:
        """Remove the records until *until_s*, and all conversions, which belong to the last response.

        Returns: these records with their times, and the number of records that were dropped before.
        """
        taken: list[tuple[float, _Below]] = []
        kept: list[tuple[float, _Below]] = []
        for at_s, each in self._told:
            belongs = isinstance(each, ConversionRecord) or at_s <= until_s
            (taken if belongs else kept).append((at_s, each))
        self._told = deque(kept)
        left_out, self._left_out = self._left_out, 0
        return taken, left_out


def shared_span(record: Record, now_s: float, about: SpanSubject) -> Span | None:
    """Return the span of an upstream fetch or session of a log cache that clients share, without a client.

    It is a trace of its own, because no single client fetch caused it. Return None if the record has no span.

    Args: now_s: the time of the record.
    """
    if isinstance(record, FetchRecord) or (isinstance(record, SessionRecord) and _is_told(record)):
        return _below(now_s, record, about)
    return None


def _is_told(record: ConversionRecord | SessionRecord) -> bool:
    return isinstance(record, ConversionRecord) or record.event in _ENDS


def _handed_out_s(record: ExchangeRecord) -> float:
    """Return the time at which the response was composed: it contains no later upstream fetch."""
    waited_us = dict(record.waited_us)
    return record.ended_s - (waited_us.get("write", 0) + waited_us.get("convert", 0)) / 1e6 + _ROUNDING_S


def _exchange(
    record: ExchangeRecord,
    below: Sequence[tuple[float, _Below]],
    left_out: int,
    about: SpanSubject,
    producers: Producers | None,
) -> Span:
    names = tuple(_error_name(code) for code, _ in record.errors)
    error = names[0] if names else ""
    destination = _destination(record)
    attributes: Attributes = {
        told.SYSTEM: "kafka",
        told.OPERATION: told.POLL.name,
        told.OPERATION_TYPE: "receive",
        told.CLUSTER_ID: about.topology.cluster_id or "",
        told.DESTINATION: destination,
        told.OWN_RACK: about.rack,
        told.LEFT_OUT: left_out,
        told.ERROR_TYPE: error,
        told.ERRORS: names,
        told.ERROR_COUNTS: tuple(count for _, count in record.errors),
        **{_WAITS[cause]: waited_us for cause, waited_us in record.waited_us},
        **_client(about, record.client_id),
        **_broker(record.node, about, has_rack=False),
        **_shape(record),
        **_sources(record, about),
        **_reads([each for _, each in below]),
        **_converted(record.converted),
        **_searched(producers),
    }
    spans = tuple(_below(at_s, each, about, record.started_s) for at_s, each in below)
    links = () if producers is None else tuple(producers.found.values())
    return Span(told.POLL, record.started_s, record.ended_s, _known(attributes), destination, error, spans, links)


def _destination(record: ExchangeRecord) -> str:
    """Return the topic of the records, or of the requested partitions; empty if there are several."""
    with_records = {share.topic for share in record.sources if share.record_bytes}
    topics = with_records or {share.topic for share in record.sources}
    return topics.pop() if len(topics) == 1 else ""


def _shape(record: ExchangeRecord) -> Attributes:
    return {
        told.VERSION: record.version,
        told.SESSION_ID: record.session_id,
        told.SESSION_EPOCH: record.session_epoch,
        told.WANTED: record.wanted,
        told.NAMED: record.named,
        told.ANSWERED: record.answered,
        told.WITH_DATA: record.with_data,
        told.REQUEST_BYTES: record.request_bytes,
        told.RESPONSE_BYTES: record.response_bytes,
        told.SOURCE_BYTES: record.source_bytes,
        told.HELD_BYTES: record.held_bytes,
        told.DELIVERED_BYTES: record.delivered_bytes,
    }


def _reads(below: Sequence[_Below]) -> Attributes:
    """Return the attributes that summarize the child spans."""
    reads = [each for each in below if isinstance(each, FetchRecord)]
    known: Attributes = {
        told.READS: len(reads),
        told.SESSION_HITS: sum(each.kind == "incremental" and not each.error for each in reads),
        told.SESSION_RESETS: sum(isinstance(each, SessionRecord) for each in below),
        told.THROTTLE: max((each.throttle_ms for each in reads), default=0),
    }
    return known | {told.WAITED_NODE: max(reads, key=lambda each: each.answered_s).node} if reads else known


def _below(at_s: float, record: _Below, about: SpanSubject, started_s: float | None = None) -> Span:
    match record:
        case FetchRecord():
            return _fetch(record, about, started_s)
        case SessionRecord():
            return _reset(record, at_s, about)
        case ConversionRecord():
            return Span(told.CONVERT, at_s - record.cpu_us / 1e6, at_s, _known(_converted(record)))


def _fetch(record: FetchRecord, about: SpanSubject, started_s: float | None) -> Span:
    destination = record.topics[0][0] if len(record.topics) == 1 else ""
    error = _error_name(record.error) if record.error else ""
    attributes: Attributes = {
        told.SYSTEM: "kafka",
        told.OPERATION: told.FETCH.name,
        told.DESTINATION: destination,
        told.ERROR_TYPE: error,
        told.VERSION: record.version,
        told.ROUTE: record.route,
        told.FETCHER: record.fetcher,
        told.FETCHER_ID: record.fetcher_id,
        told.SESSION_KIND: record.kind,
        told.SESSION_ID: record.session_id,
        told.SESSION_EPOCH: record.epoch,
        told.WANTED: record.size,
        told.NAMED: record.named,
        told.FORGOTTEN: record.forgotten,
        told.ANSWERED: record.answered,
        told.REQUEST_BYTES: record.request_bytes,
        told.RESPONSE_BYTES: record.response_bytes,
        told.RECORD_BYTES: record.record_bytes,
        told.THROTTLE: record.throttle_ms,
        **_broker(record.node, about),
    }
    if started_s is not None:
        attributes[told.AHEAD] = record.answered_s < started_s
    return Span(told.FETCH, record.sent_s, record.answered_s, _known(attributes), destination, error)


def _reset(record: SessionRecord, at_s: float, about: SpanSubject) -> Span:
    attributes: Attributes = {
        told.SESSION_SIDE: record.side,
        told.SESSION_EVENT: record.event,
        told.SESSION_REASON: record.reason,
        told.SESSION_ID: record.session_id,
        told.FETCHER_ID: record.fetcher_id,
        told.WANTED: record.partitions,
        **_broker(record.node, about),
    }
    if record.created_s is not None:
        attributes[told.SESSION_AGE] = round((at_s - record.created_s) * 1e6)
    start_s = at_s if record.used_s is None else min(record.used_s, at_s)
    return Span(told.RESET, start_s, at_s, _known(attributes), error=record.reason or record.event)


def _client(about: SpanSubject, client_id: str | None = None) -> Attributes:
    host, _, port = about.peer.rpartition(":")
    known: Attributes = {
        told.CONNECTION: about.connection,
        told.CLIENT_ID: client_id or about.client_id or "",
        told.CLIENT_ADDRESS: host.strip("[]"),
    }
    return known | {told.CLIENT_PORT: int(port)} if port.isdecimal() else known


def _broker(node: int, about: SpanSubject, *, has_rack: bool = True) -> Attributes:
    broker = about.topology.brokers.get(BrokerId(node))
    if broker is None:
        return {told.NODE: node}
    known: Attributes = {told.NODE: node, told.SERVER_ADDRESS: broker.host, told.SERVER_PORT: broker.port}
    return known | {told.RACK: broker.rack or ""} if has_rack else known


def _sources(record: ExchangeRecord, about: SpanSubject) -> Attributes:
    """Return the attributes about the brokers that were read, ordered by bytes, the largest first."""
    sizes: dict[int, list[int]] = {}
    for share in record.sources:
        size = sizes.setdefault(share.node, [0, 0, 0])
        size[0] += share.record_bytes
        size[1] += share.wanted
        size[2] += share.wanted * (share.leader != share.node)
    if not sizes:
        return {}
    brokers = about.topology.brokers
    racks = {node: broker.rack or "" for node in sizes if (broker := brokers.get(BrokerId(node))) is not None}
    nodes = sorted(sizes, key=lambda node: (-sizes[node][0], node))[:_MOST_SOURCES]
    attributes: Attributes = {
        told.SOURCE_NODES: tuple(nodes),
        told.SOURCE_RACKS: tuple(racks.get(node, "") for node in nodes),
        told.SOURCE_SIZES: tuple(sizes[node][0] for node in nodes),
        told.SOURCE_WANTED: tuple(sizes[node][1] for node in nodes),
        told.SOURCE_FOLLOWED: tuple(sizes[node][2] for node in nodes),
    }
    if about.rack:
        attributes[told.OTHER_RACK_BYTES] = sum(
            size[0] for node, size in sizes.items() if racks.get(node, "") not in ("", about.rack)
        )
    return attributes


def _converted(record: ConversionRecord | None) -> Attributes:
    if record is None:
        return {}
    return {
        told.TO_MAGIC: record.to_magic,
        told.CONVERTED: record.records,
        told.CONVERTED_IN: record.in_bytes,
        told.CONVERTED_OUT: record.out_bytes,
        told.PADDING: record.padding_bytes,
        told.CONVERT_CPU: record.cpu_us,
    }


def _searched(producers: Producers | None) -> Attributes:
    if producers is None:
        return {}
    known: Attributes = {told.COMPRESSED: producers.compressed_batches, told.UNSEARCHED: producers.is_cut}
    return known | {told.MESSAGES: producers.messages} if producers.counts_all else known


def _known(attributes: Attributes) -> Attributes:
    """Return *attributes* without empty values."""
    return {name: value for name, value in attributes.items() if value not in ("", ())}


def _error_name(code: int) -> str:
    """Return Kafka's name of an error code; the number of an unknown code."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)
