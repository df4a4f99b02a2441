"""Answers leave a connection in the order of their requests, as Kafka promises, whoever is ready first."""

from collections import deque
from collections.abc import Iterator

import attrs

from proxy.events import ExchangeRecord
from proxy.wire.frames import Pieces

__all__ = ["Pipeline", "Slot"]


@attrs.define(eq=False)
class Slot:
    """The place of one answer."""

    pieces: Pieces | None = None
    """The answer, once there is one."""
    record: ExchangeRecord | None = None
    """What it has come to, if it is a fetch's and somebody wants to be told."""


class Pipeline:
    """The answers that a client still waits for, oldest first."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def is_next(self, slot: Slot) -> bool:
        """Return whether all requests before that of *slot* are answered."""
        return bool(self._slots) and self._slots[0] is slot

    def expect(self) -> Slot:
        """A place for the answer to the request that has just come."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def ready(self) -> Iterator[tuple[Pieces, ExchangeRecord | None]]:
        """Take out the answers whose turn has come."""
        while self._slots and (pieces := self._slots[0].pieces) is not None:
            yield pieces, self._slots.popleft().record
