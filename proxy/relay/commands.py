"""The events that ``net`` passes to a ``ClientRelay``, and the commands that it returns, for ``net`` to execute."""

import enum
from collections.abc import Sequence
from typing import Final

import attrs

from proxy.cluster.topology import Topology
from proxy.events import ExchangeRecord
from proxy.fetch.commands import EmitRecord, FetcherId, RefreshMetadata, RunInThread, Worker
from proxy.fetch_rules import NO_RULES, FetchRules
from proxy.sasl.logins import Login
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import FetchRequest
from proxy.wire.frames import Pieces

__all__ = [
    "PASS",
    "ClientFrame",
    "CloseLink",
    "Command",
    "Delivered",
    "Draining",
    "EmitRecord",
    "Event",
    "FetchMemoryShort",
    "GroupCoordinatorResult",
    "Link",
    "LinkAnswering",
    "LinkFrame",
    "LinkLost",
    "LinkOpened",
    "LogsChanged",
    "MetadataUpdated",
    "OpenLink",
    "PrincipalChanged",
    "RefreshMetadata",
    "Reply",
    "RunInThread",
    "Send",
    "SendToGroupCoordinator",
    "ThreadFinished",
    "Tick",
    "Worker",
]


class Pass(enum.Enum):
    """The identifier, ``PASS``, of the connection to the client's own broker on which its requests are forwarded.

    The client makes its own handshake on it. On the connections of fetchers, Sidefetch makes the handshake, which
    yields the broker's API versions.
    """

    PASS = "pass"  # noqa: S105


PASS: Final = Pass.PASS
Link = Pass | FetcherId
"""The identifier of a broker connection: a client's pass-through connection, or a fetcher of its log cache."""


# -------------------------------------------------------------------------------------------------- events


@attrs.frozen
class ClientFrame:
    """The arrival of a request from the client, with the present metadata of the cluster and rules for fetches."""

    frame: memoryview
    """The request without its size prefix."""
    topology: Topology
    """The present metadata of brokers and topics."""
    bypass: FetchRules
    """The present rules for fetches that are forwarded unchanged."""
    share_reads_except: FetchRules = NO_RULES
    """The present rules for fetches that are answered from a log cache of the client's own."""


@attrs.frozen
class LinkOpened:
    """The opening of the broker connection *link*: requests can be sent on it from now on."""

    link: Link
    ranges: ApiRanges
    """The API versions that the broker serves; empty for PASS."""


@attrs.frozen
class LinkFrame:
    """The arrival of a broker's response on connection *link*; the frame has no size prefix."""

    link: Link
    frame: memoryview


@attrs.frozen
class LinkAnswering:
    """The arrival of the first bytes of a large response on connection *link*, before the rest is received.

    The broker has answered in time, even if the rest is slow, and its response reflects nothing that happens later.
    """

    link: Link


@attrs.frozen
class LinkLost:
    """The end of a broker connection: the broker closed it, it failed, or it could not be opened."""

    link: Link


@attrs.frozen
class MetadataUpdated:
    """The reply to ``RefreshMetadata``: the metadata of brokers and topics, refreshed or recent enough already."""

    topology: Topology


@attrs.frozen
class Tick:
    """The passing of ``ClientRelay.deadline_s``: the relay does everything that is due by the present time."""


@attrs.frozen
class LogsChanged:
    """The logs that the client reads have changed."""


@attrs.frozen
class Draining:
    """The beginning of Sidefetch's shutdown: the open fetch and later ones wait at most 0.1 s for new records.

    Fetches that are forwarded unchanged are not affected: they wait at the broker for as long as the client asks.
    """


@attrs.frozen
class FetchMemoryShort:
    """The memory for the partitions of clients' fetches is used up: the open fetch must end its wait."""


@attrs.frozen
class GroupCoordinatorResult:
    """The reply to ``SendToGroupCoordinator``: the group coordinator's response, or None if there is none."""

    frame: memoryview | None
    """The response without its size prefix; None if no coordinator was found, or it did not respond."""


@attrs.frozen
class ThreadFinished:
    """The reply to ``RunInThread``: the return value of the function that ran in a thread."""

    worker: Worker
    """The component that returned the command."""
    result: object


Event = (
    ClientFrame
    | LinkOpened
    | LinkAnswering
    | LinkFrame
    | LinkLost
    | MetadataUpdated
    | Tick
    | LogsChanged
    | Draining
    | FetchMemoryShort
    | GroupCoordinatorResult
    | ThreadFinished
)

# ------------------------------------------------------------------------------------------------ commands


@attrs.frozen
class OpenLink:
    """A command to open the connection *link* to a broker; the event ``LinkOpened`` or ``LinkLost`` must follow."""

    link: Link
    client_id: str | None
    """The client id for the requests of the handshake."""


@attrs.frozen
class Send:
    """A command to send whole frames on the broker connection *link*."""

    link: Link
    pieces: Sequence[bytes | memoryview]
    """The frames with their size prefixes, in any number of buffers."""


@attrs.frozen
class CloseLink:
    """A command to close the broker connection *link* and log the reason; no event ``LinkLost`` must follow."""

    link: Link
    why: str
    """The reason, for the log."""
    is_fault: bool
    """Whether the broker caused it."""


@attrs.frozen
class Delivered:
    """A notice of a fetch response that was sent; the caller may compare it with the broker's own response.

    The ``Reply`` with the response comes before it. There is no notice of a response with converted records, since
    a broker would not return the same bytes, and none of a forwarded fetch.
    """

    request: FetchRequest
    """The client's fetch, completed by the partitions of its session."""
    pieces: Sequence[bytes | memoryview]
    """The response frame, in buffers."""
    topology: Topology
    """The metadata to look up the topics of the request."""


@attrs.frozen
class Reply:
    """A command to send a response to the client, after the responses of earlier commands."""

    pieces: Pieces
    """The response frame with its size prefix, in buffers."""
    record: ExchangeRecord | None = None
    """The telemetry record of the client fetch that the response completes, without the duration of sending."""


@attrs.frozen
class SendToGroupCoordinator:
    """A command to send a request to the coordinator of consumer group *group*, whichever broker that is.

    The event ``GroupCoordinatorResult`` must follow; the relay returns no second command of this kind before.
    """

    group: str
    pieces: Sequence[bytes | memoryview]
    """The request frame with its size prefix, in buffers."""
    is_retry: bool
    """Whether to look up the coordinator again, after a pause: the known one has moved or is still loading."""


@attrs.frozen
class PrincipalChanged:
    """A notice that the broker has accepted the client's login, or that the client's login cannot be repeated.

    It comes again after each re-authentication with a login that can be repeated on other connections.
    """

    principal: str
    """The mechanism and the client's name, as in ``PLAIN:name``; empty if the login cannot be repeated."""
    mechanism: str
    login: Login | None
    """The credentials to repeat on further broker connections; None if the login cannot be repeated."""


Command = (
    OpenLink
    | Send
    | CloseLink
    | Reply
    | Delivered
    | RefreshMetadata
    | EmitRecord
    | SendToGroupCoordinator
    | RunInThread
    | PrincipalChanged
)
