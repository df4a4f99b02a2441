"""The sockets, tasks and timers of one client connection; its protocol logic is in ``proxy.relay.client``."""

import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from proxy.cluster.topology import Topology
from proxy.errors import LimitReached
from proxy.events import ClientRecord, ExchangeRecord, Record
from proxy.net.downstream.acceptor import AcceptedClient, errors_of_client
from proxy.net.downstream.client_login import ClientLogin
from proxy.net.downstream.limits import ConnectionActivity, LimitLog
from proxy.net.downstream.recorder import ConnectionRecorder
from proxy.net.downstream.verifier import Verifier
from proxy.net.io.memory import RESERVE_BYTES
from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.services import Services
from proxy.net.upstream.access import Access
from proxy.net.upstream.connections import ConnectOptions, UpstreamConnections
from proxy.net.upstream.coordinator import CoordinatorClient
from proxy.net.upstream.log_caches import ClientCaches
from proxy.net.upstream.topology import TopologyService
from proxy.relay.client import ClientRelay
from proxy.relay.commands import (
    ClientFrame,
    Command,
    Delivered,
    Draining,
    EmitRecord,
    Event,
    FetchMemoryShort,
    GroupCoordinatorResult,
    LogsChanged,
    MetadataUpdated,
    OpenLink,
    PrincipalChanged,
    RefreshMetadata,
    Reply,
    RunInThread,
    Send,
    SendToGroupCoordinator,
    ThreadFinished,
    Tick,
    Worker,
)
from proxy.wire.addresses import AddressMap
from proxy.wire.fetch import FETCH
from proxy.wire.frames import Piece

__all__ = ["ClientConnection"]

_FETCH_KEY: Final = struct.pack(">h", FETCH)
_TURN_S: Final = 0.001
"""The longest time for which the requests of one client are handled before other tasks run."""
_PREPARES_S: Final = 1.0
"""The longest time for which other large fetches wait until the one before them waits for records."""


