"""What Sidefetch tells of its own work, as values: ``relay`` emits them, whoever runs it counts or writes them.

Times ending in ``_s`` are seconds of the clock that the process runs by, which has no meaning outside; in ``_us``,
microseconds of a duration.
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
    "LaneName",
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
LaneName = Literal["patient", "quick", "rackless"]
RouteKind = Literal["leader", "preferred", "selected", "rackless"]
"""Why a broker was asked: it leads; the leader prefers it; Sidefetch does; it leads, and was not told our rack."""
Cause = Literal["poll", "broker", "budget", "convert", "throttle", "write"]
"""What an exchange waits for: news, as long as the client lets us; a broker that has some, or is being reached;
memory; a conversion; the end of a throttling; the client, which reads its answer."""


@attrs.frozen
class FetchRecord:
    """One of Sidefetch's own fetches."""

    node: int
    """The broker's node id."""
    lane: LaneName
    lane_id: str
    """Tells the lanes of a connection apart."""
    version: int
    """Fetch version spoken upstream."""
    kind: FetchKind
    """``full`` asks for a session, ``sessionless`` does not, ``incremental`` is within one."""
    session_id: int
    """The session of the answer; 0 for none."""
    epoch: int
    """The session epoch of the request (KIP-227)."""
    size: int
    """Partitions that the request covers, named or remembered by the broker."""
    named: int
    """Partitions that the request names."""
    forgotten: int
    """Partitions that the request removes from the session."""
    answered: int
    """Partitions in the answer."""
    request_bytes: int
    """With the frame's size prefix."""
    response_bytes: int
    """With the frame's size prefix."""
    record_bytes: int
    """Of the response, those that are records."""
    dropped_bytes: int
    """Of these, what was of no use when it came: since it was asked for, the client had gone on from elsewhere."""
    error: int
    """Top-level error code of the answer; 0 for none; 13 (NETWORK_EXCEPTION) if the connection ended before it."""
    throttle_ms: int
    """For how long the broker will not listen."""
    route: RouteKind
    topics: tuple[tuple[str, int], ...]
    """Topics of which there are records, and their bytes."""
    sent_s: float
    answered_s: float
    """When the answer was here; without one, when the connection ended."""


@attrs.frozen
class SourceShare:
    """What of an exchange was read from one broker."""

    topic: str
    """Empty for all that are not told apart."""
    node: int
    leader: int
    """The node that leads: the same one, unless a closer replica was read."""
    wanted: int
    """Partitions."""
    record_bytes: int
    """As they came from there."""
    request_bytes: int
    """Of the client's request, those about these partitions, were it a full one."""


@attrs.frozen
class ExchangeRecord:
    """A fetch of a client, and its answer."""

    node: int
    """The broker that the client has asked."""
    client_id: str | None
    version: int
    """Fetch version that the client speaks."""
    session_id: int
    """The client's session with us, 0 for none, as it is after the answer."""
    session_epoch: int
    """Of the request."""
    wanted: int
    """Partitions that it asks for, named or remembered by a session."""
    named: int
    """Partitions that the request names."""
    answered: int
    """Partitions in the answer."""
    with_data: int
    """Of these, those with records."""
    request_bytes: int
    """With the frame's size prefix."""
    response_bytes: int
    """With the frame's size prefix."""
    source_bytes: int
    """Of records, as they came from brokers."""
    held_bytes: int
    """Of these, what was here already when the client asked."""
    delivered_bytes: int
    """Of records, as the client got them, padding included."""
    sources: tuple[SourceShare, ...]
    errors: tuple[tuple[int, int], ...]
    """Error codes of partitions, and how often each was told; of the whole answer, with 1."""
    started_s: float
    """When the request was here."""
    ended_s: float
    """When the last byte of the answer was given to the system."""
    waited_us: tuple[tuple[Cause, int], ...]
    """Exclusive of each other, and together all of it."""
    converted: "ConversionRecord | None" = None
    """All that was converted for this answer."""


@attrs.frozen
class UsedApi:
    """What a client has asked for."""

    key: int
    version: int
    lifted_to: int
    """The version that the broker was asked in; the same one where nothing was lifted."""
    requests: int
    request_bytes: int


@attrs.frozen
class ClientRecord:
    """What is known of a client's connection: told every few minutes and when it ends."""

    client_id: str | None
    software: str
    """Name and version, as ApiVersions v3 tells them (KIP-511), or as guessed from the versions that it speaks."""
    is_guess: bool
    apis: tuple[UsedApi, ...]
    """Sums since the connection was made."""


@attrs.frozen
class SessionRecord:
    """A session began or ended: with the broker (``upstream``), or of a client with Sidefetch in its place."""

    node: int
    session_id: int
    event: SessionEvent
    partitions: int
    """Partitions in it at that time."""
    side: SessionSide = "upstream"
    lane_id: str = ""
    """Of upstream sessions: the lane that it was made by."""
    reason: str = ""
    """Why it was reset or refused: the name of Kafka's error, or a few words."""
    created_s: float | None = None
    used_s: float | None = None
    """When it was last asked in."""


@attrs.frozen
class ConversionRecord:
    """Records of one partition's answer, converted and sent."""

    to_magic: int
    """The record format that the client got."""
    records: int
    in_bytes: int
    out_bytes: int
    """That the client can use."""
    padding_bytes: int
    """Of the answer, what was declared before it was converted, and then not needed."""
    cpu_us: int
    """Of the threads that converted."""


@attrs.frozen
class DamageRecord:
    """Records that were not converted, since their checksum is wrong."""

    node: int
    topic: str
    partition: int
    offset: int
    """Of the damaged batch's first record."""
    why: str


@attrs.frozen
class TruncationRecord:
    """Records that a client has read are gone from the log: it was told that its offset is out of range."""

    node: int
    topic: str
    partition: int
    offset: int
    """Where the client was."""
    epoch: int
    """The leader epoch under which it had read."""
    diverging_epoch: int
    """The last one that the log has in common with what was read."""
    end_offset: int
    """Where that ends."""


@attrs.frozen
class StalledFetchRecord:
    """A client fetch that outlived its wait by the ask timeout, and was answered with a retriable error."""

    node: int
    client_id: str | None
    stage: str
    """Of the fetch: connecting or asking."""
    waited_s: float
    """Since the client sent it."""
    partitions: int
    unserved: int
    """Of these, partitions that nothing would have answered: a fault of Sidefetch."""
    held: int
    """Of these, partitions whose records had come."""
    lanes: str
    """State of each upstream connection."""


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
