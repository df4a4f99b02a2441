"""The answer to a client's fetch as it would be if nothing were new, kept ready and patched where something is."""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import lt
from typing import Final, NamedTuple

import attrs

from proxy.fetch.wanted import numbered
from proxy.wire.fetch import UNKNOWN, PartitionReply, RequestLayout, ResponseLayout, Topic, TopicSection
from proxy.wire.frames import Piece, is_viewed

__all__ = ["News", "Offsets", "Sheet", "highest", "raised"]

Offsets = tuple[int, ...]
"""High watermark, last stable offset and log start offset, as far as the client's version has them."""

_COPIED_BYTES: Final = 16 * 1024
"""What is shorter is copied into the answer; of what is longer, views are given."""
_NOTHING_KNOWN: Final = (UNKNOWN, (UNKNOWN, UNKNOWN, UNKNOWN))
"""Leader epoch, offsets."""


class News(NamedTuple):
    """What is said of one partition in one answer only."""

    reply: PartitionReply
    records: Piece
    """What the client is given for the reply's own."""


@attrs.frozen
class _Rows:
    """The quiet partitions of one section, of fixed size."""

    start: int
    end: int
    """Where they stand in the sheet, in bytes."""
    first: int
    """How many partitions stand before them."""
    index_of: Mapping[int, int] | None
    """Where among them each is; None where they ascend."""


