"""What a client wants, kept from one fetch to the next so that a fetch costs what changed in it."""

from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Final

import attrs

from proxy.cluster.topology import BrokerId, TopicInfo, Topology
from proxy.config import ON, TopicSwitch
from proxy.errors import ErrorCode
from proxy.fetch.ahead import Ahead
from proxy.wire.fetch import UNKNOWN, FetchPartition, PartitionKey, RequestLayout, Topic, TopicSection

__all__ = ["Asker", "Change", "Wanted", "differing_entries", "numbered"]

_BLOCK_BYTES: Final = 512
_PARTITION_BYTES: Final = 4
"""At the beginning of each entry."""


def differing_entries(
    old: bytes | bytearray | memoryview, new: bytes | bytearray | memoryview, stride: int
) -> list[int]:
    """Which of the *stride*-byte entries of two equally long buffers differ, in order.

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
class Asker:
    """On whose behalf partitions are asked for, and of whom."""

    node_id: BrokerId
    """The broker whose listener the client came to: it takes it for the leader."""
    by_id: bool
    """Whether that broker is asked by topic id."""
    may_read_followers: bool
    """The client told its rack (v11+), so it may have been sent here by the leader."""
    readable: TopicSwitch = ON
    """For which topics there is something that the client can read."""


@attrs.frozen
class Change:
    """What a fetch changed in the table, by the broker's names."""

    touched: tuple[PartitionKey, ...]
    """Added, moved or removed."""
    made_anew: tuple[PartitionKey, ...]
    """Of topics that are others than last time, though they may be called the same."""
    replaced: frozenset[Topic]
    """The client's names of these topics. A topic of which no partition was asked for is among them, too."""
    reshaped: frozenset[int]
    """The request's sections whose partitions are not the same, in the same order, as last time."""
    is_rearranged: bool = False
    """Whether the sections are others, or in another order."""


_NO_CHANGE: Final = Change((), (), frozenset(), frozenset())


@attrs.define
class _Known:
    """One section as it was last asked for."""

    entries: bytes
    info: TopicInfo | None


_Name = tuple[Topic, int]
"""Of a section: see ``numbered``."""
_Fresh = tuple[int, _Name, TopicInfo | None]
"""A section that must be taken in as a whole: its index and name, and its topic."""


