"""Which batches belong to aborted transactions, by the list that a broker sends with them."""

import struct
from collections.abc import Sequence
from typing import Final

from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import BATCH_HEADER_BYTES, Entry

__all__ = ["Aborted"]

_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")
"""Version and type."""


class Aborted:
    """Walks the batches of one answer in order, as Java's consumer does.

    A producer's batches are aborted from the first offset of a transaction of its on to its next abort marker.
    Source: Kafka's CompletedFetch.
    """

    __slots__ = ("_listed", "_producers")

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        """*listed*: (producer id, first offset), in any order."""
        self._listed = sorted(listed, key=lambda each: each[1], reverse=True)
        self._producers: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether none of what follows can be aborted."""
        return not (self._listed or self._producers)

    def copy(self) -> "Aborted":
        """One that goes on from here by itself."""
        twin = Aborted(())
        twin._listed, twin._producers = list(self._listed), set(self._producers)
        return twin

    def has(self, batch: Entry, log: memoryview) -> bool:
        """Whether the records of *batch*, the next one of *log*, are of an aborted transaction.

        Raises: BadRecords: a control batch has no key that tells its type.
        """
        if batch.producer_id < 0:
            return False
        while self._listed and self._listed[-1][1] <= batch.last_offset:
            self._producers.add(self._listed.pop()[0])
        if batch.is_control:
            if batch.producer_id in self._producers and _is_abort(batch, log):
                self._producers.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._producers


def _is_abort(batch: Entry, log: memoryview) -> bool:
    """Whether the first record of a control batch, never compressed, is an abort marker."""
    if not batch.records:
        return False
    _, at = _uvarint(log, batch.at + BATCH_HEADER_BYTES, batch)
    _, at = _uvarint(log, at + 1, batch)  # behind the attributes: time
    _, at = _uvarint(log, at, batch)  # offset
    size, at = _uvarint(log, at, batch)
    if size & 1 or not _CONTROL_KEY.size <= size >> 1 <= batch.end - at:
        raise _no_key(batch)
    _, kind = _CONTROL_KEY.unpack_from(log, at)
    return bool(kind == _ABORT)


def _uvarint(log: memoryview, at: int, batch: Entry) -> tuple[int, int]:
    """The number at *at*, as it stands there, and where it ends."""
    value = 0
    for index in range(max(min(10, batch.end - at), 0)):
        byte = log[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise _no_key(batch)


def _no_key(batch: Entry) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, "a control batch without a type", offset=batch.base_offset)
