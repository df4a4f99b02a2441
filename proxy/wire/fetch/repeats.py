"""Decoding of Fetch requests that mostly repeat the previous one, recognised by comparing bytes."""

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import add
from typing import Final

import attrs

from proxy.wire.fetch.requests import (
    NO_LIMIT,
    FetchRequest,
    RequestLayout,
    TopicSection,
    has_no_tags,
    read_with_positions,
    request_layout,
)
from proxy.wire.fetch.types import Topic
from proxy.wire.headers import RequestHeader
from proxy.wire.primitives import Cursor

__all__ = ["Repeats", "merge_duplicates"]

_AFTER_CORRELATION_ID: Final = 8
_BLOCK_BYTES: Final = 4096
_PARTITION_BYTES: Final = 4
"""The size of the partition id, which each entry begins with."""


class Repeats:
    """A decoder of one connection's Fetch requests that decodes only the parts that differ from the previous one.

    A client that names every partition in every fetch repeats the same bytes, but for the correlation id and a few
    offsets. Unchanged ``TopicSection`` objects of the previous request are returned again, so that callers can
    recognise them by identity.
    Memory: a copy of the last request; frames are not held.
    """

    __slots__ = ("_ends", "_frame", "_last", "_starts")

    def __init__(self) -> None:
        self._frame = bytearray()
        self._last: FetchRequest | None = None
        self._starts: Sequence[int] = ()
        self._ends: Sequence[int] = ()
        """The start and the end of the entries of each section in the frame."""

    @property
    def frame_bytes(self) -> int:
        """The size of the last request."""
        return len(self._frame)

    def is_repeated(self, header: RequestHeader, frame: memoryview) -> bool:
        """Return whether *frame*, a request with *header*, differs from the last one in the correlation id at most.

        Cost: a comparison of the bytes.
        """
        is_same_form = self._last is not None and self._last.version == header.api_version
        return (
            is_same_form
            and len(self._frame) == len(frame)
            and self._matches(frame, _AFTER_CORRELATION_ID, len(frame))
        )

    def read(self, header: RequestHeader, cursor: Cursor, most: int = NO_LIMIT) -> FetchRequest:
        """Decode the connection's next Fetch request, reusing the unchanged sections of the previous one.

        Partitions that the request names twice are merged, as in ``merge_duplicates``. *cursor* must stand behind
        the header's client id. *most* limits the numbers of topics and partitions, as in ``read_request``.

        Cost:   a comparison of the bytes, and O(sections whose offsets, epochs or byte limits differ). If anything
            else differs but the correlation id, that of ``read_request`` and O(partitions).
        Raises: MalformedFrame, LimitReached: as ``read_request``.
        """
        frame, last = memoryview(cursor.frame), self._last
        if last is None or last.version != header.api_version or len(self._frame) != len(frame):
            return self._read_all(header, cursor, most)
        sections = last.sections
        if not self._matches(frame, _AFTER_CORRELATION_ID, len(frame)):
            changed = self._find_changed(frame)
            layout = request_layout(last.version)
            if changed is None or not all(
                has_no_tags(layout, entries) and _has_same_partitions(layout, sections[index].entries, entries)
                for index, entries in changed.items()
            ):
                return self._read_all(header, cursor, most)
            sections = self._patch_sections(sections, changed)
        self._last = attrs.evolve(last, header=header, sections=sections)
        return self._last

    def _read_all(self, header: RequestHeader, cursor: Cursor, most: int) -> FetchRequest:
        request, self._starts = read_with_positions(header, cursor, most)
        sections = merge_duplicates(request_layout(request.version), request.sections)
        if sections is not request.sections:
            request, self._starts = attrs.evolve(request, sections=sections), [-1] * len(sections)
        self._last = request
        sizes = (len(section.entries) for section in self._last.sections)
        self._ends = array("q", map(add, self._starts, sizes))
        self._frame = bytearray(cursor.frame)
        return self._last

    def _patch_sections(
        self, sections: Sequence[TopicSection], changed: Mapping[int, bytes]
    ) -> tuple[TopicSection, ...]:
        patched = list(sections)
        for index, entries in changed.items():
            self._frame[self._starts[index] : self._ends[index]] = entries
            patched[index] = TopicSection(sections[index].topic, entries)
        return tuple(patched)

    def _matches(self, frame: memoryview, start: int, end: int) -> bool:
        """Return whether the last frame had the same bytes from *start* to *end*."""
        return self._frame.startswith(frame[start:end], start)

    def _find_changed(self, frame: memoryview) -> dict[int, bytes] | None:
        """Return the new entries by index of each section that differs; None if any other bytes of the frame do."""
        if -1 in self._starts:
            return None
        starts, ends = self._starts, self._ends
        changed: dict[int, bytes] = {}
        for block in range(_AFTER_CORRELATION_ID, len(frame), _BLOCK_BYTES):
            at, end = block, min(block + _BLOCK_BYTES, len(frame))
            if self._matches(frame, at, end):
                continue
            index = bisect_right(ends, at)
            while index < len(ends) and at < end:
                start = max(starts[index], at)
                if not self._matches(frame, at, start):
                    return None
                if index not in changed and not self._matches(frame, start, ends[index]):
                    changed[index] = bytes(frame[starts[index] : ends[index]])
                at = ends[index]
                index += 1
            if at < end and not self._matches(frame, at, end):
                return None
        return changed


def _has_same_partitions(layout: RequestLayout, before: bytes, now: bytes) -> bool:
    """Return whether the entries *before* and *now* name the same partitions, in the same order."""
    return all(before[at :: layout.stride] == now[at :: layout.stride] for at in range(_PARTITION_BYTES))


def merge_duplicates(layout: RequestLayout, sections: tuple[TopicSection, ...]) -> tuple[TopicSection, ...]:
    """Merge the entries of partitions that a request names more than once, and drop sections without partitions.

    A merged partition keeps the position of its first entry, and has the values of its last one. Return *sections*
    itself if there is nothing to merge or drop.

    Cost:   O(partitions).
    Source: Kafka's ``FetchRequest.fetchData`` puts all of them into one ``LinkedHashMap``.
    """
    unpack = layout.entry.iter_unpack
    named = {(section.topic, fields[0]) for section in sections for fields in unpack(section.entries)}
    partitions = sum(len(section.entries) for section in sections) // layout.stride
    if len(named) == partitions and all(section.entries for section in sections):
        return sections
    stride = layout.stride
    entries: dict[tuple[Topic, int], bytes] = {}
    first_in: dict[tuple[Topic, int], int] = {}
    for index, section in enumerate(sections):
        for at, fields in enumerate(unpack(section.entries)):
            key = section.topic, fields[0]
            entries[key] = section.entries[at * stride : (at + 1) * stride]
            first_in.setdefault(key, index)
    merged: dict[int, bytearray] = {}
    for key, index in first_in.items():
        merged.setdefault(index, bytearray()).extend(entries[key])
    return tuple(TopicSection(sections[index].topic, bytes(each)) for index, each in merged.items())
