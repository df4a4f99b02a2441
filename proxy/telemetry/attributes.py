"""The declarations of every span and every span attribute: name, type, unit, meaning.

Names without ``sidefetch.`` are OpenTelemetry's: semantic conventions for messaging, for Kafka, and general ones.
Units are UCUM's, as OpenTelemetry writes them.
"""

from collections.abc import Iterable
from typing import Final, Literal

import attrs

__all__ = ["ATTRIBUTES", "SPANS", "Attribute", "Kind", "SpanType", "Type", "Value", "markdown"]

Type = Literal["string", "int", "boolean", "string[]", "int[]"]
Kind = Literal["client", "internal"]
Value = str | int | bool | tuple[str, ...] | tuple[int, ...]


@attrs.frozen(eq=False)
class SpanType:
    """The declaration of one kind of span, such as ``poll``: its name, its OpenTelemetry kind and its meaning."""

    name: str
    """The beginning of the span's name; a space and the topic may follow it."""
    kind: Kind
    """The span kind of OpenTelemetry."""
    meaning: str
    """The description in ``TRACES.md``."""


@attrs.frozen(eq=False)
class Attribute:
    """The declaration of one span attribute: its name, type, unit, meaning, and the kinds of spans that have it.

    A span lacks the attribute if the value is unknown or empty.
    """

    name: str
    type: Type
    unit: str
    """The unit (UCUM), such as ``By``; empty if the value is no count or measurement."""
    meaning: str
    """The description in ``TRACES.md``."""
    spans: tuple[SpanType, ...]
    """The kinds of spans that may have the attribute; empty for an attribute of span links."""


POLL: Final = SpanType(
    "poll", "client", "A fetch of a client, from the arrival of the request to the last byte of the response."
)
FETCH: Final = SpanType("fetch", "client", "A fetch of Sidefetch, from its sending to the broker's response.")
CONVERT: Final = SpanType(
    "convert",
    "internal",
    "The conversion of one partition's records. It ends with the last record, and lasts as long as the CPU time.",
)
RESET: Final = SpanType(
    "reset",
    "internal",
    "A session was refused, reset or evicted. It begins with the last request in the session, if there was one.",
)
UNCLAIMED: Final = SpanType(
    "unclaimed", "internal", "Records that were read for a client that left before the response."
)
SPANS: Final = (POLL, FETCH, CONVERT, RESET, UNCLAIMED)

_declared: list[Attribute] = []


def _one(name: str, kind: Type, unit: str, meaning: str, *spans: SpanType) -> Attribute:
    _declared.append(Attribute(name, kind, unit, meaning, spans))
    return _declared[-1]


def _own(name: str, kind: Type, unit: str, meaning: str, *spans: SpanType) -> Attribute:
    return _one(f"sidefetch.{name}", kind, unit, meaning, *spans)


SYSTEM = _one("messaging.system", "string", "", "`kafka`.", POLL, FETCH)
OPERATION = _one("messaging.operation.name", "string", "", "`poll` or `fetch`.", POLL, FETCH)
OPERATION_TYPE = _one("messaging.operation.type", "string", "", "`receive`.", POLL)
CLIENT_ID = _one("messaging.client.id", "string", "", "The client's id.", POLL, UNCLAIMED)
CLUSTER_ID = _one("messaging.kafka.cluster.id", "string", "", "The cluster's id.", POLL)
DESTINATION = _one(
    "messaging.destination.name",
    "string",
    "",
    "The topic, if all records are of one topic.",
    POLL,
    FETCH,
)
MESSAGES = _one(
    "messaging.batch.message_count",
    "int",
    "{message}",
    "Records delivered, from the headers of their batches; absent if there are too many batches.",
    POLL,
)
SERVER_ADDRESS = _one(
    "server.address",
    "string",
    "",
    "The broker's host; of `poll`, the broker that the client asked.",
    POLL,
    FETCH,
    RESET,
)
SERVER_PORT = _one("server.port", "int", "", "The broker's port.", POLL, FETCH, RESET)
CLIENT_ADDRESS = _one("client.address", "string", "", "The client's address.", POLL, UNCLAIMED)
CLIENT_PORT = _one("client.port", "int", "", "The client's port.", POLL, UNCLAIMED)
ERROR_TYPE = _one("error.type", "string", "", "Kafka's name of the first error.", POLL, FETCH)