class ClientConnection:
    """The service of one client connection, from its first request to its end, with its connections to brokers.

    It passes the frames of the client and of the brokers as events to the ``ClientRelay`` of the connection, which
    has the protocol logic, and carries out the commands that the relay returns: send frames, connect to brokers,
    refresh metadata, compute in a thread, emit telemetry.
    """

    def __init__(
        self, client: FrameSocket, accepted: AcceptedClient, map_address: AddressMap, services: Services
    ) -> None:
        """Create the service of *client*, whose TLS handshake and login are complete.

        Args: accepted:    the broker for the client's requests; an open connection to it is taken over.
              map_address: maps brokers to the addresses that the client gets in responses.
        """
        node_id = accepted.node_id
        self._client = client
        self._node_id = node_id
        self._services = services
        principal = accepted.principal or client.principal or ""
        self._early_frames = accepted.early
        self._limit_log = LimitLog(services.counts, services.log)
        self._error: Exception | None = None
        self._verifier = Verifier(node_id, services)
        self._coordinator = CoordinatorClient(
            node_id, services.topology.address_of, services.connect_timeout_s, services.log, services.access
        )
        self._login = ClientLogin(client.peer, services, self._use_access)
        self._info = ConnectionInfo(node_id, client.peer, services.topology.topology)
        self._recorder = ConnectionRecorder(self._info, services, lambda: self._login.topology.topology)
        self._outbox = Outbox(client, self._recorder.record_conversion, services.workers)
        options = _connect_options(services)
        self._links = self._make_links(options, accepted)
        self._caches = ClientCaches(services.caches, self, options)
        self._relay = ClientRelay(
            node_id, map_address, services.fetch_config.of(principal), self._caches, services.sasl, services.limits
        )
        self.left_bytes = 0
        """After the end of ``run``: the memory that the client's last fetch took."""
        self._may_read = trio.Event()
        self._events: deque[Event] = deque()
        self._has_events = trio.Event()
        self._timer = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    def _make_links(self, options: ConnectOptions, accepted: AcceptedClient) -> UpstreamConnections:
        return UpstreamConnections(
            options,
            self._services.access,
            handle=self._handle,
            add_memory_wait=self.add_memory_wait,
            observe=self.observe,
            node_id=accepted.node_id,
            ready=accepted.ready,
            wait_until_drained=self._outbox.wait_until_empty,
        )

    async def run(self) -> None:
        """Serve the client until it closes the connection or an error ends it.

        Then the pass-through connection is closed, the client leaves its log cache, and the observers get the last
        records of the connection. A task of the cache closes fetch sessions and connections later, unless other
        clients share the cache. The caller closes the client's socket.

        Raises: ClientProtocolError, BrokerProtocolError, BrokerUnavailable, LimitReached: the error that ended the
            connection, alone or in an ExceptionGroup (use ``except*``).
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = self._links.nursery = nursery
                nursery.start_soon(self._send_to_client)
                nursery.start_soon(self._tick)
                nursery.start_soon(self._handle_queued)
                await self._receive_from_client()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = self._links.nursery = None
            self._services.fetch_memory.release(self)
            self.left_bytes = self._relay.fetch_bytes
            self._relay.close(trio.current_time())
            self._links.close()
            self._coordinator.close()
            self._login.release()
            self._free_memory()
            self.emit_client_record()
            self._services.observers.end_connection(self._info)
        if self._error is not None:
            raise self._error

    def _free_memory(self) -> None:
        """Drop unsent data and buffered records, so that their memory is no longer claimed from the budgets.

        The object itself may stay until the next garbage collection (``GarbageCollector``).
        """
        self._outbox.drop()
        self._links.drop_unsent()
        self._events.clear()

    def rest(self) -> bool:
        """Free the memory of the client's last fetch, unless one is unanswered; return whether that was done."""
        return self._relay.rest(trio.current_time())

    def end_wait(self) -> None:
        """Have the client's open fetch end its wait for records within 0.1 s."""
        self._deliver(FetchMemoryShort())

    def drain(self) -> None:
        """Prepare for the stop of Sidefetch: no fetch that it answers itself waits over 0.1 s for records any more.

        That includes a fetch that is waiting already. Fetches that are forwarded unchanged still wait at the broker
        for as long as the client asks. The connection stays open until the client closes it.
        """
        self._deliver(Draining())

    def get_activity(self) -> ConnectionActivity:
        """Return a snapshot of the connection's activity, from which ``enforce_timeouts`` computes the timeouts."""
        client = self._client
        return ConnectionActivity(
            client.received_frames,
            client.at_boundary,
            client.is_listening,
            client.received_bytes,
            client.is_in_claimed,
            client.sent_bytes,
            not self._outbox.is_empty,
            self._relay.has_unanswered,
        )

    def emit_client_record(self) -> None:
        """Pass a ``ClientRecord``, the client's software and API usage so far, to the observers.

        Without such a record (see ``client_record``), nothing happens. It is called every five minutes and at the
        end of the connection.
        """
        record = self.client_record()
        if record is not None:
            self._recorder.observe(record)

    @property
    def info(self) -> ConnectionInfo:
        """The client's address and id, the broker's node id and the topology: observers label records with them."""
        return self._info

    def client_record(self) -> ClientRecord | None:
        """Return the client's software, and the number of its requests by API version.

        Returns: None before the client's first request, or if no observer needs records of single fetches.
        """
        return self._relay.client_record()

    # ------------------------------------------------------------------------- as a member of log caches

    @property
    def access(self) -> Access:
        """The login for connections to brokers."""
        return self._links.access

    @property
    def topology(self) -> TopologyService:
        """The source of metadata."""
        return self._login.topology

    def set_client_id(self, client_id: str | None) -> None:
        """Keep the client id for which a log cache is read."""
        self._info.client_id = client_id

    def handle_logs_changed(self) -> None:
        """Settle the client's fetch: its logs have changed."""
        self._handle(LogsChanged())

    def observe(self, record: Record) -> None:
        """Pass a record about upstream fetches, which only this client reads, to telemetry."""
        self._recorder.observe(record)

    def add_memory_wait(self, seconds: float) -> None:
        """Count a time for which a broker's response was not read for lack of memory."""
        self._recorder.exchanges.add_memory_wait(seconds)

    def fail(self, error: Exception) -> None:
        """Have ``run`` end, and raise *error*."""
        self._error = error
        self._cancel()

    def end(self, why: LimitReached) -> None:
        """Close the connection because of a reached limit: ``run`` is cancelled, and raises *why*."""
        self._error = why
        self._cancel()

    # ------------------------------------------------------------------------------------------ the client

    async def _receive_from_client(self) -> None:
        # A client may reset its connection at any time.
        with suppress(OSError), errors_of_client():
            while frames := self._early_frames or await self._client.receive():
                self._early_frames, turn_ends_s = [], time.perf_counter() + _TURN_S
                for frame in frames:
                    if _is_fetch(frame) and (len(frame) > RESERVE_BYTES or self._relay.is_rested):
                        async with self._services.fetch_memory.turn():
                            self._take(frame)
                            await self._wait_until_prepared()
                    else:
                        self._take(frame)
                    await self._wait_for_capacity()
                    if time.perf_counter() > turn_ends_s:
                        await trio.lowlevel.checkpoint()
                        turn_ends_s = time.perf_counter() + _TURN_S
                # The buffers of these frames count as used until nobody holds them.
                frames.clear()
                del frame

    def _take(self, frame: memoryview) -> None:
        live, topology = self._services.live, self._login.topology.topology
        self._handle(ClientFrame(frame, topology, live.bypass, live.share_reads_except))

    async def _wait_until_prepared(self) -> None:
        """Wait until the client's fetches are answered or wait for long polls, for a second at most."""
        with trio.move_on_after(_PREPARES_S):
            await self._wait_while(lambda: self._relay.is_preparing_fetch)

    async def _wait_for_capacity(self) -> None:
        """Wait until the next request may be read: the client is read no faster than it and the broker read.

        All responses so far must be sent to the client (brokers wait for that, too), the relay must accept another
        request, and all forwarded requests must be sent to the broker. Therefore Sidefetch notices that the client
        has closed the connection only after all earlier requests were sent.
        """
        if self._relay.is_full:
            self._limit_log("max-in-flight", self._client.peer, "it sends on without waiting for answers")
        await self._outbox.wait_until_empty()
        await self._wait_while(lambda: not self._relay.takes_requests)
        await self._links.wait_until_forwarded()

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* does not hold after an event; return at once if it does not hold now."""
        while condition():
            self._may_read = trio.Event()
            await self._may_read.wait()

    async def _send_to_client(self) -> None:
        try:
            await self._outbox.pump()
        except OSError:
            self._cancel()

    async def _tick(self) -> None:
        while True:
            with self._timer:
                await trio.sleep_forever()
            self._timer = trio.CancelScope()
            self._handle(Tick())

    def _cancel(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # ----------------------------------------------------------------------------------- events and commands

    def _handle(self, event: Event) -> None:
        if self._nursery is None:
            return
        for command in self._relay.handle(event, trio.current_time()):
            self._carry_out(command)
        self._caches.flush(self._relay.cache)
        self._may_read.set()
        self._services.fetch_memory.hold(self, self._relay.fetch_bytes)
        deadline_s = self._relay.deadline_s
        self._timer.deadline = deadline_s if deadline_s is not None else float("inf")

    def _carry_out(self, command: Command) -> None:
        match command:
            case Reply(pieces, record):
                self._reply(pieces, record)
            case Send(link, pieces):
                self._links.send(link, pieces)
            case EmitRecord(record):
                self._recorder.observe(record)
            case RefreshMetadata(topics):
                self._login.topology.request_refresh(topics, self._deliver_topology)
            case OpenLink(link, client_id):
                self._links.open(link, client_id)
            case Delivered(request, pieces, topology):
                if self._nursery is not None and self._verifier.is_due():
                    self._nursery.start_soon(self._verifier.verify, request, pieces, topology)
            case SendToGroupCoordinator():
                assert self._nursery is not None
                self._nursery.start_soon(self._send_to_coordinator, command)
            case RunInThread(worker, run):
                assert self._nursery is not None
                self._nursery.start_soon(self._run_in_thread, worker, run)
            case PrincipalChanged(principal, mechanism, login):
                self._login.set_login(principal, mechanism, login)

    def _reply(self, pieces: Sequence[Piece], record: ExchangeRecord | None) -> None:
        if record is not None:
            self._services.observers.inspect_response(self._info, pieces)
        try:
            self._outbox.put(pieces, None if record is None else partial(self._recorder.exchanges.complete, record))
        except OSError:
            self._cancel()

    def _use_access(self, access: Access) -> None:
        self._links.access = self._coordinator.access = self._verifier.access = access

    def _deliver_topology(self, topology: Topology) -> None:
        self._deliver(MetadataUpdated(topology))

    def _deliver(self, event: Event) -> None:
        """Queue *event*, for callers in tasks of others: an error in handling it must end this connection only."""
        self._events.append(event)
        self._has_events.set()

    async def _handle_queued(self) -> None:
        while True:
            await self._has_events.wait()
            self._has_events = trio.Event()
            while self._events:
                self._handle(self._events.popleft())

    async def _send_to_coordinator(self, command: SendToGroupCoordinator) -> None:
        self._handle(
            GroupCoordinatorResult(
                await self._coordinator.send_request(command.group, command.pieces, is_retry=command.is_retry)
            )
        )

    async def _run_in_thread(self, worker: Worker, run: Callable[[], object]) -> None:
        services = self._services
        limiter = services.upgrader if worker is Worker.PASS else services.workers
        done = await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
        self._handle(ThreadFinished(worker, done))


def _is_fetch(frame: memoryview) -> bool:
    """Return whether a request is a fetch, by the API key that it begins with."""
    return frame[: len(_FETCH_KEY)] == _FETCH_KEY


def _connect_options(services: Services) -> ConnectOptions:
    return ConnectOptions(
        services.topology.address_of,
        services.connect_timeout_s,
        services.fetch_config.response_timeout_s,
        services.budget,
        services.log,
        partial(services.counts.update, ["upstream_connections"]),
    )
