"""Recognition of the batches of aborted transactions, by the list that a broker sends with fetched records."""

import struct
from collections.abc import Sequence
from typing import Final

from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import BATCH_HEADER_BYTES, Entry

__all__ = ["AbortedBatchFinder"]

_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")
"""The version and the type of a control record."""


class AbortedBatchFinder:
    """The state that finds the batches of aborted transactions in a fetch response, as Java's consumer does.

    Ask ``next_is_aborted`` about each batch of the response, in order. A producer's transactional batches are
    aborted from the first offset of a listed transaction to the producer's next abort marker. Source: Kafka's
    CompletedFetch.
    """

    __slots__ = ("_listed", "_producers")

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        """Create the state from *listed*: (producer id, first offset) of each aborted transaction, in any order."""
        self._listed = sorted(listed, key=lambda each: each[1], reverse=True)
        self._producers: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether no later batch of the response can be aborted: every listed transaction has begun and ended."""
        return not (self._listed or self._producers)

    def copy(self) -> "AbortedBatchFinder":
        """Return an independent copy, to look at later batches: ``next_is_aborted`` changes the state."""
        twin = AbortedBatchFinder(())
        twin._listed, twin._producers = list(self._listed), set(self._producers)
        return twin

    def next_is_aborted(self, batch: Entry, log: memoryview) -> bool:
        """Return whether *batch* is part of an aborted transaction; call this for each batch of *log*, in order.

        It changes the state: a batch may begin a listed transaction, and an abort marker ends one. It returns False
        for control batches.

        Raises: BadRecords: the key of a control batch has no type.
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
    """Return whether the first record of a control batch, which is never compressed, is an abort marker."""
    if not batch.records:
        return False
    _, at = _read_uvarint(log, batch.at + BATCH_HEADER_BYTES, batch)
    _, at = _read_uvarint(log, at + 1, batch)  # skips the timestamp, which follows the attributes
    _, at = _read_uvarint(log, at, batch)  # skips the offset
    size, at = _read_uvarint(log, at, batch)
    if size & 1 or not _CONTROL_KEY.size <= size >> 1 <= batch.end - at:
        raise _missing_key(batch)
    _, kind = _CONTROL_KEY.unpack_from(log, at)
    return bool(kind == _ABORT)


def _read_uvarint(log: memoryview, at: int, batch: Entry) -> tuple[int, int]:
    """Return the unsigned varint at position *at* of *log*, and the position behind it."""
    value = 0
    for index in range(max(min(10, batch.end - at), 0)):
        byte = log[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise _missing_key(batch)


def _missing_key(batch: Entry) -> BadRecords:
    return BadRecords(ErrorCode.corrupt_message, "a control batch without a type", offset=batch.base_offset)
