"""Records of events for telemetry, such as fetches: ``relay`` emits them, and ``net`` counts, logs or writes them.

Times that end in ``_s`` are seconds of the process's clock, which is unrelated to other clocks. Durations that end
in ``_us`` are microseconds.
"""

from typing import Literal

import attrs

__all__ = [
    "Cause",
    "ClientRecord",
    "ConversionRecord",
    "DamageRecord",
    "ExchangeRecord",
    "FetchKind",
    "FetchRecord",
    "FetcherName",
    "Record",
    "RouteKind",
    "SessionEvent",
    "SessionRecord",
    "SessionSide",
    "SourceShare",
    "TruncationRecord",
    "UsedApi",
]

SessionEvent = Literal["created", "refused", "reset", "evicted", "closed"]
SessionSide = Literal["upstream", "client"]
FetchKind = Literal["full", "incremental", "sessionless"]
FetcherName = Literal["long-poll", "live", "catch-up", "rackless"]
"""The kind of a fetcher, an upstream fetch loop on one broker connection.

``long-poll``: its requests wait at the broker. ``live``: for partitions that move, or that arrive while a long poll
waits. ``catch-up``: its requests do not wait. ``rackless``: of any kind, to the leader, without a rack.
"""
RouteKind = Literal["leader", "preferred", "selected", "rackless"]
"""The reason that a broker is read.

``leader``: it leads the partitions. ``preferred``: the leader named it as the preferred read replica.
``selected``: Sidefetch selected it (``--replica-selector rack-aware``). ``rackless``: it leads the partitions, and
the fetch has no rack, so that the leader does not name another replica.
"""
Cause = Literal["poll", "broker", "budget", "convert", "throttle", "write"]
"""The reason that a client fetch waits.

``poll``: for new records, within the client's max wait. ``broker``: for a broker that has records, or that is
being connected. ``budget``: for memory. ``convert``: for a conversion. ``throttle``: for the end of throttling.
``write``: for the client to read its response.
"""


@attrs.frozen
class FetchRecord:
    """The record of one upstream fetch: a Fetch request of Sidefetch to a broker, and its response.

    It has the session, the partitions and bytes of both, and the times. It is emitted when the response arrives, or
    when the connection ends without one.
    """

    node: int
    """The broker's node id."""
    fetcher: FetcherName
    """The kind of the fetcher that sent the fetch."""
    fetcher_id: str
    """Identifier of the fetcher, unique within its log cache: that of one client connection, or of several."""
    version: int
    """Fetch version of the request."""
    kind: FetchKind
    """``full``: requests a new session; ``sessionless``: without a session; ``incremental``: within a session."""
    session_id: int
    """Fetch session id of the response; 0 for none."""
    epoch: int
    """The session epoch of the request (KIP-227)."""
    size: int
    """Number of partitions of the request, named or remembered by the broker's session."""
    named: int
    """Number of partitions that the request names."""
    forgotten: int
    """Number of partitions that the request removes from the session."""
    answered: int
    """Number of partitions in the response."""
    request_bytes: int
    """Bytes of the request, with the frame's size prefix."""
    response_bytes: int
    """Bytes of the response, with the frame's size prefix; 0 if there was none."""
    record_bytes: int
    """Bytes of records in the response."""
    dropped_bytes: int
    """Part of ``record_bytes`` whose log was dropped, or left the fetcher, after the request was sent."""
    error: int
    """Top-level error code of the response; 0 for none; 13 (NETWORK_EXCEPTION) if the connection ended first."""
    throttle_ms: int
    """Throttle time of the broker, in milliseconds."""
    route: RouteKind
    topics: tuple[tuple[str, int], ...]
    """The topics with records in the response, and the bytes of their records."""
    sent_s: float
    """Time at which the request was sent."""
    answered_s: float
    """Time of arrival of the complete response; without a response, the end of the connection."""
    client_fetches: int = 1
    """Number of client fetches that it served.

    In a log cache that clients share, these are the client fetches that waited for logs of the fetcher when the
    response arrived, whether or not it had records for them; 0 without a response. In a log cache with one reader
    it is always 1.
    """


@attrs.frozen
class SourceShare:
    """The share of one topic and one broker in a client fetch: requested partitions and bytes of records."""

    topic: str
    """Name of the topic; empty for the sum of all smaller shares, beyond the largest ones."""
    node: int
    """Node id of the broker that was read."""
    leader: int
    """Node id of the leader; equal to ``node`` unless a closer replica was read."""
    wanted: int
    """Number of requested partitions."""
    record_bytes: int
    """Bytes of records, as the broker sent them."""
    request_bytes: int
    """Bytes of the client's request for these partitions, if it were a full fetch."""


