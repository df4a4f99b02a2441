"""The cached logs of a log cache, each with its identity, its readers and the fetcher that fills it."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.cluster.routing import Source
from proxy.fetch.log import CachedLog
from proxy.fetch.offsets import Offsets
from proxy.wire.fetch import UNKNOWN, PartitionKey

if TYPE_CHECKING:
    from proxy.fetch.fetcher import Fetcher
    from proxy.fetch.positions import Positions

__all__ = ["KEPT_S", "LogIndex", "LogKey", "SharedLog"]

KEPT_S: Final = 1.0
"""The age at which cached entries are dropped, and the time for which a log without readers is kept.

It bounds the time for which records are delivered after their deletion, and the memory for slow readers.
"""
_LIVE_MOVES: Final = 3
_LIVE_S: Final = 2.0
# Shared by all logs, since there are many idle ones:
_NEVER_S: Final = float("-inf")
_NEVER_MOVED: Final = (_NEVER_S,) * _LIVE_MOVES
_UNKNOWN_OFFSETS: Final = (UNKNOWN, UNKNOWN, UNKNOWN)


class LogKey(NamedTuple):
    """The identity of a cached log within its cache, except for its offsets.

    The isolation level is the same for all logs of a cache. So is the rack, except that fetches to a rackless
    source omit it.
    """

    partition: PartitionKey
    source: Source
    """The broker that is read."""
    epoch: int
    """The current leader epoch in requests; -1 for none."""
    last_fetched_epoch: int
    """The epoch in which a client read the records before, to detect truncation (KIP-595); -1 for none."""
    is_probe: bool
    """Whether its clients have a max wait below 10 ms: they need responses to requests sent after their own."""


class SharedLog:
    """A cached log with the clients that read it and, at most, one fetcher that fills it."""

    __slots__ = (
        "_moves",
        "confirmed",
        "cuts",
        "fetcher",
        "is_cut",
        "is_void",
        "key",
        "log",
        "max_bytes",
        "moved_s",
        "offsets",
        "readers",
        "unread_bytes",
    )

    def __init__(self, key: LogKey, offset: int) -> None:
        """Create an empty log at *offset*, without readers."""
        self.key = key
        self.log = CachedLog(offset)
        self.readers: Collection[Positions] = ()
        """A tuple of one reader, for the sake of memory, or a dict of several; see ``add_reader``."""
        self.fetcher: Fetcher | None = None
        """The fetcher whose next request has this log; None if it has to be assigned to one."""
        self.offsets: Offsets = _UNKNOWN_OFFSETS
        """The highest high watermark, last stable offset and log start offset that its responses had."""
        self.max_bytes = 0
        """The partition limit (max bytes) in requests; see ``LogCache.read``. 0 before the first reader."""
        self.is_cut = False
        """Whether its source had more records than its last response had room for."""
        self.confirmed = 0
        """The number of the last client fetch for which its source confirmed that there are no records at its end.
        It is set when the log leaves a fetcher; until then, ``Fetcher.confirmed`` counts."""
        self.cuts = 0
        """The number of responses in a row that had no room for its records."""
        self.unread_bytes = 0
        """The size of the records that were appended since a reader was last at its end."""
        self.is_void = False
        """Whether it was dropped, so that its readers must find another log."""
        self.moved_s = _NEVER_S
        """The time at which records were last appended."""
        self._moves = _NEVER_MOVED
        """The times of the last appends."""

    def add_reader(self, reader: "Positions") -> None:
        """Add a client, which does not read the log yet, to its readers."""
        if isinstance(self.readers, dict):
            self.readers[reader] = None
        else:
            self.readers = dict.fromkeys((*self.readers, reader)) if self.readers else reader.alone

    def remove_reader(self, reader: "Positions") -> None:
        """Remove a client from the readers of the log."""
        if isinstance(self.readers, dict) and len(self.readers) > 2:
            del self.readers[reader]
        else:
            self.readers = tuple(each for each in self.readers if each is not reader)

    def moved(self, size_bytes: int, now_s: float) -> None:
        """Record that *size_bytes* of records were appended at *now_s*."""
        self.moved_s = now_s
        self._moves = (*self._moves[1:], now_s)
        self.unread_bytes += size_bytes

    @property
    def is_awaited(self) -> bool:
        """Whether a client fetch that reads it waits for logs now. Cost: O(readers)."""
        return any(reader.is_waiting for reader in self.readers)

    @property
    def is_wanted(self) -> bool:
        """Whether a client fetch that waits for logs needs records beyond the end of this one. Cost: O(readers)."""
        key = self.key.partition
        return any(each.is_waiting and (each.reads_end_of(self) or key in each.short) for each in self.readers)

    def trim_old(self, now_s: float) -> None:
        """Drop entries older than 1 s, unless a client fetch that waits for logs is to deliver entries of this log.

        Cost: O(readers) if there are old entries.
        """
        is_old = self.log.oldest_s < now_s - KEPT_S
        if is_old and all(not reader.is_waiting or reader.reads_end_of(self) for reader in self.readers):
            self.log.trim_before(now_s - KEPT_S)

    def is_live(self, now_s: float) -> bool:
        """Return whether records were appended at least three times in the last 2 s.

        Not for a probe log: no request for it waits at the broker, so that its records end no other log's wait.
        """
        return not self.key.is_probe and now_s - self._moves[0] < _LIVE_S


class LogIndex:
    """All logs of a log cache, to be found by partition, identity and offset.

    A partition may have several logs, with different identities or at different offsets.
    """

    __slots__ = ("_filled", "_logs", "_sweep_s", "_unread")

    def __init__(self) -> None:
        self._logs: dict[PartitionKey, tuple[SharedLog, ...]] = {}
        self._filled: dict[SharedLog, None] = {}
        """Logs that may have entries, in the order of their last response."""
        self._sweep_s = _NEVER_S
        self._unread: dict[SharedLog, float] = {}
        """Logs without readers, with the time at which the last one left, in the order of these times."""

    def __len__(self) -> int:
        return sum(map(len, self._logs.values()))

    def __iter__(self) -> Iterator[SharedLog]:
        return (log for logs in self._logs.values() for log in logs)

    @property
    def oldest_s(self) -> float | None:
        """The arrival time of the oldest entries of the least recently filled log; None without entries."""
        return next((log.log.oldest_s for log in self._filled if log.log.size_bytes), None)

    @property
    def expires_s(self) -> float | None:
        """The time at which ``outdated`` must be called to drop old entries; None if there are no entries."""
        oldest_s = self.oldest_s
        return None if oldest_s is None else max(oldest_s + KEPT_S, self._sweep_s)

    def find(self, key: LogKey, offset: int, now_s: float, since_s: float = _NEVER_S) -> SharedLog:
        """Return the log with the identity *key* that contains *offset* or ends there; add one if there is none.

        Of several, it is the one with the highest end. Old entries are dropped as by ``trim_old``.

        *since_s*: entries at *offset*, if it has any, arrived at this time or later.
        """
        found = None
        for log in self._logs.get(key.partition, ()):
            if log.key != key:
                continue
            log.trim_old(now_s)
            if log.log.contains(offset, since_s) and (found is None or found.log.end < log.log.end):
                found = log
        if found is None:
            found = SharedLog(key, offset)
            self._logs[key.partition] = (*self._logs.get(key.partition, ()), found)
        return found

    def of_partition(self, partition: PartitionKey) -> Iterator[SharedLog]:
        """Yield the logs of a partition."""
        return iter(self._logs.get(partition, ()))

    @property
    def partitions(self) -> Collection[PartitionKey]:
        """The partitions that have logs."""
        return self._logs.keys()

    def overtaken(self, log: SharedLog) -> Iterator[SharedLog]:
        """Yield the logs that need not be filled further after *log* has grown.

        For each other log of its identity that overlaps *log* or touches it, that is the one of both with the lower
        end; *log* itself if the ends are equal.
        """
        for other in self._logs.get(log.key.partition, ()):
            if other is not log and other.key == log.key:
                low, high = sorted((log, other), key=lambda each: each.log.end)
                if high.log.start <= low.log.end:
                    yield low

    def filled(self, log: SharedLog) -> None:
        """Record that entries were appended to *log*, so that ``outdated`` drops them later."""
        self._filled.pop(log, None)
        self._filled[log] = None

    def unread(self, log: SharedLog, now_s: float) -> None:
        """Record that the last reader of *log* has left, so that ``outdated`` returns it later."""
        self._unread.pop(log, None)
        self._unread[log] = now_s

    def drop(self, log: SharedLog) -> None:
        """Remove a log from the index, if it is there."""
        others = tuple(each for each in self._logs.get(log.key.partition, ()) if each is not log)
        if others:
            self._logs[log.key.partition] = others
        else:
            self._logs.pop(log.key.partition, None)
        self._filled.pop(log, None)
        self._unread.pop(log, None)

    def outdated(self, now_s: float) -> Iterator[SharedLog]:
        """Drop old entries as by ``trim_old``; yield the logs without readers for 1 s.

        The caller must drop the yielded logs. At most four calls a second have an effect.
        """
        if now_s < self._sweep_s:
            return
        self._sweep_s = now_s + KEPT_S / 4
        for log in list(self._filled):
            log.trim_old(now_s)
            if not log.log.size_bytes:
                del self._filled[log]
        for log, left_s in list(self._unread.items()):
            if log.readers:
                del self._unread[log]
            elif left_s + KEPT_S > now_s:
                break
            else:
                yield log