class Wanted:
    """The partitions of a client's last fetch, as the broker calls them.

    A section that is the same as last time, of a topic that is the same in the topology, costs one comparison. The
    very sections of last time, as a session of the client's keeps them, cost nothing.
    """

    __slots__ = (
        "_known",
        "_last",
        "_names",
        "_own",
        "_skipped",
        "_taken_in",
        "ahead",
        "asks",
        "checked",
        "misfits",
        "named",
        "unknown",
    )

    def __init__(self) -> None:
        self.asks: dict[PartitionKey, FetchPartition] = {}
        """What to ask the broker for."""
        self.misfits: dict[tuple[Topic, int], int] = {}
        """(topic as the client names it, partition) to the error that it gets without asking the broker."""
        self.named: dict[Topic, Topic] = {}
        """The broker's name of a topic to the client's."""
        self.unknown: set[Topic] = set()
        """Topics of the misfits, as the client names them: the topology may be behind."""
        self._skipped: dict[PartitionKey, int] = {}
        """The client's own offset of partitions that are asked for further on."""
        self.checked: set[PartitionKey] = set()
        """What the leader is to look back for before it reads on."""
        self.ahead = Ahead()
        """Where the client is expected to go on."""
        self._own: dict[PartitionKey, FetchPartition] = {}
        """The client's own asks of partitions that are read ahead of it, until its next fetch."""
        self._known: dict[tuple[Topic, int], _Known] = {}
        self._names: list[_Name] = []
        """Of the request's sections, in its order."""
        self._last: tuple[RequestLayout, Asker] | None = None
        self._taken_in: tuple[Sequence[TopicSection], Topology] = ((), Topology())

    def update(
        self, layout: RequestLayout, sections: Sequence[TopicSection], topology: Topology, asker: Asker
    ) -> Change:
        """Bring the table up to what a request asks for. Partitions that it does not name are given up."""
        if self._last != (layout, asker):
            removed = tuple(self.asks)
            self.__init__()  # type: ignore[misc]  # entries of another layout cannot be compared
            self._last = (layout, asker)
            change = self.update(layout, sections, topology, asker)
            return attrs.evolve(change, touched=(*removed, *change.touched))
        (before, seen), self._taken_in = self._taken_in, (sections, topology)
        touched: list[PartitionKey] = []
        if seen is topology and self._only_moved(layout, before, sections, asker, touched):
            touched += self._go_back()
            return Change(tuple(touched), (), frozenset(), frozenset()) if touched else _NO_CHANGE

        names = numbered(sections)
        is_rearranged, self._names = names != self._names, names
        fresh: list[_Fresh] = []
        made_anew: list[PartitionKey] = []
        replaced: set[Topic] = set()
        for index, (name, section) in enumerate(zip(names, sections, strict=True)):
            known, info = self._known.get(name), topology.topic(section.topic)
            if known is not None and _is_another(known.info, info):
                made_anew += self._asked_of(layout, known, asker)
                replaced.add(section.topic)
            comparable = known is not None and known.info is info and len(known.entries) == len(section.entries)
            if not (comparable and known and self._moved(layout, known, section, asker, touched)):
                fresh.append((index, name, info))

        self.ahead.forget(made_anew)
        # All that goes is taken out before anything new is put in: a partition may go from one section to another.
        current = set(names)
        gone = [name for name in self._known if name not in current]
        fresh = self._with_siblings(fresh, gone, names, topology)
        for name in gone:
            touched += self._drop(layout, name, asker)
        for _, name, _ in fresh:
            touched += self._drop(layout, name, asker)
        reshaped = set()
        for index, name, info in fresh:
            touched += self._add(layout, name, sections[index], info, asker)
            reshaped.add(index)
        touched += self._go_back()
        if not self.misfits:
            self.misfits = {}  # one that was large stays large, and is slow to find empty
        return Change(tuple(touched), tuple(made_anew), frozenset(replaced), frozenset(reshaped), is_rearranged)

    def names_another(self, topology: Topology) -> bool:
        """Whether *topology* has another topic under a name that the client's last fetch has. Cost: O(topics)."""
        return any(_is_another(known.info, topology.topic(topic)) for (topic, _), known in self._known.items())

    def skip(self, key: PartitionKey, offset: int) -> None:
        """Ask for what comes from *offset* on, until the client asks for anything but what it asks for now."""
        self._skipped.setdefault(key, self.asks[key].offset)
        self.asks[key] = self.asks[key]._replace(offset=offset)

    def ask_again_at_own(self, key: PartitionKey) -> bool:
        """Ask for it where the client does; False if it is asked for there already."""
        if key not in self._skipped:
            return False
        self.asks[key] = self.asks[key]._replace(offset=self._skipped.pop(key))
        return True

    def expected(self, key: PartitionKey) -> FetchPartition | None:
        """What is asked for of it: by the client, or before the client has."""
        return self.asks.get(key) or self.ahead.asked(key)

    def go_on(self, key: PartitionKey, next_offset: int, now_s: float) -> bool:
        """The client is given all before *next_offset*; whether it is to be read for from there on."""
        if key in self.checked:
            return False
        ask = self.asks[key]
        own = ask._replace(max_bytes=self.ahead.own_bytes(key, ask))
        following = self.ahead.expect(key, ask, next_offset, now_s)
        if following is None:
            return False
        self.asks[key], self._own[key] = following, own
        return True

    def _go_back(self) -> tuple[PartitionKey, ...]:
        """The client asks for these as before, and not for what comes next."""
        own, self._own = self._own, {}
        self.asks |= own
        self.ahead.forget(own)
        return tuple(own)

    def check(self, key: PartitionKey, epoch: int) -> None:
        """Have the leader look whether what was read under *epoch* is still there, before it reads on."""
        self.asks[key] = self.asks[key]._replace(last_fetched_epoch=epoch)
        self.checked.add(key)

    def uncheck(self, key: PartitionKey) -> bool:
        """Ask for it without looking back; False if it is asked for like that already."""
        if key not in self.checked:
            return False
        self.checked.discard(key)
        self.asks[key] = self.asks[key]._replace(last_fetched_epoch=UNKNOWN)
        return True

    def _only_moved(
        self,
        layout: RequestLayout,
        before: Sequence[TopicSection],
        now: Sequence[TopicSection],
        asker: Asker,
        touched: list[PartitionKey],
    ) -> bool:
        """Take over the entries that differ; False, perhaps with some taken over, if there is more that does.

        Sections that are the very ones of last time need no look. Cost: O(those that are not), and next to nothing.
        """
        if before is now:
            return True
        if len(before) != len(now):
            return False
        for index in compress(count(), map(is_not, before, now)):
            name, section = self._names[index], now[index]
            known = self._known[name]
            comparable = section.topic == name[0] and len(section.entries) == len(known.entries)
            if not (comparable and self._moved(layout, known, section, asker, touched)):
                return False
        return True

    def _with_siblings(
        self, fresh: list[_Fresh], gone: list[_Name], names: list[_Name], topology: Topology
    ) -> list[_Fresh]:
        """*fresh*, and the other sections of topics that change one: both may name the same partitions."""
        if not (fresh or gone):
            return fresh
        changed = {topic for topic, _ in (*gone, *(name for _, name, _ in fresh))}
        return [(index, name, topology.topic(name[0])) for index, name in enumerate(names) if name[0] in changed]

    def _moved(
        self, layout: RequestLayout, known: _Known, section: TopicSection, asker: Asker, touched: list[PartitionKey]
    ) -> bool:
        """Take over the entries that differ; False, with nothing done, if their partitions are not the same."""
        before, entries, stride = known.entries, section.entries, layout.stride
        differing = [index * stride for index in differing_entries(before, entries, stride)]
        if any(before[at : at + _PARTITION_BYTES] != entries[at : at + _PARTITION_BYTES] for at in differing):
            return False
        for at in differing:
            fields = layout.entry.unpack_from(entries, at)
            key = None if known.info is None else known.info.key(fields[0], by_id=asker.by_id)
            if key in self.asks and known.info is not None:
                own = _with_epoch(layout.ask(fields), known.info, key.partition, asker)
                self._skipped.pop(key, None)
                self.checked.discard(key)
                self._own.pop(key, None)
                ask = self.ahead.met(key, own)
                if ask != self.asks[key]:
                    self.asks[key] = ask
                    touched.append(key)
        if differing:
            known.entries = bytes(entries)
        return True

    def _asked_of(self, layout: RequestLayout, known: _Known, asker: Asker) -> list[PartitionKey]:
        """The partitions of a section that brokers are asked for."""
        info = known.info
        if info is None:
            return []
        entries = layout.entry.iter_unpack(known.entries)
        keys = (info.key(fields[0], by_id=asker.by_id) for fields in entries)
        return [key for key in keys if key in self.asks]

    def _drop(self, layout: RequestLayout, name: _Name, asker: Asker) -> list[PartitionKey]:
        known = self._known.pop(name, None)
        if known is None:
            return []
        topic = name[0]
        self.unknown.discard(topic)
        for partition, *_ in layout.entry.iter_unpack(known.entries) if self.misfits else ():
            self.misfits.pop((topic, partition), None)
        gone = self._asked_of(layout, known, asker)
        for key in gone:
            self.asks.pop(key, None)
            self._skipped.pop(key, None)
            self._own.pop(key, None)
            self.checked.discard(key)
        return gone

    def _add(
        self, layout: RequestLayout, name: _Name, section: TopicSection, info: TopicInfo | None, asker: Asker
    ) -> list[PartitionKey]:
        topic = name[0]
        keys: list[PartitionKey] = []
        for fields in layout.entry.iter_unpack(section.entries):
            partition = fields[0]
            key = None if info is None else info.key(partition, by_id=asker.by_id)
            error = _misfit(info, key, partition, asker)
            if error:
                self.misfits[topic, partition] = error
                if error != ErrorCode.unsupported_version:
                    self.unknown.add(topic)
            else:
                assert info is not None
                assert key is not None
                self.asks[key] = self.ahead.met(key, _with_epoch(layout.ask(fields), info, partition, asker))
                keys.append(key)
        if keys:
            self.named[keys[0].topic] = topic
        self._known[name] = _Known(bytes(section.entries), info)
        return keys


