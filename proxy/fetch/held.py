"""What readers have brought and the client has not been given yet."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import attrs

from proxy.cluster.routing import Source
from proxy.convert.kernel import whole_entries
from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey, PartitionReply, Topic

__all__ = ["Given", "Held", "Ready"]


class Ready(NamedTuple):
    """What can be given in one answer."""

    replies: list[tuple[PartitionKey, PartitionReply]]
    """Oldest first."""
    is_all: bool
    """Whether the response has room for all records that are held for the client's fetch."""


@attrs.frozen
class Given:
    """What was handed out of one partition."""

    reply: PartitionReply
    source: Source
    brought_s: float
    next_offset: int
    """Where it goes on; -1 where that cannot be told."""
    rest: PartitionReply | None
    """What was brought from there on."""


@attrs.define
class _Span:
    """One broker's answer about one partition, never joined with another.

    So the aborted transactions that it names stay with the records that the broker named them for: where there are
    any, what is left of it after a part was given is not given.
    """

    ask: FetchPartition
    """What it answers: it is given for nothing else."""
    reply: PartitionReply
    source: Source
    brought_s: float
    _part: tuple[int, PartitionReply] | None = None
    """For clients that ask for so much at most."""

    def part(self, most: int) -> PartitionReply:
        """As much of it as a client is given that asks for *most* bytes: whole batches, at least one."""
        if len(self.reply.records) <= most:
            return self.reply
        if self._part is None or self._part[0] != most:
            self._part = most, _part(self.reply, most)
        return self._part[1]

    def given(self, most: int) -> Given:
        """The same, and what is left."""
        reply, records = self.part(most), memoryview(self.reply.records)
        size = len(reply.records)
        next_offset, left = whole_entries(records, size).next_offset, records[size:]
        rest = None
        if whole_entries(left, 0).end and not self.reply.aborted:
            rest = self.reply._replace(records=left)
        return Given(reply, self.source, self.brought_s, next_offset, rest)


def _part(reply: PartitionReply, most: int) -> PartitionReply:
    records = memoryview(reply.records)
    end, next_offset = whole_entries(records, most)
    if next_offset == UNKNOWN:
        return reply
    aborted = reply.aborted and tuple(each for each in reply.aborted if each[1] < next_offset)
    return reply._replace(records=records[:end], aborted=aborted)


class Held:
    """Spans, one a partition; in the order in which they were brought, or last given from."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: dict[PartitionKey, _Span] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._spans)

    @property
    def oldest_s(self) -> float:
        """When the oldest was brought; infinity if there is none."""
        return min((span.brought_s for span in self._spans.values()), default=float("inf"))

    def keep(
        self, key: PartitionKey, ask: FetchPartition, reply: PartitionReply, source: Source, now_s: float
    ) -> None:
        """*reply* answers *ask*, and came from *source*. What was held of the partition is dropped."""
        self._spans.pop(key, None)
        self._spans[key] = _Span(ask, reply, source, now_s)

    def has(self, key: PartitionKey, ask: FetchPartition) -> bool:
        return self.reply(key, ask) is not None

    def reply(self, key: PartitionKey, ask: FetchPartition) -> PartitionReply | None:
        """Return the broker's reply to *ask*, if its records are held."""
        span = self._spans.get(key)
        return span.reply if span is not None and span.ask == ask else None

    def sift(self, asked: Callable[[PartitionKey], FetchPartition | None], oldest_s: float) -> None:
        """Drop records that do not answer what is *asked* of their partition, or came before *oldest_s*."""
        stale = [key for key, span in self._spans.items() if span.brought_s < oldest_s or asked(key) != span.ask]
        for key in stale:
            del self._spans[key]

    def ready(
        self,
        asks: Mapping[PartitionKey, FetchPartition],
        most: Callable[[PartitionKey, FetchPartition], int],
        max_bytes: int,
        *,
        is_cut: bool,
    ) -> Ready:
        """Return what fits into a response to *asks* of *max_bytes*.

        A first batch that is larger than a limit is delivered alone (KIP-74); the oldest records come first, so
        that each is delivered in its turn.

        Args:
            most: the bytes that the client wants of a partition, for what is asked of it.
            is_cut: whether a batch that is larger than a limit is cut later, as below Fetch v3.
        """
        replies: list[tuple[PartitionKey, PartitionReply]] = []
        left, is_all = max_bytes, True
        for key, span in self._spans.items():
            if asks.get(key) != span.ask:
                continue
            wanted = most(key, span.ask)
            limit = min(wanted, left)
            reply = span.part(limit)
            size = len(reply.records)
            if size <= limit or is_cut:
                replies.append((key, reply))
                left -= size
                is_all = is_all and (limit == wanted or size == len(span.reply.records))
            elif replies:
                is_all = False
            else:
                return Ready([(key, reply)], is_all=False)
        return Ready(replies, is_all)

    def give(self, key: PartitionKey, size: int) -> Given:
        """Remove and return the first *size* bytes, as ``ready`` has cut them."""
        return self._spans.pop(key).given(size)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """What is held of these is not to be given."""
        for key in keys:
            self._spans.pop(key, None)

    def forget_topic(self, topic: Topic, before_s: float) -> bool:
        """Drop the records of all partitions of *topic* that came before a time; return whether there were any."""
        keys = [key for key, span in self._spans.items() if key.topic == topic and span.brought_s < before_s]
        self.forget(keys)
        return bool(keys)

    def drop(self) -> None:
        """All of it: it can be fetched again."""
        self._spans.clear()
