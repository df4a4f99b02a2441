"""Observers: receivers of the records of ``proxy.events``, such as the ledger, the metrics and the traces."""

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Protocol, runtime_checkable

import attrs
import trio

from proxy.cluster.topology import Topology
from proxy.events import Record
from proxy.wire.frames import Piece

__all__ = ["ConnectionInfo", "Observer", "Observers", "RecordsObserver", "SharedCacheInfo", "epoch_us"]

_NUMBERS: Iterator[int] = count(1)


@attrs.define(eq=False)
class ConnectionInfo:
    """The client connection to which a record belongs: its broker, peer, client id, topology and trace id.

    One object for each connection; its values change during the connection.
    """

    node: int
    """The node id of the broker that the client connected to."""
    peer: str
    """The client's address and port."""
    topology: Topology
    """The topology that the client's principal may see, at present."""
    number: int = attrs.field(factory=lambda: next(_NUMBERS))
    """A number that is unique among the connections and the shared log caches of a process."""
    client_id: str | None = None
    """The client id of the last request."""
    trace_id: str | None = None
    """The trace id of the client fetch that is being recorded, 32 hexadecimal digits; None if it is not traced."""

    @property
    def connection_id(self) -> int | None:
        """The number, if this is a client connection; None for a log cache that clients share."""
        return self.number


@attrs.define(eq=False)
class SharedCacheInfo(ConnectionInfo):
    """A log cache that clients share, to which a record of an upstream fetch or session belongs.

    It takes the place of a client connection: such a record has no single client.
    """

    node: int = -1
    peer: str = ""
    topology: Topology = attrs.field(factory=Topology)

    @property
    def connection_id(self) -> None:
        return None


class Observer(Protocol):
    """A receiver of the records of all client connections and shared log caches (``proxy.events``).

    It is called while fetches are served, so it must neither wait nor raise.
    """

    @property
    def wants_exchanges(self) -> bool:
        """Whether the observer uses records of client fetches (``ExchangeRecord``); if none does, none are made."""

    def observe(self, connection: ConnectionInfo, record: Record, /) -> None: ...

    def end_connection(self, connection: ConnectionInfo, /) -> None:
        """Handle the end of *connection*, for example drop its state; no more records of it follow."""


@runtime_checkable
class RecordsObserver(Protocol):
    """An observer that also reads each response to a client fetch before it is sent.

    The buffers are not copied: they may be used only during the call.
    """

    def inspect_response(self, connection: ConnectionInfo, pieces: Iterable[Piece], /) -> None:
        """Inspect *pieces*, the buffers of a response to a client fetch of *connection*, before it is sent.

        Memoryviews are records as a broker sent them; ``Chunks`` are records that are converted during sending. The
        ``ExchangeRecord`` of each response follows once it is sent, in the order of these calls.
        """


class Observers:
    """A group of observers that is itself an observer: it passes each call on to all of them, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._readers = [each for each in observers if isinstance(each, RecordsObserver)]
        self.wants_exchanges = any(each.wants_exchanges for each in observers)

    def observe(self, connection: ConnectionInfo, record: Record) -> None:
        for each in self._observers:
            each.observe(connection, record)

    def inspect_response(self, connection: ConnectionInfo, pieces: Iterable[Piece]) -> None:
        for each in self._readers:
            each.inspect_response(connection, pieces)

    def end_connection(self, connection: ConnectionInfo) -> None:
        for each in self._observers:
            each.end_connection(connection)


def epoch_us(at_s: float) -> int:
    """Convert *at_s*, a time of trio's clock in seconds, to microseconds since 1970 UTC."""
    return round((time.time() - trio.current_time() + at_s) * 1_000_000)
