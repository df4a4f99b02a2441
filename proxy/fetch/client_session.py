"""What Sidefetch keeps of one client's session (KIP-227): what it asks for, and what it was told last, as bytes.

A fetch within a session costs what it names, and its answer what has changed, not what the session holds:

* the entries of a topic are the very bytes that ``Wanted`` keeps of them, so both know by identity that nothing
  has moved; a topic with a partition that moved costs a copy of its bytes;
* what was told has the form of the ``Sheet``'s rows, so what has changed is found by comparing bytes, and nothing
  is compared as long as the sheet has not changed either.

Sessions outlive connections while sheets do not: "changed" is relative to what this client was told, whatever
reader tells it. What an answer tells counts as told as soon as the answer is made, as with brokers. If it is lost
on its way, the client cannot go on in this session: the epoch has moved on, so to ask again is refused (71), or
begins a new session, in which everything is told. To tell what did not change does no harm; so nothing counts as
told where that is the simpler thing: after an error, and of topics that were named twice.

Entries stay where they are. Kafka's brokers move partitions that brought records to the end of a session, since
they read it in order until an answer is full (KAFKA-12330). Here nothing is read in this order: the sessions
upstream are turned by their brokers, and ``Held`` gives what it was brought first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import attrs

from proxy.fetch.sheet import News, Sheet
from proxy.fetch.wanted import differing_entries
from proxy.wire.fetch import UNKNOWN, PartitionKey, RequestLayout, Topic, TopicSection, request_layout
from proxy.wire.fetch.responses import ResponseLayout, response_layout
from proxy.wire.frames import Piece

__all__ = ["ClientSession"]

_NOTHING_TOLD: Final = (UNKNOWN, UNKNOWN, UNKNOWN)


@attrs.define
class _Part:
    """One topic of a session."""

    entries: bytes
    """Of its partitions, in the order in which the client added them."""
    told: bytearray | None = None
    """The row of each as it was told last, with unknown offsets for nothing; None if none was told anything."""
    _index_of: dict[int, int] | None = None
    """Kept once anything was named in the session."""

    def index_of(self, layout: RequestLayout) -> dict[int, int]:
        if self._index_of is None:
            self._index_of = _indices(layout, self.entries)
        return self._index_of

    def add(self, layout: RequestLayout, rows: ResponseLayout, entries: bytes | memoryview) -> int:
        """Put in *entries*, in place where they are known; returns how many are new. Cost: O(them), and a copy."""
        index_of = self.index_of(layout)
        patched, stride, size = bytearray(self.entries), layout.stride, len(index_of)
        for nth, (partition, *_) in enumerate(layout.entry.iter_unpack(entries)):
            index = index_of.setdefault(partition, len(index_of))
            patched[index * stride : (index + 1) * stride] = entries[nth * stride : (nth + 1) * stride]
            if index >= size and self.told is not None and len(self.told) < len(index_of) * rows.stride:
                self.told += bytes(rows.stride)
                rows.pack_quiet(self.told, index, partition, _NOTHING_TOLD, committed=False)
        if patched != self.entries:
            self.entries = bytes(patched)
        return len(index_of) - size

    def forget(self, layout: RequestLayout, rows: ResponseLayout, partitions: Iterable[int]) -> int:
        """Returns how many there were. Cost: O(the topic's partitions)."""
        index_of = self.index_of(layout)
        gone = {index_of[partition] for partition in partitions if partition in index_of}
        if gone:
            self.entries = b"".join(_without(self.entries, layout.stride, gone))
            if self.told is not None:
                self.told = bytearray(b"".join(_without(self.told, rows.stride, gone)))
            self._index_of = None
        return len(gone)

    def changed(self, rows: ResponseLayout, current: bytearray) -> list[int]:
        """Which partitions the client was told other offsets of than are known now; they then count as told."""
        if self.told is None:
            told = [index for index in range(len(current) // rows.stride) if _has_offsets(rows, current, index)]
            self.told = current
            return told
        if self.told == current:
            return []
        told = [
            index
            for index in differing_entries(self.told, current, rows.stride)
            if _has_offsets(rows, current, index) and _is_worth_telling(rows, self.told, current, index)
        ]
        self.told = current
        return told


class ClientSession:
    """The partitions of a client's session at the broker *node_id*, as far as the client knows.

    A topic has one section here, whatever the client's first request looked like.
    """

    def __init__(self, node_id: int, version: int, sections: Iterable[TopicSection], owner: str = "") -> None:
        self.node_id = node_id
        self.owner = owner
        """The principal whose it is."""
        self.epoch = 1
        """The next request's."""
        self._layout = request_layout(version)
        self._rows = response_layout(version)
        self._parts: dict[Topic, _Part] = {}
        self._size = 0
        self._sections: tuple[TopicSection, ...] | None = None
        self._seen: object = None
        """The stamp of the sheet from which the client was told everything; None where it was told other things."""
        for section in sections:
            self._add(section)

    def __len__(self) -> int:
        """Partitions."""
        return self._size

    @property
    def by_id(self) -> bool:
        return self._layout.by_id

    @property
    def topics(self) -> frozenset[Topic]:
        return frozenset(self._parts)

    @property
    def sections(self) -> tuple[TopicSection, ...]:
        """All that the client asks for, as a full fetch would; the same object until something changes."""
        if self._sections is None:
            self._sections = tuple(TopicSection(topic, part.entries) for topic, part in self._parts.items())
        return self._sections

    def apply(self, version: int, sections: Iterable[TopicSection], forgotten: Iterable[PartitionKey]) -> None:
        """Bring it up to a request within it: what is both named and forgotten is gone, as with brokers.

        *version* must name topics as the request did that began it.
        """
        if version != self._layout.version:
            self._become(request_layout(version), response_layout(version))
        for section in sections:
            self._add(section)
        for topic, run in groupby(forgotten, key=lambda key: key.topic):
            self._forget(topic, [key.partition for key in run])

    def told_all(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> None:
        """The client is sent the whole *sheet* with *news*. *sheet* has the form of ``sections``."""
        for topic, part in self._parts.items():
            part.told = sheet.rows(topic)
        for topic, each in news.items():
            self._tell(topic, each, sheet)
        self._seen = None if news else sheet.stamp

    def tell(self, sheet: Sheet, news: Mapping[Topic, Sequence[News]]) -> tuple[int, int, list[Piece]]:
        """How many topics an incremental answer has, how many partitions, and these; what they say counts as told.

        *sheet* has the form of ``sections``.

        They contain what is in *news*, and whose high watermark or log start is not as last told.
        Cost:   O(news) if the sheet is as it was, else a comparison of the bytes and O(changed).
        Source: ``FetchSession.CachedPartition.maybeUpdateResponseData``.
        """
        chosen: dict[Topic, dict[int, News | None]] = {}
        if sheet.stamp is not self._seen:
            for topic, part in self._parts.items():
                changed = part.changed(self._rows, sheet.rows(topic))
                if changed:
                    chosen[topic] = dict.fromkeys(changed)
        for topic, each in news.items():
            told = self._tell(topic, each, sheet)
            if told:
                chosen[topic] = chosen.get(topic, {}) | told
        self._seen = None if news else sheet.stamp
        return len(chosen), sum(map(len, chosen.values())), sheet.excerpt(chosen)

    def _tell(self, topic: Topic, news: Iterable[News], sheet: Sheet) -> dict[int, News | None]:
        """Take *news* for told; returns them by index."""
        part = self._parts.get(topic)
        if part is None:
            return {}
        told: dict[int, News | None] = {}
        for each in news:
            reply = each.reply
            index = sheet.index(topic, reply.partition)
            if index is None:
                continue
            told[index] = each
            if part.told is not None:
                offsets = (reply.high_watermark, reply.last_stable_offset, reply.log_start_offset)
                # So that the first good answer after an error is not left out.
                self._rows.pack_quiet(
                    part.told, index, reply.partition, _NOTHING_TOLD if reply.error else offsets, committed=False
                )
        return told

    def _add(self, section: TopicSection) -> None:
        part = self._parts.get(section.topic)
        if part is None:
            part = _Part(bytes(section.entries))
            count = len(part.entries) // self._layout.stride
            if count == 0:
                return
            if len(_indices(self._layout, part.entries)) < count:
                part = _Part(b"")
                count = part.add(self._layout, self._rows, section.entries)
            self._parts[section.topic] = part
            self._size += count
        else:
            entries = part.entries
            self._size += part.add(self._layout, self._rows, section.entries)
            if part.entries is entries:
                return
        self._sections = self._seen = None

    def _forget(self, topic: Topic, partitions: Iterable[int]) -> None:
        part = self._parts.get(topic)
        if part is not None:
            self._size -= part.forget(self._layout, self._rows, partitions)
            self._sections = self._seen = None
            if not part.entries:
                del self._parts[topic]

    def _become(self, layout: RequestLayout, rows: ResponseLayout) -> None:
        """The client speaks another version from now on."""
        for part in self._parts.values():
            entries = self._layout.entry.iter_unpack(part.entries)
            part.entries = b"".join(layout.pack(fields[0], self._layout.ask(fields)) for fields in entries)
            if part.told is not None:
                told = bytearray(len(part.told) // self._rows.stride * rows.stride)
                for index, partition in enumerate(_indices(layout, part.entries)):
                    offsets = self._rows.quiet_offsets(part.told, index)
                    rows.pack_quiet(told, index, partition, offsets, committed=False)
                part.told = told
        self._layout, self._rows = layout, rows
        self._sections = self._seen = None


def _indices(layout: RequestLayout, entries: bytes | memoryview) -> dict[int, int]:
    return {fields[0]: index for index, fields in enumerate(layout.entry.iter_unpack(entries))}


def _without(items: bytes | bytearray, stride: int, gone: set[int]) -> Iterator[bytes | bytearray]:
    for index in range(len(items) // stride):
        if index not in gone:
            yield items[index * stride : (index + 1) * stride]


def _has_offsets(layout: ResponseLayout, rows: bytearray, index: int) -> bool:
    """Whether a broker has told them: what nobody knows is not told."""
    return layout.quiet_offsets(rows, index)[0] != UNKNOWN


def _is_worth_telling(layout: ResponseLayout, told: bytearray, current: bytearray, index: int) -> bool:
    """Whether another high watermark or log start is known; a last stable offset alone is told to nobody."""
    before, now = layout.quiet_offsets(told, index), layout.quiet_offsets(current, index)
    return (before[0], before[2]) != (now[0], now[2])
