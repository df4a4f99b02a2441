"""The records of one partition, in memory."""

from bisect import bisect_right
from collections import deque
from typing import Final

from proxy.demo.batches import BatchInfo, records_of

__all__ = ["PartitionLog"]

_REMEMBERED_SEQUENCES: Final = 5  # the most batches that a producer may have in flight


class PartitionLog:
    """A partition's batches in the order of their offsets, from ``start`` to before ``end``."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._batches: list[BatchInfo] = []
        self._ends: list[int] = []  # offset after each batch: ascending, hence searchable
        self._sequences: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, batch: BatchInfo, leader_epoch: int) -> int:
        """Store a batch at the end and return its offset; a batch that was sent before is not stored again."""
        known = self._sequences.setdefault(batch.producer_id, deque(maxlen=_REMEMBERED_SEQUENCES))
        if batch.producer_id >= 0:
            for epoch, sequence, offset in known:
                if (epoch, sequence) == (batch.producer_epoch, batch.base_sequence):
                    return offset
            known.append((batch.producer_epoch, batch.base_sequence, self.end))
        placed = batch.placed(self.end, leader_epoch)
        self._batches.append(placed)
        self.end = placed.last_offset + 1
        self._ends.append(self.end)
        return placed.base_offset

    def trim(self, offset: int) -> None:
        """Move the start up to *offset*, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        gone = bisect_right(self._ends, self.start)
        del self._batches[:gone], self._ends[:gone]

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return batches from the one with *offset* on, at most *max_bytes*.

        The last one may be cut, as a real broker's is, but never the first: if that alone is too large, it is
        returned whole if *at_least_one*, otherwise nothing is.
        """
        at = bisect_right(self._ends, offset)
        parts: list[bytes] = []
        room = max_bytes
        for batch in self._batches[at : at + 1]:
            if len(batch.data) > room and not at_least_one:
                return b""
            parts.append(batch.data)
            room -= len(batch.data)
        while room > 0 and (at := at + 1) < len(self._batches):
            parts.append(self._batches[at].data[:room])
            room -= len(parts[-1])
        return b"".join(parts)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after *timestamp_ms*; None if there is none.

        Within a compressed batch it is the batch's first offset.
        """
        for batch in self._batches:
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            if batch.compressed:
                return max(batch.base_offset, self.start), batch.max_timestamp_ms
            for record in records_of([batch]):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                    return record.offset, record.timestamp_ms
        return None

    def newest(self) -> tuple[int, int] | None:
        """Return offset and timestamp of the record with the largest timestamp; None if the log is empty."""
        if not self._batches:
            return None
        newest_ms = max(batch.max_timestamp_ms for batch in self._batches)
        return self.offset_at(newest_ms)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return the largest epoch not above *epoch* and its end offset; None if there is none."""
        epochs = [int.from_bytes(batch.data[12:16], "big", signed=True) for batch in self._batches]
        after = bisect_right(epochs, epoch)
        if after == 0:
            return None
        return epochs[after - 1], self._ends[after - 1]