@attrs.frozen
class ExchangeRecord:
    """The record of one client fetch: a Fetch request of a client to Sidefetch, and its response.

    It has the partitions and bytes of both, the brokers that were read, and the causes of waiting. It is emitted
    when the whole response has been sent.
    """

    node: int
    """Node id of the broker that the client sent the request to."""
    client_id: str | None
    version: int
    """Fetch version of the client's request."""
    session_id: int
    """The client's fetch session with Sidefetch, as of the response; 0 for none."""
    session_epoch: int
    """Fetch session epoch of the request."""
    wanted: int
    """Number of requested partitions, named or remembered by a session."""
    named: int
    """Number of partitions that the request names."""
    answered: int
    """Number of partitions in the response."""
    with_data: int
    """Number of partitions in the response that have records."""
    request_bytes: int
    """Bytes of the request, with the frame's size prefix."""
    response_bytes: int
    """Bytes of the response, with the frame's size prefix."""
    source_bytes: int
    """Bytes of records, as the brokers sent them."""
    held_bytes: int
    """Part of ``source_bytes`` that was buffered before the client's request."""
    delivered_bytes: int
    """Bytes of records, as the client got them, padding included."""
    sources: tuple[SourceShare, ...]
    """The shares of topics and brokers, the largest first; the last one may be the sum of all others."""
    errors: tuple[tuple[int, int], ...]
    """Error codes and the number of partitions with each; the error of the whole response counts as one."""
    started_s: float
    """Time of arrival of the complete request."""
    ended_s: float
    """Time at which the last byte of the response was passed to the operating system."""
    waited_us: tuple[tuple[Cause, int], ...]
    """Microseconds by cause; they do not overlap, and their sum is the whole duration."""
    converted: "ConversionRecord | None" = None
    """The sum of all conversions for this response; None if nothing was converted."""
    is_shared: bool = False
    """Whether the records came from a log cache that clients share (``--share-reads``)."""


@attrs.frozen
class UsedApi:
    """The number and the bytes of a client connection's requests with one API key and version."""

    key: int
    """Kafka's API key."""
    version: int
    """Version of the client's requests; 32,767 for all versions that Sidefetch does not accept."""
    upgraded_to: int
    """Version that was sent to the broker; equal to ``version`` if the requests were not upgraded."""
    requests: int
    request_bytes: int
    """Bytes of these requests, with the size prefixes of their frames."""


@attrs.frozen
class ClientRecord:
    """The client software and the API usage of one client connection; emitted every few minutes and at its end."""

    client_id: str | None
    software: str
    """Name and version of the client library, from ApiVersions v3 (KIP-511) or guessed from its Fetch versions."""
    is_guess: bool
    """Whether ``software`` is a guess."""
    apis: tuple[UsedApi, ...]
    """Sums since the start of the connection."""


@attrs.frozen
class SessionRecord:
    """The start, the end or the refusal of a fetch session (KIP-227).

    ``side`` is "upstream" for a session of Sidefetch with a broker, "client" for one of a client with Sidefetch.
    """

    node: int
    """Node id of the broker; for a client session, of the broker that the client connected to."""
    session_id: int
    """Fetch session id; 0 if the session was refused."""
    event: SessionEvent
    partitions: int
    """Number of partitions in the session at that time."""
    side: SessionSide = "upstream"
    fetcher_id: str = ""
    """The fetcher that created an upstream session; empty for a client session."""
    reason: str = ""
    """The reason of a reset or refusal: the name of Kafka's error, or a few words; otherwise empty."""
    created_s: float | None = None
    """Time of creation; None if it is not known, or the session was refused."""
    used_s: float | None = None
    """Time of the last request in the session; None as in ``created_s``."""


@attrs.frozen
class ConversionRecord:
    """The down-conversion of the records in one fetch response: their number, bytes and CPU time.

    It counts the records of one partition, or those of all partitions of the response.
    """

    to_magic: int
    """The record format (magic) after conversion."""
    records: int
    """Number of converted records."""
    in_bytes: int
    """Bytes before conversion."""
    out_bytes: int
    """Bytes after conversion, without padding."""
    padding_bytes: int
    """Bytes that the response declared before conversion, and that the converted records did not need."""
    cpu_us: int
    """CPU time of the conversion threads, in microseconds."""


@attrs.frozen
class DamageRecord:
    """A batch of records that could not be converted, as it is damaged; the client got CORRUPT_MESSAGE."""

    node: int
    topic: str
    partition: int
    offset: int
    """Offset of the first record of the damaged batch."""
    why: str


@attrs.frozen
class TruncationRecord:
    """A truncation of a partition's log that removed records which a client had read; it follows unclean elections.

    The client got OFFSET_OUT_OF_RANGE.
    """

    node: int
    topic: str
    partition: int
    offset: int
    """The client's fetch offset."""
    epoch: int
    """The leader epoch of the last record that the client had read."""
    diverging_epoch: int
    """The last leader epoch that the log shares with the records that the client had read."""
    end_offset: int
    """The end offset of ``diverging_epoch``."""


@attrs.frozen
class StalledFetchRecord:
    """A client fetch that was not answered by the end of its max wait plus ``response-timeout``.

    The client got a retriable error.
    """

    node: int
    client_id: str | None
    stage: str
    """Stage of the fetch: ``connecting`` or ``collecting``."""
    waited_s: float
    """Seconds since the start of the client fetch."""
    partitions: int
    """Number of requested partitions."""
    unserved: int
    """Number of partitions that no upstream fetch or timer would have answered; not 0 is a bug of Sidefetch."""
    ready: int
    """Number of partitions whose records had already arrived."""
    fetchers: str
    """State of each fetcher, for people."""


Record = (
    FetchRecord
    | ExchangeRecord
    | SessionRecord
    | ClientRecord
    | ConversionRecord
    | DamageRecord
    | TruncationRecord
    | StalledFetchRecord
)
