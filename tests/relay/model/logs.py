"""Partitions as a broker holds them: batches, the transactions in them, and how far a consumer may read."""

import struct
from collections.abc import Sequence
from itertools import count
from typing import Final, Literal
from uuid import UUID

import attrs
from crc32c import crc32c

from proxy.demo.batches import DemoRecord, encode_batch, split_batches

__all__ = ["Kind", "Log", "Replica", "Stored", "Topic", "Transaction", "whole_batches"]

Kind = Literal["plain", "transactional", "commit", "abort"]

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_HEADER_BYTES: Final = 61
_lifetimes = count(1)


@attrs.frozen(eq=False)
class Stored:
    """A batch in one log. No two have the same bytes."""

    data: bytes
    base: int
    last: int
    kind: Kind
    producer: int
    log: "Log"
    """The leader's, wherever it is read."""


@attrs.frozen
class Transaction:
    """A producer's transaction: from its first record to its marker."""

    producer: int
    first: int
    last: int | None
    """The marker's offset; None while it is open."""
    aborted: bool = False


@attrs.define(eq=False)
class Log:
    """One partition of one incarnation of a topic."""

    topic: str
    topic_id: UUID
    index: int
    epoch: int = 0
    is_led_here: bool = True
    error: int = 0
    """The error of reading it while it is broken; 0 otherwise."""
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    generation: int = attrs.field(factory=lambda: next(_lifetimes))
    """Changes, upwards, when offsets start to mean something else: on truncation, and in a new incarnation."""
    batches: list[Stored] = attrs.field(factory=list)
    removed: dict[Stored, int] = attrs.field(factory=dict)
    """Batches cut off by truncation: the first generation without them."""
    added: dict[Stored, int] = attrs.field(factory=dict)
    """Batches: the first generation with them."""
    watermarks: list[tuple[int, int]] = attrs.field(factory=list)
    """Every (generation, high watermark) that there has been, on any replica."""
    epoch_starts: dict[int, int] = attrs.field(factory=lambda: {0: 0})
    """The start offset of each leader epoch."""

    def __attrs_post_init__(self) -> None:
        self._mark()

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index

    def append(self, kind: Kind, values: Sequence[bytes], producer: int = -1) -> Stored:
        """A batch with records of these values, or a marker, which has one for its coordinator's epoch."""
        if kind in ("commit", "abort"):
            marker = DemoRecord(struct.pack(">hi", 0, int(values[0])), struct.pack(">hh", 0, kind == "commit"))
            data = _with_attributes(encode_batch([marker], producer_id=producer), _TRANSACTIONAL | _CONTROL)
        else:
            data = encode_batch([DemoRecord(value) for value in values], producer_id=producer)
            if kind == "transactional":
                data = _with_attributes(data, _TRANSACTIONAL)
        (batch,) = split_batches(data)
        placed = batch.with_offset(self.end, self.epoch)
        stored = Stored(placed.data, placed.base_offset, placed.last_offset, kind, producer, self)
        self.batches.append(stored)
        self.added[stored] = self.generation
        self.end = stored.last + 1
        return stored

    def replicate(self) -> None:
        """Followers have all of it."""
        self.high_watermark = self.end
        self._mark()

    def begin_epoch(self) -> None:
        """There is another leader, or the same one again."""
        self.epoch += 1
        self.epoch_starts = {epoch: start for epoch, start in self.epoch_starts.items() if start < self.end}
        self.epoch_starts[self.epoch] = self.end

    def truncate(self, offset: int) -> None:
        """Remove the batches from the one with *offset* on, by an unclean election, in a new epoch."""
        self.generation = next(_lifetimes)
        while self.batches and self.batches[-1].last >= max(offset, self.start):
            self.removed[self.batches.pop()] = self.generation
        self.end = self.batches[-1].last + 1 if self.batches else self.start
        self.high_watermark = min(self.high_watermark, self.end)
        self.begin_epoch()
        self._mark()

    def diverges(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) up to which a log is the same that was read under *epoch* as far as *offset*.

        None if it is all the same; an epoch of -1 if none is known that is so late.
        Source: Kafka's ``LeaderEpochFileCache.endOffsetFor`` and ``Partition.readRecords``.
        """
        known = sorted(self.epoch_starts.items())
        later = [start for each, start in known if each > epoch]
        if not known or (not later and epoch != known[-1][0]):
            return -1, -1
        nearest = max((each for each, _ in known if each <= epoch), default=epoch)
        end = later[0] if later else self.end
        return (nearest, end) if nearest < epoch or end < offset else None

    def delete_before(self, offset: int) -> None:
        """Retention: whole batches are deleted."""
        while self.batches and self.batches[0].last < min(offset, self.high_watermark):
            self.start = self.batches.pop(0).last + 1

    def transactions(self) -> list[Transaction]:
        """In the order of their ends, the open ones last."""
        opened: dict[int, int] = {}
        ended = []
        for batch in self.batches:
            if batch.kind == "transactional":
                opened.setdefault(batch.producer, batch.base)
            elif batch.kind in ("commit", "abort") and batch.producer in opened:
                first = opened.pop(batch.producer)
                ended.append(Transaction(batch.producer, first, batch.last, batch.kind == "abort"))
        return ended + [Transaction(producer, first, None) for producer, first in opened.items()]

    @property
    def last_stable(self) -> int:
        """Before every transaction that is open, or whose marker is not replicated."""
        unstable = [
            each.first for each in self.transactions() if each.last is None or each.last >= self.high_watermark
        ]
        return min([self.high_watermark, *unstable])

    def bound(self, isolation: int) -> int:
        """The offset before which a consumer may read."""
        return self.last_stable if isolation else self.high_watermark

    def read(self, offset: int, bound: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Batches from the one that holds *offset*, at most *max_bytes*; the last may be cut, the first not."""
        whole = [batch.data for batch in self.batches if batch.last >= offset and batch.base < bound]
        if not whole or (len(whole[0]) > max_bytes and not at_least_one):
            return b""
        return b"".join(whole)[: max(max_bytes, len(whole[0]))]

    def aborted(self, offset: int, bound: int) -> tuple[tuple[int, int], ...]:
        """(producer, first offset) of the aborted transactions that concern records from *offset* to *bound*."""
        return tuple(
            (each.producer, each.first)
            for each in self.transactions()
            if each.aborted and each.last is not None and each.last >= offset and each.first < bound
        )

    def is_committed(self, stored: Stored) -> bool:
        if stored.kind == "plain":
            return True
        return stored.kind == "transactional" and any(
            each.producer == stored.producer
            and not each.aborted
            and each.last is not None
            and each.first <= stored.base < each.last
            for each in self.transactions()
        )

    def coexisted(self, batches: Sequence[Stored]) -> bool:
        """Whether all of these were in the log at the same time."""
        born = max(self.added[each] for each in batches)
        return all(born < self.removed.get(each, born + 1) for each in batches)

    def _mark(self) -> None:
        self.watermarks.append((self.generation, self.high_watermark))


