"""The partitions and offsets that a client fetches, kept from one fetch to the next: a fetch costs its changes."""

from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Final

import attrs

from proxy.cluster.topology import BrokerId, Leader, TopicInfo, Topology
from proxy.config import ON, TopicSwitch
from proxy.errors import ErrorCode
from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey, RequestLayout, Topic, TopicSection

__all__ = ["Change", "FetchState", "RequestContext", "differing_entries", "numbered"]

_BLOCK_BYTES: Final = 512
_PARTITION_BYTES: Final = 4
"""The size of the partition number at the beginning of each entry."""


def differing_entries(
    old: bytes | bytearray | memoryview, new: bytes | bytearray | memoryview, stride: int
) -> list[int]:
    """Return the indices of the *stride*-byte entries that differ between two equally long buffers, ascending.

    Cost: a comparison of the bytes, in blocks, and one of each entry in the blocks that differ.
    """
    old, new = bytes(old), bytes(new)
    if old == new:
        return []
    block = max(_BLOCK_BYTES // stride, 1) * stride
    return [
        at // stride
        for start in range(0, len(new), block)
        if old[start : start + block] != new[start : start + block]
        for at in range(start, min(start + block, len(new)), stride)
        if old[at : at + stride] != new[at : at + stride]
    ]


@attrs.frozen
class RequestContext:
    """The attributes that decide which partitions of a client are requested, and how topics are named."""

    node_id: BrokerId
    """The broker whose listener the client uses: the client takes it for the leader of its partitions."""
    by_id: bool
    """Whether upstream fetches name topics by id."""
    may_read_followers: bool
    """Whether the client sent its rack (Fetch v11), so that a leader may have redirected it to this broker."""
    readable: TopicSwitch = ON
    """The topics that the client may read."""


@attrs.frozen
class Change:
    """The differences between a client's fetch and its last one, including those of its topics' metadata."""

    touched: tuple[PartitionKey, ...]
    """The partitions that were added, removed or moved to another offset, as brokers name them."""
    recreated: tuple[PartitionKey, ...]
    """The partitions of topics that were deleted, or deleted and created again, since the last fetch."""
    replaced: frozenset[Topic]
    """These topics, as the client names them, including those of which brokers were asked for no partition."""
    reshaped: frozenset[int]
    """The indices of request sections that have not the same partitions in the same order as last time."""
    is_rearranged: bool = False
    """Whether the topics of the sections, or their order, have changed."""


_NO_CHANGE: Final = Change((), (), frozenset(), frozenset())


@attrs.define
class _Known:
    """One section of the client's last request."""

    entries: bytes
    """Its encoded partitions."""
    info: TopicInfo | None
    """Its topic in the topology; None if that has no such topic."""


_Name = tuple[Topic, int]
"""The name of a section: see ``numbered``."""
_Fresh = tuple[int, _Name, TopicInfo | None]
"""A section whose partitions must all be added again: its index, its name and its topic."""


class FetchState:
    """The partitions and offsets of a client's last fetch, by the names that brokers use (topic id or name).

    ``update`` compares each fetch with the last one: an unchanged section, whose topic has not changed in the
    topology either, costs one comparison of bytes. Identical section objects, as of a session, cost nothing.
    """

    __slots__ = (
        "_known",
        "_last",
        "_names",
        "_skipped",
        "_taken_in",
        "checked",
        "named",
        "requested",
        "unknown",
        "unreadable_errors",
    )

    def __init__(self) -> None:
        self._last: tuple[RequestLayout, RequestContext] | None = None
        self._clear()

    def _clear(self) -> None:
        self.requested: dict[PartitionKey, FetchPartition] = {}
        """The partitions to request from brokers, with their offsets, limits and epochs."""
        self.unreadable_errors: dict[tuple[Topic, int], int] = {}
        """The partitions, by the client's names, that are not requested from brokers, with their error codes."""
        self.named: dict[Topic, Topic] = {}
        """The client's name of a topic, by the brokers' name."""
        self.unknown: set[Topic] = set()
        """The topics of ``unreadable_errors`` that newer metadata may resolve, as the client names them."""
        self._skipped: dict[PartitionKey, int] = {}
        """The client's own offset of partitions that are requested from a later one."""
        self.checked: set[PartitionKey] = set()
        """The partitions for which the leader is asked to detect truncation (KIP-595)."""
        self._known: dict[tuple[Topic, int], _Known] = {}
        self._names: list[_Name] = []
        """The names of the request's sections, in its order."""
        self._taken_in: tuple[Sequence[TopicSection], Topology] = ((), Topology())

    def count_entry_bytes(self, sections: Sequence[TopicSection], topology: Topology) -> int:
        """Return the bytes of the partitions that ``update`` would compare or add: none of identical sections."""
        before, seen = self._taken_in
        if seen is not topology or len(before) != len(sections):
            return sum(len(section.entries) for section in sections)
        if before is sections:
            return 0
        return sum(len(section.entries) for section in compress(sections, map(is_not, before, sections)))

    def update(
        self, layout: RequestLayout, sections: Sequence[TopicSection], topology: Topology, context: RequestContext
    ) -> Change:
        """Adopt the partitions of a client's request, remove all others, and return the changes.

        Partitions that cannot be requested from brokers are put into ``unreadable_errors``.

        *sections* are those of the request, with all partitions of the client's session, in the encoding *layout*.
        """
        if self._last != (layout, context):
            removed = tuple(self.requested)
            self._clear()  # entries of another layout cannot be compared
            self._last = (layout, context)
            change = self.update(layout, sections, topology, context)
            return attrs.evolve(change, touched=(*removed, *change.touched))
        (before, seen), self._taken_in = self._taken_in, (sections, topology)
        touched: list[PartitionKey] = []
        if seen is topology and self._only_moved(layout, before, sections, context, touched):
            return Change(tuple(touched), (), frozenset(), frozenset()) if touched else _NO_CHANGE

        names = numbered(sections)
        is_rearranged, self._names = names != self._names, names
        fresh: list[_Fresh] = []
        recreated: list[PartitionKey] = []
        replaced: set[Topic] = set()
        for index, (name, section) in enumerate(zip(names, sections, strict=True)):
            known, info = self._known.get(name), topology.topic(section.topic)
            if known is not None and _is_recreated(known.info, info):
                recreated += self._requested_keys(layout, known, context)
                replaced.add(section.topic)
            comparable = known is not None and known.info is info and len(known.entries) == len(section.entries)
            if not (comparable and known and self._moved(layout, known, section, context, touched)):
                fresh.append((index, name, info))

        reshaped = self._replace(layout, sections, fresh, topology, context, touched)
        return Change(tuple(touched), tuple(recreated), frozenset(replaced), frozenset(reshaped), is_rearranged)

    def skip(self, key: PartitionKey, offset: int) -> None:
        """Request a partition from *offset* instead of the client's own, earlier offset.

        The skip ends with ``undo_skip``; when any field of the partition, or the list of requested partitions of
        its topic, changes in the client's request; when the topic has new metadata; or when the request's encoding
        or context changes (see ``update``).
        """
        self._skipped.setdefault(key, self.requested[key].offset)
        self.requested[key] = self.requested[key]._replace(offset=offset)

    def undo_skip(self, key: PartitionKey) -> bool:
        """Request a partition from the client's own offset again; return whether ``skip`` had changed it."""
        if key not in self._skipped:
            return False
        self.requested[key] = self.requested[key]._replace(offset=self._skipped.pop(key))
        return True

    def check(self, key: PartitionKey, epoch: int) -> None:
        """Have the leader detect whether records that were read in leader *epoch* were truncated (KIP-595)."""
        self.requested[key] = self.requested[key]._replace(last_fetched_epoch=epoch)
        self.checked.add(key)

    def end_check(self, key: PartitionKey) -> bool:
        """End the truncation check of a partition (see ``check``); return whether there was one.

        The partition is requested without a last fetched epoch from now on, at the same offset.
        """
        if key not in self.checked:
            return False
        self.checked.discard(key)
        self.requested[key] = self.requested[key]._replace(last_fetched_epoch=UNKNOWN)
        return True

    def _only_moved(
        self,
        layout: RequestLayout,
        before: Sequence[TopicSection],
        now: Sequence[TopicSection],
        context: RequestContext,
        touched: list[PartitionKey],
    ) -> bool:
        """Take over changed offsets, append their partitions to *touched*, and return whether nothing else differs.

        If the result is False, some offsets may have been taken over. Identical section objects are not compared.
        """
        if before is now:
            return True
        if len(before) != len(now):
            return False
        for index in compress(count(), map(is_not, before, now)):
            name, section = self._names[index], now[index]
            known = self._known[name]
            comparable = section.topic == name[0] and len(section.entries) == len(known.entries)
            if not (comparable and self._moved(layout, known, section, context, touched)):
                return False
        return True

    def _replace(
        self,
        layout: RequestLayout,
        sections: Sequence[TopicSection],
        fresh: list[_Fresh],
        topology: Topology,
        context: RequestContext,
        touched: list[PartitionKey],
    ) -> list[int]:
        """Adopt the sections *fresh*, and remove those that the request lacks; return the adopted ones.

        Partitions are removed before others are added, since one may move from one section to another.
        """
        current = set(self._names)
        gone = [name for name in self._known if name not in current]
        fresh = self._with_siblings(fresh, gone, self._names, topology)
        for name in (*gone, *(name for _, name, _ in fresh)):
            touched += self._drop(layout, name, context)
        for index, name, info in fresh:
            touched += self._add(layout, name, sections[index], info, context)
        if not self.unreadable_errors:
            self.unreadable_errors = {}  # a dict that was large stays large, and slow to iterate
        return [index for index, _, _ in fresh]

    def _with_siblings(
        self, fresh: list[_Fresh], gone: list[_Name], names: list[_Name], topology: Topology
    ) -> list[_Fresh]:
        """Return *fresh* and the other sections of all changed topics: these may name the same partitions."""
        if not (fresh or gone):
            return fresh
        changed = {topic for topic, _ in (*gone, *(name for _, name, _ in fresh))}
        return [(index, name, topology.topic(name[0])) for index, name in enumerate(names) if name[0] in changed]

    def _moved(
        self,
        layout: RequestLayout,
        known: _Known,
        section: TopicSection,
        context: RequestContext,
        touched: list[PartitionKey],
    ) -> bool:
        """Take over changed offsets of a section; return False, with no effect, if its partitions have changed."""
        before, entries, stride = known.entries, section.entries, layout.stride
        differing = [index * stride for index in differing_entries(before, entries, stride)]
        if any(before[at : at + _PARTITION_BYTES] != entries[at : at + _PARTITION_BYTES] for at in differing):
            return False
        for at in differing:
            fields = layout.entry.unpack_from(entries, at)
            key = None if known.info is None else known.info.key(fields[0], by_id=context.by_id)
            if key in self.requested and known.info is not None:
                leader = known.info.leaders.get(key.partition)
                wanted = _with_epoch(layout.fetch_partition(fields), leader, context)
                self._skipped.pop(key, None)
                self.checked.discard(key)
                if wanted != self.requested[key]:
                    self.requested[key] = wanted
                    touched.append(key)
        if differing:
            known.entries = bytes(entries)
        return True

    def _requested_keys(self, layout: RequestLayout, known: _Known, context: RequestContext) -> list[PartitionKey]:
        """Return the partitions of a section that are requested from brokers."""
        info = known.info
        if info is None:
            return []
        entries = layout.entry.iter_unpack(known.entries)
        keys = (info.key(fields[0], by_id=context.by_id) for fields in entries)
        return [key for key in keys if key in self.requested]

    def _drop(self, layout: RequestLayout, name: _Name, context: RequestContext) -> list[PartitionKey]:
        known = self._known.pop(name, None)
        if known is None:
            return []
        topic = name[0]
        self.unknown.discard(topic)
        for partition, *_ in layout.entry.iter_unpack(known.entries) if self.unreadable_errors else ():
            self.unreadable_errors.pop((topic, partition), None)
        gone = self._requested_keys(layout, known, context)
        for key in gone:
            self.requested.pop(key, None)
            self._skipped.pop(key, None)
            self.checked.discard(key)
        return gone

    def _add(
        self,
        layout: RequestLayout,
        name: _Name,
        section: TopicSection,
        info: TopicInfo | None,
        context: RequestContext,
    ) -> list[PartitionKey]:
        topic = name[0]
        keys: list[PartitionKey] = []
        of_topic = _error_of_topic(info, context)
        for fields in layout.entry.iter_unpack(section.entries):
            partition = fields[0]
            leader = None if info is None else info.leaders.get(partition)
            error = of_topic or _error_of_leader(leader, context)
            if error:
                self.unreadable_errors[topic, partition] = error
                if error != ErrorCode.unsupported_version:
                    self.unknown.add(topic)
            else:
                key = None if info is None else info.key(partition, by_id=context.by_id)
                assert key is not None
                self.requested[key] = _with_epoch(layout.fetch_partition(fields), leader, context)
                keys.append(key)
        if keys:
            self.named[keys[0].topic] = topic
        self._known[name] = _Known(bytes(section.entries), info)
        return keys


def _is_recreated(known: TopicInfo | None, now: TopicInfo | None) -> bool:
    return known is not None and known.topic_id != (now.topic_id if now is not None else None)


def numbered(sections: Iterable[TopicSection]) -> list[tuple[Topic, int]]:
    """Return a unique name for each section: its topic, and the number of earlier sections of that topic."""
    seen: dict[Topic, int] = {}
    names = []
    for section in sections:
        nth = seen.get(section.topic, 0)
        seen[section.topic] = nth + 1
        names.append((section.topic, nth))
    return names


def _error_of_topic(info: TopicInfo | None, context: RequestContext) -> int:
    """Return the error code of a topic whose partitions are not requested from brokers; 0 if they are."""
    if info is None:
        return ErrorCode.not_leader_or_follower
    if info.error == ErrorCode.invalid_topic_exception:
        return ErrorCode.unknown_topic_or_partition  # the code that brokers use in Fetch responses
    if info.error:
        return info.error
    if (info.topic_id if context.by_id else info.name) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if context.readable.is_on_for(info.name) else ErrorCode.unsupported_version


def _error_of_leader(leader: Leader | None, context: RequestContext) -> int:
    """Return the error code of a partition that is not requested from brokers, by its leader; 0 if it is requested.

    A partition that the topology lacks may be newer, which a metadata refresh shows (``FetchState.unknown``).
    """
    if leader is None:
        return ErrorCode.unknown_topic_or_partition
    if leader.node_id == context.node_id or context.may_read_followers:
        return ErrorCode.none
    # From v11 on, followers answer fetches. This client wants the leader, so it must refresh its metadata.
    return ErrorCode.not_leader_or_follower


def _with_epoch(wanted: FetchPartition, leader: Leader | None, context: RequestContext) -> FetchPartition:
    """Return *wanted* with the leader epoch of the topology, if the client sent none and reads from the leader.

    Without an epoch, a demoted leader would still answer, as a follower, from v11 on (KIP-320, KIP-392).
    """
    if wanted.epoch != UNKNOWN or leader is None or leader.node_id != context.node_id:
        return wanted
    offset, max_bytes, _, last_fetched_epoch = wanted
    return FetchPartition(offset, max_bytes, leader.epoch, last_fetched_epoch)
