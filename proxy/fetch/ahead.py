"""Where clients are expected to go on, so that they can be read for before they ask.

A client that has asked on from the end of what it was given is taken to do so again. What the broker is then asked
on its behalf is what it would ask itself, but for the size: that grows as long as the client goes on, so that one
answer of the broker's serves many small fetches. Whoever seeks has wasted one answer, and is read ahead of again
once it has gone on.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey

__all__ = ["AHEAD_BYTES", "Ahead"]

AHEAD_BYTES: Final = 1024 * 1024
"""Asked for of a partition at most, if its client does not ask for more: Kafka's own default."""
_GROWTH: Final = 4


@attrs.define
class _Trail:
    """How one partition is read."""

    ask: FetchPartition
    """What the client is expected to ask for next, as brokers are asked."""
    own_bytes: int
    """What the client itself asks for at most."""
    is_asked: bool
    """Whether brokers have been asked."""
    since_s: float
    is_met: bool = False
    """Whether the client has asked for just that."""


class Ahead:
    """What each partition's next ask will be: of those that were given lately, oldest first."""

    __slots__ = ("_trails",)

    def __init__(self) -> None:
        self._trails: dict[PartitionKey, _Trail] = {}

    def expect(
        self, key: PartitionKey, ask: FetchPartition, next_offset: int, now_s: float
    ) -> FetchPartition | None:
        """The client has been given what answers *ask* up to *next_offset*.

        Returns what to ask for before it does; None where it has not gone on before.
        """
        own_bytes = self.own_bytes(key, ask)
        last = self._trails.pop(key, None)
        goes_on = last is not None and last.is_met
        most = max(own_bytes, min(_GROWTH * ask.max_bytes, AHEAD_BYTES)) if goes_on else own_bytes
        # Both are read under one leader epoch, so there is no divergence between them to be looked for.
        following = ask._replace(offset=next_offset, max_bytes=most, last_fetched_epoch=UNKNOWN)
        self._trails[key] = _Trail(following, own_bytes, goes_on, now_s)
        return following if goes_on else None

    def met(self, key: PartitionKey, own: FetchPartition) -> FetchPartition:
        """The client asks for *own*; returns what brokers are, or were, asked for it."""
        trail = self._trails.get(key)
        if trail is None:
            return own
        if not _is_same_place(trail.ask, own):
            del self._trails[key]
            return own
        trail.is_met, trail.own_bytes = True, own.max_bytes
        return trail.ask if trail.is_asked else own

    def own_bytes(self, key: PartitionKey, ask: FetchPartition) -> int:
        """What the client of *ask* asks for at most itself."""
        trail = self._trails.get(key)
        return trail.own_bytes if trail is not None and trail.is_asked and trail.ask == ask else ask.max_bytes

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """What brokers were asked for before the client has asked for it; None for nothing."""
        trail = self._trails.get(key)
        return trail.ask if trail is not None and trail.is_asked else None

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Expect nothing of these."""
        for key in keys:
            self._trails.pop(key, None)

    def prune(self, oldest_s: float) -> None:
        """Forget what was given before *oldest_s*. Cost: O(forgotten)."""
        while self._trails:
            key, trail = next(iter(self._trails.items()))
            if trail.since_s >= oldest_s:
                break
            del self._trails[key]


def _is_same_place(expected: FetchPartition, own: FetchPartition) -> bool:
    """Whether *own* is answered by what *expected* brings.

    Where the leader's epoch fences both, it has been the same from what the client was given to this, and nothing
    can have diverged between the two; else a client that wants that looked for has to be asked for itself.
    """
    looks_back = own.last_fetched_epoch != UNKNOWN and own.epoch == UNKNOWN
    return (own.offset, own.epoch) == (expected.offset, expected.epoch) and not looks_back