CONNECTION = _own("connection", "int", "", "Identifies the client connection within the process.", POLL, UNCLAIMED)
OWN_RACK = _own("own_rack", "string", "", "The rack of this process.", POLL)
NODE = _own(
    "node", "int", "", "The broker's node id; of `poll`, the broker that the client asked.", POLL, FETCH, RESET
)
RACK = _own("rack", "string", "", "The broker's rack.", FETCH, RESET)
VERSION = _own(
    "fetch.version", "int", "", "Fetch version of the client, or of the request to the broker.", POLL, FETCH
)
ROUTE = _own(
    "route",
    "string",
    "",
    "Reason for this broker: it is the leader (`leader`), preferred by the leader (`preferred`),"
    " selected by Sidefetch (`selected`), or the leader without knowing the rack (`rackless`).",
    FETCH,
)
FETCHER = _own("fetcher.name", "string", "", "`long-poll`, `live`, `catch-up` or `rackless`.", FETCH)
FETCHER_ID = _own("fetcher.id", "string", "", "Identifies the upstream connection.", FETCH, RESET)
AHEAD = _own("ahead", "boolean", "", "Whether the broker answered before the client asked.", FETCH)
SESSION_KIND = _own(
    "session.kind",
    "string",
    "",
    "`incremental`: within a session; `full`: requests a session; `sessionless`: neither.",
    FETCH,
)
SESSION_ID = _own(
    "session.id",
    "int",
    "",
    "Of `poll`, the client's session with Sidefetch; otherwise the session at the broker.",
    POLL,
    FETCH,
    RESET,
)
SESSION_EPOCH = _own("session.epoch", "int", "", "The session epoch of the request (KIP-227).", POLL, FETCH)
SESSION_HITS = _own("session.hits", "int", "{fetch}", "Fetches at brokers within a session.", POLL)
SESSION_RESETS = _own("session.resets", "int", "{session}", "Number of `reset` spans below.", POLL)
SESSION_SIDE = _own(
    "session.side", "string", "", "`upstream`: a session at a broker; `client`: a session with Sidefetch.", RESET
)
SESSION_EVENT = _own("session.event", "string", "", "`refused`, `reset` or `evicted`.", RESET)
SESSION_REASON = _own("session.reason", "string", "", "The reason, in a few words.", RESET)
SESSION_AGE = _own("session.age", "int", "us", "Age of the session.", RESET)
WANTED = _own(
    "partitions.wanted",
    "int",
    "{partition}",
    "Requested partitions, named or remembered by a session.",
    POLL,
    FETCH,
    RESET,
)
NAMED = _own("partitions.named", "int", "{partition}", "Named in the request.", POLL, FETCH)
FORGOTTEN = _own("partitions.forgotten", "int", "{partition}", "Removed from the session by the request.", FETCH)
ANSWERED = _own("partitions.answered", "int", "{partition}", "Partitions in the response.", POLL, FETCH)
WITH_DATA = _own("partitions.with_data", "int", "{partition}", "Partitions with records in the response.", POLL)
REQUEST_BYTES = _own("request.bytes", "int", "By", "Size of the request, with its size prefix.", POLL, FETCH)
RESPONSE_BYTES = _own("response.bytes", "int", "By", "Size of the response, with its size prefix.", POLL, FETCH)
RECORD_BYTES = _own("records.bytes", "int", "By", "Records in the response.", FETCH)
SOURCE_BYTES = _own("records.source_bytes", "int", "By", "Records, as they came from brokers.", POLL)
HELD_BYTES = _own(
    "records.held_bytes", "int", "By", "Of these, records that were buffered before the client asked.", POLL
)
DELIVERED_BYTES = _own("records.delivered_bytes", "int", "By", "Records, as delivered to the client.", POLL)
OTHER_RACK_BYTES = _own(
    "records.other_rack_bytes",
    "int",
    "By",
    "Of the source's, records from brokers in other racks, if racks are known. Each client has those of shared"
    " reads: a sum over spans counts them several times.",
    POLL,
)
SOURCE_NODES = _own("source.nodes", "int[]", "", "The brokers that were read, by node id.", POLL)
SOURCE_RACKS = _own("source.racks", "string[]", "", "Their racks, in the same order; empty if unknown.", POLL)
SOURCE_SIZES = _own("source.bytes", "int[]", "By", "Records from each, in the same order.", POLL)
SOURCE_WANTED = _own(
    "source.partitions", "int[]", "{partition}", "Partitions requested from each, in the same order.", POLL
)
SOURCE_FOLLOWED = _own(
    "source.followed", "int[]", "{partition}", "Of these, read from a follower, in the same order.", POLL
)
READS = _own("reads.count", "int", "{fetch}", "Number of `fetch` spans below.", POLL, UNCLAIMED)
LEFT_OUT = _own(
    "reads.left_out", "int", "{span}", "Child spans that were left out because there are too many.", POLL, UNCLAIMED
)
WAITED_POLL = _own("waited.poll", "int", "us", "Wait for new records, within the client's max wait.", POLL)
WAITED_BROKER = _own(
    "waited.broker", "int", "us", "Wait for a broker that has records, or that is being connected.", POLL
)
WAITED_BUDGET = _own("waited.budget", "int", "us", "Wait for memory (`--memory`).", POLL)
WAITED_CONVERT = _own("waited.convert", "int", "us", "Wait for conversion.", POLL)
WAITED_THROTTLE = _own("waited.throttle", "int", "us", "Wait for the end of throttling.", POLL)
WAITED_WRITE = _own("waited.write", "int", "us", "Wait for the client to read its response.", POLL)
WAITED_NODE = _own("waited.node", "int", "", "Node id of the broker that answered last before the response.", POLL)
THROTTLE = _own("throttle", "int", "ms", "Longest throttle time of the brokers.", POLL, FETCH)
ERRORS = _own("errors.names", "string[]", "", "Kafka's names of all errors in the response.", POLL)
ERROR_COUNTS = _own("errors.counts", "int[]", "{partition}", "Number of each, in the same order.", POLL)
TO_MAGIC = _own("converted.to_magic", "int", "", "Record format of the delivered records.", POLL, CONVERT)
CONVERTED = _own("converted.records", "int", "{message}", "Records converted.", POLL, CONVERT)
CONVERTED_IN = _own("converted.in_bytes", "int", "By", "Size before conversion.", POLL, CONVERT)
CONVERTED_OUT = _own("converted.out_bytes", "int", "By", "Size after conversion, without padding.", POLL, CONVERT)
PADDING = _own(
    "converted.padding_bytes", "int", "By", "Declared before conversion, and then not needed.", POLL, CONVERT
)
CONVERT_CPU = _own("converted.cpu", "int", "us", "CPU time of the conversion threads.", POLL, CONVERT)
COMPRESSED = _own(
    "links.compressed_batches",
    "int",
    "{batch}",
    "Compressed batches, which were not searched for producers' spans.",
    POLL,
)
UNSEARCHED = _own(
    "links.is_cut", "boolean", "", "Whether the response had more than is searched for producers' spans.", POLL
)
LINK_OFFSET = _one(
    "messaging.kafka.offset", "int", "", "Of a link: offset of the first record from that producer's span."
)

ATTRIBUTES: Final = tuple(_declared)


def markdown() -> str:
    """Return the two Markdown tables of ``TRACES.md``: all kinds of spans, and all span attributes."""
    spans = (f"| `{each.name}` | {each.kind} | {each.meaning} |" for each in SPANS)
    return "\n".join(
        [
            "| span | kind | meaning |",
            "|---|---|---|",
            *spans,
            "",
            "| attribute | type | unit | of | meaning |",
            "|---|---|---|---|---|",
            *(_row(each) for each in ATTRIBUTES),
            "",
        ]
    )


def _row(each: Attribute) -> str:
    return f"| `{each.name}` | {each.type} | {each.unit} | {_names(each.spans)} | {each.meaning} |"


def _names(spans: Iterable[SpanType]) -> str:
    return ", ".join(f"`{each.name}`" for each in spans) or "links"
