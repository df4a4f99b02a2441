"""The encoded Fetch response for "nothing new", into which records, errors and changed offsets are patched."""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import lt
from typing import Final, NamedTuple

import attrs

from proxy.fetch.fetch_state import numbered
from proxy.fetch.offsets import Offsets
from proxy.wire.fetch import UNKNOWN, PartitionReply, RequestLayout, ResponseLayout, Topic, TopicSection
from proxy.wire.frames import Piece, is_viewed

__all__ = ["PartitionUpdate", "ResponseTemplate", "Updates"]

_COPIED_BYTES: Final = 16 * 1024
"""Shorter parts of the template are copied into a response; longer parts become views."""
_NOTHING_KNOWN: Final = (UNKNOWN, UNKNOWN, UNKNOWN)


class PartitionUpdate(NamedTuple):
    """One partition of a single response, spliced in for its template row and not kept there.

    It has records or an error, or else a preferred replica or a diverging epoch. It has none of these if a
    conversion found no complete entry at or behind the client's offset (``IncompleteEntry``).
    """

    reply: PartitionReply
    """Its error code, offsets and aborted transactions."""
    records: Piece
    """The records that the client gets: those of ``reply``, or the converted ones."""


Updates = Mapping[Topic, Sequence[PartitionUpdate]]
"""The partitions of a single response with records or errors, by topic."""


@attrs.frozen
class _Rows:
    """The encoded partitions of one topic section, without records, each of the same size."""

    start: int
    """The position of the first in the template, in bytes."""
    end: int
    """The position behind the last in the template, in bytes."""
    first: int
    """The number of partitions of earlier sections."""
    index_of: Mapping[int, int] | None
    """The index of each partition within the section; None if their numbers ascend."""


