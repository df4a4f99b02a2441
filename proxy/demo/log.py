"""The log of one partition of the embedded cluster, in memory."""

from bisect import bisect_right
from collections import deque
from typing import Final

from proxy.demo.batches import BatchInfo, decode_records

__all__ = ["PartitionLog"]

_REMEMBERED_SEQUENCES: Final = 5  # the most batches that a producer may have in flight


class PartitionLog:
    """The record batches of a partition by offset, from the log start offset to the log end offset, exclusive."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._batches: list[BatchInfo] = []
        self._ends: list[int] = []  # offset after each batch: ascending, hence searchable
        self._sequences: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, batch: BatchInfo, leader_epoch: int) -> int:
        """Append *batch* with the next offsets and *leader_epoch*; return the offset of its first record.

        A batch that an idempotent producer sends again (the same producer id, producer epoch and base sequence as
        one of its last 5 batches) is not appended: the offset of the first copy is returned.
        """
        known = self._sequences.setdefault(batch.producer_id, deque(maxlen=_REMEMBERED_SEQUENCES))
        if batch.producer_id >= 0:
            for epoch, sequence, offset in known:
                if (epoch, sequence) == (batch.producer_epoch, batch.base_sequence):
                    return offset
            known.append((batch.producer_epoch, batch.base_sequence, self.end))
        placed = batch.with_offset(self.end, leader_epoch)
        self._batches.append(placed)
        self.end = placed.last_offset + 1
        self._ends.append(self.end)
        return placed.base_offset

    def trim(self, offset: int) -> None:
        """Raise the log start offset to *offset*, at most to the log's end, and drop the batches before it."""
        self.start = max(self.start, min(offset, self.end))
        gone = bisect_right(self._ends, self.start)
        del self._batches[:gone], self._ends[:gone]

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return encoded batches from the one that contains *offset* on, at most *max_bytes*; empty at the end.

        The last batch may be cut off at the limit, as by a real broker, but the first never is: if it is larger
        than *max_bytes*, it is returned whole if *at_least_one*, otherwise the result is empty. An *offset* before
        the start of the log stands for the start, and one beyond the end yields no bytes.
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
        """Return offset and timestamp of the first record whose timestamp is not below *timestamp_ms*, or None.

        A compressed batch is not decoded: for a record in one, the batch's first offset, but at least the log start
        offset, and the batch's largest timestamp are returned.
        """
        for batch in self._batches:
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            if batch.compressed:
                return max(batch.base_offset, self.start), batch.max_timestamp_ms
            for record in decode_records([batch]):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                    return record.offset, record.timestamp_ms
        return None

    def newest(self) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record with the largest timestamp; None if the log is empty."""
        if not self._batches:
            return None
        newest_ms = max(batch.max_timestamp_ms for batch in self._batches)
        return self.offset_at(newest_ms)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return the log's largest leader epoch up to *epoch*, and the offset after its last record; None for none.

        A consumer compares them with its position to detect that the log was truncated.
        """
        epochs = [int.from_bytes(batch.data[12:16], "big", signed=True) for batch in self._batches]
        after = bisect_right(epochs, epoch)
        if after == 0:
            return None
        return epochs[after - 1], self._ends[after - 1]
