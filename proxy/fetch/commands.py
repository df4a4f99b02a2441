"""Commands of a ``LogCache`` (upstream fetches) and of a ``Reader`` (client fetches), which ``net`` carries out."""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import attrs

from proxy.cluster.routing import Source
from proxy.events import ExchangeRecord, FetchRecord, Record
from proxy.wire.fetch import FetchRequest, Topic
from proxy.wire.frames import Pieces

if TYPE_CHECKING:
    from proxy.fetch.reader import Reader

__all__ = [
    "Answered",
    "CacheCommand",
    "CloseFetcher",
    "CloseSession",
    "EmitRecord",
    "FetcherId",
    "FetcherKind",
    "OpenFetcher",
    "ReaderCommand",
    "RefreshMetadata",
    "RunInThread",
    "SendFetch",
    "Wake",
    "Worker",
]


class FetcherKind(enum.Enum):
    """The kind of a fetcher, by the logs that it reads: it decides how long requests wait at the broker."""

    LONG_POLL = "long-poll"
    """For logs at their end: its requests wait at the broker for up to ``--upstream-max-wait``."""
    LIVE = "live"
    """For logs that often get records beside many that do not, and for logs that are requested while a long poll
    waits; its requests wait for up to 0.1 s."""
    CATCH_UP = "catch-up"
    """For logs that are far behind, and for requests that cannot wait until another fetcher is free; its requests
    do not wait at the broker."""


class FetcherId(NamedTuple):
    """The identity of a fetcher within its log cache: the source that it reads, and its kind."""

    source: Source
    kind: FetcherKind


@attrs.frozen
class OpenFetcher:
    """A command: connect to the fetcher's broker, then call ``LogCache.opened``, or ``lost`` if that fails."""

    fetcher: FetcherId
    client_id: str | None
    """The client id of the requests."""


@attrs.frozen
class CloseFetcher:
    """A command: close the connection of a fetcher, without calling ``LogCache.lost``."""

    fetcher: FetcherId
    why: str
    """The reason, for the log."""
    is_fault: bool
    """Whether the broker caused it, so that the log has a warning."""


@attrs.frozen
class SendFetch:
    """A command: send a fetch on a fetcher's connection.

    ``LogCache.received`` or ``lost`` must be called later, unless ``CloseFetcher`` comes before.
    """

    fetcher: FetcherId
    frame: bytes
    """The encoded request, with its size prefix."""


@attrs.frozen
class CloseSession:
    """A command of ``LogCache.close``: send a request that closes a fetch session.

    Any connection to the fetcher's broker serves on which no fetch is in flight.
    """

    fetcher: FetcherId
    frame: bytes
    """The encoded request, with its size prefix."""
    record: Callable[[memoryview, float], FetchRecord]
    """A function from the response frame and its time of arrival to its telemetry; it raises BrokerProtocolError if
    the frame is no response to this request."""


@attrs.frozen
class Wake:
    """A command: call ``settle`` of a reader, as its logs or the connections that it waits for have changed."""

    reader: "Reader"


@attrs.frozen
class RefreshMetadata:
    """A command: request metadata of topics, since it is missing or stale.

    The new topology must be passed on, even if it is unchanged: to ``LogCache.update_topology`` for a command of a
    log cache, to ``Reader.topology_updated`` for one of a reader.
    """

    topics: frozenset[Topic]


@attrs.frozen
class EmitRecord:
    """A command: pass a record to telemetry."""

    record: Record


class Worker(enum.Enum):
    """The part of a client connection that runs a long computation in a thread."""

    REQUEST = "request"
    """The relay: it decodes a large fetch of the client."""
    READER = "reader"
    """The reader: it adapts its state to a large fetch, and converts records."""
    PASS = "pass"  # noqa: S105
    """The pass-through connection, for requests other than fetches: it upgrades requests, which takes memory."""
    ADDRESSES = "addresses"
    """The pass-through connection: it replaces broker addresses in responses, which takes time only."""


@attrs.frozen
class RunInThread:
    """A command: call ``run`` in a thread, then notify the worker that it has ended.

    Relay and reader each have at most one such call at a time; those of the pass-through connection run one after
    another.
    """

    worker: Worker
    run: Callable[[], object]


@attrs.frozen
class Answered:
    """A command: send the response to the client's fetch. The reader then accepts the next fetch."""

    pieces: Pieces
    """The response, with its size prefix."""
    request: FetchRequest
    """The request, with all partitions of the client's session."""
    record: ExchangeRecord | None
    """The telemetry of the client fetch, without the time for sending; None if exchanges are not recorded."""


CacheCommand = OpenFetcher | CloseFetcher | SendFetch | CloseSession | Wake | RefreshMetadata | EmitRecord
ReaderCommand = RefreshMetadata | EmitRecord | RunInThread | Answered
