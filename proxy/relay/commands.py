"""What happened on a client connection, and what is to be done about it."""

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
    """The connection to the client's broker that carries what passes as it came.

    The client makes its own handshake on it. Lanes are opened with one, so that the broker's versions are known.
    """

    PASS = "pass"  # noqa: S105


PASS: Final = Pass.PASS
Link = Pass | LaneId
"""A client connection's own connections to brokers."""


class Worker(enum.Enum):
    """Whose work takes so long that it is done in a thread."""

    READER = "reader"
    PASS = "pass"  # noqa: S105


# -------------------------------------------------------------------------------------------------- events


@attrs.frozen
class ClientFrame:
    """A request came, without its size."""

    frame: memoryview
    topology: Topology
    """As it is known now."""
    bypass: Bypass
    """As it is set now."""


@attrs.frozen
class LinkOpened:
    link: Link
    ranges: ApiRanges
    """What the broker serves; empty for PASS."""


@attrs.frozen
class LinkFrame:
    """A broker's answer came, without its size."""

    link: Link
    frame: memoryview


@attrs.frozen
class LinkAnswering:
    """A large answer has begun to come; how long the rest takes is not the broker's doing."""

    link: Link


@attrs.frozen
class LinkLost:
    """The connection is gone, or could not be made."""

    link: Link


@attrs.frozen
class MetadataUpdated:
    """The topology was refreshed, or is fresh enough."""

    topology: Topology


@attrs.frozen
class Tick:
    """``deadline_s`` has passed."""


@attrs.frozen
class MemoryNeeded:
    """What was brought and not handed out must be given up."""


@attrs.frozen
class Draining:
    """Sidefetch stops: no fetch may wait for long any more."""


@attrs.frozen
class GroupCoordinatorResult:
    """What became of an ``AskGroupCoordinator``."""

    frame: memoryview | None
    """The coordinator's answer, without its size; None if there was no coordinator to be had."""


@attrs.frozen
class ThreadFinished:
    """What became of ``RunInThread``."""

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
    """Whom a handshake is made for."""


@attrs.frozen
class Send:
    """Send these buffers, which are whole frames, to the broker."""

    link: Link
    pieces: Sequence[bytes | memoryview]


@attrs.frozen
class CloseLink:
    """Hang up on the broker there; ``LinkLost`` must not follow."""

    link: Link
    why: str
    is_fault: bool
    """Whether the broker is to blame."""


@attrs.frozen
class CloseSessions:
    """Nothing more is read for the client: close all its links but PASS, whatever they still bring.

    ``LinkLost`` must not follow.
    """

    farewell: Sequence[Farewell]
    """Closes its sessions at brokers; to be sent on other connections."""


@attrs.frozen
class Delivered:
    """What the client was read is in a ``Reply``, or in one that is about to come: for whoever verifies it.

    Not where records were converted: no broker could be asked for the same.
    """

    request: FetchRequest
    """With all that the client's session holds."""
    pieces: Sequence[bytes | memoryview]
    topology: Topology
    """In which the request's topics are found."""


@attrs.frozen
class Reply:
    """Send this answer to the client, after those before it."""

    pieces: Pieces
    record: ExchangeRecord | None = None
    """Of the exchange that it ends, but for the time that it takes to send."""


@attrs.frozen
class RefreshMetadata:
    """What is known of these topics is missing or stale; ``MetadataUpdated`` must follow."""

    topics: frozenset[Topic]


@attrs.frozen
class EmitRecord:
    record: Record


@attrs.frozen
class AskGroupCoordinator:
    """Ask the coordinator of *group*, whichever broker that is; ``GroupCoordinatorResult`` must follow.

    There is at most one at a time.
    """

    group: str
    pieces: Sequence[bytes | memoryview]
    """A frame."""
    afresh: bool
    """Whether the one found before is not it any more, or not ready yet."""


@attrs.frozen
class RunInThread:
    """Call *run* in a thread; ``ThreadFinished`` must follow. There is at most one at a time for each worker."""

    worker: Worker
    run: Callable[[], object]


@attrs.frozen
class PrincipalChanged:
    """The broker has taken the client for somebody, for the first time or again."""

    principal: str
    mechanism: str
    login: Login | None
    """What to say on further connections; None where nothing would be believed there."""


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
