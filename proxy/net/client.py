"""Serves one client connection: carries out what its relay decides."""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import trio

from proxy.convert.down import Conversion
from proxy.errors import (
    ClientProtocolError,
    FrameTooLarge,
    LimitReached,
    MalformedFrame,
    ProxyError,
)
from proxy.fetch.reading import Reading
from proxy.fetch.topology import BrokerId, Topology
from proxy.net.access import OPEN, Access
from proxy.net.brokers import BrokerConnection
from proxy.net.door import Admitted
from proxy.net.errands import Errands
from proxy.net.exchanges import Exchanges
from proxy.net.limits import Look, Tell
from proxy.net.links import FAREWELL_S, Links, Ways
from proxy.net.live import Live
from proxy.net.logs import Log
from proxy.net.memory import RESERVE_BYTES, Budget
from proxy.net.observers import Observers, Who
from proxy.net.principals import Principals
from proxy.net.sockets import FrameSocket, Outbox
from proxy.net.topology import TopologyService
from proxy.net.verify import Verifier
from proxy.relay.client import ClientRelay, Sasl
from proxy.relay.commands import (
    PASS,
    ClientFrame,
    CloseLink,
    Command,
    Delivered,
    DoWork,
    Draining,
    Errand,
    ErrandDone,
    Event,
    Identified,
    Learn,
    Leave,
    Link,
    MemoryNeeded,
    Note,
    OpenLink,
    Reply,
    Send,
    Tick,
    Told,
    WorkDone,
    Worker,
)
from proxy.relay.limits import DEFAULT_LIMITS, RequestLimits
from proxy.relay.traffic import Traffic
from proxy.sasl.logins import Login
from proxy.trace import (
    ClientRecord,
    ConversionRecord,
    DamageRecord,
    ExchangeRecord,
    FetchRecord,
    Record,
    TruncationRecord,
)
from proxy.wire.addresses import Place
from proxy.wire.apis import ApiKey
from proxy.wire.frames import Chunks, Piece

__all__ = ["ClientConnection", "Services"]

_LOG_EVERY_S = 5.0
_SINGLE_EVERY_S = 60.0
_WORKERS = 8
"""Each may come to hold what a batch decompresses to, 64 MiB, and what becomes of that: messages, at most twice as
much, and those compressed."""
_FETCH = int(ApiKey.FETCH).to_bytes(2)
"""How a fetch begins."""


@attrs.frozen
class Services:
    """What all client connections share."""

    topology: TopologyService
    connect_timeout_s: float
    reading: Reading
    budget: Budget
    observers: Observers
    log: Log
    live: Live
    counts: Counter[str]
    verify_rate: float
    traffic: Traffic
    access: Access = OPEN
    sasl: Sasl = Sasl.PASSES
    principals: Principals | None = None
    """Where brokers know clients by what they say themselves."""
    limits: RequestLimits = DEFAULT_LIMITS
    workers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_WORKERS))
    """The threads that convert records."""


