"""Every span, and every attribute of one: name, type, unit, meaning. The one place where they are declared.

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
    """A kind of span."""

    name: str
    """Of one; a destination may follow it."""
    kind: Kind
    meaning: str


@attrs.frozen(eq=False)
class Attribute:
    """What a span may tell. It is left out where it is not known, or says nothing."""

    name: str
    type: Type
    unit: str
    """Empty for what is not counted or measured."""
    meaning: str
    spans: tuple[SpanType, ...]


POLL: Final = SpanType(
    "poll", "client", "A fetch of a client: from the request's arrival to its answer's last byte."
)
FETCH: Final = SpanType("fetch", "client", "A fetch of Sidefetch's own: from its sending to a broker's answer.")
CONVERT: Final = SpanType(
    "convert",
    "internal",
    "One partition's records, converted. Ends when the last are made; as long as the CPU's work.",
)
RESET: Final = SpanType(
    "reset", "internal", "A session was refused, reset or evicted. Begins when it was last asked in, if it was."
)
UNCLAIMED: Final = SpanType(
    "unclaimed", "internal", "What was read for a client that has gone before an answer with it could be given."
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
CLIENT_ID = _one("messaging.client.id", "string", "", "The client's.", POLL, UNCLAIMED)
CLUSTER_ID = _one("messaging.kafka.cluster.id", "string", "", "The cluster's.", POLL)
DESTINATION = _one(
    "messaging.destination.name",
    "string",
    "",
    "The topic, where there is one only that records are of.",
    POLL,
    FETCH,
)
MESSAGES = _one(
    "messaging.batch.message_count",
    "int",
    "{message}",
    "Records delivered, by the headers of their batches; left out where these are too many to be looked at.",
    POLL,
)
SERVER_ADDRESS = _one(
    "server.address", "string", "", "The broker's host: of `poll`, the one asked.", POLL, FETCH, RESET
)
SERVER_PORT = _one("server.port", "int", "", "The broker's port.", POLL, FETCH, RESET)
CLIENT_ADDRESS = _one("client.address", "string", "", "Where the client connects from.", POLL, UNCLAIMED)
CLIENT_PORT = _one("client.port", "int", "", "Its port.", POLL, UNCLAIMED)
ERROR_TYPE = _one("error.type", "string", "", "Kafka's name of the error; the first of several.", POLL, FETCH)

CONNECTION = _own("connection", "int", "", "Tells the clients' connections of a process apart.", POLL, UNCLAIMED)
OWN_RACK = _own("own_rack", "string", "", "The rack that Sidefetch is in.", POLL)
NODE = _own("node", "int", "", "The broker's node id: of `poll`, the one asked.", POLL, FETCH, RESET)
RACK = _own("rack", "string", "", "The broker's rack.", FETCH, RESET)
VERSION = _own(
    "fetch.version", "int", "", "Fetch version: the client's, or the one spoken to the broker.", POLL, FETCH
)
ROUTE = _own(
    "route",
    "string",
    "",
    "Why this broker: it leads (`leader`), the leader prefers it (`preferred`), Sidefetch does (`selected`), or it"
    " leads and was not told the rack (`rackless`).",
    FETCH,
)
LANE = _own("lane.name", "string", "", "`patient`, `quick` or `rackless`.", FETCH)
LANE_ID = _own("lane.id", "string", "", "Tells the lanes of a connection apart.", FETCH, RESET)
AHEAD = _own("ahead", "boolean", "", "Whether the broker answered before the client asked.", FETCH)
SESSION_KIND = _own(
    "session.kind",
    "string",
    "",
    "`incremental`: within a session; `full`: asks for one; `sessionless`: does not.",
    FETCH,
)
SESSION_ID = _own(
    "session.id", "int", "", "Of `poll`, the client's with Sidefetch; else the broker's.", POLL, FETCH, RESET
)
SESSION_EPOCH = _own("session.epoch", "int", "", "The session epoch of the request (KIP-227).", POLL, FETCH)
SESSION_HITS = _own("session.hits", "int", "{fetch}", "Fetches at brokers that were within a session.", POLL)
SESSION_RESETS = _own("session.resets", "int", "{session}", "How many `reset` spans are below.", POLL)
SESSION_SIDE = _own("session.side", "string", "", "Whose: `upstream` at a broker, `client` with Sidefetch.", RESET)
SESSION_EVENT = _own("session.event", "string", "", "`refused`, `reset` or `evicted`.", RESET)
SESSION_REASON = _own("session.reason", "string", "", "Why, in a few words.", RESET)
SESSION_AGE = _own("session.age", "int", "us", "How long it had been there.", RESET)
WANTED = _own(
    "partitions.wanted", "int", "{partition}", "Asked for, named or remembered by a session.", POLL, FETCH, RESET
)
NAMED = _own("partitions.named", "int", "{partition}", "Named in the request.", POLL, FETCH)
FORGOTTEN = _own("partitions.forgotten", "int", "{partition}", "Taken out of the session by the request.", FETCH)
ANSWERED = _own("partitions.answered", "int", "{partition}", "In the answer.", POLL, FETCH)
WITH_DATA = _own("partitions.with_data", "int", "{partition}", "Of these, with records.", POLL)
REQUEST_BYTES = _own("request.bytes", "int", "By", "The request, with its size prefix.", POLL, FETCH)
RESPONSE_BYTES = _own("response.bytes", "int", "By", "The answer, with its size prefix.", POLL, FETCH)
RECORD_BYTES = _own("records.bytes", "int", "By", "Records in the answer.", FETCH)
SOURCE_BYTES = _own("records.source_bytes", "int", "By", "Records, as they came from brokers.", POLL)
HELD_BYTES = _own("records.held_bytes", "int", "By", "Of these, what was here already when the client asked.", POLL)
DELIVERED_BYTES = _own("records.delivered_bytes", "int", "By", "Records, as the client got them.", POLL)
OTHER_RACK_BYTES = _own(
    "records.other_rack_bytes",
    "int",
    "By",
    "Of the source's, from brokers in other racks; where racks are known.",
    POLL,
)
SOURCE_NODES = _own("source.nodes", "int[]", "", "The brokers that were read, by node id.", POLL)
SOURCE_RACKS = _own("source.racks", "string[]", "", "Their racks, in the same order; empty where not known.", POLL)
SOURCE_SIZES = _own("source.bytes", "int[]", "By", "Records from each, in the same order.", POLL)
SOURCE_WANTED = _own("source.partitions", "int[]", "{partition}", "Wanted from each, in the same order.", POLL)
SOURCE_FOLLOWED = _own(
    "source.followed", "int[]", "{partition}", "Of these, read from a follower, in the same order.", POLL
)
READS = _own("reads.count", "int", "{fetch}", "How many `fetch` spans are below.", POLL, UNCLAIMED)
LEFT_OUT = _own("reads.left_out", "int", "{span}", "Spans that would be below, but are too many.", POLL, UNCLAIMED)
WAITED_POLL = _own("waited.poll", "int", "us", "For news, as long as the client lets us.", POLL)
WAITED_BROKER = _own("waited.broker", "int", "us", "For a broker that has some, or is being reached.", POLL)
WAITED_BUDGET = _own("waited.budget", "int", "us", "For memory (`--memory`).", POLL)
WAITED_CONVERT = _own("waited.convert", "int", "us", "For conversion.", POLL)
WAITED_THROTTLE = _own("waited.throttle", "int", "us", "For the end of a broker's throttling.", POLL)
WAITED_WRITE = _own("waited.write", "int", "us", "For the client, to read its answer.", POLL)
WAITED_NODE = _own(
    "waited.node", "int", "", "The broker that answered last before the client was answered, by node id.", POLL
)
THROTTLE = _own("throttle", "int", "ms", "For how long the broker will not listen; the longest.", POLL, FETCH)
ERRORS = _own("errors.names", "string[]", "", "Kafka's names of all errors told.", POLL)
ERROR_COUNTS = _own("errors.counts", "int[]", "{partition}", "How often each was told, in the same order.", POLL)
TO_MAGIC = _own("converted.to_magic", "int", "", "The record format that the client got.", POLL, CONVERT)
CONVERTED = _own("converted.records", "int", "{message}", "Records converted.", POLL, CONVERT)
CONVERTED_IN = _own("converted.in_bytes", "int", "By", "What they had.", POLL, CONVERT)
CONVERTED_OUT = _own("converted.out_bytes", "int", "By", "What the client can use of it.", POLL, CONVERT)
PADDING = _own(
    "converted.padding_bytes", "int", "By", "Declared before it was converted, then not needed.", POLL, CONVERT
)
CONVERT_CPU = _own("converted.cpu", "int", "us", "CPU time of the threads that converted.", POLL, CONVERT)
COMPRESSED = _own(
    "links.compressed_batches",
    "int",
    "{batch}",
    "Batches that were not searched for producers' spans: nothing is decompressed for that.",
    POLL,
)
UNSEARCHED = _own("links.is_cut", "boolean", "", "There was more than is searched for producers' spans.", POLL)
LINK_OFFSET = _one(
    "messaging.kafka.offset", "int", "", "Of a link: the offset of the first record of that producer's span."
)

ATTRIBUTES: Final = tuple(_declared)


def markdown() -> str:
    """Return the tables of ``TRACES.md``."""
    spans = (f"| `{each.name}` | {each.kind} | {each.meaning} |" for each in SPANS)
    return "\n".join(
        [
            "| span | kind | what it is |",
            "|---|---|---|",
            *spans,
            "",
            "| attribute | type | unit | of | what it is |",
            "|---|---|---|---|---|",
            *(_row(each) for each in ATTRIBUTES),
            "",
        ]
    )


def _row(each: Attribute) -> str:
    return f"| `{each.name}` | {each.type} | {each.unit} | {_names(each.spans)} | {each.meaning} |"


def _names(spans: Iterable[SpanType]) -> str:
    return ", ".join(f"`{each.name}`" for each in spans) or "links"
