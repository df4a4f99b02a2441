"""The whole proxy, from the first listener to the last client."""

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio

from proxy.cluster.routing import Selector
from proxy.cluster.topology import BrokerId
from proxy.config import Config, ConversionConfig
from proxy.errors import (
    BrokerProtocolError,
    BrokerUnavailable,
    ClientProtocolError,
    LimitReached,
    leaves,
)
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.converting import Policy
from proxy.fetch.fetch_config import FetchConfig
from proxy.net.downstream.acceptor import ConnectionAcceptor
from proxy.net.downstream.advertised import broker_address, local_address
from proxy.net.downstream.client import ClientConnection
from proxy.net.downstream.limits import (
    ConnectionLimits,
    LimitLog,
    enforce_timeouts,
    raise_open_files_limit,
)
from proxy.net.downstream.listeners import Listeners
from proxy.net.downstream.sasl_server import AuthenticationFailed
from proxy.net.garbage import GarbageCollector, drop_tracebacks
from proxy.net.io.fetch_memory import FetchMemory
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket, address_text, host_of
from proxy.net.observability.event_loop import Heartbeat, LoopTurns, limit_thread_turns
from proxy.net.observability.observers import Observer
from proxy.net.observability.outputs import TelemetryOutputs
from proxy.net.observability.probes import ProbeState
from proxy.net.observability.shared_reads import SharedCacheRecorder
from proxy.net.observability.telemetry import SampledValues
from proxy.net.observability.traffic import log_traffic
from proxy.net.rack import RackWatch, find_rack, log_rack
from proxy.net.reload import ReloadableSettings, Reread, reload_on
from proxy.net.services import Services
from proxy.net.signals import stop_on
from proxy.net.transparent.redirected import RedirectedConnections
from proxy.net.upstream.access import access_of
from proxy.net.upstream.log_caches import LogCaches
from proxy.net.upstream.principals import Principals
from proxy.net.upstream.topology import TopologyService
from proxy.relay.client import Sasl
from proxy.relay.limits import RequestLimits
from proxy.relay.traffic import Traffic
from proxy.session.slots import MAX_SESSION_ID
from proxy.telemetry.snapshot import Status
from proxy.wire.addresses import AddressMap
from proxy.wire.records import Codec

__all__ = ["Proxy", "serve"]

_LOG_EVERY_S: Final = 1.0
_CLIENT_RECORDS_EVERY_S: Final = 300.0
_CHECK_LIVENESS: Final = "CHECK_SIDEFETCH_LIVENESS"
"""Environment variable of the tests: with it, the rule L1 of ``LOG_CACHE.md`` is asserted after each event."""