@attrs.define(eq=False, kw_only=True)
class Replica(Log):
    """A follower's replica of a partition: the part that it has fetched, of the epoch that it knows."""

    leaders: Log
    is_led_here: bool = False
    is_hosted: bool = False
    """Whether the follower has heard of it."""
    is_assigned: bool = True
    is_in_sync: bool = True

    def follow(self, most: int | None = None, *, hears: bool = True) -> None:
        """Fetch from the leader: at most so many batches, and the high watermark if *hears*.

        Records that the leader deleted are deleted here, too: each fetch brings the leader's log start offset
        (Kafka's
        ``ReplicaFetcherThread.processPartitionData``).
        """
        leaders = self.leaders
        self.is_hosted = True
        if self.epoch != leaders.epoch or self.generation != leaders.generation:
            while self.batches and self.batches[-1] in leaders.removed:
                self.batches.pop()
            self.end = self.batches[-1].last + 1 if self.batches else self.start
            self.epoch, self.generation = leaders.epoch, leaders.generation
        if not leaders.start <= self.end <= leaders.end:
            self.batches.clear()
            self.start = self.end = leaders.start
        self.batches += [each for each in leaders.batches if each.base >= self.end][:most]
        self.end = self.batches[-1].last + 1 if self.batches else self.end
        self.epoch_starts = {epoch: start for epoch, start in leaders.epoch_starts.items() if start < self.end}
        heard = leaders.high_watermark if hears else self.high_watermark
        self.high_watermark = min(max(heard, self.start), self.end)
        self.delete_before(leaders.start)
        leaders.watermarks.append((self.generation, self.high_watermark))


@attrs.define(eq=False)
class Topic:
    """One incarnation of a topic."""

    name: str
    topic_id: UUID
    logs: list[Log]


def whole_batches(records: bytes | memoryview) -> tuple[list[bytes], bytes]:
    """Return the complete batches at the front of *records*, and the remaining bytes of one that was cut."""
    rest = bytes(records)
    whole = []
    while len(rest) >= _HEADER_BYTES:
        size = 12 + int.from_bytes(rest[8:12])
        if size > len(rest):
            break
        whole.append(rest[:size])
        rest = rest[size:]
    return whole, rest


def _with_attributes(data: bytes, attributes: int) -> bytes:
    checked = struct.pack(">h", attributes) + data[23:]
    return data[:17] + struct.pack(">I", crc32c(checked)) + checked
