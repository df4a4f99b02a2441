"""The log caches of the process, each with its own connections to brokers."""

import random
import traceback
from collections.abc import Callable
from typing import Final, Protocol

import trio

from proxy.cluster.topology import Topology
from proxy.errors import BrokerUnavailable
from proxy.events import Record
from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.commands import (
    CacheCommand,
    CloseFetcher,
    CloseSession,
    EmitRecord,
    FetcherId,
    OpenFetcher,
    RefreshMetadata,
    SendFetch,
    Wake,
)
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.reader import Reader
from proxy.net.io.logs import Log
from proxy.net.upstream.access import Access
from proxy.net.upstream.connections import CLOSE_SESSION_S, ConnectOptions, UpstreamConnections
from proxy.net.upstream.topology import TopologyService
from proxy.relay.commands import Event, LinkAnswering, LinkFrame, LinkLost, LinkOpened

__all__ = ["CacheMember", "CacheRecorder", "ClientCaches", "LogCaches"]

_LINGER_S: Final = 10.0
"""How long a shared cache is kept after its last reader has left."""
_LOG_EVERY_S: Final = 5.0


class CacheMember(Protocol):
    """A client connection as a member of log caches: the interface that these use of it."""

    @property
    def access(self) -> Access:
        """The login for connections to brokers on behalf of the client."""

    @property
    def topology(self) -> TopologyService:
        """The source of metadata."""

    def handle_logs_changed(self) -> None:
        """Settle the client's fetch: its logs have changed."""

    def observe(self, record: Record) -> None:
        """Pass on a telemetry record about upstream fetches of a cache that only this client reads."""

    def add_memory_wait(self, seconds: float) -> None:
        """Add a time for which a broker's response was not read, since the memory budget was used up."""

    def set_client_id(self, client_id: str | None) -> None:
        """Keep the client id of the client, which joins a log cache."""

    def fail(self, error: Exception) -> None:
        """Close the client connection because of *error*."""


class CacheRecorder(Protocol):
    """The receiver of the telemetry of one log cache that clients share."""

    def observe(self, record: Record, topology: Topology) -> None:
        """Pass a record about upstream fetches and sessions on; *topology*: the present one of its principal."""

    def end(self) -> None:
        """Handle the end of the cache; no record follows."""


