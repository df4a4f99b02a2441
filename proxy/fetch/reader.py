"""The state machine that answers the fetches of one client connection from the cached logs of a log cache.

The client takes the broker that it is connected to for the leader of its partitions. Each partition is read from
the log of its *source*: that leader, or a closer replica (see ``cluster.routing``). A client fetch passes through
the phases of ``phases``; ``LOG_CACHE.md`` has the table of their transitions.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

from proxy.cluster.topology import BrokerId, Topology
from proxy.errors import ErrorCode
from proxy.events import Cause, StalledFetchRecord
from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.commands import Answered, EmitRecord, ReaderCommand, RefreshMetadata, RunInThread, Worker
from proxy.fetch.converting import are_small, begin_all
from proxy.fetch.delivery import Delivery, Update
from proxy.fetch.exchange import EncodedErrors, Exchange, FetchParams, check_request
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.fetch_recorder import FetchRecorder
from proxy.fetch.fetch_state import Change
from proxy.fetch.fetcher import Fetcher, FetchResult
from proxy.fetch.phases import (
    Answering,
    Collecting,
    Connecting,
    Converting,
    Delayed,
    Finding,
    Pausing,
    Phase,
    Resolving,
    Updating,
)
from proxy.fetch.positions import Deliverable, Positions
from proxy.fetch.shared_log import KEPT_S, SharedLog
from proxy.fetch_rules import NO_RULES, FetchRules
from proxy.wire.addresses import AddressMap
from proxy.wire.fetch import FetchRequest, PartitionKey, PartitionReply
from proxy.wire.frames import QUICK_BYTES, Piece, Pieces

__all__ = ["Caches", "Reader"]

_LIMITED_VERSION: Final = 3
"""The first Fetch version with a limit for the response; entries are cut at the limit of a partition before."""
_CLIENT_THROTTLES_VERSION: Final = 8
_RESOLVE_S: Final = 5.0
"""How long a fetch waits for the topology; below the request timeouts of all clients."""
_GONE_S: Final = 0.25
"""The least time until a client whose broker is unavailable gets its error, so that it does not ask in a loop."""
_DRAINING_WAIT_S: Final = 0.1
"""How long a fetch may wait while draining: not the client's wait, nor so short that it asks in a tight loop."""
_ATTEMPTS: Final = 4
"""The number of lost connections after which a client fetch is answered with an error."""
_REFRESHES: Final = 3
"""The most metadata refreshes of one client fetch because of an id or an epoch that the client did not send."""
_READ_BYTES: Final = 1300
"""The memory of a partition that is read: in the tables of the client, of its log cache and of its fetchers."""
_UNREADABLE_BYTES: Final = 300
"""The memory of a partition that is answered with an error of Sidefetch."""
_FOUND_AT_ONCE: Final = 1000
"""The number of partitions whose logs are found before other clients are served."""
_PLAIN_S: Final = 30.0
"""How long brokers wait for a client's min bytes themselves after there was less than it wanted."""


class Caches(Protocol):
    """The log caches of a process, by sharing key, for one client connection: ``ClientCaches`` of ``net``."""

    def join(self, key: CacheKey, reader: "Reader", client_id: str | None) -> LogCache:
        """Add *reader* to the members of the log cache of *key*, which is created if needed; return the cache.

        *client_id*: the client id of the client.
        """

    def part(self, cache: LogCache, reader: "Reader") -> None:
        """Remove *reader* from the members of *cache*."""


