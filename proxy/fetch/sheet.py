"""The answer to a client's fetch as it would be if nothing were new, kept ready and patched where something is."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from proxy.fetch.wanted import numbered
from proxy.wire.fetch import UNKNOWN, PartitionReply, RequestLayout, ResponseLayout, Section, Topic
from proxy.wire.frames import Piece

__all__ = ["News", "Rows", "Sheet"]

_NO_OFFSETS: Final = (UNKNOWN, UNKNOWN, UNKNOWN)


class News(NamedTuple):
    """What is said of one partition in one answer only."""

    reply: PartitionReply
    records: Piece
    """What the client is given for the reply's own."""


@attrs.frozen
class Rows:
    """One section of the answer: ``head | quiet partitions, of fixed size | tail``."""

    head: bytes
    index_of: Mapping[int, int]
    quiet: bytearray
    tail: bytes


class Sheet:
    """Every partition of a client's fetch, in its order, with the last offsets that the broker told of it.

    Never an error: an error is true of one answer only, and is spliced into that one.
    Source: brokers leave out of an incremental answer what has not changed (KIP-227); clients that sent a full
            fetch want every partition back, and Java's from 0.10.1 to 1.0 drop an answer that lacks one.
    """

    __slots__ = ("_committed", "_names", "_rows", "_shaped_as", "_unknown", "layout", "stamp")

    def __init__(self, layout: ResponseLayout, *, committed: bool) -> None:
        self.layout = layout
        self.stamp = object()
        """Another one after each change: as long as it is the same, nothing has changed."""
        self._committed = committed
        self._rows: dict[tuple[Topic, int], Rows] = {}
        self._names: list[tuple[Topic, int]] = []
        self._unknown = False
        """Whether the offsets of some partition may be unknown."""
        self._shaped_as: Sequence[Section] = ()

    def reshape(self, request: RequestLayout, sections: Sequence[Section], reshaped: Collection[int]) -> None:
        """Take the form of a request; *reshaped* tells which of its sections are not as they were.

        Offsets already known of a partition are kept. Cost: O(sections), and O(partitions) of those reshaped.
        """
        if sections is self._shaped_as and not reshaped:
            return
        names, self._shaped_as = numbered(sections), sections
        if reshaped:
            self.stamp = object()
            topics = {sections[index].topic for index in reshaped}
            offsets = {
                (topic, partition): self._offsets(rows, index)
                for (topic, _), rows in self._rows.items()
                if topic in topics
                for partition, index in rows.index_of.items()
            }
            for index in reshaped:
                self._rows[names[index]] = self._fresh(request, sections[index], offsets)
        if names != self._names:
            self.stamp = object()
            self._names = names
            self._rows = {name: self._rows[name] for name in names}

    def learn(self, topic: Topic, reply: PartitionReply, *, may_fall: bool = True) -> None:
        """Keep what a broker told of a partition's offsets; with a lower high watermark only if that *may_fall*."""
        offsets = (reply.high_watermark, reply.last_stable_offset, reply.log_start_offset)
        for rows in self._of(topic):
            index = rows.index_of.get(reply.partition)
            if index is not None and (may_fall or self._offsets(rows, index)[0] <= reply.high_watermark):
                self.stamp = object()
                self._write(rows.quiet, index, reply.partition, offsets)

    def high_watermark(self, topic: Topic, partition: int) -> int:
        """As last told of it; -1 if that is not known."""
        for rows in self._of(topic):
            index = rows.index_of.get(partition)
            if index is not None:
                return self._offsets(rows, index)[0]
        return UNKNOWN

    def suits(self, version: int, *, committed: bool) -> bool:
        return (self.layout.version, self._committed) == (version, committed)

    def lacks(self, told: Collection[tuple[Topic, int]]) -> bool:
        """Whether no broker has told the offsets of some partition that is not among those *told* of otherwise.

        Cost: O(1) as long as every partition's offsets are known, O(partitions) else.
        """
        if not self._unknown:
            return False
        unknown = [
            (topic, partition)
            for (topic, _), rows in self._rows.items()
            for partition, index in rows.index_of.items()
            if self._offsets(rows, index)[0] == UNKNOWN
        ]
        self._unknown = bool(unknown)
        return any(each not in told for each in unknown)

    def answer(self, news: Mapping[Topic, Iterable[News]]) -> list[Piece]:
        """The topics of the answer, *news* spliced in, records as they are given.

        Cost: O(sections + news), and one copy of the quiet partitions' bytes.
        """
        pieces: list[Piece] = []
        quiet: list[bytes | memoryview] = []
        for topic, nth in self._names:
            rows = self._rows[topic, nth]
            quiet.append(rows.head)
            at = 0
            spliced = {
                rows.index_of[each.reply.partition]: each
                for each in news.get(topic, ())
                if each.reply.partition in rows.index_of
            }
            quiet_rows = memoryview(rows.quiet)
            for index, told in sorted(spliced.items()):
                start = index * self.layout.stride
                quiet.append(quiet_rows[at:start])
                self._splice(told, pieces, quiet)
                at = start + self.layout.stride
            quiet += (quiet_rows[at:], rows.tail)
        pieces.append(b"".join(quiet))
        return pieces

    def excerpt(self, chosen: Mapping[Topic, Mapping[int, News | None]]) -> list[Piece]:
        """Some of the answer: of the first section of each topic, those at these indices, with news or without.

        Cost: O(chosen).
        """
        pieces: list[Piece] = []
        quiet: list[bytes | memoryview] = []
        stride = self.layout.stride
        for topic, told in chosen.items():
            quiet.append(self.layout.topic(topic, len(told)))
            rows = memoryview(self._rows[topic, 0].quiet)
            for index, news in told.items():
                if news is None:
                    quiet.append(rows[index * stride : (index + 1) * stride])
                else:
                    self._splice(news, pieces, quiet)
            quiet.append(self.layout.topic_end)
        pieces.append(b"".join(quiet))
        return pieces

    @property
    def partitions(self) -> int:
        return sum(len(rows.quiet) for rows in self._rows.values()) // self.layout.stride

    @property
    def sections(self) -> int:
        return len(self._names)

    def rows(self, topic: Topic) -> Rows:
        """The topic's first section."""
        return self._rows[topic, 0]

    def _splice(self, news: News, pieces: list[Piece], quiet: list[bytes | memoryview]) -> None:
        head, tail = self.layout.partition(news.reply, len(news.records))
        quiet.append(head)
        if len(news.records):
            pieces += (b"".join(quiet), news.records)
            quiet.clear()
        quiet.append(tail)

    def _of(self, topic: Topic) -> list[Rows]:
        found: list[Rows] = []
        while (rows := self._rows.get((topic, len(found)))) is not None:
            found.append(rows)
        return found

    def _fresh(
        self,
        request: RequestLayout,
        section: Section,
        offsets: Mapping[tuple[Topic, int], tuple[int, ...]],
    ) -> Rows:
        partitions = [fields[0] for fields in request.entry.iter_unpack(section.entries)]
        quiet = bytearray(len(partitions) * self.layout.stride)
        for index, partition in enumerate(partitions):
            known = offsets.get((section.topic, partition), _NO_OFFSETS)
            self._unknown |= known[0] == UNKNOWN
            self._write(quiet, index, partition, known)
        head = self.layout.topic(section.topic, len(partitions))
        index_of = {partition: index for index, partition in enumerate(partitions)}
        return Rows(head, index_of, quiet, self.layout.topic_end)

    def _write(self, quiet: bytearray, index: int, partition: int, offsets: tuple[int, ...]) -> None:
        self.layout.pack_quiet(quiet, index, partition, offsets, committed=self._committed)

    def _offsets(self, rows: Rows, index: int) -> tuple[int, ...]:
        return self.layout.quiet_offsets(rows.quiet, index)
