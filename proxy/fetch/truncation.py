"""The offsets that old clients have read, to detect after a reconnect that a leader election truncated the log.

An unclean leader election may truncate records that consumers have read already. Consumers of Fetch v9 and later
send leader epochs and detect it themselves (KIP-320). Older ones would continue at their offset, possibly in the
middle of other records. Sidefetch knows the leader epoch in which it read for them. After a newer epoch begins, it
sends the old one in the next fetch (``last_fetched_epoch``, Fetch v12, KIP-595), and the broker compares the logs.
"""

import copy
from typing import Final, Self

from cachetools import LRUCache

from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey

__all__ = ["TruncationDetector"]

_PARTITIONS: Final = 100_000
"""The most entries for all clients together. For a dropped one, truncation is not detected."""


class TruncationDetector:
    """The offset and leader epoch up to which client ids last read partitions: 100,000 entries at most.

    It serves clients that send no leader epochs, as all below Fetch v9. The least recently used entry is dropped
    first.

    The key is the client id, within its principal, rather than the connection, since a new leader means another
    connection. One offset is kept for each client id and partition, that of the last read: a client that continues
    at exactly this offset is taken for the one that read up to it. For other clients with the same id, truncation
    is not detected after a reconnect.
    """

    def __init__(self) -> None:
        self._logs: LRUCache[tuple[str, str | None, PartitionKey], tuple[int, int]] = LRUCache(_PARTITIONS)
        """By principal, client id and partition: the leader epoch and the next offset."""
        self._owner = ""

    def of(self, owner: str) -> Self:
        """Return a detector that sees only the entries of the principal *owner*; all share the limit of entries."""
        seen = copy.copy(self)
        seen._owner = owner
        return seen

    def record(self, client_id: str | None, key: PartitionKey, epoch: int, next_offset: int) -> None:
        """Keep that a client has read a partition up to *next_offset* in leader *epoch*."""
        self._logs[self._owner, client_id, key] = (epoch, next_offset)

    def suspected_epoch(self, client_id: str | None, key: PartitionKey, wanted: FetchPartition) -> int:
        """Return the leader epoch in which the client read up to the wanted offset, if the wanted epoch is newer.

        Otherwise return -1: the client has not read up to exactly this offset, or *wanted* has no newer epoch.
        """
        epoch, next_offset = self._logs.get((self._owner, client_id, key), (UNKNOWN, UNKNOWN))
        return epoch if epoch < wanted.epoch and wanted.offset == next_offset else UNKNOWN

    def forget(self, client_id: str | None, key: PartitionKey) -> None:
        """Drop the offset of a client in a partition, after it got an error for the truncation."""
        self._logs.pop((self._owner, client_id, key), None)