class Reader:
    """The state machine that answers the fetches of one client connection.

    Use: pass events to the methods, carry out the commands that they return, and then call ``settle`` of ``cache``.
    ``deadline_s`` is the time at which ``Reader.settle`` is needed without an event.
    """

    def __init__(self, node_id: BrokerId, map_address: AddressMap, config: FetchConfig, caches: Caches) -> None:
        """Create a reader without a fetch.

        Args: node_id: the broker whose listener the client uses, and which it takes for the leader.
              map_address: the address of Sidefetch for a broker's endpoint.
              caches: the log caches of the process.
        """
        self.node_id = node_id
        self._map_address = map_address
        self._config = config
        self._caches = caches
        self._cache_key: CacheKey | None = None
        self._at: Positions | None = None
        self._delivery = Delivery(node_id, config)
        self._exchange: Exchange | None = None
        self._phase: Phase = Connecting()
        self._topology = Topology()
        self._is_draining = False
        self._rested_s = float("-inf")
        """The time of the last ``rest``."""
        self._reported_throttle_s = 0.0
        """The end of the last throttling that a response has reported to the client."""
        self._pending: list[ReaderCommand] = []
        """Commands that events of logs have caused, for the next call of a public method to return."""
        self._topology_needed = False
        """Whether a broker refused a topic id or an epoch that Sidefetch added, so that metadata is outdated."""
        self._stale_s = float("-inf")
        """The time at which records that wait for the client's min bytes are read again."""
        self._now_s = float("-inf")
        """The time of the last event."""

    # ------------------------------------------------------------------------------------------- events

    def fetch(
        self,
        request: FetchRequest,
        topology: Topology,
        now_s: float,
        *,
        request_bytes: int = 0,
        share_reads_except: FetchRules = NO_RULES,
    ) -> list[ReaderCommand]:
        """Take the client's next fetch, after the last one was answered; return the first commands.

        Args: request_bytes: the size of the request frame, for telemetry.
              share_reads_except: the rules that select fetches which are answered from a log cache of the reader's
                  own, even if clients share.
        Raises: ClientProtocolError: the fetch is a follower's, or its session epoch is impossible.
                LimitReached: the client's session has too many partitions.
        """
        check_request(request)
        context = self._config.sessions.open(self._config.policy.read_as(request), self.node_id, now_s)
        longest_s = _DRAINING_WAIT_S if self._is_draining else float("inf")
        rack = request.options.rack_id or self._config.sent_rack
        recorder = FetchRecorder(request, request_bytes, now_s) if self._config.records_exchanges else None
        exchange = Exchange(context.request, now_s, longest_s, rack, context=context, recorder=recorder)
        self._exchange = exchange
        if not context.request.sections:
            return self._answered(exchange.empty(), now_s)
        self._phase = Connecting()
        names = topology.known_names(section.topic for section in context.request.sections)
        is_excepted = bool(share_reads_except) and share_reads_except.matches(exchange.params.client_id, names)
        at = self._join(exchange, now_s, is_excepted=is_excepted)
        at.cache.update_topology(topology)
        at.number = at.cache.begin(request.options.max_bytes)
        at.deadline_s, at.min_bytes = exchange.deadline_s, exchange.params.min_bytes
        at.ready_bytes, at.has_enough = 0, False
        return self._moved(self._begin(exchange, now_s), now_s)

    def topology_updated(self, topology: Topology, now_s: float) -> list[ReaderCommand]:
        """Take a topology that was refreshed, or is recent enough: the end of a ``RefreshMetadata`` command."""
        if self._at is not None:
            self._at.cache.update_topology(topology)
        return self._moved(self._resolved(now_s), now_s)

    def thread_finished(self, result: object, now_s: float) -> list[ReaderCommand]:
        """Continue the client fetch after its ``RunInThread`` command has ended.

        It is answered once its response is encoded, and after a conversion. If the client can see none of the
        records, Sidefetch reads on behind them, unless the max wait is over and no other records are ready.

        *result*: the return value of the function that ran in the thread.
        """
        if isinstance(self._phase, Updating):
            assert isinstance(result, Change)
            return self._moved(self._updated(result, self._phase.resolving, now_s), now_s)
        if isinstance(result, EncodedErrors):
            assert isinstance(self._phase, Answering)
            assert self._phase.until_s is not None
            assert self._exchange is not None
            self._phase = Delayed(self._phase.until_s, self._exchange.unreadable(result))
            return self._moved((), now_s)
        if isinstance(self._phase, Answering):
            assert result is None or isinstance(result, list)
            return self._moved(self._encoded(result, now_s), now_s)
        return self._moved(self._converted(now_s), now_s)

    def settle(self, now_s: float) -> list[ReaderCommand]:
        """Continue the open client fetch after ``deadline_s`` has passed or logs have changed."""
        return self._moved((), now_s)

    def drain(self, now_s: float) -> list[ReaderCommand]:
        """End the wait of the open client fetch within 0.1 s, and of later ones after 0.1 s at most.

        Sidefetch shuts down. Connecting, metadata, throttling, conversion or an outstanding response of a broker
        may delay the answer further.
        """
        self._is_draining = True
        if self._at is not None:
            self._at.cache.drain()
        return self.end_wait(now_s)

    def end_wait(self, now_s: float) -> list[ReaderCommand]:
        """End the wait of the open client fetch within 0.1 s; the reservations of ``drain`` hold."""
        exchange, at = self._exchange, self._at
        if exchange is not None and at is not None:
            is_parked = bool(at.fetchers) and all(fetcher.is_parked for fetcher in at.fetchers)
            exchange.longest_s = now_s - exchange.started_s + (0.0 if is_parked else _DRAINING_WAIT_S)
            at.deadline_s = exchange.deadline_s
        return self._moved((), now_s)

    def look_again(self, now_s: float) -> list[ReaderCommand]:
        """Drop the logs with undelivered records, for all readers, so that the records are read again.

        The client requests metadata, so a partition may have a new leader.
        """
        if self._at is not None:
            self._at.void_ready()
        return self._moved((), now_s)

    def rest(self, now_s: float) -> None:
        """Free the memory of the client's partitions, which its next fetch names again; between two fetches only.

        The next fetch costs as much as the first one of a connection.
        """
        assert self._exchange is None
        if self._at is not None:
            self._rested_s = now_s
            self.leave(now_s)
        self._delivery.rest()

    def leave(self, now_s: float) -> None:
        """Leave the log cache and drop the open client fetch, if any.

        The client has disconnected, or its fetches are forwarded to the broker from now on.
        """
        at, self._at, self._exchange, self._cache_key = self._at, None, None, None
        if at is not None:
            at.leave(now_s)
            self._caches.part(at.cache, self)

    # ------------------------------------------------------------------------------------------- its state

    @property
    def deadline_s(self) -> float | None:
        """The time at which ``settle`` is needed without an event; None for never."""
        exchange, at = self._exchange, self._at
        if exchange is None or at is None:
            return None
        if isinstance(self._phase, Finding):
            return self._now_s
        times = [self._stalled_s]
        match self._phase:
            case Resolving(until_s) | Pausing(until_s) | Delayed(until_s):
                times.append(until_s)
            case Collecting():
                times += (exchange.deadline_s, self._stale_s)
                if at.is_due(self._now_s):
                    times += at.parked_times_s()
            case _:
                pass
        return min((time_s for time_s in times if self._now_s < time_s < float("inf")), default=None)

    @property
    def cache(self) -> LogCache | None:
        """The log cache that the reader is a member of; None if it is in none.

        It joins one with the first fetch that has partitions, and is in none after ``leave``.
        """
        return None if self._at is None else self._at.cache

    @property
    def version(self) -> int:
        """The Fetch version of requests to the client's broker, or of the last ones after a disconnect.

        It is 0 before the first connection to it in the present log cache, and without a log cache.
        """
        return 0 if self._at is None else self._at.cache.leader(self.node_id).version

    @property
    def is_answering(self) -> bool:
        """Whether a client fetch waits for its response."""
        return self._exchange is not None

    @property
    def is_preparing(self) -> bool:
        """Whether a client fetch waits for its response, and not only for long polls."""
        return self._exchange is not None and self._cause(self._exchange) != "poll"

    @property
    def state_bytes(self) -> int:
        """An estimate of the memory of the client's partitions, which ``rest`` frees."""
        state = self._delivery.state
        return _READ_BYTES * len(state.requested) + _UNREADABLE_BYTES * len(state.unreadable_errors)

    def depends_on(self, fetcher: Fetcher) -> bool:
        """Return whether the loss of *fetcher*'s connection concerns the open client fetch.

        It does if the client fetch waits for the first connection, or waits for logs and reads one on *fetcher*,
        whether or not a request is in flight.
        """
        at = self._at
        is_read = at is not None and at.is_waiting and fetcher in at.fetchers
        return is_read or self.is_connecting_to(fetcher)

    def is_connecting_to(self, fetcher: Fetcher) -> bool:
        """Return whether the open client fetch waits for the first connection of *fetcher*."""
        is_connecting = self._exchange is not None and isinstance(self._phase, Connecting)
        return is_connecting and self._at is not None and self._at.cache.leader(self.node_id) is fetcher

    def unserved(self) -> list[PartitionKey]:
        """Return the partitions of the open client fetch that no event will answer: a bug if there are any (L1)."""
        if self._exchange is None or self._at is None or not isinstance(self._phase, Collecting):
            return []
        return self._at.unserved(self._delivery.answered(self._exchange), self._now_s)

    @property
    def _stalled_s(self) -> float:
        """The time at which the open client fetch gets an error: its wait and the response timeout are over."""
        exchange, at = self._exchange, self._at
        if exchange is None or at is None or not isinstance(self._phase, Connecting | Collecting):
            return float("inf")
        if any(fetcher.is_answering for fetcher in at.fetchers):
            return float("inf")
        muted_s = (each.heard_s for each in at.fetchers if each.is_in_flight and each.heard_s > each.sent_s)
        followers = (each for each in at.fetchers if each.is_follower and not each.is_parked)
        left_s = (each.late_s for each in followers if each.late_s is not None)
        since_s = max(exchange.deadline_s, exchange.watchdog_s, *muted_s, *left_s)
        return since_s + self._config.response_timeout_s

    # ------------------------------------------------------------------------------------------- events of logs

    def restart_watchdog(self, now_s: float) -> None:
        """Let the watchdog count from *now_s* at the earliest; before the end of the max wait, from that.

        A large response was received, or another broker is asked. No effect without an open client fetch.
        """
        if self._exchange is not None:
            self._exchange.watchdog_s = now_s

    def log_failed(self, log: SharedLog, reply: PartitionReply, result: FetchResult) -> None:
        """Handle a broker's response for the client's offset in *log* without usable records.

        It is an error, damaged records, a diverging epoch, or a redirect for a client that follows redirects
        itself. The client's response gets it, as ``Delivery.failed`` adapts it. But the partition is read again if
        the broker answers OFFSET_OUT_OF_RANGE to an offset that Sidefetch changed or to a truncation check, or if
        the check finds nothing missing. If the broker refuses a topic id or an epoch that Sidefetch added, the
        whole fetch begins again with new metadata, at most three times. No effect unless a client fetch waits for
        logs.

        *reply*: the partition's part of *result*.
        """
        if self._exchange is None or not isinstance(self._phase, Collecting):
            return
        assert self._at is not None
        exchange = self._exchange
        exchange.endpoints |= {each.node_id: each for each in result.response.endpoints}
        self._topology_needed |= self._delivery.failed(exchange, log, reply, self._at.cache.topology, self._pending)

    def truncation_checked(self, log: SharedLog) -> None:
        """End the truncation check of a partition: its leader has found no truncation.

        The partition becomes loose, so that a log without the check is found. No effect if Sidefetch added no
        check, as if the client itself sent the last fetched epoch.
        """
        if self._at is None or isinstance(self._phase, Updating):  # the thread uses the state; a later check ends
            return
        if self._delivery.truncation_checked(log.key.partition):
            self._at.log_void(log)

    def throttled(self, now_s: float) -> None:
        """Handle a throttled response without partitions: pause the client fetch, or answer it from Fetch v8 on.

        The pause lasts until the end of the throttling. The answer is empty, with the throttle time.
        """
        exchange, at = self._exchange, self._at
        if exchange is None or at is None or not isinstance(self._phase, Collecting):
            return
        until_s = at.throttled_until_s(now_s)
        at.stop()
        if exchange.version >= _CLIENT_THROTTLES_VERSION:
            # Clients that know throttling take a response without partitions.
            exchange.throttle_ms = max(round((until_s - now_s) * 1000), 1)
            self._reported_throttle_s = until_s
            self._phase = Delayed(now_s, exchange.empty())
        else:
            exchange.paused_ms += round((until_s - now_s) * 1000)
            self._phase = Pausing(until_s)

    def refused(self, error: int, now_s: float) -> None:
        """Answer the open client fetch with *error*, the top-level error of the leader's response.

        See ``Exchange.refusal``. No effect unless the fetch waits for logs.
        """
        exchange, at = self._exchange, self._at
        if exchange is not None and at is not None and isinstance(self._phase, Collecting):
            at.stop()
            self._phase = Delayed(now_s, self._throttled(exchange, now_s).refusal(error))

    def source_lost(self, *, gives_up: bool, now_s: float) -> None:
        """Try again after a connection to a leader was lost or not opened, or a broker's responses were unusable.

        If the client fetch waits for its first connection, the command to open it is repeated. If it waits for
        logs, those of the connection were dropped, and it finds new ones. In other phases nothing is done. If
        *gives_up*, or at the fourth such event of a client fetch, the client gets a retriable error for each
        partition instead, and the metadata is refreshed.
        """
        exchange, at = self._exchange, self._at
        if exchange is None or at is None or not isinstance(self._phase, Connecting | Collecting):
            return
        exchange.attempts += 1
        if gives_up or exchange.attempts >= _ATTEMPTS:
            self._give_up(exchange, now_s)
        elif isinstance(self._phase, Connecting):
            at.cache.open(at.cache.leader(self.node_id), now_s)

    # ------------------------------------------------------------------------------- from phase to phase

    def _moved(self, commands: Iterator[ReaderCommand] | tuple[()], now_s: float) -> list[ReaderCommand]:
        """Return *commands*, and those of the steps that are possible after them."""
        self._now_s = now_s
        done = [*commands, *self._advance(now_s)]
        if self._exchange is not None and self._exchange.recorder is not None:
            self._exchange.recorder.waits_for(self._cause(self._exchange), now_s)
        return done

    def _cause(self, exchange: Exchange) -> Cause:
        """Return the reason why *exchange* waits."""
        match self._phase:
            case Pausing():
                return "throttle"
            case Delayed():
                return "throttle" if exchange.throttle_ms else "broker"
            case Converting():
                return "convert"
            case Collecting() if self._at is not None and all(each.is_parked for each in self._at.fetchers):
                return "poll"
            case _:
                return "broker"

    def _advance(self, now_s: float) -> Iterator[ReaderCommand]:
        """Carry out all steps of the open client fetch that are possible now."""
        exchange, at = self._exchange, self._at
        if exchange is None or at is None:
            return
        pending, self._pending = self._pending, []
        yield from pending
        if self._delivery.stale:
            yield RefreshMetadata(frozenset(self._delivery.stale))
            self._delivery.stale.clear()
        if now_s >= self._stalled_s:
            yield from self._answer_stalled(exchange, at, now_s)
        match self._phase:
            case Connecting() if at.cache.leader(self.node_id).version:
                yield from self._begin(exchange, now_s)
            case Resolving(until_s) | Pausing(until_s) if now_s >= until_s:
                exchange.watchdog_s = now_s
                self._collect(exchange, at)
            case _:
                pass
        if isinstance(self._phase, Finding):
            self._find_next(exchange, at, now_s)
        if self._topology_needed:
            yield from self._need_topology(exchange, at, now_s)
        yield from self._settle(exchange, at, now_s)
        match self._phase:
            case Delayed(until_s, pieces) if self._exchange is not None and now_s >= until_s:
                yield from self._answered(pieces, now_s)
            case _:
                pass

    def _join(self, exchange: Exchange, now_s: float, *, is_excepted: bool) -> Positions:
        """Return the logs that the client reads, in the log cache of its sharing key; join that if needed.

        *is_excepted*: whether the client does not share, although ``share-reads`` is on.
        """
        options, params = exchange.request.options, exchange.params
        is_redirected = bool(options.rack_id)
        owner, client_id = self._config.sharing(self, params.client_id, is_excepted=is_excepted)
        node_id = self.node_id if exchange.rack else None
        isolation, rack = options.isolation, exchange.rack
        key = CacheKey(owner, client_id, isolation, rack, is_redirected, owner is self, node_id)
        if self._at is None or key != self._cache_key or self._at.is_probe != params.is_instant:
            self._at = self._move_to(key, params, now_s)
        return self._at

    def _move_to(self, key: CacheKey, params: FetchParams, now_s: float) -> Positions:
        """Leave the log cache, if any, and join that of *key*; return the logs that the client reads there."""
        before = self._at
        cache = self._caches.join(key, self, params.client_id)
        # Records of the last cache may be newer than those of this one: no offset may fall for the client.
        since_s = float("inf") if params.is_instant else self._rested_s if before is None else now_s
        if before is not None:
            before.leave(now_s)
            if before.cache is not cache:
                self._caches.part(before.cache, self)
        self._cache_key = key
        at = Positions(self, cache, params.is_instant, since_s)
        at.loose.update(dict.fromkeys(self._delivery.state.requested))
        if self._is_draining:
            cache.drain()
        return at

    def _begin(self, exchange: Exchange, now_s: float) -> Iterator[ReaderCommand]:
        at = self._at
        assert at is not None
        leader = at.cache.leader(self.node_id)
        if not leader.version:
            at.cache.open(leader, now_s)
            return
        yield from self._update(exchange, at, None, now_s)

    def _update(
        self, exchange: Exchange, at: Positions, resolving: Resolving | None, now_s: float
    ) -> Iterator[ReaderCommand]:
        """Adapt the client's partitions to its fetch and to the topology, in a thread if they are many; then go on.

        *resolving*: the present phase if it is ``Resolving``, else None.
        """
        update = self._prepare_update(exchange, at)
        if update.is_quick:
            yield from self._updated(update.run(), resolving, now_s)
        else:
            self._phase = Updating(resolving)
            yield RunInThread(Worker.READER, update.run)

    def _prepare_update(self, exchange: Exchange, at: Positions) -> Update:
        self._topology = at.cache.topology
        by_id = at.cache.leader(self.node_id).by_id
        return self._delivery.prepare_update(exchange.request, self._topology, at, by_id=by_id)

    def _updated(self, change: Change, resolving: Resolving | None, now_s: float) -> Iterator[ReaderCommand]:
        """Request metadata of topics that are not known, or wait further for it; otherwise find the logs."""
        exchange, at = self._exchange, self._at
        assert exchange is not None
        assert at is not None
        self._adopt(change, at, now_s)
        unknown = self._delivery.state.unknown
        if resolving is None and unknown:
            self._phase = Resolving(now_s + _RESOLVE_S)
            yield RefreshMetadata(frozenset(unknown))
        elif resolving is not None and any(self._topology.topic(topic) is None for topic in unknown):
            self._phase = resolving
            if at.cache.topology is not self._topology:  # it has come while the thread ran
                yield from self._resolved(now_s)
        else:
            if resolving is not None:
                exchange.watchdog_s = now_s
            self._collect(exchange, at)

    def _adopt(self, change: Change, at: Positions, now_s: float) -> None:
        """Have the logs of changed partitions found again, and drop those that the client requests no more."""
        self._delivery.finish_update(change, at)
        for key in change.recreated:
            # By name, the offsets that are known may be those of either topic; the leader knows.
            at.cache.routes(self.node_id).avoid_followers(key, now_s)
            at.void(key)
        requested = self._delivery.state.requested
        for key in change.touched:
            at.at_leader.pop(key, None)
            if key in requested:
                at.loose[key] = None
            else:
                at.drop(key, now_s)
                at.cache.forget(self.node_id, key)

    def _resolved(self, now_s: float) -> Iterator[ReaderCommand]:
        exchange, at = self._exchange, self._at
        if exchange is not None and at is not None and isinstance(self._phase, Resolving):
            yield from self._update(exchange, at, self._phase, now_s)

    def _collect(self, exchange: Exchange, at: Positions) -> None:
        """Begin to find the logs of all partitions, with an empty response."""
        self._phase = Finding()
        self._delivery.begin(exchange)
        if at.is_probe:
            at.reread_ready()

    def _find_next(self, exchange: Exchange, at: Positions, now_s: float) -> None:
        """Find the logs of some loose partitions; begin to wait for logs if these were the last ones."""
        if not self._find(exchange, at, now_s):
            return
        self._phase = Collecting()
        at.cache.requeue_long_waits(at)
        at.wait()
        if exchange.recorder is not None:
            exchange.recorder.is_asked = True

    def _find(self, exchange: Exchange, at: Positions, now_s: float) -> bool:
        """Find the logs of loose partitions, except for those that the response has already.

        At most 1,000 are found. Return whether these were all.
        """
        answered = self._delivery.answered(exchange)
        keys = list(islice((key for key in at.loose if key not in answered), _FOUND_AT_ONCE + 1))
        for key in keys[:_FOUND_AT_ONCE]:
            log_key, wanted = self._delivery.log_key(key, exchange.rack, at, now_s)
            at.find(key, log_key, wanted, now_s)
        return len(keys) <= _FOUND_AT_ONCE

    def _need_topology(self, exchange: Exchange, at: Positions, now_s: float) -> Iterator[ReaderCommand]:
        """Wait for new metadata and ask again: a broker refused a topic id or an epoch that Sidefetch added."""
        self._topology_needed = False
        if exchange.refreshes >= _REFRESHES or not isinstance(self._phase, Collecting):
            return
        exchange.refreshes += 1
        at.stop()
        self._phase = Resolving(now_s + _RESOLVE_S)
        if at.cache.topology is not self._topology:
            yield from self._resolved(now_s)

    def _settle(self, exchange: Exchange, at: Positions, now_s: float) -> Iterator[ReaderCommand]:
        """Answer the client fetch if it is due and each partition is ready, failed, confirmed or parked."""
        if not isinstance(self._phase, Collecting):
            return
        deliverable = self._deliverable(exchange, at)
        if at.loose:
            if at.cache.topology is not self._topology:
                self._adopt(self._prepare_update(exchange, at).run(), at, now_s)
                self._delivery.add_unreadable(exchange)
            if not self._find(exchange, at, now_s):
                at.stop()
                self._phase = Finding()
                return
            deliverable = self._deliverable(exchange, at)
        has_records = bool(deliverable.slices)
        at.has_enough = (
            bool(exchange.updates) or deliverable.counted_bytes >= at.min_bytes or not deliverable.is_all
        )
        at.has_enough = at.has_enough or (at.waits_upstream(now_s) and at.is_confirmed)
        if not at.is_due(now_s):
            if has_records:
                self._wait_for_more(at, deliverable, now_s)
            return
        answered = self._delivery.answered(exchange)
        has_updates = has_records or bool(exchange.updates)
        if not at.is_sure(now_s, answered, has_records=has_updates):
            return
        if self._delivery.lacks_offsets(at, answered):
            at.cache.request_offsets_now(at, now_s)
        else:
            yield from self._finish(exchange, at, deliverable, now_s)

    def _wait_for_more(self, at: Positions, deliverable: Deliverable, now_s: float) -> None:
        """Have brokers wait for the client's min bytes; read records again that have waited for over 1 s.

        Otherwise the client could get records that were deleted while they waited.
        """
        at.want_more(deliverable)
        at.plain_until_s = now_s + _PLAIN_S
        self._stale_s = KEPT_S + min(each.arrived_s for _, each in deliverable.slices)
        if now_s >= self._stale_s:
            at.void_ready()

    def _deliverable(self, exchange: Exchange, at: Positions) -> Deliverable:
        is_cut = exchange.version < _LIMITED_VERSION
        return at.deliverable(
            self._delivery.state.requested.__getitem__, exchange.request.options.max_bytes, is_cut=is_cut
        )

    def _finish(
        self, exchange: Exchange, at: Positions, deliverable: Deliverable, now_s: float
    ) -> Iterator[ReaderCommand]:
        jobs = self._delivery.hand_out(exchange, at, deliverable)
        if not jobs:
            yield from self._answer(exchange, at, now_s)
            return
        at.stop()
        self._phase = Converting(jobs)
        max_bytes, is_cut = exchange.request.options.max_bytes, exchange.version < _LIMITED_VERSION
        work = partial(begin_all, jobs, max_bytes, self._config.cpu_s, is_cut=is_cut)
        if are_small([job.conversion for job in jobs if job.conversion is not None]):
            work()
            yield from self._converted(now_s)
        else:
            yield RunInThread(Worker.READER, work)

    def _converted(self, now_s: float) -> Iterator[ReaderCommand]:
        exchange, at = self._exchange, self._at
        assert exchange is not None
        assert at is not None
        assert isinstance(self._phase, Converting)
        was_skipped, records = self._delivery.converted(exchange, at, self._phase.jobs)
        yield from map(EmitRecord, records)
        is_over = at.is_over(now_s) and not at.ready
        if exchange.has_records or not was_skipped or is_over:
            yield from self._answer(exchange, at, now_s)
        else:
            # All records were markers of transactions and the like: read on behind them.
            self._phase = Finding()
            exchange.watchdog_s = now_s
            has_found_all = self._find(exchange, at, now_s)
            if not at.ready:
                # No request for the offset behind them was sent yet.
                at.number = at.cache.begin(exchange.request.options.max_bytes)
            if has_found_all:
                self._phase = Collecting()
                at.wait()
            yield from self._settle(exchange, at, now_s)

    def _answer(self, exchange: Exchange, at: Positions, now_s: float) -> Iterator[ReaderCommand]:
        encoding = self._delivery.encode(exchange, at)
        at.stop()
        if encoding.is_quick:
            yield from self._encoded(encoding.run(), now_s)
        else:
            self._phase = Answering()
            yield RunInThread(Worker.READER, encoding.run)

    def _encoded(self, spliced: list[Piece] | None, now_s: float) -> Iterator[ReaderCommand]:
        """Answer the client fetch with *spliced*, the result of ``Context.splice``."""
        exchange, at = self._exchange, self._at
        assert exchange is not None
        assert at is not None
        is_quiet = not exchange.updates
        pieces = self._throttled(exchange, now_s).answer(self._delivery.template, self._map_address, spliced)
        if exchange.throttle_ms and exchange.version < _CLIENT_THROTTLES_VERSION:
            self._phase = Delayed(now_s + exchange.throttle_ms / 1000, pieces)
            return
        fetches_on = self._config.reads_ahead or (is_quiet and not exchange.params.is_instant)
        is_bound = at.is_plain(now_s) or self._is_draining or not self._config.upstream_max_wait_s
        if fetches_on and not is_bound:
            # The client does not wait now, so Sidefetch does: the next poll is answered without a request.
            for fetcher in at.fetchers:
                fetcher.is_wanted = fetcher.is_wanted or not fetcher.is_in_flight
        yield from self._answered(pieces, now_s)

    def _answered(self, pieces: Pieces, now_s: float) -> list[ReaderCommand]:
        assert self._exchange is not None
        exchange, self._exchange = self._exchange, None
        self._phase = Connecting()  # the last phase may hold records and their frames
        record = None
        if exchange.recorder is not None:
            shares = self._at.shares if self._at is not None else {}
            name_of = self._topology.name_of
            is_shared = self._at is not None and not self._at.cache.key.is_exclusive
            record = exchange.recorder.record(
                exchange.request, self.node_id, shares, name_of, now_s, is_shared=is_shared
            )
        return [*map(EmitRecord, self._config.sessions.take_records()), Answered(pieces, exchange.request, record)]

    def _give_up(self, exchange: Exchange, now_s: float) -> None:
        """Prepare a response with a retriable error for each partition, and have metadata refreshed."""
        if self._at is not None:
            self._at.stop()
        self._pending.append(RefreshMetadata(frozenset(section.topic for section in exchange.request.sections)))
        until_s = max(now_s, exchange.started_s + _GONE_S)
        encode = partial(exchange.encode_errors, ErrorCode.not_leader_or_follower)
        if sum(len(section.entries) for section in exchange.request.sections) <= QUICK_BYTES:
            self._phase = Delayed(until_s, exchange.unreadable(encode()))
        else:
            self._phase = Answering(until_s)
            self._pending.append(RunInThread(Worker.READER, encode))

    def _answer_stalled(self, exchange: Exchange, at: Positions, now_s: float) -> Iterator[ReaderCommand]:
        """Answer a fetch that outlived its wait with a retriable error, and replace its upstream connections."""
        yield EmitRecord(
            StalledFetchRecord(
                self.node_id,
                exchange.params.client_id,
                type(self._phase).__name__.lower(),
                now_s - exchange.started_s,
                len(self._delivery.state.requested),
                len(self.unserved()),
                len(at.ready),
                at.cache.describe(now_s),
            )
        )
        at.cache.start_over(at, now_s)
        self._give_up(exchange, now_s)
        pending, self._pending = self._pending, []
        yield from pending

    def _throttled(self, exchange: Exchange, now_s: float) -> Exchange:
        """Set the throttle time of the response, if the client does not know it yet; return *exchange*."""
        at = self._at
        until_s = 0.0 if at is None else at.throttled_until_s(now_s)
        if until_s > self._reported_throttle_s:
            exchange.throttle_ms = round(max(until_s - now_s, 0.0) * 1000)
            self._reported_throttle_s = until_s
        return exchange