class _CacheRunner:
    """A log cache with its connections: carries out its commands, and passes it their events."""

    def __init__(
        self,
        key: CacheKey,
        config: FetchConfig,
        options: ConnectOptions,
        access: Access,
        recorder: CacheRecorder | None,
    ) -> None:
        """Create a runner of an empty log cache.

        Args: recorder: the receiver of the telemetry; None for the newest member.
        """
        self._recorder = recorder
        self.cache = LogCache(key, config, random.random())
        self.members: dict[Reader, CacheMember] = {}
        """In the order in which they joined."""
        self.is_closed = False
        """Whether it has ended or failed, so that another runner must replace it."""
        self.left_s = float("-inf")
        """The time at which a member last left."""
        self._checks_liveness = config.checks_liveness
        self._log = options.log
        self._budget = options.budget
        self._links = UpstreamConnections(
            options,
            access,
            handle=self._handle,
            add_memory_wait=self._add_memory_wait,
            observe=self._observe,
        )
        self._timer = trio.CancelScope()
        self._scope = trio.CancelScope()
        self._is_flushing = False
        self._oldest_s: float | None = None
        self._last: CacheMember | None = None
        """The newest member, also after it has left: its topology service is used, and without a recorder it gets
        the telemetry."""

    def join(self, reader: Reader, member: CacheMember) -> None:
        """Add a reader with its client connection, whose login is used for the next broker connections."""
        self.cache.join(reader)
        self.members[reader] = self._last = member
        self._links.access = member.access

    def part(self, reader: Reader) -> None:
        """Remove a reader; the login of the newest remaining member is used from now on."""
        self.cache.part(reader)
        self.members.pop(reader, None)
        self.left_s = trio.current_time()
        if self.members:
            self._last = next(reversed(self.members.values()))
            self._links.access = self._last.access
        self.flush()

    async def run(self) -> None:
        """Carry out the cache's commands until ``close`` or a failure, then close the sessions at the brokers.

        After a failure, the client connections of all members are closed.
        """
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._links.nursery = nursery
                    nursery.start_soon(self._tick)
                    self.flush()
                    await trio.sleep_forever()
        except Exception as bug:
            trace = "".join(traceback.format_exception(bug))
            self._log.error("unhandled-exception", every_s=_LOG_EVERY_S, trace=trace)
            for member in list(self.members.values()):
                member.fail(BrokerUnavailable("the log cache has failed"))
        finally:
            self.is_closed = True
            self._links.nursery = None
            self._budget.remove_holder(self)
            self._links.drop_unsent()
            with trio.move_on_after(CLOSE_SESSION_S, shield=True):
                await self._close_sessions()
            self._links.close()
            if self._recorder is not None:
                self._recorder.end()

    def close(self) -> None:
        """Let ``run`` end."""
        self._scope.cancel()

    def flush(self) -> None:
        """Carry out the commands of the cache until there are none, and wake readers whose logs have changed.

        Nested calls have no effect: the outer call carries out their commands.
        """
        if self._is_flushing or self.is_closed or self._links.nursery is None:
            return
        self._is_flushing = True
        try:
            while True:
                commands = self.cache.take_commands()
                if not commands:
                    now_s = trio.current_time()
                    self.cache.settle(now_s)
                    commands = self.cache.take_commands()
                if not commands:
                    break
                for command in commands:
                    self._carry_out(command)
        finally:
            self._is_flushing = False
        if self._checks_liveness:
            unserved = [key for reader in self.members for key in reader.unserved()]
            assert not unserved, f"nothing answers {unserved}"
        deadline_s = self.cache.deadline_s(now_s)  # it may have passed since
        self._timer.deadline = float("inf") if deadline_s is None else deadline_s
        self._report_entries()

    async def _tick(self) -> None:
        while True:
            with self._timer:
                await trio.sleep_forever()
            self._timer = trio.CancelScope()
            self.flush()

    def _handle(self, event: Event) -> None:
        now_s = trio.current_time()
        match event:
            case LinkFrame(FetcherId() as fetcher, frame):
                self.cache.received(fetcher, frame, now_s)
            case LinkOpened(FetcherId() as fetcher, ranges):
                self.cache.opened(fetcher, ranges, now_s)
            case LinkAnswering(FetcherId() as fetcher):
                self.cache.answering(fetcher)
            case LinkLost(FetcherId() as fetcher):
                self.cache.lost(fetcher, now_s)
            case _:
                raise AssertionError(event)
        self.flush()

    def _carry_out(self, command: CacheCommand) -> None:
        match command:
            case SendFetch(fetcher, frame):
                self._links.send(fetcher, [frame])
            case Wake(reader):
                self._wake(reader)
            case EmitRecord(record):
                self._observe(record)
            case OpenFetcher(fetcher, client_id):
                self._links.open(fetcher, client_id)
            case CloseFetcher(fetcher, why, is_fault):
                log_event = self._log.warning if is_fault else self._log.debug
                node_id, name = fetcher.source.node_id, fetcher.kind.value
                log_event(
                    "fetch-connection-closed",
                    every_s=_LOG_EVERY_S,
                    per=node_id,
                    node=node_id,
                    fetcher=name,
                    reason=why,
                )
                self._links.disconnect(fetcher)
            case RefreshMetadata(topics):
                if self._last is not None:
                    self._last.topology.request_refresh(topics, self._topology_updated)
            case CloseSession():
                raise AssertionError("sessions are closed at the end only")

    def _wake(self, reader: Reader) -> None:
        member = self.members.get(reader)
        if member is not None:
            try:
                member.handle_logs_changed()
            except Exception as error:  # it ends this client, not the others
                member.fail(error)

    def _topology_updated(self, topology: Topology) -> None:
        if not self.is_closed:
            self.cache.update_topology(topology)
            self.flush()

    def _observe(self, record: Record) -> None:
        if self._last is None:
            return
        if self._recorder is None:
            self._last.observe(record)
        else:
            self._recorder.observe(record, self._last.topology.topology)

    def _add_memory_wait(self, seconds: float) -> None:
        for member in self.members.values():
            member.add_memory_wait(seconds)

    def _report_entries(self) -> None:
        """Report to the memory budget whether the cache has entries that can be dropped, and their age."""
        oldest_s = self.cache.oldest_s
        if oldest_s == self._oldest_s:
            return
        self._oldest_s = oldest_s
        if oldest_s is None:
            self._budget.remove_holder(self)
        else:
            self._budget.register_holder(self, oldest_s, self._schedule_drop)

    def _schedule_drop(self) -> None:
        if self._links.nursery is not None:
            self._links.nursery.start_soon(self._drop_records)

    async def _drop_records(self) -> None:
        self.cache.drop_records()
        self.flush()

    async def _close_sessions(self) -> None:
        busy = self.cache.busy
        commands = self.cache.close(trio.current_time())
        for record in commands:
            if isinstance(record, EmitRecord):
                self._observe(record.record)
        await self._links.close_sessions([each for each in commands if isinstance(each, CloseSession)], busy)


