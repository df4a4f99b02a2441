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
from proxy.telemetry import attributes as semconv
from proxy.telemetry.attributes import Attribute, SpanType, Value
from proxy.telemetry.producers import Producer, Producers

__all__ = ["PendingSpans", "Span", "SpanSubject", "shared_span"]

_MOST_CHILDREN: Final = 128
"""The most child spans: OpenTelemetry's default limit of links, and more than a person reads."""
_MOST_SOURCES: Final = 64
"""The most brokers that are listed."""
_ROUNDING_S: Final = 10e-6
"""The rounding error of times in seconds with waits in microseconds."""
_ENDS: Final = ("refused", "reset", "evicted")
"""Session events that indicate a problem."""

_WAITS: Final = {
    "poll": semconv.WAITED_POLL,
    "broker": semconv.WAITED_BROKER,
    "budget": semconv.WAITED_BUDGET,
    "convert": semconv.WAITED_CONVERT,
    "throttle": semconv.WAITED_THROTTLE,
    "write": semconv.WAITED_WRITE,
}

Attributes = dict[Attribute, Value]
_ChildRecord = FetchRecord | SessionRecord | ConversionRecord


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
    children: tuple["Span", ...] = ()
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

    _records: deque[tuple[float, _ChildRecord]] = attrs.field(factory=deque, init=False)
    _left_out: int = attrs.field(default=0, init=False)

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, record: Record, now_s: float) -> None:
        """Keep *record* for a child span; ignore the types of records that have no child span.

        Upstream fetches, conversions, and sessions that were refused, reset or evicted have one.

        Args: now_s: the time of the record; of an upstream fetch, the time of its response is used instead.
        """
        if isinstance(record, FetchRecord):
            now_s = record.answered_s
        elif not isinstance(record, ConversionRecord | SessionRecord) or not _has_span(record):
            return
        if len(self._records) >= _MOST_CHILDREN:
            self._records.popleft()
            self._left_out += 1
        self._records.append((now_s, record))

    def drop(self, exchange: ExchangeRecord) -> None:
        """Drop the records that would be child spans of *exchange*, a client fetch that is not sampled.

        Upstream fetches that were answered after its response was composed stay, for the next client fetch.
        """
        self._take(_composed_s(exchange))

    def make_span(self, record: ExchangeRecord, subject: SpanSubject, producers: Producers | None = None) -> Span:
        """Return the span of the client fetch *record*; the kept records become its child spans, and are removed.

        Upstream fetches that were answered after its response was composed stay, for the next client fetch.

        Args: producers: the producers' spans of the delivered records; None if the records were not searched.
        """
        children, left_out = self._take(_composed_s(record))
        return _client_fetch_span(record, children, left_out, subject, producers)

    def make_unclaimed_span(self, subject: SpanSubject, now_s: float) -> Span:
        """Return a span ``unclaimed`` that has all kept records as child spans, and remove them.

        Called at the end of the connection: no further client fetch can have them. The span ends at *now_s*.
        """
        children, left_out = self._take(float("inf"))
        spans = tuple(_child_span(at_s, each, subject) for at_s, each in children)
        start_s = min((each.start_s for each in spans), default=now_s)
        attributes = _client_attributes(subject) | {
            semconv.READS: sum(each.type is semconv.FETCH for each in spans),
            semconv.LEFT_OUT: left_out,
        }
        return Span(semconv.UNCLAIMED, start_s, now_s, _without_empty(attributes), children=spans)

    def _take(self, until_s: float) -> tuple[list[tuple[float, _ChildRecord]], int]:
        """Remove the records until *until_s*, and all conversions, which belong to the last response.

        Returns: these records with their times, and the number of records that were dropped before.
        """
        taken: list[tuple[float, _ChildRecord]] = []
        kept: list[tuple[float, _ChildRecord]] = []
        for at_s, each in self._records:
            belongs = isinstance(each, ConversionRecord) or at_s <= until_s
            (taken if belongs else kept).append((at_s, each))
        self._records = deque(kept)
        left_out, self._left_out = self._left_out, 0
        return taken, left_out


def shared_span(record: Record, now_s: float, subject: SpanSubject) -> Span | None:
    """Return the span of an upstream fetch or session of a log cache that clients share, without a client.

    It is a trace of its own, because no single client fetch caused it. Return None if the record has no span.

    Args: now_s: the time of the record.
    """
    if isinstance(record, FetchRecord) or (isinstance(record, SessionRecord) and _has_span(record)):
        return _child_span(now_s, record, subject)
    return None


def _has_span(record: ConversionRecord | SessionRecord) -> bool:
    return isinstance(record, ConversionRecord) or record.event in _ENDS