class ResponseTemplate:
    """A response template: every partition of a client's fetch, in its order, with its last known offsets.

    It has neither errors nor records: these belong to one response, and are spliced into it.
    Source: clients that sent a full fetch expect every partition in the response, and Java's from 0.10.1 to 1.0
            drop a response that lacks one; in incremental ones, brokers leave out unchanged partitions (KIP-227).
    """

    __slots__ = ("_committed", "_partitions", "_rows", "_written", "layout", "stamp")

    def __init__(self, layout: ResponseLayout, *, committed: bool) -> None:
        self.layout = layout
        self.stamp = object()
        """A new object after each change: an unchanged stamp shows that the template has not changed."""
        self._committed = committed
        self._rows: dict[tuple[Topic, int], _Rows] = {}
        """By section (topic, and number of earlier sections of that topic), in the request's order."""
        self._written = bytearray()
        """The encoded topics of the response; replaced rather than changed while responses have views of it."""
        self._partitions = array("i")

    def reshape(
        self,
        request: RequestLayout,
        sections: Sequence[TopicSection],
        reshaped: Collection[int],
        replaced: Collection[Topic] = (),
    ) -> None:
        """Take over the topics and partitions of a request, in its order.

        The known offsets of partitions are kept, except for *replaced* topics. New partitions have offsets -1.

        Args: reshaped: the indices of the sections that are new, whose partitions differ from those of the last
                  call, or whose topic is in *replaced*.
              replaced: the topics that were deleted and created again under the same names.
        Cost: O(sections), and a copy; O(partitions) of the reshaped sections.
        """
        before, self._rows, self.stamp = self._rows, {}, object()
        partitions, self._partitions = self._partitions, array("i")
        written, self._written = memoryview(self._written), bytearray()
        stride = self.layout.stride
        fresh = {index: sections[index].topic for index in reshaped}
        topics = frozenset(fresh.values()).difference(replaced)
        known = {
            (topic, partition): self.layout.quiet_offsets(written[rows.start :], index)
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
            head = self.layout.topic(section.topic, len(quiet) // stride)
            start = at + len(head)
            self._rows[name] = _Rows(start, start + len(quiet), first, index_of)
            parts += (head, quiet, self.layout.topic_end)
            at = start + len(quiet) + len(self.layout.topic_end)
        self._written = bytearray().join(parts)

    def learn(self, topic: Topic, partition: int, offsets: Offsets) -> None:
        """Set the high watermark, last stable offset and log start offset of a partition that the template has."""
        for rows in self._of(topic):
            index = self._index(rows, partition)
            if index is None:
                continue
            known = self._offsets(rows, index)
            if offsets[: len(known)] != known:
                self.stamp = object()
                if is_viewed(self._written):
                    self._written = self._written[:]
                self._write(memoryview(self._written)[rows.start :], index, partition, offsets)

    def is_for(self, version: int, *, committed: bool) -> bool:
        """Return whether the template is for this Fetch *version* and isolation level."""
        return (self.layout.version, self._committed) == (version, committed)

    def answer(self, updates: Mapping[Topic, Iterable[PartitionUpdate]]) -> list[Piece]:
        """Return the encoded topics of a response: all partitions, those of *updates* with their records or errors.

        Cost: O(updates).
        """
        stride = self.layout.stride
        spliced = {
            rows.start + index * stride: each
            for topic, of_topic in updates.items()
            for rows in self._of(topic)
            for each in of_topic
            if (index := self._index(rows, each.reply.partition)) is not None
        }
        pieces: list[Piece] = []
        quiet: list[bytes | bytearray | memoryview] = []
        written, at = memoryview(self._written), 0
        for start, update in sorted(spliced.items()):
            if at < start:
                _put(written[at:start], pieces, quiet)
            self._splice(update, pieces, quiet)
            at = start + stride
        _put(written[at:], pieces, quiet)
        pieces.append(b"".join(quiet))
        return pieces

    def excerpt(self, chosen: Mapping[Topic, Mapping[int, PartitionUpdate | None]]) -> list[Piece]:
        """Return the encoded topics of a response with only some partitions, for a fetch session.

        *chosen*: by topic, the indices of partitions in its first section, each with its records or error, or None
        for its offsets only. Cost: O(chosen).
        """
        pieces: list[Piece] = []
        quiet: list[bytes | bytearray | memoryview] = []
        stride = self.layout.stride
        for topic, by_index in chosen.items():
            quiet.append(self.layout.topic(topic, len(by_index)))
            rows = self._rows[topic, 0]
            for index, update in by_index.items():
                if update is None:
                    at = rows.start + index * stride
                    quiet.append(self._written[at : at + stride])
                else:
                    self._splice(update, pieces, quiet)
            quiet.append(self.layout.topic_end)
        pieces.append(b"".join(quiet))
        return pieces

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._partitions)

    @property
    def sections(self) -> int:
        """The number of topic sections."""
        return len(self._rows)

    def rows(self, topic: Topic) -> bytearray:
        """Return the encoded partitions of the topic's first section, each of the same size. Cost: a copy."""
        rows = self._rows[topic, 0]
        return self._written[rows.start : rows.end]

    def index(self, topic: Topic, partition: int) -> int | None:
        """Return the index of a partition in the first section of *topic*; None if the section lacks it.

        Raises: KeyError: the template lacks the topic.
        """
        return self._index(self._rows[topic, 0], partition)

    def _splice(
        self, update: PartitionUpdate, pieces: list[Piece], quiet: list[bytes | bytearray | memoryview]
    ) -> None:
        head, tail = self.layout.partition(update.reply, len(update.records))
        quiet.append(head)
        if len(update.records):
            pieces += (b"".join(quiet), update.records)
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
        """Return each partition of *rows* with its index, given the *partitions* of all sections."""
        if rows.index_of is not None:
            return rows.index_of.items()
        size = (rows.end - rows.start) // self.layout.stride
        return zip(partitions[rows.first : rows.first + size], range(size), strict=True)

    def _fresh(
        self,
        request: RequestLayout,
        section: TopicSection,
        known: Mapping[tuple[Topic, int], tuple[int, ...]],
    ) -> tuple[bytearray, Mapping[int, int] | None]:
        """Return the encoded partitions of a new last section, and the ``index_of`` of its rows.

        *known*: offsets of partitions that are kept.
        """
        partitions = [fields[0] for fields in request.entry.iter_unpack(section.entries)]
        quiet = bytearray(len(partitions) * self.layout.stride)
        for index, partition in enumerate(partitions):
            offsets = known.get((section.topic, partition), _NOTHING_KNOWN)
            self._partitions.append(partition)
            self._write(quiet, index, partition, offsets)
        if all(map(lt, partitions, partitions[1:])):
            return quiet, None
        return quiet, {partition: index for index, partition in enumerate(partitions)}

    def _write(self, rows: bytearray | memoryview, index: int, partition: int, offsets: tuple[int, ...]) -> None:
        self.layout.pack_quiet(rows, index, partition, offsets, committed=self._committed)

    def _offsets(self, rows: _Rows, index: int) -> tuple[int, ...]:
        return self.layout.quiet_offsets(memoryview(self._written)[rows.start :], index)


def _put(quiet: memoryview, pieces: list[Piece], short: list[bytes | bytearray | memoryview]) -> None:
    """Add a part of the template: to *short*, to be joined later, or, if it is long, to *pieces*, after *short*."""
    if len(quiet) < _COPIED_BYTES:
        short.append(quiet)
        return
    pieces += (b"".join(short), quiet)
    short.clear()
