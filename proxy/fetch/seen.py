"""How far logs reached when clients read them, by which it is noticed that records which they have read are gone.

An unclean leader election may cut off records that consumers have had already. Consumers of Fetch v9 and later tell
leader epochs, and look for themselves (KIP-320). Older ones would read on from their offset, which may be in the
middle of other records by then. Sidefetch knows the leader epoch under which it has read for them: when that has
grown, it tells it with the next fetch, and the broker compares (``last_fetched_epoch``, Fetch v12, KIP-595).
"""

import copy
from typing import Final, Self

from cachetools import LRUCache

from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey

__all__ = ["Seen"]

_PARTITIONS: Final = 100_000
"""Of all clients together. What is forgotten is read on without a look back."""


class Seen:
    """By client id, since a new leader means another connection. Clients that share one may miss a truncation."""

    def __init__(self) -> None:
        self._logs: LRUCache[tuple[str, str | None, PartitionKey], tuple[int, int]] = LRUCache(_PARTITIONS)
        """(Leader epoch, the high watermark then.)"""
        self._owner = ""

    def of(self, owner: str) -> Self:
        """The same, as far as the principal *owner* has read."""
        seen = copy.copy(self)
        seen._owner = owner
        return seen

    def told(self, client_id: str | None, key: PartitionKey, epoch: int, high_watermark: int) -> None:
        """Records were read under *epoch*."""
        if epoch != UNKNOWN:
            self._logs[self._owner, client_id, key] = (epoch, high_watermark)

    def suspected(self, client_id: str | None, key: PartitionKey, ask: FetchPartition) -> int:
        """The epoch under which there were records up to where *ask* goes on, if there is a later one; else -1."""
        epoch, high_watermark = self._logs.get((self._owner, client_id, key), (UNKNOWN, UNKNOWN))
        return epoch if epoch < ask.epoch and ask.offset <= high_watermark else UNKNOWN

    def forget(self, client_id: str | None, key: PartitionKey) -> None:
        """The client was told, and starts from elsewhere."""
        self._logs.pop((self._owner, client_id, key), None)
