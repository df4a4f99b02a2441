"""The state machine of one client connection, from its first frame to its last: events in, commands out."""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, assert_never

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.config.allowed_apis import API_NAMES
from proxy.errors import ClientProtocolError, LimitReached, MalformedFrame, ProxyError
from proxy.events import ClientRecord
from proxy.fetch.cache import LogCache
from proxy.fetch.commands import Answered, ReaderCommand
from proxy.fetch.exchange import refuse_follower
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.reader import Caches, Reader
from proxy.fetch_rules import FetchRules
from proxy.relay.api_usage import ApiUsage
from proxy.relay.bypass import BypassState
from proxy.relay.commands import (
    ClientFrame,
    Command,
    Delivered,
    Draining,
    Event,
    FetchMemoryShort,
    GroupCoordinatorResult,
    LinkAnswering,
    LinkFrame,
    LinkLost,
    LinkOpened,
    LogsChanged,
    MetadataUpdated,
    PrincipalChanged,
    Reply,
    RunInThread,
    ThreadFinished,
    Tick,
    Worker,
)
from proxy.relay.limits import DEFAULT_LIMITS, RequestLimits
from proxy.relay.passing import PassThrough
from proxy.relay.pipeline import Pipeline, Slot
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION
from proxy.wire import api_versions, fetch
from proxy.wire.addresses import AddressMap
from proxy.wire.apis import ApiKey, is_accepted
from proxy.wire.frames import SIZE_BYTES
from proxy.wire.headers import RequestHeader, read_request_header
from proxy.wire.primitives import Cursor

__all__ = ["ClientRelay", "Sasl"]

_MOST_WAITING_BYTES: Final = 64 * 1024
_QUICK_FETCH_BYTES: Final = 64 * 1024
"""The largest fetch that is always decoded in the event loop: with 2,000 topics, it takes a few milliseconds."""
_COPIES: Final = 3
"""The memory of a parsed request, relative to its frame: a copy of that, the names of topics, and the entries."""
_SERVED_BY_ALL: Final = 4
"""First Fetch version that Kafka 4 serves (KIP-896); older ones cannot be forwarded unchanged."""


class Sasl(enum.Enum):
    """The party that authenticates to the brokers, and so the treatment of a client's SASL requests.

    ``PASSES``: the client may, so its SASL exchange is forwarded. ``REQUIRED``: the client must, and a fetch before
    its login closes its connection. ``OURS``: only Sidefetch does, and SASL requests of clients are refused.
    """

    PASSES = enum.auto()
    """The client may authenticate; its SASL exchange is forwarded."""
    REQUIRED = enum.auto()
    """The client must authenticate before its first fetch; its SASL exchange is forwarded."""
    OURS = enum.auto()
    """Sidefetch authenticates; SASL requests of clients are refused."""


@attrs.frozen
class _Fetch:
    """A fetch that waits until all earlier requests of the client are answered."""

    request: fetch.FetchRequest
    frame_bytes: int
    """The size of the request in bytes, with the size prefix."""
    slot: Slot
    share_reads_except: FetchRules
    """The rules at its arrival for fetches that are answered from a log cache of the client's own."""


