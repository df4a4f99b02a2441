"""Lost, duplicate and wrong records, computed from acknowledgements and the readers' reports. Pure.

A partition is a log without gaps: there are no transactions, no compaction and no deletion. So a reader must get
offset after offset from 0 on, whether the records are acknowledged or not, and all reports of an offset (by
producers' acknowledgements and by readers) must be of the same record.
"""

import zlib
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["Judge", "Reader", "Stall", "Wrong"]


@attrs.frozen
class Wrong:
    """One thing that must not happen."""

    kind: str
    """lost, doubled or another record."""
    reader: str
    partition: int
    offset: int
    count: int
    """Records that it is about."""

    def __str__(self) -> str:
        return f"{self.reader}: {self.count} {self.kind} at {self.partition}/{self.offset}"


@attrs.frozen
class Stall:
    """The delay of a record: from its acknowledgement until it was read."""

    for_s: float = 0.0
    reader: str = ""


@attrs.define
class _Log:
    """One partition, as all reports describe it."""

    records: dict[int, int] = attrs.field(factory=dict)
    """By offset, the CRC-32 of the value."""
    acknowledged_s: dict[int, float] = attrs.field(factory=dict)
    end: int = 0
    """Behind the last record that was acknowledged."""

    def agrees(self, offset: int, value: bytes) -> bool:
        crc = zlib.crc32(value)
        return self.records.setdefault(offset, crc) == crc


@attrs.define(eq=False)
class Reader:
    """One reader of all partitions, and its records."""

    name: str
    commits: bool
    """Whether it is alone in a group, and may go back to its last commit."""
    began_s: float
    expected: list[int]
    """By partition, the next offset."""
    committed: list[int]
    read: int = 0
    repeated: int = 0
    """Records that it got again, as it may."""
    begun: int = 1
    """How often it was started."""
    furthest: list[int] = attrs.field(factory=list)
    """By partition, the offset after the last one that it ever got: repeated records are not late."""


class Judge:
    """The judge of all acknowledgements and reads, with their times."""

    def __init__(self, partitions: int) -> None:
        self._logs = [_Log() for _ in range(partitions)]
        self._readers: list[Reader] = []
        self.acknowledged = 0
        self.wrongs: list[Wrong] = []
        self._longest = Stall()

    @property
    def readers(self) -> Sequence[Reader]:
        return tuple(self._readers)

    def reader(self, name: str, *, commits: bool, now_s: float) -> Reader:
        """Somebody begins to read all partitions from their beginning."""
        nothing = [0] * len(self._logs)
        reader = Reader(name, commits, now_s, list(nothing), list(nothing), furthest=list(nothing))
        self._readers.append(reader)
        return reader

    def begin_anew(self, reader: Reader, now_s: float) -> None:
        """Note that a reader was started again: from the start, or from its commits.

        Its position may be later than its last confirmed commit, if that commit's response was lost, but not later
        than its
        reads.
        """
        reader.begun += 1
        reader.began_s = now_s
        if not reader.commits:
            reader.expected = [0] * len(self._logs)

    def is_acknowledged(self, partition: int, offset: int, value: bytes, now_s: float) -> None:
        """Note the acknowledged offset of a producer's record."""
        log = self._logs[partition]
        self.acknowledged += 1
        log.acknowledged_s[offset] = now_s
        log.end = max(log.end, offset + 1)
        if not log.agrees(offset, value):
            self.wrongs.append(Wrong("another record", "producer", partition, offset, 1))

    def is_read(self, reader: Reader, partition: int, offset: int, value: bytes, now_s: float) -> None:
        """A reader has got a record."""
        reader.read += 1
        expected = reader.expected[partition]
        if offset > expected:
            self.wrongs.append(Wrong("lost", reader.name, partition, expected, offset - expected))
        elif offset < expected and (not reader.commits or offset < reader.committed[partition]):
            self.wrongs.append(Wrong("doubled", reader.name, partition, offset, 1))
            return
        reader.expected[partition] = offset + 1
        log = self._logs[partition]
        if not log.agrees(offset, value):
            self.wrongs.append(Wrong("another record", reader.name, partition, offset, 1))
        if offset < reader.furthest[partition]:
            reader.repeated += 1
        else:
            reader.furthest[partition] = offset + 1
            self._late(reader, log.acknowledged_s.get(offset, now_s), now_s)

    def is_committed(self, reader: Reader, partition: int, offset: int) -> None:
        """Note a commit that was confirmed to a reader."""
        reader.committed[partition] = offset

    def _late(self, reader: Reader, acknowledged_s: float, now_s: float) -> None:
        for_s = now_s - max(acknowledged_s, reader.began_s)
        if for_s > self._longest.for_s:
            self._longest = Stall(for_s, reader.name)

    def ends(self) -> list[int]:
        """Return, by partition, the offset after the acknowledged records."""
        return [log.end for log in self._logs]

    def behind(self, ends: Sequence[int]) -> list[Reader]:
        """The readers that have not read all before *ends*."""
        return [
            reader
            for reader in self._readers
            if any(expected < end for expected, end in zip(reader.expected, ends, strict=True))
        ]

    def give_up(self) -> None:
        """End all reads: records that were acknowledged and not read are lost."""
        for reader in self._readers:
            self.wrongs += self._unread(reader)

    def _unread(self, reader: Reader) -> Iterator[Wrong]:
        for partition, (log, expected) in enumerate(zip(self._logs, reader.expected, strict=True)):
            unread = sum(offset >= expected for offset in log.acknowledged_s)
            if unread:
                yield Wrong("lost", reader.name, partition, expected, unread)

    def take_longest_stall(self, now_s: float) -> Stall:
        """The longest since this was asked last, with those that go on; forgotten then."""
        for reader in self._readers:
            for log, furthest in zip(self._logs, reader.furthest, strict=True):
                if furthest in log.acknowledged_s:
                    self._late(reader, log.acknowledged_s[furthest], now_s)
        longest, self._longest = self._longest, Stall()
        return longest