def _composed_s(record: ExchangeRecord) -> float:
    """Return the time at which the response was composed: it contains no later upstream fetch."""
    waited_us = dict(record.waited_us)
    return record.ended_s - (waited_us.get("write", 0) + waited_us.get("convert", 0)) / 1e6 + _ROUNDING_S


def _client_fetch_span(
    record: ExchangeRecord,
    children: Sequence[tuple[float, _ChildRecord]],
    left_out: int,
    subject: SpanSubject,
    producers: Producers | None,
) -> Span:
    names = tuple(_error_name(code) for code, _ in record.errors)
    error = names[0] if names else ""
    destination = _destination(record)
    attributes: Attributes = {
        semconv.SYSTEM: "kafka",
        semconv.OPERATION: semconv.POLL.name,
        semconv.OPERATION_TYPE: "receive",
        semconv.CLUSTER_ID: subject.topology.cluster_id or "",
        semconv.DESTINATION: destination,
        semconv.OWN_RACK: subject.rack,
        semconv.LEFT_OUT: left_out,
        semconv.ERROR_TYPE: error,
        semconv.ERRORS: names,
        semconv.ERROR_COUNTS: tuple(count for _, count in record.errors),
        **{_WAITS[cause]: waited_us for cause, waited_us in record.waited_us},
        **_client_attributes(subject, record.client_id),
        **_broker_attributes(record.node, subject, has_rack=False),
        **_request_attributes(record),
        **_source_attributes(record, subject),
        **_summarize_children([each for _, each in children]),
        **_conversion_attributes(record.converted),
        **_producer_attributes(producers),
    }
    spans = tuple(_child_span(at_s, each, subject, record.started_s) for at_s, each in children)
    links = () if producers is None else tuple(producers.found.values())
    return Span(
        semconv.POLL, record.started_s, record.ended_s, _without_empty(attributes), destination, error, spans, links
    )


def _destination(record: ExchangeRecord) -> str:
    """Return the topic of the records, or of the requested partitions; empty if there are several."""
    with_records = {share.topic for share in record.sources if share.record_bytes}
    topics = with_records or {share.topic for share in record.sources}
    return topics.pop() if len(topics) == 1 else ""


def _request_attributes(record: ExchangeRecord) -> Attributes:
    return {
        semconv.VERSION: record.version,
        semconv.SESSION_ID: record.session_id,
        semconv.SESSION_EPOCH: record.session_epoch,
        semconv.WANTED: record.wanted,
        semconv.NAMED: record.named,
        semconv.ANSWERED: record.answered,
        semconv.WITH_DATA: record.with_data,
        semconv.REQUEST_BYTES: record.request_bytes,
        semconv.RESPONSE_BYTES: record.response_bytes,
        semconv.SOURCE_BYTES: record.source_bytes,
        semconv.HELD_BYTES: record.held_bytes,
        semconv.DELIVERED_BYTES: record.delivered_bytes,
    }


def _summarize_children(children: Sequence[_ChildRecord]) -> Attributes:
    """Return the attributes that summarize the child spans."""
    reads = [each for each in children if isinstance(each, FetchRecord)]
    known: Attributes = {
        semconv.READS: len(reads),
        semconv.SESSION_HITS: sum(each.kind == "incremental" and not each.error for each in reads),
        semconv.SESSION_RESETS: sum(isinstance(each, SessionRecord) for each in children),
        semconv.THROTTLE: max((each.throttle_ms for each in reads), default=0),
    }
    return known | {semconv.WAITED_NODE: max(reads, key=lambda each: each.answered_s).node} if reads else known


def _child_span(at_s: float, record: _ChildRecord, subject: SpanSubject, started_s: float | None = None) -> Span:
    match record:
        case FetchRecord():
            return _upstream_fetch_span(record, subject, started_s)
        case SessionRecord():
            return _session_span(record, at_s, subject)
        case ConversionRecord():
            return Span(
                semconv.CONVERT, at_s - record.cpu_us / 1e6, at_s, _without_empty(_conversion_attributes(record))
            )


def _upstream_fetch_span(record: FetchRecord, subject: SpanSubject, started_s: float | None) -> Span:
    destination = record.topics[0][0] if len(record.topics) == 1 else ""
    error = _error_name(record.error) if record.error else ""
    attributes: Attributes = {
        semconv.SYSTEM: "kafka",
        semconv.OPERATION: semconv.FETCH.name,
        semconv.DESTINATION: destination,
        semconv.ERROR_TYPE: error,
        semconv.VERSION: record.version,
        semconv.ROUTE: record.route,
        semconv.FETCHER: record.fetcher,
        semconv.FETCHER_ID: record.fetcher_id,
        semconv.SESSION_KIND: record.kind,
        semconv.SESSION_ID: record.session_id,
        semconv.SESSION_EPOCH: record.epoch,
        semconv.WANTED: record.size,
        semconv.NAMED: record.named,
        semconv.FORGOTTEN: record.forgotten,
        semconv.ANSWERED: record.answered,
        semconv.REQUEST_BYTES: record.request_bytes,
        semconv.RESPONSE_BYTES: record.response_bytes,
        semconv.RECORD_BYTES: record.record_bytes,
        semconv.THROTTLE: record.throttle_ms,
        **_broker_attributes(record.node, subject),
    }
    if started_s is not None:
        attributes[semconv.AHEAD] = record.answered_s < started_s
    return Span(semconv.FETCH, record.sent_s, record.answered_s, _without_empty(attributes), destination, error)