class ClientRelay:
    """The protocol logic of one client connection to the listener that stands for broker *node_id*.

    Fetches are answered by Sidefetch's own ``Reader``, unless a bypass rule has them forwarded; all other requests
    are forwarded to that broker. Responses leave in the order of the requests.

    Use: pass events to ``handle``, carry out the commands that it returns, and pass a ``Tick`` at ``deadline_s``.
    """

    def __init__(
        self,
        node_id: BrokerId,
        map_address: AddressMap,
        config: FetchConfig,
        caches: Caches,
        sasl: Sasl = Sasl.PASSES,
        limits: RequestLimits = DEFAULT_LIMITS,
    ) -> None:
        """Create the state of a connection that has had no request.

        Args: map_address: maps the address of a broker to the one that the client gets.
              config: the settings of fetches, and the fetch sessions of clients.
              caches:  the log caches that fetches are answered from.
        """
        self._limits = limits
        self._topology = Topology()
        self._node_id = node_id
        self._config = config
        self._sasl = sasl
        self._caches = caches
        self._map_address = map_address
        self._create_reader(config)
        self._has_read = False
        """Whether the reader has handled a fetch."""
        self._is_draining = False
        self._api_usage = ApiUsage() if config.records_exchanges else None
        self._pipeline = Pipeline()
        self._pass_through = PassThrough(
            self._pipeline, map_address, passes_sasl=sasl is not Sasl.OURS, allowed_apis=limits.apis
        )
        self._is_identified = False
        self._repeats = fetch.Repeats()
        self.is_rested = False
        """Whether the memory of the client's last fetch was freed, so that the next one costs more."""
        self._decoding: ClientFrame | None = None
        """The fetch that a thread decodes; the client's next request is read after it."""
        self._fetches: deque[_Fetch] = deque()
        self._answering_slot: Slot | None = None
        """The slot of the fetch that the reader is answering."""

    def _create_reader(self, config: FetchConfig) -> None:
        self._new_reader = partial(Reader, self._node_id, self._map_address, config, self._caches)
        self._reader = self._new_reader()
        self._bypass = BypassState(self._node_id, config.sessions)

    @property
    def takes_requests(self) -> bool:
        """Whether the caller may read the client's next request.

        False while as many requests are unanswered as the limit allows, while earlier requests wait in Sidefetch to
        be sent to the broker (``PassThrough.takes_requests``), while a thread decodes a fetch, or while fetches of
        over 64 KiB in total wait for the response to an earlier one: they take much more memory than their frames.
        """
        is_small = sum(each.frame_bytes for each in self._fetches) <= _MOST_WAITING_BYTES
        return not (self.is_full or self._decoding) and is_small and self._pass_through.takes_requests

    @property
    def is_full(self) -> bool:
        """Whether the number of unanswered requests has reached its limit, ``RequestLimits.in_flight``."""
        return len(self._pipeline) >= self._limits.in_flight

    @property
    def has_unanswered(self) -> bool:
        """Whether a request of the client is unanswered; the connection does not count as idle then."""
        return len(self._pipeline) > 0 or self._decoding is not None

    @property
    def is_preparing_fetch(self) -> bool:
        """Whether a fetch is unanswered, and waits for more than long polls of brokers."""
        return self._has_waiting_fetch or self._reader.is_preparing

    @property
    def _has_waiting_fetch(self) -> bool:
        """Whether the reader has not begun with a fetch of the client."""
        return bool(self._fetches) or self._decoding is not None

    @property
    def fetch_bytes(self) -> int:
        """An estimate of the memory of the client's last fetch: of its partitions, its frame and parsed copies."""
        return self._reader.state_bytes + _COPIES * self._repeats.frame_bytes

    @property
    def deadline_s(self) -> float | None:
        deadlines = (self._reader.deadline_s, self._pass_through.deadline_s)
        return min((each for each in deadlines if each is not None), default=None)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Handle one event; return the commands to carry out, in order.

        Args:   now_s: the present time in seconds; only differences and ``deadline_s`` have a meaning.
        Raises: ClientProtocolError, BrokerProtocolError, BrokerUnavailable, LimitReached: the client's connection
            must be closed.
        """
        return list(self._handle(event, now_s))

    @property
    def cache(self) -> LogCache | None:
        """The log cache that the client's fetches are answered from; None before the first."""
        return self._reader.cache

    @property
    def reader(self) -> Reader:
        """The reader that answers the client's fetches."""
        return self._reader

    def client_record(self) -> ClientRecord | None:
        """Return the counts of the client's requests by API and version, and the client's software.

        None if telemetry is off, or the client has sent no request.
        """
        return None if self._api_usage is None else self._api_usage.make_record(self._upgraded_version)

    def _upgraded_version(self, key: int, version: int) -> int:
        return (
            self._reader.version or version
            if key == ApiKey.FETCH
            else self._pass_through.upgraded_version(key, version)
        )

    def rest(self, now_s: float) -> bool:
        """Free the memory of the client's last fetch, unless one is unanswered; return whether that was done.

        The next fetch costs as much as the first one of the connection.
        """
        if self._has_waiting_fetch or self._reader.is_answering:
            return False
        self._reader.rest(now_s)
        self._repeats = fetch.Repeats()
        self.is_rested = True
        return True

    def close(self, now_s: float) -> None:
        """Stop reading for the client, which has gone, and free the memory of its fetches.

        Objects of a connection refer to each other: what they hold would stay until the next garbage collection.
        """
        self._fetches.clear()
        self._decoding = None
        self._reader.leave(now_s)
        self.rest(now_s)

    def _handle(self, event: Event, now_s: float) -> Iterator[Command]:
        match event:
            case ClientFrame():
                self._topology = event.topology
                yield from self._handle_request(event, now_s)
            case LinkFrame(_, frame):
                yield from self._process_pass_through(self._pass_through.handle_response(frame, now_s), now_s)
            case LinkOpened():
                yield from self._pass_through.handle_link_opened()
            case LinkAnswering():
                pass
            case LinkLost():
                self._pass_through.handle_link_lost()
            case LogsChanged():
                yield from self._process_reader(self._reader.settle(now_s), now_s)
            case MetadataUpdated(topology):
                self._topology = topology
                yield from self._process_reader(self._reader.topology_updated(topology, now_s), now_s)
            case GroupCoordinatorResult(frame):
                yield from self._process_pass_through(
                    self._pass_through.handle_coordinator_response(frame, now_s), now_s
                )
            case ThreadFinished(worker, result):
                yield from self._handle_thread_result(worker, result, now_s)
            case Tick():
                self._pass_through.tick(now_s)
                yield from self._send_ready()
                yield from self._process_reader(self._reader.settle(now_s), now_s)
            case Draining():
                self._is_draining = True
                yield from self._process_reader(self._reader.drain(now_s), now_s)
            case FetchMemoryShort():
                yield from self._process_reader(self._reader.end_wait(now_s), now_s)
            case never:
                assert_never(never)

    def _handle_thread_result(self, worker: Worker, result: object, now_s: float) -> Iterator[Command]:
        match worker:
            case Worker.REQUEST:
                yield from self._handle_decoded(result, now_s)
            case Worker.READER:
                yield from self._process_reader(self._reader.thread_finished(result, now_s), now_s)
            case Worker.PASS | Worker.ADDRESSES:
                commands = self._pass_through.handle_thread_result(result, now_s)
                yield from self._process_pass_through(commands, now_s)
            case never:
                assert_never(never)

    # ------------------------------------------------------------------------------------------- requests

    def _handle_request(self, arrival: ClientFrame, now_s: float) -> Iterator[Command]:
        frame = arrival.frame
        if self._pass_through.detect_token(frame):
            yield from self._process_pass_through(self._pass_through.forward_token(frame), now_s)
            return
        try:
            header, cursor = read_request_header(frame)
            if self._api_usage is not None:
                self._api_usage.add_request(header, frame)
            if not is_accepted(header.api_key, header.api_version, self._limits.apis):
                yield from self._refuse_request(header)
            elif header.api_key == ApiKey.FETCH:
                yield from self._read_fetch(arrival, header, cursor, now_s)
            else:
                if header.api_key == ApiKey.METADATA:
                    yield from self._process_reader(self._reader.look_again(now_s), now_s)
                commands = self._pass_through.forward_request(header, frame, now_s)
                yield from self._process_pass_through(commands, now_s)
        except MalformedFrame as wrong:
            raise _malformed_request(wrong) from wrong

    def _refuse_request(self, header: RequestHeader) -> Iterator[Command]:
        """Answer ApiVersions in an unknown version; refuse any other request whose API or version is not allowed.

        Raises: ClientProtocolError: it is another request.
        """
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS:
            self._pipeline.add_slot().pieces = [api_versions.unsupported_version_response(header.correlation_id)]
            yield from self._send_ready()
        elif is_accepted(key, version):
            raise ClientProtocolError(f"{API_NAMES[key]} is not one of allowed-apis")
        else:
            raise ClientProtocolError(f"API {key} v{version} is not known to Sidefetch")

    def _read_fetch(
        self, arrival: ClientFrame, header: RequestHeader, cursor: Cursor, now_s: float
    ) -> Iterator[Command]:
        """Decode a fetch, in a thread if it is large and not a repetition of the last one; then take it."""
        if self._sasl is Sasl.REQUIRED and not self._pass_through.identity.is_known:
            raise ClientProtocolError("it fetches without having logged in")
        read = partial(self._repeats.read, header, cursor, self._limits.fetch_partitions)
        if len(arrival.frame) <= _QUICK_FETCH_BYTES or self._repeats.is_repeated(header, arrival.frame):
            yield from self._take_fetch(arrival, read(), now_s)
        else:
            self._decoding = arrival
            yield RunInThread(Worker.REQUEST, partial(_read_in_thread, read))

    def _handle_decoded(self, decoded: object, now_s: float) -> Iterator[Command]:
        """Take a fetch that a thread has decoded; raise the error if it could not be decoded."""
        arrival, self._decoding = self._decoding, None
        assert arrival is not None
        if isinstance(decoded, ProxyError):
            raise decoded
        assert isinstance(decoded, fetch.FetchRequest)
        yield from self._take_fetch(arrival, decoded, now_s)

    def _take_fetch(self, arrival: ClientFrame, request: fetch.FetchRequest, now_s: float) -> Iterator[Command]:
        """Forward a fetch to the broker if a bypass rule says so; else answer it after all earlier requests."""
        header = request.header
        can_forward = header.api_version >= _SERVED_BY_ALL or self._bypass.is_forced
        if can_forward and self._bypass.decide(request, arrival.bypass, self._topology):
            refuse_follower(request.replica_id)
            commands = self._pass_through.forward_request(header, arrival.frame, now_s)
            yield from self._process_pass_through(commands, now_s)
            self._replace_reader(now_s)
        else:
            yield from self._close_abandoned_session(header, now_s)
            frame_bytes, slot = SIZE_BYTES + len(arrival.frame), self._pipeline.add_slot()
            self._fetches.append(_Fetch(request, frame_bytes, slot, arrival.share_reads_except))
            yield from self._start_next_fetch(now_s)

    def _close_abandoned_session(self, client: RequestHeader, now_s: float) -> Iterator[Command]:
        """Close the fetch session that the broker created in a forwarded fetch of the client; drop the response."""
        session_id = self._bypass.abandoned_session_id
        if session_id != NO_SESSION:
            options = fetch.FetchOptions(max_wait_ms=0, min_bytes=0)
            framed = fetch.write_request(client, options, session_id, FINAL_EPOCH, {}, ())
            yield from self._pass_through.send_own_request(client, framed, now_s)

    def _start_next_fetch(self, now_s: float) -> Iterator[Command]:
        """Start the oldest waiting fetch, once every request before it is answered.

        Brokers handle the requests of a connection one after another, so a fetch reads the records that were
        produced before it.
        """
        while self._fetches and self._pipeline.is_next(self._fetches[0].slot):
            each, self._has_read, self.is_rested = self._fetches.popleft(), True, False
            self._answering_slot = each.slot
            commands = self._reader.fetch(
                each.request,
                self._topology,
                now_s,
                request_bytes=each.frame_bytes,
                share_reads_except=each.share_reads_except,
            )
            yield from self._translate_commands(commands)

    def _replace_reader(self, now_s: float) -> None:
        """Replace a reader that owes no response by a new one if all fetches are forwarded now."""
        if self._bypass.is_lasting and self._has_read and not (self._fetches or self._reader.is_answering):
            self._reader.leave(now_s)
            self._reader, self._has_read = self._new_reader(), False
            if self._is_draining:
                self._reader.drain(now_s)

    # -------------------------------------------------------------------------------------------- answers

    def _process_pass_through(self, commands: Iterable[Command], now_s: float) -> Iterator[Command]:
        for command in commands:
            if isinstance(command, PrincipalChanged):
                self._use_principal(command)
            yield command
        yield from self._send_ready()
        yield from self._start_next_fetch(now_s)

    def _use_principal(self, change: PrincipalChanged) -> None:
        """Use the client's principal for upstream fetches; if its login cannot be repeated, forward all fetches.

        Raises: ClientProtocolError: fetches were already answered for another principal.
        """
        if change.login is None:
            self._bypass.is_forced = True
        elif not self._is_identified:
            if self._has_read:
                raise ClientProtocolError("it has fetched before it logged in")
            self._create_reader(self._config.of(change.principal))
        self._is_identified = True

    def _process_reader(self, commands: Iterable[ReaderCommand], now_s: float) -> Iterator[Command]:
        yield from self._translate_commands(commands)
        yield from self._start_next_fetch(now_s)
        self._replace_reader(now_s)

    def _translate_commands(self, commands: Iterable[ReaderCommand]) -> Iterator[Command]:
        """Yield the reader's commands, with a response put into its place among all responses."""
        for command in commands:
            if not isinstance(command, Answered):
                yield command
                continue
            assert self._answering_slot is not None
            slot, self._answering_slot = self._answering_slot, None
            slot.pieces, slot.record = command.pieces, command.record
            yield from self._send_ready()
            plain = [piece for piece in command.pieces if isinstance(piece, bytes | memoryview)]
            if len(plain) == len(command.pieces):
                yield Delivered(command.request, plain, self._topology)

    def _send_ready(self) -> Iterator[Command]:
        for pieces, record in self._pipeline.take_ready():
            yield Reply(pieces, record)


def _malformed_request(wrong: MalformedFrame) -> ClientProtocolError:
    return ClientProtocolError(f"malformed request: {wrong}")


def _read_in_thread(read: Callable[[], fetch.FetchRequest]) -> fetch.FetchRequest | ProxyError:
    """Return the fetch that *read* decodes, or the error for which the client's connection must be closed."""
    try:
        return read()
    except MalformedFrame as wrong:
        return _malformed_request(wrong)
    except LimitReached as wrong:
        return wrong