class ClientConnection:
    """One client, its relay, and its links to broker *node_id*.

    *ready* is a bare connection to that broker that is open already, if there is one; it is taken over.
    *admitted*: who the client is, where it had to tell us.
    """

    def __init__(
        self,
        client: FrameSocket,
        node_id: BrokerId,
        place: Place,
        services: Services,
        ready: BrokerConnection | None = None,
        admitted: Admitted | None = None,
    ) -> None:
        self._client = client
        self._node_id = node_id
        self._services = services
        principal = client.certified or "" if admitted is None else admitted.principal
        self._early = [] if admitted is None else admitted.early
        self._relay = ClientRelay(
            node_id, place, random.random(), services.reading.of(principal), services.sasl, services.limits
        )
        self._tell = Tell(services.counts, services.log)
        self._over: LimitReached | None = None
        self._verifier = Verifier(
            node_id,
            services.verify_rate,
            services.topology.address_of,
            services.counts,
            services.log,
            services.access,
        )
        self._errands = Errands(
            node_id,
            services.topology.address_of,
            services.connect_timeout_s,
            services.log,
            services.access,
        )
        self._topology = services.topology
        self._who = Who(node_id, client.peer, services.topology.topology)
        self._login: Login | None = None
        """What the client has said to the broker, if it may be said again."""
        self._entered: str | None = None
        """The principal that the client is, if the topology is that one's."""
        self._exchanges = Exchanges(self._observe)
        self._outbox = Outbox(client, self._observe_conversion, services.workers)
        self._links = Links(
            node_id,
            Ways(
                services.topology.address_of,
                services.connect_timeout_s,
                services.budget,
                services.log,
                partial(services.counts.update, ["upstream_connections"]),
            ),
            services.access,
            ready,
            handle=self._handle,
            drained=self._outbox.drained,
            waited_for_memory=self._exchanges.waited_for_memory,
            observe=self._observe,
        )
        self._may_read = trio.Event()
        self._mail: deque[Event] = deque()
        self._has_mail = trio.Event()
        self._timer = trio.CancelScope()
        self._held_since_s: float | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve until the client goes, or must go.

        Raises: ClientProtocolError, BrokerProtocolError, BrokerUnavailable, LimitReached: why it must.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = self._links.nursery = nursery
                nursery.start_soon(self._send_to_client)
                nursery.start_soon(self._tick)
                nursery.start_soon(self._handle_mail)
                await self._receive_from_client()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = self._links.nursery = None
            self._services.budget.released(self)
            with trio.move_on_after(FAREWELL_S, shield=True):
                await self._say_farewell()
            self._links.close()
            self._errands.close()
            if self._entered is not None and self._services.principals is not None:
                self._services.principals.leave(self._entered)
            self._let_go()
            self.tell_inventory()
            self._services.observers.left(self._who)
        if self._over is not None:
            raise self._over

    def _let_go(self) -> None:
        """Of the memory that is claimed here; what is left of us may not be looked for in a while (``Garbage``)."""
        self._outbox.drop()
        self._links.drop()
        self._mail.clear()
        with suppress(ProxyError):
            self._relay.handle(MemoryNeeded(), trio.current_time())

    def drain(self) -> None:
        """Answer at once what waits."""
        self._deliver(Draining())

    def look(self) -> Look:
        """What it is at."""
        client = self._client
        return Look(
            client.received_frames,
            client.at_boundary,
            client.is_listening,
            client.sent_bytes,
            not self._outbox.is_empty,
            self._relay.owes,
        )

    def tell_inventory(self) -> None:
        """Have whoever wants to know told what the client uses."""
        record = self.inventory()
        if record is not None:
            self._observe(record)

    @property
    def who(self) -> Who:
        """Whom all that is told is about."""
        return self._who

    def inventory(self) -> ClientRecord | None:
        """What the client uses; None before it has asked anything."""
        return self._relay.inventory()

    def end(self, why: LimitReached) -> None:
        """Have ``run`` end, and raise *why*."""
        self._over = why
        self._end()

    # ------------------------------------------------------------------------------------------ the client

    async def _receive_from_client(self) -> None:
        try:
            while frames := self._early or await self._client.receive():
                self._early = []
                for frame in frames:
                    services = self._services
                    kept = _unclaimed(frame)
                    self._handle(ClientFrame(kept, self._topology.topology, services.live.bypass))
                    await self._taken()
                # What they are views of counts until nobody holds them.
                frames.clear()
                del frame, kept
        except OSError:
            pass  # it went without a word
        except FrameTooLarge as wrong:
            raise LimitReached("max-frame", str(wrong)) from wrong
        except MalformedFrame as wrong:
            raise ClientProtocolError(str(wrong)) from wrong

    async def _taken(self) -> None:
        """Read the client no faster than the broker reads us; and see its end only when all before it is sent.

        Nor faster than it reads what it is told, as brokers do.
        """
        if self._relay.is_full:
            self._tell("max-in-flight", self._client.peer, "it sends on without waiting for answers")
        await self._outbox.drained()
        while not self._relay.takes_requests:
            self._may_read = trio.Event()
            await self._may_read.wait()
        await self._links.passed()

    async def _send_to_client(self) -> None:
        try:
            await self._outbox.pump()
        except OSError:
            self._end()

    async def _tick(self) -> None:
        while True:
            with self._timer:
                await trio.sleep_forever()
            self._timer = trio.CancelScope()
            self._handle(Tick())

    def _end(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # ----------------------------------------------------------------------------------- events and commands

    def _handle(self, event: Event) -> None:
        if self._nursery is None:
            return
        for command in self._relay.handle(event, trio.current_time()):
            self._carry_out(command)
        self._may_read.set()
        self._tell_budget()
        deadline_s = self._relay.deadline_s
        self._timer.deadline = deadline_s if deadline_s is not None else float("inf")

    def _tell_budget(self) -> None:
        """What waits for the client here may be had back."""
        held_s = self._relay.held_since_s
        if held_s == self._held_since_s:
            return
        self._held_since_s = held_s
        if held_s is None:
            self._services.budget.released(self)
        else:
            self._services.budget.holding(self, held_s, partial(self._deliver, MemoryNeeded()))

    def _carry_out(self, command: Command) -> None:
        services = self._services
        match command:
            case Reply(pieces, record):
                self._reply(pieces, record)
            case Send(link, pieces):
                self._links.send(link, pieces)
            case Note(record):
                self._observe(record)
            case Learn(topics):
                self._topology.learn(topics, self._told)
            case OpenLink(link, client_id):
                self._who.client_id = client_id
                self._links.open(link, client_id)
            case Leave(farewell):
                self._links.leave_lanes(farewell)
            case Delivered(request, pieces, topology):
                if self._nursery is not None and self._verifier.picks():
                    self._nursery.start_soon(self._verifier.verify, request, pieces, topology)
            case Errand():
                assert self._nursery is not None
                self._nursery.start_soon(self._run_errand, command)
            case DoWork(worker, run):
                assert self._nursery is not None
                self._nursery.start_soon(self._work, worker, run)
            case Identified(principal, mechanism, login):
                self._identified(principal, mechanism, login)
            case CloseLink(link, why, is_fault):
                tell = services.log.warning if is_fault else services.log.debug
                tell("lane-closed", node=self._links.node_of(link), lane=_name_of(link), reason=why)
                self._links.hang_up(link)

    def _identified(self, principal: str, mechanism: str, login: Login | None) -> None:
        services = self._services
        if login is None:
            services.counts["clients_on_one_connection"] += 1
            services.log.warning(
                "client-kept-to-one-connection",
                every_s=_SINGLE_EVERY_S,
                per=mechanism,
                client=self._client.peer,
                mechanism=mechanism,
                reason="its login cannot be repeated, so its fetches pass to leaders as they came:"
                " give Sidefetch a login of its own (upstream-sasl), or the client PLAIN or OAUTHBEARER",
            )
            return
        is_first, self._login = self._login is None, login
        if is_first:
            access = services.access.as_client(self._current_login)
            self._links.access = self._errands.access = self._verifier.access = access
            services.log.debug("client-identified", client=self._client.peer, mechanism=mechanism)
        if services.principals is None:
            return
        if self._entered is None:
            self._entered = principal
            self._topology = services.principals.enter(principal, login)
        else:
            services.principals.renew(self._entered, login)

    async def _current_login(self) -> Login:
        assert self._login is not None
        return self._login

    def _observe(self, record: Record) -> None:
        self._who.topology = self._topology.topology
        if isinstance(record, ExchangeRecord | ClientRecord):
            self._who.client_id = record.client_id
        self._services.observers.observe(self._who, record)
        if isinstance(record, FetchRecord):
            self._count(record)
        if isinstance(record, DamageRecord):
            self._services.log.warning(
                "records-damaged",
                every_s=_LOG_EVERY_S,
                per=(record.topic, record.partition),
                node=record.node,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                reason=record.why,
            )
        elif isinstance(record, TruncationRecord):
            self._services.log.warning("log-truncated", **attrs.asdict(record))

    def _count(self, record: FetchRecord) -> None:
        services = self._services
        broker = self._topology.topology.brokers.get(BrokerId(record.node))
        rack = None if broker is None else broker.rack
        crossed = None if rack is None or not services.reading.rack else rack != services.reading.rack
        services.traffic.routed(record.route, record.size)
        for topic, record_bytes in record.topics:
            services.traffic.add(topic, rack, crossed, record_bytes)

    def _observe_conversion(self, chunks: Chunks, cpu_s: float) -> None:
        assert isinstance(chunks, Conversion)
        counts, told = chunks.counts, self._services.counts
        record = ConversionRecord(
            chunks.magic,
            counts.messages,
            counts.source_bytes,
            counts.out_bytes - counts.padding_bytes,
            counts.padding_bytes,
            counts.cpu_us + round(cpu_s * 1e6),
        )
        told["converted_records"] += record.records
        told["converted_bytes"] += record.in_bytes
        told["padding_bytes"] += record.padding_bytes
        self._observe(record)
        self._exchanges.converted(record)

    def _reply(self, pieces: Sequence[Piece], record: ExchangeRecord | None) -> None:
        if record is not None:
            self._services.observers.answering(self._who, pieces)
        try:
            self._outbox.put(pieces, None if record is None else partial(self._exchanges.sent, record))
        except OSError:
            self._end()

    def _told(self, topology: Topology) -> None:
        self._deliver(Told(topology))

    def _deliver(self, event: Event) -> None:
        """Take an event that comes from another task: what goes wrong with it must end us, not that task."""
        self._mail.append(event)
        self._has_mail.set()

    async def _handle_mail(self) -> None:
        while True:
            await self._has_mail.wait()
            self._has_mail = trio.Event()
            while self._mail:
                self._handle(self._mail.popleft())

    async def _say_farewell(self) -> None:
        busy = set(filter(self._relay.is_busy, self._links.lanes))
        notes, farewell = self._relay.farewell(trio.current_time())
        for note in notes:
            self._observe(note.record)
        await self._links.say_farewell(farewell, busy)

    async def _run_errand(self, errand: Errand) -> None:
        self._handle(ErrandDone(await self._errands.run(errand.group, errand.pieces, afresh=errand.afresh)))

    async def _work(self, worker: Worker, run: Callable[[], object]) -> None:
        done = await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._services.workers)
        self._handle(WorkDone(worker, done))


def _unclaimed(frame: memoryview) -> memoryview:
    """A large fetch is copied out of what it was received into: much of it is held until the next one comes."""
    is_held = len(frame) > RESERVE_BYTES and frame[:2] == _FETCH
    return memoryview(bytes(frame)) if is_held else frame


def _name_of(link: Link) -> str:
    """For people."""
    if link is PASS:
        return "pass"
    return f"{link.kind.value}, rackless" if link.source.is_rackless else str(link.kind.value)
