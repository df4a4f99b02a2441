"""What a reader wants done."""

import attrs

from proxy.fetch.exchange import Pieces
from proxy.trace import Record
from proxy.wire.fetch import Topic

__all__ = ["Answered", "Ask", "Command", "Learn", "Note", "OpenLane"]


@attrs.frozen
class OpenLane:
    """Connect to the broker; then ``opened``, or ``lost``."""

    client_id: str | None
    """Of the client that it is for."""


@attrs.frozen
class Ask:
    """Send this frame on the lane; then ``received``, or ``lost``."""

    frame: bytes


@attrs.frozen
class Learn:
    """These topics are not known, or what is known of them is stale; then ``told``, also if nothing changed."""

    topics: frozenset[Topic]


@attrs.frozen
class Answered:
    """The client's answer; the next fetch may come."""

    pieces: Pieces


@attrs.frozen
class Note:
    """Something to trace."""

    record: Record


Command = OpenLane | Ask | Learn | Answered | Note