class Sheet:
    """Every partition of a client's fetch, in its order, with the last offsets that the broker told of it.

    Never an error: an error is true of one answer only, and is spliced into that one.
    Source: brokers leave out of an incremental answer what has not changed (KIP-227); clients that sent a full
            fetch want every partition back, and Java's from 0.10.1 to 1.0 drop an answer that lacks one.
    """

    __slots__ = ("_committed", "_epochs", "_partitions", "_rows", "_unknown", "_written", "layout", "stamp")

    def __init__(self, layout: ResponseLayout, *, committed: bool) -> None:
        self.layout = layout
        self.stamp = object()
        """Another one after each change: as long as it is the same, nothing has changed."""
        self._committed = committed
        self._rows: dict[tuple[Topic, int], _Rows] = {}
        """By section, in the request's order."""
        self._written = bytearray()
        """All topics of an answer in which nothing is new. Not written to while an answer has views of it."""
        self._partitions = array("i")
        self._epochs = array("i")
        """Under which leader epoch the offsets of each were told."""
        self._unknown = False
        """Whether the offsets of some partition may be unknown."""

    def reshape(
        self,
        request: RequestLayout,
        sections: Sequence[TopicSection],
        reshaped: Collection[int],
        replaced: Collection[Topic] = (),
    ) -> None:
        """Take the form of a request; *reshaped* tells which of its sections are not as they were.

        Offsets already known of a partition are kept, but for those of *replaced* topics: these are others by now,
        which have the same names.
        Cost: O(sections), and a copy; O(partitions) of those reshaped.
        """
        before, self._rows, self.stamp = self._rows, {}, object()
        partitions, self._partitions = self._partitions, array("i")
        epochs, self._epochs = self._epochs, array("i")
        written, self._written = memoryview(self._written), bytearray()
        stride = self.layout.stride
        fresh = {index: sections[index].topic for index in reshaped}
        topics = frozenset(fresh.values()).difference(replaced)
        known = {
            (topic, partition): (
                epochs[rows.first + index],
                self.layout.quiet_offsets(written[rows.start :], index),
            )
            for (topic, _), rows in before.items()
            if topic in topics
            for partition, index in self._places(rows, partitions)
        }
        parts: list[bytes | bytearray | memoryview] = []
        at = 0
        for nth, (name, section) in enumerate(zip(numbered(sections), sections, strict=True)):
            quiet: bytearray | memoryview
            first = len(self._partitions)
            if nth in fresh:
                quiet, index_of = self._fresh(request, section, known)
            else:
                old = before[name]
                quiet, index_of = written[old.start : old.end], old.index_of
                last = old.first + len(quiet) // stride
                self._partitions += partitions[old.first : last]
                self._epochs += epochs[old.first : last]
            head = self.layout.topic(section.topic, len(quiet) // stride)
            start = at + len(head)
            self._rows[name] = _Rows(start, start + len(quiet), first, index_of)
            parts += (head, quiet, self.layout.topic_end)
            at = start + len(quiet) + len(self.layout.topic_end)
        self._written = bytearray().join(parts)

    def learn(self, topic: Topic, reply: PartitionReply, epoch: int = UNKNOWN, *, may_fall: bool = True) -> None:
        """Keep the offsets of a broker's reply about a partition, which was asked under a leader *epoch*.

        Args: may_fall: whether it is the leader's newest reply. Of others, those of an earlier epoch are ignored,
            and no offset falls within an epoch.
        """
        brought = _offsets_of(reply)
        for rows in self._of(topic):
            index = self._index(rows, reply.partition)
            if index is None:
                continue
            known_epoch = self._epochs[rows.first + index]
            if not may_fall and UNKNOWN != epoch < known_epoch:
                continue
            offsets, known = brought, self._offsets(rows, index)
            if not may_fall and epoch in (UNKNOWN, known_epoch):
                offsets = highest(brought, known)
            self._epochs[rows.first + index] = known_epoch if epoch == UNKNOWN else epoch
            if offsets[: len(known)] != known:
                self.stamp = object()
                if is_viewed(self._written):
                    self._written = self._written[:]
                self._write(memoryview(self._written)[rows.start :], index, reply.partition, offsets)

    def known(self, topic: Topic, partition: int) -> tuple[int, Offsets]:
        """Return leader epoch, and high watermark, last stable and log start offset; -1 where they are unknown."""
        for rows in self._of(topic):
            index = self._index(rows, partition)
            if index is not None:
                return self._epochs[rows.first + index], self._offsets(rows, index)
        return _NOTHING_KNOWN

    def suits(self, version: int, *, committed: bool) -> bool:
        return (self.layout.version, self._committed) == (version, committed)

    def lacking(self, told: Iterable[tuple[Topic, int]]) -> set[tuple[Topic, int]]:
        """Return the partitions whose offsets no broker has told, but for those *told* of otherwise.

        Cost: O(1), without a look at *told*, as long as every partition's offsets are known, O(partitions) else.
        """
        if not self._unknown:
            return set()
        unknown = {
            (topic, partition)
            for (topic, _), rows in self._rows.items()
            for partition, index in self._places(rows, self._partitions)
            if self._offsets(rows, index)[0] == UNKNOWN
        }
        self._unknown = bool(unknown)
        return unknown.difference(told)

    def answer(self, news: Mapping[Topic, Iterable[News]]) -> list[Piece]:
        """The topics of the answer, *news* spliced in, records as they are given.

        Cost: O(news).
        """
        stride = self.layout.stride
        spliced = {
            rows.start + index * stride: each
            for topic, told in news.items()
            for rows in self._of(topic)
            for each in told
            if (index := self._index(rows, each.reply.partition)) is not None
        }
        pieces: list[Piece] = []
        quiet: list[bytes | bytearray | memoryview] = []
        written, at = memoryview(self._written), 0
        for start, told in sorted(spliced.items()):
            _put(written[at:start], pieces, quiet)
            self._splice(told, pieces, quiet)
            at = start + stride
        _put(written[at:], pieces, quiet)
        pieces.append(b"".join(quiet))
        return pieces

    def excerpt(self, chosen: Mapping[Topic, Mapping[int, News | None]]) -> list[Piece]:
        """Some of the answer: of the first section of each topic, those at these indices, with news or without.

        Cost: O(chosen).
        """
        pieces: list[Piece] = []
        quiet: list[bytes | bytearray | memoryview] = []
        stride = self.layout.stride
        for topic, told in chosen.items():
            quiet.append(self.layout.topic(topic, len(told)))
            rows = self._rows[topic, 0]
            for index, news in told.items():
                if news is None:
                    at = rows.start + index * stride
                    quiet.append(self._written[at : at + stride])
                else:
                    self._splice(news, pieces, quiet)
            quiet.append(self.layout.topic_end)
        pieces.append(b"".join(quiet))
        return pieces

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    @property
    def sections(self) -> int:
        return len(self._rows)

    def rows(self, topic: Topic) -> bytearray:
        """Those of the topic's first section. Cost: a copy."""
        rows = self._rows[topic, 0]
        return self._written[rows.start : rows.end]

    def index(self, topic: Topic, partition: int) -> int | None:
        """Where among them one is."""
        return self._index(self._rows[topic, 0], partition)

    def _splice(self, news: News, pieces: list[Piece], quiet: list[bytes | bytearray | memoryview]) -> None:
        head, tail = self.layout.partition(news.reply, len(news.records))
        quiet.append(head)
        if len(news.records):
            pieces += (b"".join(quiet), news.records)
            quiet.clear()
        quiet.append(tail)

    def _of(self, topic: Topic) -> list[_Rows]:
        found: list[_Rows] = []
        while (rows := self._rows.get((topic, len(found)))) is not None:
            found.append(rows)
        return found

    def _index(self, rows: _Rows, partition: int) -> int | None:
        if rows.index_of is not None:
            return rows.index_of.get(partition)
        last = rows.first + (rows.end - rows.start) // self.layout.stride
        at = bisect_left(self._partitions, partition, rows.first, last)
        return at - rows.first if at < last and self._partitions[at] == partition else None

    def _places(self, rows: _Rows, partitions: Sequence[int]) -> Iterable[tuple[int, int]]:
        """Each partition among *rows*, and where it is."""
        if rows.index_of is not None:
            return rows.index_of.items()
        size = (rows.end - rows.start) // self.layout.stride
        return zip(partitions[rows.first : rows.first + size], range(size), strict=True)

    def _fresh(
        self,
        request: RequestLayout,
        section: TopicSection,
        known: Mapping[tuple[Topic, int], tuple[int, tuple[int, ...]]],
    ) -> tuple[bytearray, Mapping[int, int] | None]:
        """The rows of a section, which comes next, and where each partition's is."""
        partitions = [fields[0] for fields in request.entry.iter_unpack(section.entries)]
        quiet = bytearray(len(partitions) * self.layout.stride)
        for index, partition in enumerate(partitions):
            epoch, offsets = known.get((section.topic, partition), _NOTHING_KNOWN)
            self._unknown |= offsets[0] == UNKNOWN
            self._partitions.append(partition)
            self._epochs.append(epoch)
            self._write(quiet, index, partition, offsets)
        if all(map(lt, partitions, partitions[1:])):
            return quiet, None
        return quiet, {partition: index for index, partition in enumerate(partitions)}

    def _write(self, rows: bytearray | memoryview, index: int, partition: int, offsets: tuple[int, ...]) -> None:
        self.layout.pack_quiet(rows, index, partition, offsets, committed=self._committed)

    def _offsets(self, rows: _Rows, index: int) -> tuple[int, ...]:
        return self.layout.quiet_offsets(memoryview(self._written)[rows.start :], index)


def _offsets_of(reply: PartitionReply) -> Offsets:
    return reply.high_watermark, reply.last_stable_offset, reply.log_start_offset


def raised(reply: PartitionReply, floor: Offsets) -> PartitionReply:
    """Return *reply* with no offset below *floor*."""
    high_watermark, last_stable_offset, log_start_offset = highest(_offsets_of(reply), floor)
    return reply._replace(
        high_watermark=high_watermark, last_stable_offset=last_stable_offset, log_start_offset=log_start_offset
    )


def highest(brought: Offsets, known: Offsets) -> Offsets:
    """Return the higher of each offset; *known* may lack those that the client's version does not have."""
    return tuple(map(max, brought, known)) + brought[len(known) :]


def _put(quiet: memoryview, pieces: list[Piece], short: list[bytes | bytearray | memoryview]) -> None:
    """Add *quiet* to *pieces*, or to what is to be joined there."""
    if len(quiet) < _COPIED_BYTES:
        short.append(quiet)
        return
    pieces += (b"".join(short), quiet)
    short.clear()