async def serve(
    config: Config,
    reread: Reread,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the proxy with *config* until SIGTERM or SIGINT, and return when it has drained.

    Draining starts with the first signal: fetches that wait in Sidefetch are answered at once (forwarded ones wait
    at the broker), and ``serve`` returns when all clients have left or the grace period of *config* is over, plus
    some seconds in which the last telemetry is written. On SIGHUP, *reread* returns the current settings, and those
    that may change while Sidefetch runs take effect. *task_status* is started once clients can connect.

    Raises: ConfigError: a port cannot be listened on, or a file of the settings is wrong; SystemExit: a second
        signal came.
    """
    log = Log(config.log.format, config.log.level, sys.stderr)
    found = await find_rack(config.routing, os.environ)
    log_rack(found, log)
    raise_open_files_limit(config.limits, log)
    proxy = Proxy(config, log, rack=found.rack)
    proxy.garbage.configure()
    limit_thread_turns()
    with (
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        trio.open_signal_receiver(signal.SIGHUP) as hang_ups,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on, signals, proxy.stop, log)
            nursery.start_soon(reload_on, hang_ups, reread, proxy.live)
            await proxy.run(task_status=task_status)
            nursery.cancel_scope.cancel()


def _client_sessions(config: Config) -> ClientSessions:
    limits = config.limits
    return ClientSessions(
        config.downstream.client_sessions,
        _random_session_id,
        limits.max_fetch_partitions,
        limits.request_memory_bytes // 2,
    )


def _random_session_id() -> int:
    return random.randrange(1, MAX_SESSION_ID + 1)


def _conversion_policy(config: ConversionConfig) -> Policy:
    return Policy(
        config.down_conversion,
        config.isolation == "read_committed",
        None if config.zstd == "refuse" else Codec[config.zstd.upper()],
        Codec.LZ4 if config.lz4_magic0 == "kafka" else Codec.GZIP,
        config.chunk_bytes,
    )


def _sasl_policy(config: Config) -> Sasl:
    if config.upstream_security.sasl == "client":
        return Sasl.REQUIRED
    handles_sasl = config.upstream_security.sasl != "none" or config.downstream_security.sasl_file is not None
    return Sasl.OURS if handles_sasl else Sasl.PASSES


def _fetch_config(
    config: Config, rack: str | None, sessions: ClientSessions, *, records_exchanges: bool
) -> FetchConfig:
    upstream = config.upstream
    return FetchConfig(
        upstream.upstream_max_wait_s,
        upstream.fetch_buffer_bytes,
        upstream.response_timeout_s,
        _conversion_policy(config.conversion),
        rack or "",
        Selector(config.routing.replica_selector),
        upstream.metadata_max_age_s,
        sessions=sessions,
        cpu_s=time.thread_time,
        reads_ahead=upstream.read_ahead,
        shares_reads=upstream.share_reads,
        checks_liveness=_CHECK_LIVENESS in os.environ,
        records_exchanges=records_exchanges,
    )


class Proxy:
    """The proxy in front of one Kafka cluster: its listeners, client connections, topology and telemetry.

    Use: call ``run`` once; ``stop`` makes it end.
    """

    def __init__(
        self, config: Config, log: Log, observers: Sequence[Observer] = (), *, rack: str | None = None
    ) -> None:
        """Create the proxy; *observers* are added to those that the settings require.

        Raises: ConfigError: a file of the settings cannot be read or has the wrong format.
        """
        self._config = config
        self.log = log
        self._access = access_of(config.upstream_security, log)
        watch = RackWatch(rack, log)
        self.topology = TopologyService(config.upstream, log, watch.check_topology, self._access)
        self.counts: Counter[str] = Counter()
        """Counters by name: connections, failures by type, limits that were reached, verified responses, bugs."""
        self._principals = self._make_principals(watch)
        self.live = ReloadableSettings(config, log)
        self.garbage = GarbageCollector()
        self.clients: set[ClientConnection] = set()
        self._client_left = trio.Event()
        self._stopping = trio.Event()
        self._listeners: Listeners | None = None
        self._is_listening = False
        self._limit_log = LimitLog(self.counts, log)
        limits = config.limits
        self._admission = ConnectionLimits(limits, self._limit_log)
        self._request_budget = Budget(
            limits.request_memory_bytes, log, "request-memory", self._make_counter("limit_request_memory")
        )
        self.traffic = Traffic()
        self._turns = LoopTurns()
        self.client_sessions = _client_sessions(config)
        budget = Budget(config.upstream.memory_bytes, log, on_wait=self._make_counter("limit_memory"))
        self._acceptor = ConnectionAcceptor(
            config, self._access, self.topology, budget, self._request_budget, self._limit_log, log, self.counts
        )
        self._redirected = RedirectedConnections(config, self.topology, self.counts, log)
        self._fetch_memory = FetchMemory(limits.request_memory_bytes, log)
        sources = self._make_sampled_values((budget, self._request_budget, self._fetch_memory))
        self.outputs = TelemetryOutputs(
            config, rack, log, self.counts, self.topology, self._access, sources, observers
        )
        self.services = self._make_services(budget, rack)

    def _make_principals(self, watch: RackWatch) -> Principals | None:
        if self._config.upstream_security.sasl != "client":
            return None
        upstream, log, known = self._config.upstream, self.log, self.topology.addresses
        return Principals(
            self._access, lambda access: TopologyService(upstream, log, watch.check_topology, access, known)
        )

    def _make_services(self, budget: Budget, rack: str | None) -> Services:
        config, observers, limits = self._config, self.outputs.observers, self._config.limits
        fetch_config = _fetch_config(
            config, rack, self.client_sessions, records_exchanges=observers.wants_exchanges
        )
        return Services(
            self.topology,
            config.upstream.connect_timeout_s,
            fetch_config,
            budget,
            observers,
            self.log,
            self.live,
            self.counts,
            config.verify_rate,
            self.traffic,
            LogCaches(fetch_config, self.log, lambda: SharedCacheRecorder(observers, self.traffic, rack)),
            self._fetch_memory,
            self._access,
            _sasl_policy(config),
            self._principals,
            RequestLimits(limits.max_in_flight, limits.max_fetch_partitions, limits.allowed_apis.keys),
        )

    def _make_counter(self, name: str) -> Callable[[], None]:
        return lambda: self.counts.update({name: 1})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve clients until ``stop`` is called, then until all have left or the grace period (``grace``) is over.

        *task_status* is started once clients can connect.

        Raises: ConfigError: a port cannot be listened on.
        """
        async with self.outputs.running():
            await self._serve_until_stopped(task_status)

    async def _serve_until_stopped(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await self.outputs.begin(nursery, self.probe_state)
            await nursery.start(self.services.caches.run)
            self._listeners = Listeners(self._config.downstream, self._serve_client, nursery, self.log)
            await self._listeners.open_bootstrap()
            if self._config.downstream.transparent:
                await self._listeners.open_transparent(self._serve_redirected)
                nursery.start_soon(self._redirected.run)
            self._is_listening = True
            trio.lowlevel.add_instrument(self._turns)
            nursery.start_soon(Heartbeat(self.log).run)
            nursery.start_soon(self._access.run)
            for watched in self._acceptor.watched:
                nursery.start_soon(watched.run)
            if self._principals is not None:
                nursery.start_soon(self._principals.run)
            else:
                nursery.start_soon(self.topology.run)
            nursery.start_soon(self.garbage.run)
            nursery.start_soon(log_traffic, self.traffic, self.log)
            nursery.start_soon(self._emit_client_records)
            nursery.start_soon(enforce_timeouts, lambda: self.clients, self._config.limits, self._request_budget)
            nursery.start_soon(self._open_broker_listeners, self._listeners)
            task_status.started()
            await self._stopping.wait()
            self.log.info("draining", clients=len(self.clients), grace_s=self._config.grace_s)
            for client in self.clients:
                client.drain()
            with trio.move_on_after(self._config.grace_s):
                while self.clients or self._redirected.passing:
                    self._client_left = trio.Event()
                    await self._client_left.wait()
            left = len(self.clients)
            nursery.cancel_scope.cancel()
        fields = self._client_session_fields() | self.traffic.as_log_fields()
        self.log.info("stopped", clients_left=left, **self.counts, **fields)

    async def _emit_client_records(self) -> None:
        while True:
            await trio.sleep(_CLIENT_RECORDS_EVERY_S)
            for client in list(self.clients):
                client.emit_client_record()

    def stop(self) -> None:
        """Begin to drain: ``run`` answers fetches that wait in Sidefetch, and returns when all clients have left.

        Forwarded fetches still wait at the broker. Until all have left, clients may still connect, so that they can
        commit offsets and leave their groups. The grace period limits the wait.
        """
        self._stopping.set()

    def probe_state(self) -> ProbeState:
        return ProbeState(self._is_listening, self._stopping.is_set(), self.topology.is_reachable)

    def _status(self) -> Status:
        if self._stopping.is_set():
            return "stopping"
        return "ready" if self._is_listening else "starting"

    def _make_sampled_values(self, budgets: Sequence[Budget | FetchMemory]) -> SampledValues:
        return SampledValues(
            self.topology,
            self._principals is None,
            self.client_sessions,
            self._config.downstream.client_sessions,
            budgets,
            self.traffic,
            self.live,
            self.counts,
            lambda: self._admission.count,
            self._status,
            lambda: self.clients,
            lambda: self._turns.longest_s,
            self._config.upstream.share_reads,
        )

    async def _open_broker_listeners(self, listeners: Listeners) -> None:
        await self.topology.known.wait()
        topology = self.topology.topology
        if self._redirected.has_forwarded:  # a wrong setting ends a process only before it serves anybody
            for node_id in sorted(topology.brokers):
                listeners.open_for(node_id)
        else:
            listeners.open_for_all(list(topology.brokers))
        self.log.info("cluster-found", cluster=topology.cluster_id, brokers=len(topology.brokers))

    def _client_session_fields(self) -> dict[str, int]:
        """Return the numbers of client sessions, of their partitions and of evictions, as KIP-227 defines them."""
        sessions = self.client_sessions
        return {
            "client_sessions": len(sessions),
            "client_session_partitions": sessions.partitions,
            "client_session_evictions": sessions.evictions,
        }

    # ------------------------------------------------------------------------------------------ one client

    async def _serve_client(self, node_id: BrokerId | None, stream: trio.SocketStream) -> None:
        assert self._listeners is not None
        mapper_for = partial(local_address, self._config.downstream.advertise, self.topology, self._listeners)
        with self._admit(stream) as peer:
            if peer is not None:
                await self._serve(mapper_for, peer, node_id, stream)

    async def _serve_redirected(self, stream: trio.SocketStream) -> None:
        with self._admit(stream) as peer:
            if peer is not None:
                mapper_for = partial(broker_address, self.topology)
                await self._redirected.handle(stream, partial(self._serve, mapper_for, peer))
                self._client_left.set()

    @contextmanager
    def _admit(self, stream: trio.SocketStream) -> Iterator[str | None]:
        """Count a client's connection for its ``with`` block, and log errors in the block instead of raising them.

        So an error in one client's connection ends only that connection.

        Yields: the client's address; None if the connection is refused, or the client has left already.
        """
        try:
            peer = address_text(stream.socket.getpeername())
        except OSError:
            yield None  # the client has left already
            return
        if not self._admission.try_add(peer):
            yield None
            return
        try:
            yield peer
        except BaseException as error:
            try:
                self._log_failure(peer, error)
            finally:
                drop_tracebacks(error)
        finally:
            self._admission.remove(peer)

    def _log_failure(self, peer: str, error: BaseException) -> None:
        """Log the error in a client's connection, and count it; raise again the part that is no ``Exception``."""
        try:
            raise error
        except* LimitReached as wrong:
            reached = next(leaves(wrong))
            assert isinstance(reached, LimitReached)
            self._limit_log(reached.limit, peer, str(reached))
        except* AuthenticationFailed as wrong:
            self._count_failure("logins_refused", "authentication-failed", peer, wrong)
        except* ClientProtocolError as wrong:
            self._count_failure("client_protocol_errors", "client-protocol-error", peer, wrong)
        except* BrokerProtocolError as wrong:
            self._count_failure("broker_protocol_errors", "broker-protocol-error", peer, wrong)
        except* BrokerUnavailable as wrong:
            self._count_failure("brokers_unavailable", "broker-unavailable", peer, wrong)
        except* Exception as bug:
            self.counts["bugs"] += 1
            trace = "".join(traceback.format_exception(bug))
            self.log.error("unhandled-exception", every_s=_LOG_EVERY_S, per=host_of(peer), client=peer, trace=trace)

    async def _serve(
        self,
        mapper_for: Callable[[FrameSocket], AddressMap],
        peer: str,
        node_id: BrokerId | None,
        stream: trio.SocketStream,
    ) -> None:
        client = await self._acceptor.accept(stream, peer)
        if client is not None:
            self.counts["connections"] += 1
            with client:
                await self._run_connection(mapper_for(client), node_id, client)

    def _count_failure(self, count: str, event: str, peer: str, wrong: BaseExceptionGroup[Exception]) -> None:
        self.counts[count] += 1
        reason = next(leaves(wrong))
        # Not by reason: parts of it are the client's choice.
        self.log.warning(event, every_s=_LOG_EVERY_S, per=host_of(peer), client=peer, reason=reason)

    async def _run_connection(self, map_address: AddressMap, node_id: BrokerId | None, client: FrameSocket) -> None:
        accepted = await self._acceptor.set_up(node_id, client)
        if accepted is None:
            return
        connection = ClientConnection(client, accepted, map_address, self.services)
        self.clients.add(connection)
        if self._stopping.is_set():
            connection.drain()
        try:
            await connection.run()
        finally:
            self.clients.discard(connection)
            self.garbage.count_ended(connection.left_bytes)
            self._client_left.set()
