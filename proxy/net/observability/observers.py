"""Who is told what Sidefetch does: the ledger, the metrics, the traces, the status page."""

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
    """The client's connection that a record is about. Some of it becomes known only while it goes on."""

    node: int
    """The broker that it is to."""
    peer: str
    topology: Topology
    """As its principal may see it, at this time."""
    number: int = attrs.field(factory=lambda: next(_NUMBERS))
    """Tells the connections of a process apart."""
    client_id: str | None = None
    """Of its last request."""
    trace_id: str | None = None
    """Of the exchange that is being told, where it is traced: 32 hexadecimal digits."""


class Observer(Protocol):
    """Is told on the way of every fetch: it must neither wait nor raise."""

    @property
    def wants_exchanges(self) -> bool:
        """Whether it is of use to tell it exchanges, which cost more to tell than the rest."""

    def observe(self, who: ConnectionInfo, record: Record, /) -> None: ...

    def left(self, who: ConnectionInfo, /) -> None:
        """The connection has ended; nothing more is told of it."""


@runtime_checkable
class RecordsObserver(Protocol):
    """Is shown answers, too, before they leave: to look at within the call, for they are sent on, not copied."""

    def answering(self, who: ConnectionInfo, pieces: Iterable[Piece], /) -> None:
        """*pieces* of an exchange's answer: views are records as brokers keep them, chunks may be conversions.

        The records of exchanges follow in the same order.
        """


class Observers:
    """Tells each of them, in turn."""

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
    """A time of trio's clock, in microseconds since 1970 UTC."""
    return round((time.time() - trio.current_time() + at_s) * 1_000_000)
