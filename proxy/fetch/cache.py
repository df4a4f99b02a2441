"""The cached logs of clients that share upstream fetches, and the assignment of these logs to fetchers.

A log that a client waits for is *placed* on a fetcher of its source, whose requests then have it, and stays there
while its readers advance::

    first request, probe, far behind ---> catch-up --------------------+
          |                                                            | at its end
          v                                                            v
    long-poll <---- quiet for 2 s, when both are free ------------ live, or queued for it
          |                                                            ^
          +---- moves often, beside 100 quiet ones --------------------+

``LOG_CACHE.md`` has the rules.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.cluster.routing import Routes, Source
from proxy.cluster.topology import BrokerId, Topology
from proxy.errors import BadRecords, BrokerProtocolError, ErrorCode
from proxy.fetch.commands import (
    CacheCommand,
    CloseFetcher,
    CloseSession,
    EmitRecord,
    FetcherId,
    FetcherKind,
    OpenFetcher,
    RefreshMetadata,
    Wake,
)
from proxy.fetch.error_codes import STALE_TOPOLOGY
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.fetcher import INSTANT_S, MANY, PARKED_S, Fetcher, FetchResult, FetchWait
from proxy.fetch.offsets import OffsetTable, highest, offsets_of
from proxy.fetch.shared_log import KEPT_S, LogIndex, LogKey, SharedLog
from proxy.session.upstream import RejectedResponse, RejectionReason
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import UNKNOWN, FetchOptions, FetchResponse, PartitionKey, PartitionReply, Topic

if TYPE_CHECKING:
    from proxy.fetch.positions import Positions
    from proxy.fetch.reader import Reader

__all__ = ["CacheKey", "LogCache"]

_LIVE_WAIT_S: Final = 0.1
"""The max wait of a request of a live fetcher; logs that are to join it wait for up to this time."""
_JOINING_S: Final = 1.0
"""The longest wait of a long poll after a log has joined, since logs of other clients that start may follow."""
_PACE_S: Final = 0.05
"""The least time between two requests while all readers want more bytes than there are."""
_LARGE_BYTES: Final = 64 * 1024
"""The size of a response after which the next request is not delayed, and of unread entries after which a log
without waiting readers is not filled further."""
_PARTITION_S: Final = 1e-6
"""The cost of an unchanged partition of a fetch for the broker and for the client, in seconds."""
_LEAST_PAUSE_S: Final = 1e-3
_FAILED_S: Final = 10.0
"""The time for which a partition that had an error is requested apart from others."""
_UNUSED_S: Final = 30.0
"""The time without logs after which a fetcher closes its session and its connection."""
_ATTEMPTS: Final = 4
"""The number of rejected responses in a row after which the waiting client fetches get an error."""
_MOST_CUTS: Final = 10
"""The number of responses in a row without room for a log after which its readers do not wait for it."""
TOPIC_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""Errors that hold for all partitions of a topic: it was deleted, or the principal may not read it."""


class CacheKey(NamedTuple):
    """The sharing key of a log cache: client connections whose fetches have equal keys use one cache."""

    owner: object
    """The reader, if clients do not share; else the principal, with or without the client id."""
    client_id: str | None
    """The client id of upstream fetches."""
    isolation: int
    """The isolation level: 0 for all records, 1 for committed ones only."""
    rack: str
    """The rack in upstream fetches; empty for none."""
    is_redirected: bool
    """Whether clients themselves fetch from the replica that a leader prefers (Fetch v11 with a rack)."""
    is_exclusive: bool
    """Whether there is only one reader, so that upstream fetches may have its min bytes."""
    node_id: BrokerId | None
    """The broker whose listener the clients use, if they have a rack; else None. Such clients may read a broker as
    a follower that others read as a leader, and only errors of leaders are passed on."""


class _Fetchers(NamedTuple):
    """The three fetchers of one source."""

    long_poll: Fetcher
    live: Fetcher
    catch_up: Fetcher


