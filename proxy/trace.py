"""What Sidefetch tells of its own work, as values: ``relay`` emits them, whoever runs it counts or writes them."""

from typing import Literal

import attrs

__all__ = [
    "ConversionRecord",
    "DamageRecord",
    "FetchKind",
    "FetchRecord",
    "Record",
    "RouteKind",
    "SessionEvent",
    "SessionRecord",
    "SessionSide",
    "TruncationRecord",
]

SessionEvent = Literal["created", "refused", "reset", "evicted", "closed"]
SessionSide = Literal["upstream", "client"]
FetchKind = Literal["full", "incremental", "sessionless"]
RouteKind = Literal["leader", "preferred", "selected", "rackless"]
"""Why a broker was asked: it leads; the leader prefers it; Sidefetch does; it leads, and was not told our rack."""


@attrs.frozen
class FetchRecord:
    """One of Sidefetch's own fetches, answered by a broker."""

    node: int
    """The broker's node id."""
    version: int
    """Fetch version spoken upstream."""
    kind: FetchKind
    """``full`` asks for a session, ``sessionless`` does not, ``incremental`` is within one."""
    session_id: int
    """The session of the answer; 0 for none."""
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
    error: int
    """Top-level error code of the answer; 0 for none."""
    route: RouteKind
    topics: tuple[tuple[str, int], ...]
    """Topics of which there are records, and their bytes."""


@attrs.frozen
class SessionRecord:
    """A session began or ended: with the broker (``upstream``), or of a client with Sidefetch in its place."""

    node: int
    session_id: int
    event: SessionEvent
    partitions: int
    """Partitions in it at that time."""
    side: SessionSide = "upstream"


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


Record = FetchRecord | SessionRecord | ConversionRecord | DamageRecord | TruncationRecord