def _session_span(record: SessionRecord, at_s: float, subject: SpanSubject) -> Span:
    attributes: Attributes = {
        semconv.SESSION_SIDE: record.side,
        semconv.SESSION_EVENT: record.event,
        semconv.SESSION_REASON: record.reason,
        semconv.SESSION_ID: record.session_id,
        semconv.FETCHER_ID: record.fetcher_id,
        semconv.WANTED: record.partitions,
        **_broker_attributes(record.node, subject),
    }
    if record.created_s is not None:
        attributes[semconv.SESSION_AGE] = round((at_s - record.created_s) * 1e6)
    start_s = at_s if record.used_s is None else min(record.used_s, at_s)
    return Span(semconv.RESET, start_s, at_s, _without_empty(attributes), error=record.reason or record.event)


def _client_attributes(subject: SpanSubject, client_id: str | None = None) -> Attributes:
    host, _, port = subject.peer.rpartition(":")
    known: Attributes = {
        semconv.CONNECTION: subject.connection,
        semconv.CLIENT_ID: client_id or subject.client_id or "",
        semconv.CLIENT_ADDRESS: host.strip("[]"),
    }
    return known | {semconv.CLIENT_PORT: int(port)} if port.isdecimal() else known


def _broker_attributes(node: int, subject: SpanSubject, *, has_rack: bool = True) -> Attributes:
    broker = subject.topology.brokers.get(BrokerId(node))
    if broker is None:
        return {semconv.NODE: node}
    known: Attributes = {semconv.NODE: node, semconv.SERVER_ADDRESS: broker.host, semconv.SERVER_PORT: broker.port}
    return known | {semconv.RACK: broker.rack or ""} if has_rack else known


def _source_attributes(record: ExchangeRecord, subject: SpanSubject) -> Attributes:
    """Return the attributes about the brokers that were read, ordered by bytes, the largest first."""
    sizes: dict[int, list[int]] = {}
    for share in record.sources:
        size = sizes.setdefault(share.node, [0, 0, 0])
        size[0] += share.record_bytes
        size[1] += share.wanted
        size[2] += share.wanted * (share.leader != share.node)
    if not sizes:
        return {}
    brokers = subject.topology.brokers
    racks = {node: broker.rack or "" for node in sizes if (broker := brokers.get(BrokerId(node))) is not None}
    nodes = sorted(sizes, key=lambda node: (-sizes[node][0], node))[:_MOST_SOURCES]
    attributes: Attributes = {
        semconv.SOURCE_NODES: tuple(nodes),
        semconv.SOURCE_RACKS: tuple(racks.get(node, "") for node in nodes),
        semconv.SOURCE_SIZES: tuple(sizes[node][0] for node in nodes),
        semconv.SOURCE_WANTED: tuple(sizes[node][1] for node in nodes),
        semconv.SOURCE_FOLLOWED: tuple(sizes[node][2] for node in nodes),
    }
    if subject.rack:
        attributes[semconv.OTHER_RACK_BYTES] = sum(
            size[0] for node, size in sizes.items() if racks.get(node, "") not in ("", subject.rack)
        )
    return attributes


def _conversion_attributes(record: ConversionRecord | None) -> Attributes:
    if record is None:
        return {}
    return {
        semconv.TO_MAGIC: record.to_magic,
        semconv.CONVERTED: record.records,
        semconv.CONVERTED_IN: record.in_bytes,
        semconv.CONVERTED_OUT: record.out_bytes,
        semconv.PADDING: record.padding_bytes,
        semconv.CONVERT_CPU: record.cpu_us,
    }


def _producer_attributes(producers: Producers | None) -> Attributes:
    if producers is None:
        return {}
    known: Attributes = {semconv.COMPRESSED: producers.compressed_batches, semconv.UNSEARCHED: producers.is_cut}
    return known | {semconv.MESSAGES: producers.messages} if producers.counts_all else known


def _without_empty(attributes: Attributes) -> Attributes:
    """Return *attributes* without empty values."""
    return {name: value for name, value in attributes.items() if value not in ("", ())}


def _error_name(code: int) -> str:
    """Return Kafka's name of an error code; the number of an unknown code."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)
