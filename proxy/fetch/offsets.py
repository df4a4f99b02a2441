"""High watermark, last stable offset and log start offset of partitions, as brokers reported them."""

from collections.abc import Collection
from typing import Final

from proxy.wire.fetch import UNKNOWN, PartitionKey, PartitionReply

__all__ = ["OffsetTable", "Offsets", "highest", "offsets_of"]

Offsets = tuple[int, int, int]
"""High watermark, last stable offset and log start offset; -1 where a version of Fetch lacks one."""
_SPARE: Final = 1000
"""The number of partitions kept without readers: a client that returns must not see lower offsets."""


class OffsetTable:
    """The last known offsets of partitions: high watermark, last stable offset and log start offset.

    Within a leader epoch none of them falls, even if responses arrive out of order or come from followers, unless
    the caller of ``learn`` sets *may_fall*.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[PartitionKey, tuple[int, Offsets]] = {}
        """By partition, the leader epoch and the offsets."""

    def get(self, key: PartitionKey) -> Offsets | None:
        """Return the last known offsets of a partition; None if unknown, or dropped by ``prune``."""
        known = self._known.get(key)
        return None if known is None else known[1]

    def shared(self, key: PartitionKey, offsets: Offsets) -> Offsets:
        """Return the stored object if the partition's offsets equal *offsets*, else *offsets*: to save memory."""
        known = self.get(key)
        return known if known == offsets else offsets

    def raise_to(self, key: PartitionKey, epoch: int, offsets: Offsets) -> Offsets:
        """Return *offsets*, each raised to the known one if that is higher and of the same leader *epoch*.

        With epoch -1, which stands for none, they are returned unchanged.
        """
        known_epoch, known = self._known.get(key, (UNKNOWN, None))
        return offsets if known is None or epoch != known_epoch or epoch == UNKNOWN else highest(offsets, known)

    def learn(
        self, key: PartitionKey, reply: PartitionReply, epoch: int, *, is_leader: bool, may_fall: bool = False
    ) -> bool:
        """Update the offsets of a partition from *reply*, which has no error; return whether any has changed.

        Offsets of an older leader epoch are ignored, and lower ones of the same epoch do not replace higher ones.

        Args:
            epoch: the leader epoch of the request; -1 if it had none.
            is_leader: whether the leader sent the response; offsets of followers, which learn the high watermark
                later, never replace higher ones.
            may_fall: whether all offsets are taken over as they are. Set for a leader that was asked by topic name
                or without an epoch: the topic may have been created again.
        """
        offsets = offsets_of(reply)
        known_epoch, known = self._known.get(key, (UNKNOWN, None))
        if known is not None and not may_fall:
            if UNKNOWN != epoch < known_epoch:
                return False
            if not is_leader or epoch in (UNKNOWN, known_epoch):
                offsets = highest(offsets, known)
        self._known[key] = known_epoch if epoch == UNKNOWN else epoch, offsets
        return offsets != known

    def is_large(self, logs: int) -> bool:
        """Return whether ``prune`` is worthwhile: there are over 1,000 + 2 * *logs* partitions.

        *logs*: the number of cached logs.
        """
        return len(self._known) > 2 * logs + _SPARE

    def prune(self, kept: Collection[PartitionKey]) -> None:
        """Drop the partitions that are not in *kept*, except for the 500 of these that were added last."""
        unread = [key for key in self._known if key not in kept]
        for key in unread[: max(len(unread) - _SPARE // 2, 0)]:
            del self._known[key]


def offsets_of(reply: PartitionReply) -> Offsets:
    """Return the offsets in a partition's response."""
    return reply.high_watermark, reply.last_stable_offset, reply.log_start_offset


def highest(one: Offsets, other: Offsets) -> Offsets:
    """Return the high watermark, last stable offset and log start offset, each the larger of both arguments'."""
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])
