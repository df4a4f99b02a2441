"""The order of a client's responses: that of its requests, as Kafka guarantees, whichever is ready first."""

from collections import deque
from collections.abc import Iterator

import attrs

from proxy.events import ExchangeRecord
from proxy.wire.frames import Pieces

__all__ = ["Pipeline", "Slot"]


@attrs.define(eq=False)
class Slot:
    """A container for one response: created in the order of the requests, and filled when the response is ready."""

    pieces: Pieces | None = None
    """The response frame in buffers; None until it is ready."""
    record: ExchangeRecord | None = None
    """The record of a client fetch, for telemetry; None if there is none."""


class Pipeline:
    """The slots of the responses that a client still waits for, in the order of its requests."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def is_next(self, slot: Slot) -> bool:
        """Return whether *slot* is the first one: all earlier responses were sent, and its own was not."""
        return bool(self._slots) and self._slots[0] is slot

    def add_slot(self) -> Slot:
        """Add an empty slot at the end, for the response to the request that has just arrived; return it.

        The caller sets ``Slot.pieces`` when the response is ready.
        """
        slot = Slot()
        self._slots.append(slot)
        return slot

    def take_ready(self) -> Iterator[tuple[Pieces, ExchangeRecord | None]]:
        """Remove and yield the responses at the front that are ready, up to the first one that is not.

        Yields the buffers of each response, and the telemetry record of a client fetch or None.
        """
        while self._slots and (pieces := self._slots[0].pieces) is not None:
            yield pieces, self._slots.popleft().record
