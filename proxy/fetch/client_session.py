"""The fetch session of one client (KIP-227): its partitions and the offsets that it was last sent, as bytes.

The cost of a fetch within a session depends on the partitions that it names, and that of its response on the
partitions that have changed, not on the size of the session:

* The entries of a topic are the same bytes object that ``FetchState`` keeps, so an identity check shows that no
  partition has moved. A topic with a partition that moved costs a copy of its bytes.
* The offsets that the client was sent have the form of the rows of ``ResponseTemplate`` (the encoded response for
  "nothing new"), so changes are found by comparing bytes, and only after the template has changed.

A session outlives connections, a ``ResponseTemplate`` does not: a partition has changed if its offsets differ from
those that this client was last sent, on any connection. Offsets count as sent as soon as the response is composed,
as at a broker. If the response is lost, the client cannot continue this session: its next request has an old epoch
and is refused (error 71), or begins a new session, whose first response has all partitions. To send unchanged
offsets does no harm, so offsets count as not sent after an error, and for topics that a request named twice.

The entries keep their order. Kafka's brokers move partitions that brought records to the end of a session, since
they read it in order until a response is full (KAFKA-12330). Sidefetch does not read partitions in this order:
``Positions`` delivers those first that became ready first.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import attrs

from proxy.fetch.fetch_state import differing_entries
from proxy.fetch.offsets import offsets_of
from proxy.fetch.response_template import PartitionUpdate, ResponseTemplate, Updates
from proxy.wire.fetch import UNKNOWN, PartitionKey, RequestLayout, Topic, TopicSection, request_layout
from proxy.wire.fetch.responses import ResponseLayout, response_layout
from proxy.wire.frames import Piece

__all__ = ["ClientSession"]

_PARTITION_BYTES: Final = 200
"""The memory of a partition: its entry, its row, and its place in an index."""
_TOPIC_BYTES: Final = 1000
"""The memory of a topic without its name and partitions."""
_UNKNOWN_OFFSETS: Final = (UNKNOWN, UNKNOWN, UNKNOWN)


@attrs.define
class _Part:
    """One topic of a session."""

    entries: bytes
    """The encoded entries of its partitions, in the order in which the client added them."""
    sent: bytearray | None = None
    """The response row that the client was last sent for each partition, with offsets -1 if it was sent none; None
    if it was sent no row of the topic."""
    _index_of: dict[int, int] | None = None
    """The index of each partition; None until a request within the session names the topic."""

    def index_of(self, layout: RequestLayout) -> dict[int, int]:
        """Return the index of each partition in ``entries``, which the caller must not change."""
        if self._index_of is None:
            self._index_of = _indices(layout, self.entries)
        return self._index_of

    def add(self, layout: RequestLayout, rows: ResponseLayout, entries: bytes | memoryview) -> int:
        """Add or replace the encoded *entries* of partitions; return how many partitions are new.

        A known partition keeps its place. Cost: O(*entries*), and a copy of the topic's bytes.
        """
        index_of = self.index_of(layout)
        patched, stride, size = bytearray(self.entries), layout.stride, len(index_of)
        for nth, (partition, *_) in enumerate(layout.entry.iter_unpack(entries)):
            index = index_of.setdefault(partition, len(index_of))
            patched[index * stride : (index + 1) * stride] = entries[nth * stride : (nth + 1) * stride]
            if index >= size and self.sent is not None and len(self.sent) < len(index_of) * rows.stride:
                self.sent += bytes(rows.stride)
                rows.pack_quiet(self.sent, index, partition, _UNKNOWN_OFFSETS, committed=False)
        if patched != self.entries:
            self.entries = bytes(patched)
        return len(index_of) - size

    def forget(self, layout: RequestLayout, rows: ResponseLayout, partitions: Iterable[int]) -> int:
        """Remove *partitions*; return how many of them the topic had. Cost: O(partitions of the topic)."""
        index_of = self.index_of(layout)
        gone = {index_of[partition] for partition in partitions if partition in index_of}
        if gone:
            self.entries = b"".join(_without(self.entries, layout.stride, gone))
            if self.sent is not None:
                self.sent = bytearray(b"".join(_without(self.sent, rows.stride, gone)))
            self._index_of = None
        return len(gone)

    def take_changed(self, rows: ResponseLayout, current: bytearray) -> list[int]:
        """Return the indices of partitions whose rows in *current* the client must be sent; keep *current* as sent.

        These have another high watermark or log start offset than the client was last sent. *current* is the
        topic's part of the template, in the same order as ``entries``.
        """
        if self.sent is None:
            self.sent = current
            return [index for index in range(len(current) // rows.stride) if _has_offsets(rows, current, index)]
        if self.sent == current:
            return []
        changed = [
            index
            for index in differing_entries(self.sent, current, rows.stride)
            if _has_offsets(rows, current, index) and _has_new_offsets(rows, self.sent, current, index)
        ]
        self.sent = current
        return changed


class ClientSession:
    """The partitions of one client's fetch session with Sidefetch, and the offsets that the client was last sent.

    ``node_id`` is the broker whose listener the client uses. Each topic has one section here, even if the client's
    first request named it several times.
    """

    def __init__(self, node_id: int, version: int, sections: Iterable[TopicSection], owner: str = "") -> None:
        self.node_id = node_id
        self.owner = owner
        """The principal that created it."""
        self.epoch = 1
        """The session epoch that the next request must have."""
        self._layout = request_layout(version)
        self._rows = response_layout(version)
        self._parts: dict[Topic, _Part] = {}
        self._size = 0
        self._topics_bytes = 0
        self._sections: tuple[TopicSection, ...] | None = None
        self._sent_stamp: object = None
        """``ResponseTemplate.stamp`` of the last response; None if that had records or errors."""
        listed = tuple(sections)
        for section in listed:
            self._add(section)
        # They stay the same objects, unless a request names a topic or a partition twice, or a topic without any.
        is_same = self._size * self._layout.stride == sum(len(section.entries) for section in listed)
        if is_same and len(self._parts) == len(listed):
            self._sections = listed

    def __len__(self) -> int:
        """Return the number of partitions."""
        return self._size

    @property
    def size_bytes(self) -> int:
        """An estimate of its memory."""
        return _PARTITION_BYTES * self._size + self._topics_bytes

    @property
    def by_id(self) -> bool:
        """Whether its requests name topics by id (Fetch v13 and later)."""
        return self._layout.by_id

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics of its partitions, as the client names them."""
        return frozenset(self._parts)

    @property
    def sections(self) -> tuple[TopicSection, ...]:
        """All partitions of the session, as a full fetch names them.

        It is the same tuple until a request changes or forgets partitions, or has another Fetch version.
        """
        if self._sections is None:
            self._sections = tuple(TopicSection(topic, part.entries) for topic, part in self._parts.items())
        return self._sections

    def apply(self, version: int, sections: Iterable[TopicSection], forgotten: Iterable[PartitionKey]) -> None:
        """Add or change the partitions of *sections*, then remove those of *forgotten*, as brokers do.

        *version* is the Fetch version of the request. It must name topics as the first request of the session did,
        by id or by name.
        """
        if version != self._layout.version:
            self._change_version(request_layout(version), response_layout(version))
        for section in sections:
            self._add(section)
        for topic, run in groupby(forgotten, key=lambda key: key.topic):
            self._forget(topic, [key.partition for key in run])

    def record_full_response(self, template: ResponseTemplate, updates: Updates) -> None:
        """Record that the client is sent all partitions: the offsets of *template*, with *updates* for some.

        *template* must have the topics and partitions of ``sections``, in the same order. The offsets of a
        partition with an error count as not sent.
        """
        for topic, part in self._parts.items():
            part.sent = template.rows(topic)
        for topic, each in updates.items():
            self._record_updates(topic, each, template)
        self._sent_stamp = None if updates else template.stamp

    def take_changes(self, template: ResponseTemplate, updates: Updates) -> tuple[int, int, list[Piece]]:
        """Encode an incremental response; return its number of topics, its number of partitions and its bytes.

        It has the partitions of *updates* (records and errors), and those whose high watermark or log start offset
        in *template* is known and differs from the one that the client was last sent. All these offsets count as
        sent from now on, except those of partitions with an error. *template* must have the topics and partitions
        of ``sections``, in the same order.

        Cost:   O(updates) if neither the template nor the session has changed since the last response and that had
            no *updates*; else a comparison of the template's bytes and O(changed).
        Source: ``FetchSession.CachedPartition.maybeUpdateResponseData``.
        """
        chosen: dict[Topic, dict[int, PartitionUpdate | None]] = {}
        if template.stamp is not self._sent_stamp:
            for topic, part in self._parts.items():
                changed = part.take_changed(self._rows, template.rows(topic))
                if changed:
                    chosen[topic] = dict.fromkeys(changed)
        for topic, each in updates.items():
            updated = self._record_updates(topic, each, template)
            if updated:
                chosen[topic] = chosen.get(topic, {}) | updated
        self._sent_stamp = None if updates else template.stamp
        return len(chosen), sum(map(len, chosen.values())), template.excerpt(chosen)

    def _record_updates(
        self, topic: Topic, updates: Iterable[PartitionUpdate], template: ResponseTemplate
    ) -> dict[int, PartitionUpdate | None]:
        """Record that the client is sent *updates* of a topic; return them by the index of the partition."""
        part = self._parts.get(topic)
        if part is None:
            return {}
        by_index: dict[int, PartitionUpdate | None] = {}
        for each in updates:
            reply = each.reply
            index = template.index(topic, reply.partition)
            if index is None:
                continue
            by_index[index] = each
            if part.sent is not None:
                # After an error, the next response without one must include the partition.
                offsets = _UNKNOWN_OFFSETS if reply.error else offsets_of(reply)
                self._rows.pack_quiet(part.sent, index, reply.partition, offsets, committed=False)
        return by_index

    def _add(self, section: TopicSection) -> None:
        part = self._parts.get(section.topic)
        if part is None:
            part = _Part(bytes(section.entries))
            count = len(part.entries) // self._layout.stride
            if count == 0:
                return
            if count > 1 and len(_indices(self._layout, part.entries)) < count:
                part = _Part(b"")
                count = part.add(self._layout, self._rows, section.entries)
            self._parts[section.topic] = part
            self._size += count
            self._topics_bytes += _TOPIC_BYTES + len(section.topic)
        else:
            entries = part.entries
            self._size += part.add(self._layout, self._rows, section.entries)
            if part.entries is entries:
                return
        self._sections = self._sent_stamp = None

    def _forget(self, topic: Topic, partitions: Iterable[int]) -> None:
        part = self._parts.get(topic)
        if part is not None:
            self._size -= part.forget(self._layout, self._rows, partitions)
            self._sections = self._sent_stamp = None
            if not part.entries:
                del self._parts[topic]
                self._topics_bytes -= _TOPIC_BYTES + len(topic)

    def _change_version(self, layout: RequestLayout, rows: ResponseLayout) -> None:
        """Encode all entries and rows again, for another Fetch version of the client."""
        for part in self._parts.values():
            entries = self._layout.entry.iter_unpack(part.entries)
            part.entries = b"".join(
                layout.pack(fields[0], self._layout.fetch_partition(fields)) for fields in entries
            )
            if part.sent is not None:
                rewritten = bytearray(len(part.sent) // self._rows.stride * rows.stride)
                for index, partition in enumerate(_indices(layout, part.entries)):
                    offsets = self._rows.quiet_offsets(part.sent, index)
                    rows.pack_quiet(rewritten, index, partition, offsets, committed=False)
                part.sent = rewritten
        self._layout, self._rows = layout, rows
        self._sections = self._sent_stamp = None


def _indices(layout: RequestLayout, entries: bytes | memoryview) -> dict[int, int]:
    return {fields[0]: index for index, fields in enumerate(layout.entry.iter_unpack(entries))}


def _without(items: bytes | bytearray, stride: int, gone: set[int]) -> Iterator[bytes | bytearray]:
    for index in range(len(items) // stride):
        if index not in gone:
            yield items[index * stride : (index + 1) * stride]


def _has_offsets(layout: ResponseLayout, rows: bytearray, index: int) -> bool:
    """Return whether a broker has reported the offsets of a row; clients are not sent unknown ones."""
    return layout.quiet_offsets(rows, index)[0] != UNKNOWN


def _has_new_offsets(layout: ResponseLayout, sent: bytearray, current: bytearray, index: int) -> bool:
    """Return whether the high watermark or the log start offset differs; the last stable offset does not count."""
    before, now = layout.quiet_offsets(sent, index), layout.quiet_offsets(current, index)
    return (before[0], before[2]) != (now[0], now[2])
