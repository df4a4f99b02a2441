"""What a reader wants done."""

import enum
from collections.abc import Callable
from typing import NamedTuple

import attrs

from proxy.cluster.routing import Source
from proxy.events import ExchangeRecord, FetchRecord, Record
from proxy.fetch.converting import Job
from proxy.wire.fetch import FetchRequest, Topic
from proxy.wire.frames import Pieces

__all__ = [
    "Answered",
    "Ask",
    "CloseLane",
    "Command",
    "Convert",
    "Farewell",
    "LaneId",
    "LaneKind",
    "Learn",
    "Note",
    "OpenLane",
]


class LaneKind(enum.Enum):
    """What a connection is for. It has one fetch under way at a time."""

    PATIENT = "patient"
    """For what is at its end: its fetches wait at the broker for long, whatever the client does meanwhile."""
    QUICK = "quick"
    """For what moves, and for what cannot wait until the patient lane is free again."""


class LaneId(NamedTuple):
    """One of a reader's own connections to brokers."""

    source: Source
    kind: LaneKind


@attrs.frozen
class OpenLane:
    """Connect to the broker; then ``opened``, or ``lost``."""

    lane: LaneId
    client_id: str | None
    """Of the client that it is for."""


@attrs.frozen
class CloseLane:
    """Hang up; ``lost`` is not told."""

    lane: LaneId
    why: str
    is_fault: bool
    """Whether the broker is to blame."""


@attrs.frozen
class Ask:
    """Send this frame on the lane; then ``received``, or ``lost``."""

    lane: LaneId
    frame: bytes


@attrs.frozen
class Farewell:
    """Send this frame, which closes a session, on any connection to the lane's broker."""

    lane: LaneId
    frame: bytes
    told: Callable[[memoryview, float], FetchRecord]
    """What to trace of its answer, which came at that time. Raises: BrokerProtocolError: it is none to this."""


@attrs.frozen
class Learn:
    """These topics are not known, or what is known of them is stale; then ``told``, also if nothing changed."""

    topics: frozenset[Topic]


@attrs.frozen
class Convert:
    """Have these begun, by ``begin_all``; then ``converted``."""

    jobs: tuple[Job, ...]


@attrs.frozen
class Answered:
    """The client's answer; the next fetch may come."""

    pieces: Pieces
    request: FetchRequest
    """What it answers, with all that the client's session holds."""
    record: ExchangeRecord | None
    """Of the exchange, but for the time that it takes to send; where somebody wants to be told."""


@attrs.frozen
class Note:
    """Something to trace."""

    record: Record


Command = OpenLane | CloseLane | Ask | Learn | Convert | Answered | Note
