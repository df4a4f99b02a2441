"""Observers of Sidefetch's work: the ledger, the metrics, the traces, the status page."""

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Protocol, runtime_checkable

import attrs
import trio

from proxy.cluster.topology import Topology
from proxy.events import Record
from proxy.wire.frames import Piece

__all__ = ["ConnectionInfo", "Observer", "Observers", "RecordsObserver", "epoch_us"]

_NUMBERS: Iterator[int] = count(1)


@attrs.define(eq=False)
class ConnectionInfo:
    """The client connection of a record. Some values become known only during the connection."""

    node: int
    """The node id of the broker that the client connected to."""
    peer: str
    topology: Topology
    """The topology that the client's principal may see, at present."""
    number: int = attrs.field(factory=lambda: next(_NUMBERS))
    """A number that is unique among the connections of a process."""
    client_id: str | None = None
    """The client id of the last request."""
    trace_id: str | None = None
    """The trace id of the exchange that is being recorded, 32 hexadecimal digits; None if it is not traced."""


class Observer(Protocol):
    """A receiver of records in the path of every fetch: it must neither wait nor raise."""

    @property
    def wants_exchanges(self) -> bool:
        """Whether the observer uses exchange records, which cost more than other records."""

    def observe(self, who: ConnectionInfo, record: Record, /) -> None: ...

    def left(self, who: ConnectionInfo, /) -> None:
        """Handle the end of a connection; no more records of it follow."""


@runtime_checkable
class RecordsObserver(Protocol):
    """An observer that also sees responses before they are sent, only during the call: they are not copied."""

    def answering(self, who: ConnectionInfo, pieces: Iterable[Piece], /) -> None:
        """Inspect *pieces* of an exchange's response: views are stored records, chunks may be conversions.

        The records of exchanges follow in the same order.
        """


class Observers:
    """A list of observers that is itself an observer; it calls them in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._readers = [each for each in observers if isinstance(each, RecordsObserver)]
        self.wants_exchanges = any(each.wants_exchanges for each in observers)

    def observe(self, who: ConnectionInfo, record: Record) -> None:
        for each in self._observers:
            each.observe(who, record)

    def answering(self, who: ConnectionInfo, pieces: Iterable[Piece]) -> None:
        for each in self._readers:
            each.answering(who, pieces)

    def left(self, who: ConnectionInfo) -> None:
        for each in self._observers:
            each.left(who)


def epoch_us(at_s: float) -> int:
    """Convert a time of trio's clock to microseconds since 1970 UTC."""
    return round((time.time() - trio.current_time() + at_s) * 1_000_000)