class LogCache:
    """The cached logs of one client, or of several that share upstream fetches, and the fetchers that fill them.

    It also keeps the partitions' offsets, and chooses the broker from which each is read: the leader or a replica.

    Use: pass events of connections to ``opened``, ``answering``, ``received`` and ``lost``, then call ``settle``,
    and carry out the commands that ``take_commands`` returns. ``deadline_s`` returns the time at which ``settle``
    is needed without an event.
    """

    def __init__(self, key: CacheKey, config: FetchConfig, jitter: float) -> None:
        """*jitter*: 0..1, spreads the next requests for sessions of caches that were refused one."""
        self.key = key
        self.offsets = OffsetTable()
        self.topology = Topology()
        self.readers: dict[Reader, None] = {}
        """The members: the readers that use this cache."""
        self.number = 0
        """The number of the last client fetch that has begun."""
        self.throttled_until_s: dict[BrokerId, float] = {}
        """By broker that has throttled, the end of its last throttling; brokers throttle each for itself."""
        self.is_draining = False
        """Whether Sidefetch shuts down, so that requests wait no longer than client fetches."""
        self.is_unparked = config.upstream_max_wait_s == 0
        """Whether requests always wait no longer than client fetches."""
        self._config = config
        self._jitter = jitter
        self._max_bytes = 0
        self._routes: dict[BrokerId, Routes] = {}
        self._sources: dict[Source, _Fetchers] = {}
        self._all_fetchers: dict[FetcherId, Fetcher] = {}
        self._late_s = float("inf")
        """The earliest time at which a response or a connection may be late; never too high."""
        self._index = LogIndex()
        self._queues: dict[Source, dict[SharedLog, None]] = {}
        """The logs to place on a fetcher, by their source."""
        self._failed_s: dict[PartitionKey, float] = {}
        """The partitions that had an error, with the time until which they are requested apart from others."""
        self._dirty: dict[Reader, None] = {}
        """The readers to wake."""
        self._stale: dict[Topic, None] = {}
        """The topics whose metadata must be refreshed."""
        self._commands: list[CacheCommand] = []

    # ------------------------------------------------------------------------------------------- for readers

    def routes(self, node_id: BrokerId) -> Routes:
        """Return the choice of the broker to read, for clients of the listener of *node_id*."""
        routes = self._routes.get(node_id)
        if routes is None:
            routes = Routes(node_id, self._config.selector, self._config.preferred_max_age_s)
            self._routes[node_id] = routes
        return routes

    def leader(self, node_id: BrokerId) -> Fetcher:
        """Return the long-poll fetcher that reads *node_id* as the leader; create it, unconnected, if needed."""
        return self._fetchers(Source(node_id), self.routes(node_id)).long_poll

    def open(self, fetcher: Fetcher, now_s: float) -> None:
        """Command the connection of a fetcher, unless it is open or being opened."""
        if not (fetcher.is_open or fetcher.is_opening):
            fetcher.opening(now_s + self._config.response_timeout_s if fetcher.is_follower else None)
            self._note_late(fetcher)
            self._commands.append(OpenFetcher(fetcher.id, self.key.client_id))

    def begin(self, max_bytes: int) -> int:
        """Return the number of a client fetch that begins: one more than that of the last.

        *max_bytes*: the client's limit for its response. Upstream fetches use the largest so far, or, if clients do
        not share the cache, the last; with read-ahead at least 64 KiB; always at most ``fetch_buffer_bytes``.
        """
        self.number += 1
        limit = self._limit_ahead(max_bytes)
        self._max_bytes = limit if self.key.is_exclusive else max(limit, self._max_bytes)
        return self.number

    def read(self, reader: "Positions", key: LogKey, offset: int, max_bytes: int, now_s: float) -> SharedLog:
        """Return a log of identity *key* that contains *offset* or ends there; *reader* becomes a reader.

        It is a new one if there is none. Entries that arrived before ``reader.since_s`` do not count.

        *max_bytes*: the client's partition limit. Requests for the log use the largest so far, or, if clients do
        not share the cache, the last; with read-ahead at least 64 KiB if the log is not new.
        """
        self._fetchers(key.source, self.routes(reader.node_id))
        log = self._index.find(key, offset, now_s, reader.since_s)
        if reader not in log.readers:
            log.add_reader(reader)
            if log.fetcher is not None:
                reader.placed(log, None, log.fetcher)
        limit = self._limit_ahead(max_bytes) if log.max_bytes else max_bytes
        if limit > log.max_bytes or (self.key.is_exclusive and limit != log.max_bytes):
            log.max_bytes = limit
            if log.fetcher is not None:
                log.fetcher.moved[log] = None
        return log

    def _limit_ahead(self, max_bytes: int) -> int:
        return max(max_bytes, _LARGE_BYTES) if self._config.reads_ahead else max_bytes

    def leave(self, reader: "Positions", log: SharedLog, now_s: float, *, is_replaced: bool) -> None:
        """Remove *reader* from the readers of *log*; if it has none left, drop it now or later.

        The log is kept for 1 s in case a reader returns. It is dropped at once if it is a probe log (of clients
        with a max wait below 10 ms), or if *is_replaced* and clients do not share the cache.

        *is_replaced*: whether the client reads another log of this partition instead.
        """
        log.remove_reader(reader)
        if log.fetcher is not None:
            reader.placed(log, log.fetcher, None)
        if log.readers or log.is_void:
            return
        self._queues[log.key.source].pop(log, None)
        if (self.key.is_exclusive and is_replaced) or log.key.is_probe:
            self._leave_fetcher(log)  # nobody else reads its entries
            self._index.drop(log)
        else:
            self._index.unread(log, now_s)
            if log.fetcher is not None:
                log.fetcher.moved[log] = None

    def forget(self, node_id: BrokerId, key: PartitionKey) -> None:
        """Drop the preferred replica and the back-off of a partition for clients of broker *node_id*.

        No effect if a client reads any log of the partition in this cache.
        """
        if not any(log.readers for log in self._index.of_partition(key)):
            self.routes(node_id).forget(key)

    def want(self, log: SharedLog) -> None:
        """Record that a client waits at the end of *log*; if it is on no fetcher, ``settle`` places it on one."""
        log.unread_bytes = 0
        if log.fetcher is None and not log.is_void:
            self._queues[log.key.source][log] = None

    def join(self, reader: "Reader") -> None:
        """Add a member: it is woken by events of connections that its client fetch waits for.

        These are the opening of the first connection to its leader, and the loss of a connection to a leader, or
        the failure to open it. Changes of a log wake the readers of that log (see ``read``).
        """
        self.readers[reader] = None

    def part(self, reader: "Reader") -> None:
        """Remove a member and its pending ``Wake``. It must have left its logs before."""
        self.readers.pop(reader, None)
        self._dirty.pop(reader, None)

    def requeue_long_waits(self, reader: "Positions") -> None:
        """Queue logs of *reader* again whose request in flight may wait for longer, or more bytes, than its fetch.

        They leave that request. A log stays if its offsets are known and the request is a long poll with min bytes
        1: without a response, it has no new records. No effect while Sidefetch shuts down.
        """
        for fetcher in () if self.is_draining else list(reader.fetchers):
            if not fetcher.waits_longer_than(reader.deadline_s, reader.min_bytes):
                continue
            for log in list(fetcher.without_offsets if fetcher.is_parked else fetcher.logs.values()):
                if reader in log.readers:
                    self._requeue(log)

    def lacks_offsets(self, log: SharedLog) -> bool:
        """Return whether no broker has reported a high watermark that holds at the end of *log*.

        The one of the partition is unknown, or it is below the end of *log* and no response for *log* had one.
        """
        known = self.offsets.get(log.key.partition)
        return known is None or (known[0] < log.log.end and log.offsets[0] < 0)

    def request_offsets_now(self, reader: "Positions", now_s: float) -> None:
        """Queue logs of *reader* with unknown offsets whose parked request waits longer than the client fetch.

        A request of another fetcher has them next.
        """
        for fetcher in list(reader.fetchers):
            is_long = fetcher.is_parked and fetcher.waits_longer_than(now_s + INSTANT_S, reader.min_bytes)
            for log in list(fetcher.without_offsets) if is_long else ():
                if reader in log.readers:
                    self._requeue(log)

    def void(self, log: SharedLog) -> None:
        """Drop a log, whose records may be outdated, and wake its readers, which then find another one."""
        log.is_void = True
        self._queues[log.key.source].pop(log, None)
        self._leave_fetcher(log)
        self._index.drop(log)
        log.log.trim(log.log.end)  # readers without an open client fetch keep the log until their next one
        for reader in log.readers:
            reader.log_void(log)
            self._dirty[reader.owner] = None

    def start_over(self, reader: "Positions", now_s: float) -> None:
        """Drop all logs of the fetchers that *reader* uses, and close connections that have a request in flight.

        It is called after a client fetch has outlived its wait. It affects other readers of these logs, too.
        """
        for fetcher in list(reader.fetchers):
            if fetcher.is_in_flight:
                self._commands.append(
                    CloseFetcher(fetcher.id, "a client fetch has outlived its wait", is_fault=True)
                )
                self._commands += fetcher.lost(now_s)
            for log in list(fetcher.logs.values()):
                self.void(log)

    # ------------------------------------------------------------------------------------------- events

    def opened(self, fetcher_id: FetcherId, ranges: ApiRanges, now_s: float) -> None:
        """Handle the opening of a fetcher's connection; wake readers that wait for its first one.

        The connection is closed and handled as lost if the broker's Fetch versions are too old, or if a follower
        names topics in another way (by id or name) than leaders. If the naming has changed, the source's logs are
        dropped.

        *ranges*: the API versions of the broker.
        """
        fetcher = self._all_fetchers[fetcher_id]
        by_id, was_used = fetcher.by_id, fetcher.version > 0
        try:
            fetcher.opened(ranges)
            home = self._home(fetcher)
            if home is not None and home.version and home.by_id != fetcher.by_id:
                raise BrokerProtocolError(f"broker {fetcher_id.source.node_id} names topics in another way")
        except BrokerProtocolError as unfit:
            self._commands.append(CloseFetcher(fetcher_id, str(unfit), is_fault=not fetcher.is_follower))
            fetcher.is_open = False
            self.lost(fetcher_id, now_s)
            return
        if was_used and by_id != fetcher.by_id:
            for log in [log for log in self._index if log.key.source == fetcher_id.source]:
                self.void(log)
        for reader in self.readers:
            if reader.is_connecting_to(fetcher):
                self._dirty[reader] = None

    def _home(self, fetcher: Fetcher) -> Fetcher | None:
        """Return a leader's fetcher, for a follower's: both must name topics in the same way, by id or name."""
        if not fetcher.is_follower:
            return None
        return next((each.long_poll for each in self._sources.values() if not each.long_poll.is_follower), None)

    def answering(self, fetcher_id: FetcherId) -> None:
        """Record that a large response has begun to arrive: its request is not late, nor means "nothing new"."""
        fetcher = self._all_fetchers[fetcher_id]
        fetcher.answering(self._confirmable)
        for reader in fetcher.waiting:
            self._dirty[reader.owner] = None

    @property
    def _confirmable(self) -> int:
        """The number of the last client fetch for which a response to an earlier request may say "nothing new"."""
        # If requests wait no longer than client fetches, each of these has its own and is answered with it.
        return 0 if self.is_unparked else self.number

    def received(self, fetcher_id: FetcherId, frame: memoryview, now_s: float) -> None:
        """Apply a broker's response to the logs, and wake the readers that it concerns.

        A response that the session rejects, as for a top-level error, or a throttled one without partitions adds
        nothing to a log: the waiting client fetches are answered, paused or retried. After a top-level error of a
        follower, other than a session error, the fetcher's logs are dropped and read from the leader. If *frame* is
        no response to the request in flight, the connection is closed and handled as lost.
        """
        fetcher = self._all_fetchers[fetcher_id]
        was_answering = fetcher.is_answering
        try:
            served = 1 if self.key.is_exclusive else len(fetcher.waiting)
            name_of = self.topology.name_of
            result = fetcher.received(frame, self._confirmable, now_s, topic_name=name_of, client_fetches=served)
        except BrokerProtocolError as wrong:
            self._commands.append(CloseFetcher(fetcher_id, str(wrong), is_fault=True))
            self.lost(fetcher_id, now_s)
            return
        for reader in fetcher.waiting:
            if was_answering:
                reader.owner.restart_watchdog(now_s)
            if reader.is_due(now_s) or reader.waits_upstream(now_s):
                self._dirty[reader.owner] = None
        if isinstance(result.outcome, RejectedResponse):
            self._commands += result.records()
            self._rejected(fetcher, result.outcome, now_s)
            return
        fetcher.rejections = 0
        response = result.response
        for routes in self._routes.values():
            routes.readmit_follower(fetcher_id.source.node_id)
        if response.throttle_ms:
            node_id, until_s = fetcher_id.source.node_id, now_s + response.throttle_ms / 1000
            self.throttled_until_s[node_id] = max(until_s, self.throttled_until_s.get(node_id, 0.0))
        if response.throttle_ms and not response.topics:
            # The broker has read nothing: its response says nothing about any partition.
            self._commands += result.records()
            for reader in list(fetcher.waiting):
                reader.owner.throttled(now_s)
                self._dirty[reader.owner] = None
        else:
            self._accept(fetcher, result, now_s)

    def _accept(self, fetcher: Fetcher, result: FetchResult, now_s: float) -> None:
        """Apply an accepted response to the logs, and decide what it confirms."""
        response = result.response
        kept_bytes = self._apply(fetcher, result, now_s)
        self._commands += result.records(kept_bytes)
        fetcher.confirmed = max(fetcher.confirmed, result.number)
        if self.key.isolation and fetcher.is_behind:
            self._find_left_out(fetcher, response)
        self._count_cuts(fetcher, has_records=response.record_bytes > 0)
        for log in list(fetcher.checked):
            if result.requested(log.key.partition) is not None:
                for reader in list(log.readers):
                    reader.owner.truncation_checked(log)
        self._pace(fetcher, response.record_bytes, now_s)
        if fetcher.id.kind is FetcherKind.CATCH_UP:
            for log in list(fetcher.logs.values()):
                self._leave_catch_up(log, result)
        elif any(result.requested(log.key.partition) is not None for log in fetcher.without_offsets):
            # The session says "unchanged" of a partition whose offsets are not known here.
            fetcher.restart()
            self._count_rejection(fetcher, now_s)

    def lost(self, fetcher_id: FetcherId, now_s: float) -> None:
        """Handle the loss of a connection, or that it could not be opened or used.

        The logs of the fetcher, and those with records from its source, are dropped. If the source is a follower,
        it is avoided for a time and the leader is read. Otherwise the waiting client fetches try again. They get an
        error if the connection could not be opened or used, at the fourth failure of the fetcher in a row, or at
        the fourth loss within the client fetch.
        """
        fetcher = self._all_fetchers[fetcher_id]
        was_open = fetcher.is_open
        self._commands += fetcher.lost(now_s)
        source = fetcher_id.source
        logs = [
            log
            for log in self._index
            if log.fetcher is fetcher or (log.key.source == source and log.log.size_bytes)
        ]
        if fetcher.is_follower:
            self._leave_follower(fetcher, logs, now_s)
            return
        affected = [reader for reader in self.readers if reader.depends_on(fetcher)]
        fetcher.rejections += 1
        gives_up = not was_open or fetcher.rejections >= _ATTEMPTS
        if gives_up:
            fetcher.rejections = 0
        for log in logs:
            self.void(log)
        for reader in affected:
            reader.source_lost(gives_up=gives_up, now_s=now_s)
            self._dirty[reader] = None

    def update_topology(self, topology: Topology) -> None:
        """Adopt a new topology, and drop the logs of partitions whose leader, epoch or topic id has changed.

        A topology older than the present one, as from another member, is ignored. Cost: O(logs) if it has changed.
        """
        before = self.topology
        if before is topology or topology.refreshed_s < before.refreshed_s:
            return
        self.topology = topology
        same: dict[Topic, bool] = {}
        for log in list(self._index):
            key = log.key.partition
            if key.topic not in same:
                same[key.topic] = before.topic(key.topic) is topology.topic(key.topic)
            if not same[key.topic] and before.id_and_leader_of(key) != topology.id_and_leader_of(key):
                self.void(log)

    def drain(self) -> None:
        """Begin the shutdown: requests with waiting clients wait at the broker no longer than these.

        Client fetches that are due then do not wait for a request in flight that was sent before them or still
        waits.
        """
        self.is_draining = True

    def drop_records(self) -> None:
        """Drop every log that has entries, for instance to free memory; their readers find new logs."""
        for log in list(self._index):
            if log.log.size_bytes:
                self.void(log)

    def close(self, now_s: float) -> list[EmitRecord | CloseSession]:
        """Return telemetry and the requests that close the sessions at the brokers; no other call may follow."""
        commands = [command for fetcher in self._all_fetchers.values() for command in fetcher.close_session(now_s)]
        # Objects that refer to each other would stay until the next garbage collection.
        for log in self._index:
            log.fetcher, log.readers = None, ()
        self._all_fetchers.clear()
        self._sources.clear()
        self._index = LogIndex()
        return commands

    # ------------------------------------------------------------------------------------------- planning

    def settle(self, now_s: float) -> None:
        """Place queued logs on fetchers, and command the requests that are due.

        It also drops old entries, logs without readers for 1 s and logs whose choice of replica has expired, and
        closes connections whose response is overdue. A fetcher without logs that has sent no request for 30 s
        closes its session or, without one, its connection; the one that ``leader`` returns keeps its connection.
        """
        self._close_late(now_s)
        for log in list(self._index.outdated(now_s)):
            self._leave_fetcher(log)
            self._index.drop(log)
        for routes in self._routes.values():
            for key in list(routes.take_expired(now_s)):
                for log in list(self._index.of_partition(key)):
                    self.void(log)
        for each in self._sources.values():
            self._balance(each, now_s)
        for source in self._sources:
            self._place_queued(source, now_s)
        for fetcher in self._all_fetchers.values():
            self._send_request(fetcher, now_s)
        if self.offsets.is_large(len(self._index)):
            self.offsets.prune(self._index.partitions)

    def take_commands(self) -> list[CacheCommand]:
        """Return and clear the pending commands, with a ``Wake`` for each reader that an event concerns."""
        commands, self._commands = self._commands, []
        if self._stale:
            commands.append(RefreshMetadata(frozenset(self._stale)))
            self._stale.clear()
        dirty, self._dirty = self._dirty, {}
        commands += map(Wake, dirty)
        return commands

    @property
    def oldest_s(self) -> float | None:
        """The arrival time of the oldest entries in the least recently filled log; None without entries."""
        return self._index.oldest_s

    @property
    def busy(self) -> list[FetcherId]:
        """The fetchers with a request in flight."""
        return [fetcher.id for fetcher in self._all_fetchers.values() if fetcher.is_in_flight]

    def deadline_s(self, now_s: float) -> float | None:
        """Return the time at which ``settle`` is needed without an event; None for never.

        It covers late responses and connections, delayed requests and old entries. The rest that ``settle`` does
        waits for its next call.
        """
        times = []
        for fetcher in self._all_fetchers.values():
            if fetcher.late_s is not None:
                times.append(fetcher.late_s)
            if fetcher.waiting and not fetcher.is_in_flight:
                times += (fetcher.paced_until_s, fetcher.held_until_s)
        expires_s = self._index.expires_s
        if expires_s is not None:
            times.append(expires_s + INSTANT_S)
        return min((time_s for time_s in times if time_s > now_s), default=None)

    def describe(self, now_s: float) -> str:
        """Return a text about the state of all connections, for the program's log."""
        used = (fetcher for fetcher in self._all_fetchers.values() if fetcher.version or fetcher.is_opening)
        return ", ".join(fetcher.describe(now_s) for fetcher in used)

    def is_served(self, log: SharedLog, now_s: float) -> bool:
        """Return whether a response, a new connection or a timer will continue fetches that wait at its end (L1).

        The log is on a fetcher that has a request in flight, is connecting or has delayed its next request; or it
        is queued while a fetcher of its source is connecting, or waits for at most another 0.1 s (L7). A log that
        is confirmed at its end need not be served; see ``Positions.unserved``.
        """
        fetcher = log.fetcher
        if fetcher is None:
            each = self._sources[log.key.source]
            is_queued = log in self._queues[log.key.source]
            return is_queued and any(one.is_opening or _is_free_soon(one, now_s) for one in each)
        paced_until_s = max(fetcher.paced_until_s, fetcher.held_until_s)
        return fetcher.is_in_flight or fetcher.is_opening or now_s < paced_until_s

    # ------------------------------------------------------------------------------------------- fetchers

    def _fetchers(self, source: Source, routes: Routes) -> _Fetchers:
        each = self._sources.get(source)
        if each is None:
            route = routes.route_kind(source)
            each = _Fetchers(*(Fetcher(FetcherId(source, kind), route, self._jitter) for kind in FetcherKind))
            self._sources[source], self._queues[source] = each, {}
            self._all_fetchers |= {fetcher.id: fetcher for fetcher in each}
        return each

    def _close_late(self, now_s: float) -> None:
        if now_s < self._late_s:
            return
        fetchers = list(self._all_fetchers.values())
        for fetcher in fetchers:
            if fetcher.late_s is None or now_s < fetcher.late_s:
                continue
            if fetcher.is_opening:
                fetcher.opening(None)
                self._leave_follower(fetcher, list(fetcher.logs.values()), now_s)
                continue
            why = f"no answer within {fetcher.late_s - fetcher.heard_s:g} s"
            self._commands.append(CloseFetcher(fetcher.id, why, is_fault=True))
            self.lost(fetcher.id, now_s)
        self._late_s = min((each.late_s for each in fetchers if each.late_s is not None), default=float("inf"))

    def _note_late(self, fetcher: Fetcher) -> None:
        """Note the time at which the response to a request, or the opening of a connection, is late."""
        if fetcher.late_s is not None:
            self._late_s = min(self._late_s, fetcher.late_s)

    def _leave_follower(self, fetcher: Fetcher, logs: list[SharedLog], now_s: float) -> None:
        """Read *logs* of a follower from the leaders, within the same client fetches."""
        keys = [log.key.partition for log in logs]
        for routes in self._routes.values():
            routes.exclude_follower(fetcher.id.source.node_id, keys, now_s)
        for reader in fetcher.waiting:
            reader.owner.restart_watchdog(now_s)
        for log in logs:
            self.void(log)

    def _rejected(self, fetcher: Fetcher, outcome: RejectedResponse, now_s: float) -> None:
        if outcome.why is not RejectionReason.ERROR:
            self._count_rejection(fetcher, now_s)
        elif fetcher.is_follower:
            self._leave_follower(fetcher, list(fetcher.logs.values()), now_s)
        else:
            for reader in list(fetcher.waiting):
                reader.owner.refused(outcome.error, now_s)
                self._dirty[reader.owner] = None

    def _count_rejection(self, fetcher: Fetcher, now_s: float) -> None:
        fetcher.rejections += 1
        if fetcher.rejections >= _ATTEMPTS:
            fetcher.rejections = 0
            for reader in list(fetcher.waiting):
                reader.owner.source_lost(gives_up=True, now_s=now_s)
                self._dirty[reader.owner] = None

    # ------------------------------------------------------------------------------------------- logs

    def _leave_fetcher(self, log: SharedLog) -> None:
        fetcher, log.fetcher = log.fetcher, None
        if fetcher is not None:
            fetcher.leave(log)
            for reader in log.readers:
                reader.placed(log, fetcher, None)
                if reader.is_waiting:
                    self._dirty[reader.owner] = None

    def _place_queued(self, source: Source, now_s: float) -> None:
        """Place the queued logs of *source* on its fetchers, as far as these take some.

        If there are too many new ones for one request of the long-poll or catch-up fetcher, the rest waits for the
        next one.
        """
        queue, (long_poll, _, catch_up) = self._queues[source], self._sources[source]
        if any(each.is_building and each.is_in_flight for each in (long_poll, catch_up)):
            return
        for log in list(queue):
            if long_poll.is_full or catch_up.is_full:
                return
            self._place(log, now_s)
        if not queue:
            self._queues[source] = {}  # a dict that was large stays large

    def _place(self, log: SharedLog, now_s: float) -> None:
        queue = self._queues[log.key.source]
        if not log.is_awaited:
            del queue[log]
            return
        fetcher = self._choose_fetcher(log, now_s)
        if fetcher is not None:
            del queue[log]
            fetcher.join(log, log.log.end)
            log.fetcher = fetcher
            if self.lacks_offsets(log):
                fetcher.without_offsets[log] = None
            for reader in log.readers:
                reader.placed(log, None, fetcher)

    def _choose_fetcher(self, log: SharedLog, now_s: float) -> Fetcher | None:
        """Return the fetcher to place *log* on; None if it waits until one is free."""
        long_poll, live, catch_up = self._sources[log.key.source]
        has_failed = self._failed_s.get(log.key.partition, now_s) > now_s
        disturbs = log.is_cut or log.key.is_probe or has_failed
        is_disturbed = disturbs and (_has_others_waiting(long_poll, log) or _has_others_waiting(live, log))
        if is_disturbed or (log.key.is_probe and len(long_poll.probes) < len(long_poll.logs)):
            return catch_up if self._can_join(catch_up, log) else None
        is_apart = (log.is_live(now_s) or has_failed) and len(long_poll.logs) >= MANY
        if not is_apart and self._can_join(long_poll, log):
            return long_poll
        if self._can_join(live, log):
            return live
        is_urgent = disturbs or any(each.is_waiting and each.number > log.confirmed for each in log.readers)
        return catch_up if is_urgent and self._can_join(catch_up, log) else None

    def _can_join(self, fetcher: Fetcher, log: SharedLog) -> bool:
        """Return whether *log* can join; another log of its partition leaves the fetcher if it has no readers."""
        if fetcher.is_in_flight:
            return False
        other = fetcher.logs.get(log.key.partition)
        if other is not None and not other.readers:
            self._leave_fetcher(other)
            other = None
        return other is None

    def _balance(self, fetchers: _Fetchers, now_s: float) -> None:
        """Move logs between the long-poll and the live fetcher, if the long-poll fetcher is free."""
        long_poll, live, _ = fetchers
        if long_poll.is_in_flight:
            return
        if len(long_poll.logs) > MANY:
            for log in [log for log in long_poll.moved if log.is_live(now_s)]:
                self._requeue(log)
        if len(long_poll.probes) < len(long_poll.logs):
            for log in list(long_poll.probes):
                self._requeue(log)
        is_small = len(long_poll.logs) + len(live.logs) <= MANY
        for log in [log for log in live.logs.values() if is_small or not log.is_live(now_s)]:
            if live.can_leave(log, now_s) and self._choose_fetcher(log, now_s) is long_poll:
                self._requeue(log)

    def _requeue(self, log: SharedLog) -> None:
        self._leave_fetcher(log)
        self._queues[log.key.source][log] = None

    def _leave_catch_up(self, log: SharedLog, result: FetchResult) -> None:
        """Remove a log from the catch-up fetcher after its response, and queue it if readers need more of it."""
        if result.requested(log.key.partition) is None:
            return
        self._leave_fetcher(log)
        for reader in log.readers:
            self._dirty[reader.owner] = None
        is_awaited = any(reader.is_waiting and reader.number > log.confirmed for reader in log.readers)
        if not log.unread_bytes and (is_awaited or log.is_cut or not log.key.is_probe):
            self._queues[log.key.source][log] = None

    # ------------------------------------------------------------------------------------------- requests

    def _send_request(self, fetcher: Fetcher, now_s: float) -> None:
        if fetcher.is_in_flight:
            return
        if not fetcher.logs:
            self._leave_unused(fetcher, now_s)
            return
        if not (fetcher.waiting or fetcher.is_wanted):
            return
        if not fetcher.is_open:
            self.open(fetcher, now_s)
            return
        if now_s < fetcher.paced_until_s and not any(reader.is_due(now_s) for reader in fetcher.waiting):
            return
        if not fetcher.is_wanted and all(
            reader.is_due(now_s) and reader.is_satisfied_by(fetcher) for reader in fetcher.waiting
        ):
            return  # the clients wait for other fetchers
        self._update(fetcher, now_s)
        if not (fetcher.logs and (fetcher.waiting or fetcher.is_wanted)):
            return
        wait = self._wait_of(fetcher, now_s)
        if wait is None:
            return
        rack = "" if fetcher.id.source.is_rackless else self.key.rack
        max_bytes = min(self._max_bytes, self._config.fetch_buffer_bytes)
        options = FetchOptions(0, 1, max_bytes, self.key.isolation, rack)
        self._commands.append(fetcher.request(self.key.client_id, options, wait, self.number, now_s))
        self._note_late(fetcher)

    def _update(self, fetcher: Fetcher, now_s: float) -> None:
        """Set the offsets of the next request to the ends of the logs; logs not to be filled further leave."""
        for log in list(fetcher.moved):
            is_unread = log.unread_bytes > 0 and not log.is_wanted
            is_old = now_s - log.moved_s > KEPT_S or min(log.unread_bytes, log.log.size_bytes) > _LARGE_BYTES
            if not log.readers or (is_unread and is_old):
                self._leave_fetcher(log)
            elif log.is_cut and _has_others_waiting(fetcher, log):
                self._requeue(log)
                self._place(log, now_s)
            else:
                fetcher.move(log, log.log.end)
        fetcher.moved.clear()

    def _wait_of(self, fetcher: Fetcher, now_s: float) -> FetchWait | None:
        """Return the wait parameters of the next request; None if it must be sent later."""
        config, timeout_s = self._config, self._config.response_timeout_s
        if fetcher.id.kind is FetcherKind.CATCH_UP or fetcher.is_full:
            return FetchWait(0.0, timeout_s=timeout_s)
        readers = fetcher.waiting
        shortest_s = min((reader.remaining_s(now_s) for reader in readers), default=0.0)
        longest_s = config.upstream_max_wait_s
        if fetcher.id.kind is FetcherKind.LIVE:
            longest_s = min(longest_s, _LIVE_WAIT_S) if longest_s else _LIVE_WAIT_S
        elif fetcher.joined and not self.key.is_exclusive:
            longest_s = min(longest_s, _JOINING_S)
        is_awaited = bool(fetcher.without_offsets) and any(len(reader.fetchers) > 1 for reader in readers)
        plain = None if is_awaited else self._plain_wait(fetcher, shortest_s, now_s)
        if plain is not None:
            return plain
        if readers and all(reader.wants_more for reader in readers):
            due_s = min(fetcher.sent_s + _PACE_S, now_s + shortest_s)
            if now_s < due_s:
                fetcher.held_until_s = due_s
                return None
        is_urgent = any(
            fetcher.confirmed < reader.number and (reader.is_due(now_s) or reader.remaining_s(now_s) < PARKED_S)
            for reader in readers
        )
        if is_urgent or is_awaited or fetcher.probes:
            return FetchWait(0.0, timeout_s=timeout_s)
        is_bound = self.is_unparked or self.is_draining
        is_redirect_slow = bool(self.key.rack) and fetcher.is_slow_to_redirect and fetcher.is_changed
        if readers and (fetcher.without_offsets or is_bound or is_redirect_slow):
            longest_s = min(shortest_s, longest_s or shortest_s)
            return FetchWait(longest_s, timeout_s=timeout_s)
        if fetcher.creates_session(now_s):
            return FetchWait(0.0, timeout_s=timeout_s)
        return FetchWait(longest_s, timeout_s=timeout_s)

    def _plain_wait(self, fetcher: Fetcher, shortest_s: float, now_s: float) -> FetchWait | None:
        """Return wait parameters with the min bytes of the only reader; None if there are others, or these are 1.

        The broker then waits for as many bytes as the client would.
        """
        if not self.key.is_exclusive or len(fetcher.waiting) != 1:
            return None
        reader = next(iter(fetcher.waiting))
        if not reader.is_plain(now_s):
            return None
        share = ceil((min(reader.min_bytes, self._config.fetch_buffer_bytes) - reader.ready_bytes) / reader.sources)
        wait_s = 0.0 if reader.is_due(now_s) else shortest_s
        return FetchWait(wait_s, max(share, 1), self._config.response_timeout_s)

    def _pace(self, fetcher: Fetcher, record_bytes: int, now_s: float) -> None:
        """Delay the next request after a small response, if it has 1,000 partitions or more.

        For each request, the broker checks every partition, and a client with full fetches gets all of them.
        Without Sidefetch, the time that the client needs for them spaces its fetches.
        """
        pause_s = _PARTITION_S * len(fetcher.logs)
        if pause_s >= _LEAST_PAUSE_S and 0 < record_bytes < _LARGE_BYTES:
            fetcher.paced_until_s = now_s + pause_s

    def _leave_unused(self, fetcher: Fetcher, now_s: float) -> None:
        if not fetcher.is_open or now_s - fetcher.sent_s <= _UNUSED_S:
            return
        if fetcher.has_session:
            wait = FetchWait(0.0, 0, self._config.response_timeout_s)
            self._commands.append(fetcher.request(None, FetchOptions(0, 0), wait, self.number, now_s))
            self._note_late(fetcher)
        elif fetcher.id.kind is not FetcherKind.LONG_POLL or fetcher.is_follower or fetcher.id.source.is_rackless:
            self._commands.append(CloseFetcher(fetcher.id, "nothing is read there any more", is_fault=False))
            self._commands += fetcher.lost(now_s)

    # ------------------------------------------------------------------------------------------- responses

    def _apply(self, fetcher: Fetcher, result: FetchResult, now_s: float) -> int:
        """Apply a response to the logs; return the bytes of records that were appended."""
        kept_bytes = 0
        gone: set[Topic] = set()
        for topic, replies in result.response.topics:
            for reply in replies:
                key = PartitionKey(topic, reply.partition)
                wanted, log = result.requested(key), fetcher.logs.get(key)
                if wanted is None:
                    continue
                if log is not None:
                    key = log.key.partition  # one object for all tables, since there are many partitions
                is_current = log is not None and log.log.end == wanted.offset and log.key.epoch == wanted.epoch
                if not reply.error:
                    self._learn_offsets(fetcher, log, key, reply, wanted.epoch)
                elif not fetcher.is_follower:
                    self._drop_outdated(key, wanted.epoch, reply.error, log if is_current else None)
                if log is None or not is_current:
                    continue
                log.offsets = self.offsets.shared(key, highest(log.offsets, offsets_of(reply)))
                if not reply.error:
                    self._failed_s.pop(key, None)
                    if log.key.source.is_rackless:
                        self._accepted(log, now_s)
                if reply.error in TOPIC_ERRORS:
                    gone.add(topic)
                if _is_failure(reply):
                    self._fail(fetcher, log, reply, result, now_s)
                elif len(reply.records):
                    kept_bytes += self._append(fetcher, log, reply, result, now_s)
                elif self._end_of(reply) > log.log.end:
                    fetcher.cut[log] = None
        for log in [log for log in self._index if log.key.partition.topic in gone] if gone else ():
            if log.log.size_bytes and log.moved_s < result.sent_s:
                self.void(log)
        return kept_bytes

    def _find_left_out(self, fetcher: Fetcher, response: FetchResponse) -> None:
        """Add to ``fetcher.cut`` the logs that a full response may have left out.

        Brokers leave out a partition without records of which only the last stable offset has moved (KIP-227).
        """
        named = {(topic, reply.partition) for topic, replies in response.topics for reply in replies}
        for key, log in fetcher.logs.items():
            offsets = self.offsets.get(key)
            if offsets is not None and offsets[0] > log.log.end and (key.topic, key.partition) not in named:
                fetcher.cut[log] = None

    def _count_cuts(self, fetcher: Fetcher, *, has_records: bool) -> None:
        """Decide whether readers wait for logs of which a response had no records, though there are some.

        Such a log is cut if the response had other records. The first partition that has records is never cut
        (KIP-74): if there are none at all, these records were compacted, or cannot be read yet. After ten cuts in a
        row it is not waited for, since brokers begin with other partitions each time.
        """
        for log in list(fetcher.cut):
            log.cuts += 1
            log.is_cut = has_records and log.cuts <= _MOST_CUTS
            if not log.is_cut:
                del fetcher.cut[log]
                log.cuts = 0

    def _drop_outdated(self, key: PartitionKey, epoch: int, error: int, requested: SharedLog | None) -> None:
        """Drop the logs with entries of a partition for which its leader sent *error*, except *requested*.

        *requested* is the log of the request: its readers get the error.
        """
        if error != ErrorCode.offset_out_of_range:
            for log in list(self._index.of_partition(key)):
                if log.log.size_bytes and log.key.epoch == epoch and log is not requested:
                    self.void(log)

    def _learn_offsets(
        self, fetcher: Fetcher, log: SharedLog | None, key: PartitionKey, reply: PartitionReply, epoch: int
    ) -> None:
        if log is None and (fetcher.is_follower or not fetcher.by_id):
            # The offsets may be from before an election, or of another topic of this name.
            fetcher.unused_offsets[key] = None
            return
        is_log_known = fetcher.by_id and epoch != UNKNOWN
        may_fall = not (fetcher.is_follower or is_log_known)
        is_new = self.offsets.learn(key, reply, epoch, is_leader=not fetcher.is_follower, may_fall=may_fall)
        if log is not None:
            fetcher.without_offsets.pop(log, None)
        for each in self._index.of_partition(key) if is_new else ():
            each.log.trim(reply.log_start_offset)
            for reader in each.readers:
                reader.changed[key] = None

    def _append(
        self, fetcher: Fetcher, log: SharedLog, reply: PartitionReply, result: FetchResult, now_s: float
    ) -> int:
        records = memoryview(reply.records)
        try:
            is_appended = log.log.append(log.log.end, records, reply.aborted or (), now_s=now_s)
        except (BadRecords, ValueError):
            is_appended = False
        if not is_appended:
            # Records that cannot be split go unchanged to the readers at this offset.
            self._fail(fetcher, log, reply, result, now_s)
            return len(records)
        if fetcher.is_follower:
            for routes in self._routes.values():
                routes.end_back_off(log.key.partition)
        log.moved(len(records), now_s)
        fetcher.cut.pop(log, None)
        log.cuts = 0
        log.is_cut = self._end_of(reply) > log.log.end and 2 * len(records) >= log.max_bytes
        self._index.filled(log)
        fetcher.moved[log] = None
        for reader in log.readers:
            reader.log_moved(log)
            if reader.is_waiting:
                self._dirty[reader.owner] = None
        for low in self._index.overtaken(log):
            self._queues[low.key.source].pop(low, None)
            self._leave_fetcher(low)
            for reader in low.readers:
                reader.log_reached(low)
                self._dirty[reader.owner] = None
        return len(records)

    def _end_of(self, reply: PartitionReply) -> int:
        """Return the end of the readable records: the last stable offset or the high watermark."""
        return reply.last_stable_offset if self.key.isolation else reply.high_watermark

    def _fail(
        self, fetcher: Fetcher, log: SharedLog, reply: PartitionReply, result: FetchResult, now_s: float
    ) -> None:
        """Handle a response for *log* other than records: redirect, refresh metadata, or pass it to the readers.

        The log is dropped; if it has undelivered entries and no reader at its end, only its fetcher is left.
        """
        key = log.key.partition
        is_routed = reply.preferred_read_replica != UNKNOWN and not self.key.is_redirected
        readers = [reader for reader in log.readers if reader.reads_end_of(log)]
        if fetcher.is_follower and reply.error == ErrorCode.offset_out_of_range:
            for reader in readers:
                reader.at_leader[key] = None
        elif fetcher.is_follower and not len(reply.records):
            for routes in self._routes.values():
                routes.avoid_followers(key, now_s)
            if reply.error in STALE_TOPOLOGY:
                self._refresh_metadata(key)
        elif is_routed and not reply.error:
            for routes in self._routes_of(log.readers):
                if not routes.prefer(key, reply.preferred_read_replica, self.topology, now_s):
                    self._refresh_metadata(key)
        else:
            if reply.error:
                self._failed_s[key] = now_s + _FAILED_S
            for reader in readers:
                reader.owner.log_failed(log, reply, result)
        if readers or reply.error or not log.readers:
            self.void(log)
        else:
            self._leave_fetcher(log)  # its entries are delivered first

    def _refresh_metadata(self, key: PartitionKey) -> None:
        info = self.topology.topic(key.topic)
        topic = key.topic if info is None or info.name is None else info.name
        self._stale[topic] = None

    def _accepted(self, log: SharedLog, now_s: float) -> None:
        """Avoid a follower for a while that refused an offset which the leader now accepts."""
        key = log.key.partition
        for reader in log.readers:
            if key in reader.at_leader:
                del reader.at_leader[key]
                self.routes(reader.node_id).avoid_followers(key, now_s)

    def _routes_of(self, readers: Iterable["Positions"]) -> Iterator[Routes]:
        return (self._routes[node_id] for node_id in dict.fromkeys(reader.node_id for reader in readers))


def _has_others_waiting(fetcher: Fetcher, log: SharedLog) -> bool:
    """Return whether client fetches wait for the fetcher that do not read *log*."""
    return any(reader not in log.readers for reader in fetcher.waiting)


def _is_free_soon(fetcher: Fetcher, now_s: float) -> bool:
    """Return whether the fetcher has a request in flight that waits for at most another 0.1 s at the broker."""
    return fetcher.is_in_flight and not fetcher.waits_longer_than(now_s + _LIVE_WAIT_S, 2**31)


def _is_failure(reply: PartitionReply) -> bool:
    """Return whether a reply has an error, a preferred replica or a diverging epoch."""
    is_redirect = reply.preferred_read_replica != UNKNOWN
    return bool(reply.error or is_redirect or reply.diverging_epoch is not None)
