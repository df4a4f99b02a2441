"""The cached log that a client reads of each partition, and the state of its open fetch at these logs."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import attrs

from proxy.cluster.topology import BrokerId
from proxy.fetch.cache import LogCache
from proxy.fetch.fetcher import ENDING_S, INSTANT_S, Fetcher
from proxy.fetch.log import Slice
from proxy.fetch.shared_log import LogKey, SharedLog
from proxy.wire.fetch import FetchPartition, PartitionKey, Topic

if TYPE_CHECKING:
    from proxy.fetch.reader import Reader

__all__ = ["Deliverable", "Positions"]


class Deliverable(NamedTuple):
    """The records for one response to a client, within its limits except for large entries.

    The first entry may exceed a limit (KIP-74). Below Fetch v3, later ones may, too: they are cut off afterwards.
    """

    slices: list[tuple[PartitionKey, Slice]]
    """The records by partition: first those that did not fit before, else in the order of becoming ready."""
    counted_bytes: int
    """The bytes that count for min bytes: the size of all records, or a partition's limit if more did not fit."""
    is_all: bool
    """Whether the response has room for all records that are ready."""


@attrs.define(eq=False)
class Positions:
    """The cached log that one client reads of each of its partitions, and the state of its open fetch there.

    It registers the client as a reader of the logs of a ``LogCache``, which reports changes of these logs (methods
    ``placed`` and ``log_*``). A partition is in ``logs`` from ``find`` until ``drop``. It is in ``loose`` if its
    log must be found (again), for example because the partition is new, its records were delivered, its log is
    void, or its offset has changed.
    """

    owner: "Reader"
    cache: LogCache
    is_probe: bool
    """Whether "nothing new" needs the response to a request sent after the client fetch."""
    since_s: float = float("-inf")
    """The client gets no cached records that arrived before this time: for a probe, none at all."""
    logs: dict[PartitionKey, SharedLog] = attrs.field(factory=dict)
    loose: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions whose log must be found again, with ``find``."""
    ready: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions with records to deliver, in the order in which they became ready."""
    fetchers: dict[Fetcher, int] = attrs.field(factory=dict)
    """The fetchers of the logs, with the number of logs on each."""
    changed: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions whose offsets in the response template are outdated."""
    shares: Counter[tuple[Topic, BrokerId]] = attrs.field(factory=Counter)
    """The number of logs by topic and source."""
    at_leader: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions that are read from the leader, since a follower does not have the client's offset."""
    _served: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions that were in the last responses which did not have room for all, in this order."""
    _unplaced: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions whose logs are assigned to no fetcher."""
    # The state of the open client fetch:
    is_waiting: bool = False
    """Whether it waits for logs."""
    number: int = 0
    """Its number in the log cache."""
    deadline_s: float = float("-inf")
    """The end of its max wait."""
    min_bytes: int = 1
    ready_bytes: int = 0
    """The bytes that are ready for it, as they count for min bytes."""
    has_enough: bool = False
    """Whether its records, or an error, end its wait."""
    short: Collection[PartitionKey] = ()
    """The ready partitions of which it could take more records than their logs have."""
    plain_until_s: float = float("-inf")
    """The time until which upstream requests have the client's min bytes: brokers wait for them."""
    node_id: BrokerId = attrs.field(default=attrs.Factory(lambda self: self.owner.node_id, takes_self=True))
    """The broker whose listener the client uses."""
    alone: "tuple[Positions]" = attrs.field(default=attrs.Factory(lambda self: (self,), takes_self=True))
    """The readers of logs that nobody else reads: one tuple for all, since there are many."""

    # ------------------------------------------------------------------------------------------- for the reader

    def find(self, key: PartitionKey, log_key: LogKey, wanted: FetchPartition, now_s: float) -> None:
        """Make the log *log_key* at the offset of *wanted* the client's log of the partition.

        The partition is ready if the log has records at the offset. Otherwise the log is queued for a fetcher,
        unless it is on one.
        """
        self.loose.pop(key, None)
        log = self.cache.read(self, log_key, wanted.offset, wanted.max_bytes, now_s)
        before, self.logs[key] = self.logs.get(key), log
        if before is not log:
            self.shares[key.topic, log_key.source.node_id] += 1
            if before is not None:
                self._leave(before, now_s, is_replaced=True)
        if log.fetcher is None:
            self._unplaced[key] = None
        if self.cache.offsets.get(key) is None or before is not log:
            self.changed[key] = None
        self.ready.pop(key, None)
        if wanted.offset < log.log.end:
            self.ready[key] = None
        else:
            self.cache.want(log)

    def drop(self, key: PartitionKey, now_s: float) -> None:
        """Stop reading a partition that the client does not request any more."""
        log = self.logs.pop(key, None)
        for each in (self.loose, self.ready, self.changed, self._served, self._unplaced):
            each.pop(key, None)
        if log is not None:
            self._leave(log, now_s, is_replaced=False)

    def _leave(self, log: SharedLog, now_s: float, *, is_replaced: bool) -> None:
        self.shares[log.key.partition.topic, log.key.source.node_id] -= 1
        self.cache.leave(self, log, now_s, is_replaced=is_replaced)

    def leave(self, now_s: float) -> None:
        """End the wait of the client fetch, and stop reading all logs.

        If clients do not share the log cache, its records are dropped.
        """
        self.stop()
        if self.cache.key.is_exclusive:
            self.cache.drop_records()
        for key in list(self.logs):
            self.drop(key, now_s)

    def void(self, key: PartitionKey) -> None:
        """Drop the client's log of a partition; all its readers must find another one.

        The topic was deleted or created again.
        """
        log = self.logs.get(key)
        if log is not None:
            self.cache.void(log)

    def void_all(self) -> None:
        """Drop the client's logs, so that new ones must be found; no effect if clients share the log cache.

        Call this when the client's Fetch version or isolation level has changed.
        """
        if self.cache.key.is_exclusive:
            for log in list(self.logs.values()):
                self.cache.void(log)

    def reread_ready(self) -> None:
        """Mark the partitions with undelivered records as loose, so that a probe finds new logs without them."""
        self.loose |= self.ready

    def want_more(self, deliverable: "Deliverable") -> None:
        """Have logs filled further, if *deliverable* has all their records: the client waits for more bytes.

        Their partitions stay ready, and are ``short`` until the next call or the end of the wait.
        """
        slices = deliverable.slices
        self.short = {key for key, found in slices if found.next_offset == self.logs[key].log.end}
        for key in self.short:
            self.cache.want(self.logs[key])

    def void_ready(self) -> None:
        """Drop the logs with undelivered records, for all their readers, so that the records are read again."""
        for key in list(self.ready):
            self.cache.void(self.logs[key])

    def wait(self) -> None:
        """Let the open client fetch wait for its logs: their fetchers send requests for it."""
        self.is_waiting = True
        for fetcher in self.fetchers:
            fetcher.waiting[self] = None
        for key in self._unplaced:
            if key not in self.ready:
                self.cache.want(self.logs[key])

    def stop(self) -> None:
        """End the wait of the client fetch: fetchers send no more requests for it."""
        self.is_waiting = False
        self.short = ()
        for fetcher in self.fetchers:
            fetcher.waiting.pop(self, None)
        # A dict that had many items keeps its size when they are gone.
        self.loose = self.loose or {}
        self.ready = self.ready or {}
        self.changed = self.changed or {}
        self._unplaced = self._unplaced or {}

    def deliverable(
        self, wanted_of: Callable[[PartitionKey], FetchPartition], max_bytes: int, *, is_cut: bool
    ) -> Deliverable:
        """Return the ready records that fit into a response of *max_bytes*, and set ``ready_bytes``.

        If the first entry of the response exceeds a limit, it is returned alone (KIP-74). A later partition that
        begins with such an entry is left for another response. Partitions that did not fit before come first, so
        that each has its turn. A partition whose log has lost the records becomes loose.

        Args: wanted_of: returns the offset and limit of a partition.
              is_cut:    whether an entry that is larger than a limit is returned with others, as below Fetch v3,
                  since it is cut off later.
        """
        slices: list[tuple[PartitionKey, Slice]] = []
        size_bytes, counted_bytes, is_all = 0, 0, True
        for key in self._in_turn():
            wanted, log = wanted_of(key), self.logs[key]
            left = max_bytes - size_bytes
            limit = min(wanted.max_bytes, left)
            # By name, a topic that was created again cannot be distinguished from the one before.
            found = log.log.slice(wanted.offset, limit, at_least_one=True, is_joined=isinstance(key.topic, bytes))
            if found is None:
                del self.ready[key]
                self.loose[key] = None
                continue
            size = len(found.records)
            if size <= limit or is_cut:
                slices.append((key, found))
                size_bytes += size
                is_whole = found.next_offset == log.log.end
                counted_bytes += size if is_whole else max(size, limit)  # brokers send a part of the next entry
                is_all = is_all and (limit == wanted.max_bytes or is_whole)
            elif slices:
                is_all = False
            else:
                self.ready_bytes = size
                return Deliverable([(key, found)], size, is_all=False)
        self.ready_bytes = counted_bytes
        return Deliverable(slices, counted_bytes, is_all)

    def _in_turn(self) -> list[PartitionKey]:
        """Return the ready partitions, those in ``_served`` last."""
        served = self._served
        if not served:
            return list(self.ready)
        return [*(key for key in self.ready if key not in served), *(key for key in served if key in self.ready)]

    def record_turns(self, keys: Iterable[PartitionKey], *, is_all: bool) -> None:
        """Let the partitions *keys*, which are in a response, come last in the next one; *is_all* resets the order.

        *is_all*: whether the response had room for all ready records.
        """
        if is_all:
            self._served = {}
            return
        for key in keys:
            self._served.pop(key, None)
            self._served[key] = None

    def delivered(self, key: PartitionKey, next_offset: int) -> None:
        """Record that records of a partition were handed out or left out: its log must be found again.

        If clients do not share the log, the records before *next_offset* are dropped.
        """
        if self.cache.key.is_exclusive:
            self.logs[key].log.skip(next_offset)  # nobody else reads them
        self.ready.pop(key, None)
        self.loose[key] = None

    def is_sure(self, now_s: float, answered: Container[PartitionKey], *, has_records: bool) -> bool:
        """Return whether each partition is ready, in *answered*, or known to have nothing new.

        The last holds if a response says so (confirmed), or if a long poll is unanswered (parked): at once if it
        was sent before the client fetch began and no log of the client there is cut off, else after 50 ms. For a
        probe, only a response counts. During shutdown, any request in flight suffices that may still wait, or that
        was sent before the client fetch.

        Args: answered: the partitions that the response has already.
              has_records: whether the response has records or errors: cut-off partitions then count as confirmed,
                  and requests that wait for more than one byte as parked.
        Cost: O(ready partitions, and those that are loose or whose logs are on no fetcher).
        """
        if any(key not in answered for key in self.loose):
            return False
        if any(key not in self.ready and key not in answered for key in self._unconfirmed()):
            return False
        is_draining = self.cache.is_draining
        ready = self._ready_logs()
        return all(
            ready[fetcher] == logs
            or fetcher.is_sure(
                self.number,
                now_s,
                is_probe=self.is_probe and not is_draining,
                has_records=has_records,
                is_cut=not has_records and self._is_cut(fetcher),
            )
            or (is_draining and (fetcher.waits_longer_than(now_s, 1) or fetcher.was_sent_before(self.number)))
            for fetcher, logs in self.fetchers.items()
        )

    @property
    def is_confirmed(self) -> bool:
        """Whether each log has had a response for the client fetch: records, or that there are none at its end.

        After records, the broker may have more. A log that has left its fetcher keeps its confirmation; one on no
        fetcher that has undelivered records needs none. False while a partition is loose, that is, while its log
        must be looked for, for instance after a delivery; and while the client waits at the end of a log for which
        a response had no room. Cost: O(fetchers + logs on no fetcher + logs that were cut off).
        """
        if self.loose or any(key not in self.ready for key in self._unconfirmed()):
            return False
        return all(each.confirmed >= self.number and not self._is_cut(each) for each in self.fetchers)

    def _unconfirmed(self) -> Iterator[PartitionKey]:
        """Yield the partitions assigned to no fetcher that were not confirmed for the client fetch."""
        return (key for key in self._unplaced if self.logs[key].confirmed < self.number)

    def _ready_logs(self) -> Counter[Fetcher | None]:
        """Return the number of logs with records to deliver on each fetcher."""
        return Counter(self.logs[key].fetcher for key in self.ready)

    def parked_times_s(self) -> Iterator[float]:
        """Yield the time from which each request in flight counts as parked, if it can be parked.

        These are the requests of fetchers with logs of the client. The time is that at which the broker reads the
        request, and 50 ms more in some cases; see ``Fetcher.sure_s``. A request without max wait, for instance, is
        never parked, but its time is yielded as well. So is the time from which a late response is not awaited.
        """
        for fetcher in self.fetchers:
            if fetcher.is_in_flight:
                yield fetcher.sure_s(self.number, is_cut=self._is_cut(fetcher))
                yield fetcher.ends_s + ENDING_S

    def unserved(self, answered: Container[PartitionKey], now_s: float) -> list[PartitionKey]:
        """Return the partitions that no event will answer (rule L1): a bug if there are any. Cost: O(partitions).

        *answered*: the partitions that the response has already.
        """
        return [
            key
            for key, log in self.logs.items()
            if (key not in self.ready or key in self.short)
            and key not in answered
            and not (log.fetcher is None and log.confirmed >= self.number)
            and not (
                log.fetcher is not None
                and log.fetcher.confirmed >= self.number
                and (self.ready or log not in log.fetcher.cut)
            )
            and not self.cache.is_served(log, now_s)
        ]

    def _is_cut(self, fetcher: Fetcher) -> bool:
        """Return whether the client waits at the end of a log in ``cut`` of *fetcher*."""
        return any(self.logs.get(log.key.partition) is log and self.reads_end_of(log) for log in fetcher.cut)

    # ------------------------------------------------------------------------------------------- for the cache

    @property
    def wants_more(self) -> bool:
        """Whether records are ready, but fewer than min bytes, and ``has_enough`` is not set.

        The end of the max wait does not count.
        """
        return 0 < self.ready_bytes < self.min_bytes and not self.has_enough

    @property
    def sources(self) -> int:
        """The number of fetchers among which the client's min bytes are divided: the unparked ones, at least 1."""
        return max(sum(not fetcher.is_parked for fetcher in self.fetchers), 1)

    def remaining_s(self, now_s: float) -> float:
        """Return the seconds until ``deadline_s``, at least 0: the rest of the max wait, less during a shutdown."""
        return max(self.deadline_s - now_s, 0.0)

    def is_due(self, now_s: float) -> bool:
        """Return whether the client fetch need not wait for more records, or its max wait is over.

        It need not if ``has_enough`` is set: min bytes are reached, the response has no room for all ready records,
        it has an error already, or, if ``waits_upstream``, responses have confirmed all logs.
        """
        return self.has_enough or self.is_over(now_s)

    def is_over(self, now_s: float) -> bool:
        """Return whether the max wait of the client fetch is over."""
        return now_s + INSTANT_S >= self.deadline_s

    def throttled_until_s(self, now_s: float) -> float:
        """Return the time until which a broker that the client reads from throttles; 0 if none does.

        Cost: O(brokers), and O(topics) while any broker throttles.
        """
        throttling = {node: until_s for node, until_s in self.cache.throttled_until_s.items() if until_s > now_s}
        if not throttling:
            return 0.0
        return max((throttling.get(node, 0.0) for (_, node), share in self.shares.items() if share), default=0.0)

    def is_satisfied_by(self, fetcher: Fetcher) -> bool:
        """Return whether the client fetch, once it is due, needs no further request of *fetcher*.

        It needs none if a response has confirmed the client's logs there, with or without new records, or if each
        of them has records to deliver. Logs that were cut off count as confirmed only if any records are ready.
        Cost: O(ready + cut off).
        """
        if fetcher.confirmed >= self.number and (bool(self.ready) or not self._is_cut(fetcher)):
            return True
        return self._ready_logs()[fetcher] == self.fetchers[fetcher]

    def is_plain(self, now_s: float) -> bool:
        """Return whether upstream requests may have the client's min bytes: brokers wait for them.

        They may if min bytes is above 1, and either ``--upstream-max-wait`` is 0 or, in the last 30 s, a fetch of
        the client had some records, but fewer than min bytes. In both cases, no source may have two fetchers for
        the client: while one has enough, the other would wait for more, and its silence would not show whether it
        has records. Whether clients share the log cache is not checked: if they do, requests have min bytes 1.
        """
        is_usual = self.min_bytes > 1 and (self.cache.is_unparked or now_s < self.plain_until_s)
        return is_usual and len({each.id.source for each in self.fetchers}) == len(self.fetchers)

    def waits_upstream(self, now_s: float) -> bool:
        """Return whether the client fetch is answered once responses have confirmed all its logs.

        It is if ``--upstream-max-wait`` is 0 or ``is_plain`` holds, so that upstream requests wait no longer than
        the client fetch; never if clients share the log cache.
        """
        return self.cache.key.is_exclusive and (self.cache.is_unparked or self.is_plain(now_s))

    def reads_end_of(self, log: SharedLog) -> bool:
        """Return whether the client, a reader of *log*, is known to be at its end.

        The next response for the log then concerns it, with or without an open fetch. The result is False while the
        partition is loose, as after a delivery.
        """
        return log.key.partition not in self.ready and log.key.partition not in self.loose

    def placed(self, log: SharedLog, before: Fetcher | None, now: Fetcher | None) -> None:
        """Record that *log* is on the fetcher *now* for this client, instead of *before*; None: on no fetcher.

        The log has changed its fetcher, or the client begins (*before* is None) or ends (*now* is None) to read it.
        If the client fetch waits, it joins ``waiting`` of *now*, so that requests are sent for it. It leaves that
        of *before* with its last log there.
        """
        key = log.key.partition
        if before is not None:
            self.fetchers[before] -= 1
            if not self.fetchers[before]:
                del self.fetchers[before]
                before.waiting.pop(self, None)
        if now is None:
            if self.logs.get(key) is log:
                self._unplaced[key] = None
            return
        self.fetchers[now] = self.fetchers.get(now, 0) + 1
        self._unplaced.pop(key, None)
        if self.is_waiting:
            now.waiting[self] = None

    def log_moved(self, log: SharedLog) -> None:
        """Mark the partition of *log*, which has new records, as ready if the client was at its end."""
        if self.reads_end_of(log):
            self.ready[log.key.partition] = None

    def log_void(self, log: SharedLog) -> None:
        """Mark the partition of *log* as loose, so that its log is found again, unless it has another log."""
        key = log.key.partition
        if self.logs.get(key) is log:
            self.ready.pop(key, None)
            self.loose[key] = None

    def log_reached(self, log: SharedLog) -> None:
        """Mark the partition as loose if the client is at the end of *log*, which is within another log.

        A client with records to deliver from *log* continues in the other log later.
        """
        if self.reads_end_of(log):
            self.log_void(log)
