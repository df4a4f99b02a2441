"""Responses in the order of their requests, as Kafka guarantees for a connection, whichever is ready first."""

from collections import deque
from collections.abc import Iterator

import attrs

from proxy.events import ExchangeRecord
from proxy.wire.frames import Pieces

__all__ = ["Pipeline", "Slot"]


@attrs.define(eq=False)
class Slot:
    """The slot of one response."""

    pieces: Pieces | None = None
    """The response; None until it is ready."""
    record: ExchangeRecord | None = None
    """The record of a client fetch, for telemetry; None if there is none."""


class Pipeline:
    """The responses that a client still waits for, oldest first."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def is_next(self, slot: Slot) -> bool:
        """Return whether all requests before that of *slot* are answered."""
        return bool(self._slots) and self._slots[0] is slot

    def expect(self) -> Slot:
        """Add and return the slot for the response to the request that has just arrived."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def ready(self) -> Iterator[tuple[Pieces, ExchangeRecord | None]]:
        """Remove and yield the responses that may be sent now."""
        while self._slots and (pieces := self._slots[0].pieces) is not None:
            yield pieces, self._slots.popleft().record
