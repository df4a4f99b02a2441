"""Events of a client connection, and the commands that result from them."""

import enum
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from proxy.bypass import Bypass
from proxy.cluster.topology import Topology
from proxy.events import ExchangeRecord, Record
from proxy.fetch.commands import Farewell, LaneId
from proxy.sasl.logins import Login
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import FetchRequest, Topic
from proxy.wire.frames import Pieces

__all__ = [
    "PASS",
    "AskGroupCoordinator",
    "ClientFrame",
    "CloseLink",
    "CloseSessions",
    "Command",
    "Delivered",
    "Draining",
    "EmitRecord",
    "Event",
    "GroupCoordinatorResult",
    "Link",
    "LinkAnswering",
    "LinkFrame",
    "LinkLost",
    "LinkOpened",
    "MemoryNeeded",
    "MetadataUpdated",
    "OpenLink",
    "PrincipalChanged",
    "RefreshMetadata",
    "Reply",
    "RunInThread",
    "Send",
    "ThreadFinished",
    "Tick",
    "Worker",
]


class Pass(enum.Enum):
    """The connection to the client's broker on which requests are forwarded.

    The client makes its own handshake on it. Lanes are opened with a handshake of Sidefetch, which yields the
    broker's API versions.
    """

    PASS = "pass"  # noqa: S105


PASS: Final = Pass.PASS
Link = Pass | LaneId
"""A connection to a broker that belongs to one client connection."""


class Worker(enum.Enum):
    """The part of the relay that runs a long computation in a thread."""

    READER = "reader"
    PASS = "pass"  # noqa: S105


# -------------------------------------------------------------------------------------------------- events


@attrs.frozen
class ClientFrame:
    """A request arrived; the frame has no size prefix."""

    frame: memoryview
    topology: Topology
    """The present topology."""
    bypass: Bypass
    """The present bypass rules."""


@attrs.frozen
class LinkOpened:
    link: Link
    ranges: ApiRanges
    """The API versions that the broker serves; empty for PASS."""


@attrs.frozen
class LinkFrame:
    """A broker's response arrived; the frame has no size prefix."""

    link: Link
    frame: memoryview


@attrs.frozen
class LinkAnswering:
    """The first bytes of a large response arrived; from here on, its duration says nothing of the broker."""

    link: Link


@attrs.frozen
class LinkLost:
    """The connection was closed, or could not be opened."""

    link: Link


@attrs.frozen
class MetadataUpdated:
    """The topology was refreshed, or is recent enough."""

    topology: Topology


@attrs.frozen
class Tick:
    """The time ``deadline_s`` has passed."""


@attrs.frozen
class MemoryNeeded:
    """The memory of fetched records that are not delivered yet is needed: drop them."""


@attrs.frozen
class Draining:
    """Sidefetch is stopping: no fetch may wait long from here on."""


@attrs.frozen
class GroupCoordinatorResult:
    """The result of an ``AskGroupCoordinator``."""

    frame: memoryview | None
    """The coordinator's response without its size; None if no coordinator was found."""


@attrs.frozen
class ThreadFinished:
    """The result of a ``RunInThread``."""

    worker: Worker
    result: object


Event = (
    ClientFrame
    | LinkOpened
    | LinkAnswering
    | LinkFrame
    | LinkLost
    | MetadataUpdated
    | Tick
    | MemoryNeeded
    | Draining
    | GroupCoordinatorResult
    | ThreadFinished
)

# ------------------------------------------------------------------------------------------------ commands


@attrs.frozen
class OpenLink:
    """Connect to a broker; ``LinkOpened`` or ``LinkLost`` must follow."""

    link: Link
    client_id: str | None
    """The client id for the requests of the handshake."""


@attrs.frozen
class Send:
    """Send these buffers, which are whole frames, to the broker."""

    link: Link
    pieces: Sequence[bytes | memoryview]


@attrs.frozen
class CloseLink:
    """Close the connection to the broker; ``LinkLost`` must not follow."""

    link: Link
    why: str
    is_fault: bool
    """Whether the broker caused it."""


@attrs.frozen
class CloseSessions:
    """Stop reading for the client: close all its links but PASS, and drop responses that still arrive.

    ``LinkLost`` must not follow.
    """

    farewell: Sequence[Farewell]
    """Requests that close the client's sessions at brokers, for other connections."""


@attrs.frozen
class Delivered:
    """A fetch response, for verification; the ``Reply`` with it came before or comes next.

    There is none for converted records: a broker cannot be asked for the same bytes.
    """

    request: FetchRequest
    """The client's fetch, completed by the partitions of its session."""
    pieces: Sequence[bytes | memoryview]
    topology: Topology
    """The topology for the request's topics."""


@attrs.frozen
class Reply:
    """Send this response to the client, after those before it."""

    pieces: Pieces
    record: ExchangeRecord | None = None
    """The record of the fetch that it completes, without the duration of sending."""


@attrs.frozen
class RefreshMetadata:
    """Request metadata of these topics, which is missing or stale; ``MetadataUpdated`` must follow."""

    topics: frozenset[Topic]


@attrs.frozen
class EmitRecord:
    record: Record


@attrs.frozen
class AskGroupCoordinator:
    """Send a request to the coordinator of *group*; ``GroupCoordinatorResult`` must follow.

    At most one is open at a time.
    """

    group: str
    pieces: Sequence[bytes | memoryview]
    """A whole frame."""
    afresh: bool
    """Whether the known coordinator is outdated or still loading, so that it must be looked up again."""


@attrs.frozen
class RunInThread:
    """Call *run* in a thread; ``ThreadFinished`` must follow. At most one is open at a time for each worker."""

    worker: Worker
    run: Callable[[], object]


@attrs.frozen
class PrincipalChanged:
    """The broker has authenticated the client, for the first time or again."""

    principal: str
    mechanism: str
    login: Login | None
    """The credentials for further connections; None if the login cannot be repeated there."""


Command = (
    OpenLink
    | Send
    | CloseLink
    | CloseSessions
    | Reply
    | Delivered
    | RefreshMetadata
    | EmitRecord
    | AskGroupCoordinator
    | RunInThread
    | PrincipalChanged
)