def _is_another(known: TopicInfo | None, now: TopicInfo | None) -> bool:
    return known is not None and known.topic_id != (now.topic_id if now is not None else None)


def numbered(sections: Iterable[TopicSection]) -> list[tuple[Topic, int]]:
    """A name for each section: its topic, and how many of that topic stand before it."""
    seen: dict[Topic, int] = {}
    names = []
    for section in sections:
        nth = seen.get(section.topic, 0)
        seen[section.topic] = nth + 1
        names.append((section.topic, nth))
    return names


def _misfit(info: TopicInfo | None, key: PartitionKey | None, partition: int, asker: Asker) -> int:
    """The error that a partition gets without asking; 0 to ask.

    A partition that the topology does not know may be newer than it, so the broker is asked.
    """
    if info is None:
        return ErrorCode.not_leader_or_follower
    if info.error == ErrorCode.invalid_topic_exception:
        return ErrorCode.unknown_topic_or_partition  # as a fetch says it
    if info.error:
        return info.error
    if key is None:
        return ErrorCode.unknown_topic_or_partition
    if not asker.readable.is_on_for(info.name):
        return ErrorCode.unsupported_version
    leader = info.leaders.get(partition)
    if leader is None or leader.node_id == asker.node_id or asker.may_read_followers:
        return ErrorCode.none
    # From v11 on a follower answers as one. This client means the leader, so it is told to look again.
    return ErrorCode.not_leader_or_follower


def _with_epoch(ask: FetchPartition, info: TopicInfo, partition: int, asker: Asker) -> FetchPartition:
    """*ask* with the leader epoch that we know, if the client knows none.

    Without an epoch, a leader that was demoted would go on answering from v11 on, as a follower (KIP-320, KIP-392).
    """
    leader = info.leaders.get(partition)
    if ask.epoch != UNKNOWN or leader is None or leader.node_id != asker.node_id:
        return ask
    return ask._replace(epoch=leader.epoch)
