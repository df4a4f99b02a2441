"""What readers have brought and the client has not been given yet."""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from proxy.fetch.routes import Source
from proxy.wire.fetch import Ask, Key, PartitionReply

__all__ = ["Held"]


@attrs.frozen
class _Span:
    """One broker's answer about one partition, whole: never split, and never joined with another.

    So the aborted transactions that it names stay with exactly the records that the broker named them for.
    """

    ask: Ask
    """What it answers: it is given for nothing else."""
    reply: PartitionReply
    source: Source
    brought_s: float


class Held:
    """Spans by partition, oldest first; one a partition."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: dict[Key, _Span] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._spans)

    @property
    def oldest_s(self) -> float:
        """When the oldest was brought; infinity if there is none."""
        return next((span.brought_s for span in self._spans.values()), float("inf"))

    def keep(self, key: Key, ask: Ask, reply: PartitionReply, source: Source, now_s: float) -> None:
        """*reply* answers *ask*, and came from *source*. What was held of the partition is dropped."""
        self._spans.pop(key, None)
        self._spans[key] = _Span(ask, reply, source, now_s)

    def has(self, key: Key, ask: Ask) -> bool:
        span = self._spans.get(key)
        return span is not None and span.ask == ask

    def sift(self, asks: Mapping[Key, Ask], oldest_s: float) -> None:
        """Drop what answers none of *asks* any more, and what was brought before *oldest_s*."""
        stale = [key for key, span in self._spans.items() if span.brought_s < oldest_s or asks.get(key) != span.ask]
        for key in stale:
            del self._spans[key]

    def ready(self, max_bytes: int) -> list[tuple[Key, PartitionReply]]:
        """What fits in an answer of *max_bytes*, oldest first; the oldest always does, as with brokers (KIP-74)."""
        fitting: list[tuple[Key, PartitionReply]] = []
        left = max_bytes
        for key, span in self._spans.items():
            size = len(span.reply.records)
            if fitting and size > left:
                break
            fitting.append((key, span.reply))
            left -= size
        return fitting

    def give(self, key: Key) -> tuple[Source, float]:
        """It was handed out; returns where it came from, and when."""
        span = self._spans.pop(key)
        return span.source, span.brought_s

    def forget(self, keys: Iterable[Key]) -> None:
        """What is held of these is not to be given."""
        for key in keys:
            self._spans.pop(key, None)

    def drop(self) -> None:
        """All of it: it can be fetched again."""
        self._spans.clear()