class LogCaches:
    """All log caches of the process, by sharing key, each with its tasks and its broker connections."""

    def __init__(
        self, config: FetchConfig, log: Log, shared_recorder: Callable[[], CacheRecorder] | None = None
    ) -> None:
        """Create the set of log caches, which is empty.

        Args: shared_recorder: returns the receiver of the telemetry of a new cache that clients share; without it,
              the newest member of the cache gets it.
        """
        self._shared_recorder = shared_recorder
        self._config = config
        self._log = log
        self._runners: dict[CacheKey, _CacheRunner] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run all log caches, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def join(self, key: CacheKey, reader: Reader, member: CacheMember, options: ConnectOptions) -> LogCache:
        """Add *reader* to the members of the log cache of *key*, and return it; create and run one if needed.

        Args: member: the client connection of *reader*.
              options: the options of broker connections of a new cache.
        """
        assert self._nursery is not None
        runner = self._runners.get(key)
        if runner is None or runner.is_closed:
            make = None if key.is_exclusive else self._shared_recorder
            recorder = None if make is None else make()
            runner = _CacheRunner(key, self._config, options, member.access, recorder)
            self._runners[key] = runner
            self._nursery.start_soon(runner.run)
        runner.join(reader, member)
        return runner.cache

    def part(self, cache: LogCache, reader: Reader) -> None:
        """Remove a member; a cache without members is closed, at once or, if it can be shared, after 10 s."""
        runner = self._runner_of(cache)
        if runner is None:
            return
        runner.part(reader)
        if runner.members:
            return
        if cache.key.is_exclusive:
            self._close(runner)
        elif self._nursery is not None:
            self._nursery.start_soon(self._close_later, runner)

    def flush(self, cache: LogCache) -> None:
        """Carry out the pending commands of *cache*, unless it is closed."""
        runner = self._runner_of(cache)
        if runner is not None:
            runner.flush()

    def _runner_of(self, cache: LogCache) -> _CacheRunner | None:
        """Return the runner of *cache*; None if another cache has taken its place, or it is closed."""
        runner = self._runners.get(cache.key)
        return runner if runner is not None and runner.cache is cache else None

    async def _close_later(self, runner: _CacheRunner) -> None:
        await trio.sleep(_LINGER_S)
        if not runner.members and trio.current_time() >= runner.left_s + _LINGER_S:
            self._close(runner)

    def _close(self, runner: _CacheRunner) -> None:
        if self._runner_of(runner.cache) is not None:
            del self._runners[runner.cache.key]
            runner.close()


class ClientCaches:
    """The log caches of the process as the reader of one client connection joins and leaves them."""

    def __init__(self, caches: LogCaches, member: CacheMember, options: ConnectOptions) -> None:
        self._caches = caches
        self._member = member
        self._options = options

    def join(self, key: CacheKey, reader: Reader, client_id: str | None) -> LogCache:
        """Add *reader* to the members of the log cache of *key*, which is created if needed; return the cache.

        *client_id*: the client id of the client.
        """
        self._member.set_client_id(client_id)
        return self._caches.join(key, reader, self._member, self._options)

    def part(self, cache: LogCache, reader: Reader) -> None:
        """Remove *reader* from the members of *cache*."""
        self._caches.part(cache, reader)

    def flush(self, cache: LogCache | None) -> None:
        """Carry out the pending commands of *cache*; None does nothing."""
        if cache is not None:
            self._caches.flush(cache)
