"""Who is told what Sidefetch does: the ledger, the metrics, the traces, the status page."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Protocol

import attrs
import trio

from proxy.fetch.topology import Topology
from proxy.trace import Record

__all__ = ["Observer", "Observers", "Who", "at_us"]

_NUMBERS: Iterator[int] = count(1)


@attrs.define(eq=False)
class Who:
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


class Observer(Protocol):
    """Is told on the way of every fetch: it must neither wait nor raise."""

    @property
    def wants_exchanges(self) -> bool:
        """Whether it is of use to tell it exchanges, which cost more to tell than the rest."""

    def observe(self, who: Who, record: Record, /) -> None: ...

    def left(self, who: Who, /) -> None:
        """The connection has ended; nothing more is told of it."""


class Observers:
    """Tells each of them, in turn."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.wants_exchanges = any(each.wants_exchanges for each in observers)

    def observe(self, who: Who, record: Record) -> None:
        for each in self._observers:
            each.observe(who, record)

    def left(self, who: Who) -> None:
        for each in self._observers:
            each.left(who)


def at_us(at_s: float) -> int:
    """A time of trio's clock, in microseconds since 1970 UTC."""
    return round((time.time() - trio.current_time() + at_s) * 1_000_000)
