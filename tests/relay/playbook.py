"""One client connection without sockets: frames of client and broker are encoded and decoded with kio.

``Play`` holds topic ``t``, led by node 1 by default, and a ``ClientRelay`` for a client that connected to the
listener
of node 1. A test calls the events, and checks the requests to the broker and the responses to the client.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, get_args, get_type_hints

import attrs
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.primitive import i16, i32, i32Timedelta, i64

from proxy.cluster.routing import Selector, Source
from proxy.cluster.topology import Broker, BrokerId, Leader, Replicas, TopicInfo, Topology
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.fetch.converting import DEFAULT_POLICY, Policy
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import (
    PASS,
    ClientFrame,
    Command,
    Event,
    Link,
    LinkFrame,
    LinkLost,
    LinkOpened,
    MetadataUpdated,
    OpenLink,
    Pass,
    RefreshMetadata,
    Reply,
    RunInThread,
    Send,
    ThreadFinished,
    Tick,
)
from proxy.wire import messages
from proxy.wire.apis import VersionRange
from proxy.wire.fetch import TopicId
from tests.pieces import joined
from tests.relay.driver import MemoryNeeded
from tests.relay.solo import Solo
from tests.wire.entities import item_type, made

__all__ = [
    "CATCH_UP",
    "LIVE",
    "LONG_POLL",
    "Asked",
    "Part",
    "Play",
    "brokers_answer",
    "fetcher_id",
    "of_type",
    "topology",
]

C = TypeVar("C")
TOPIC_ID = uuid.UUID(int=7)
NEWEST = 18


def fetcher_id(node_id: int, kind: FetcherKind = FetcherKind.LONG_POLL, *, rackless: bool = False) -> FetcherId:
    return FetcherId(Source(BrokerId(node_id), rackless), kind)


LONG_POLL = fetcher_id(1)
LIVE = fetcher_id(1, FetcherKind.LIVE)
CATCH_UP = fetcher_id(1, FetcherKind.CATCH_UP)


@attrs.frozen
class Part:
    """One partition of an answer."""

    error: int = 0
    high_watermark: int = 100
    records: bytes = b""
    aborted: tuple[tuple[int, int], ...] | None = None
    preferred: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset)."""
    log_start: int = 0


@attrs.frozen
class Asked:
    """A fetch as the broker reads it."""

    link: Link
    client_id: str | None
    session_id: int
    epoch: int
    offsets: Mapping[int, int]
    """The offsets by partition of ``t``, in the order of the request."""
    leader_epochs: Mapping[int, int]
    forgotten: Sequence[int]
    max_wait_ms: int
    min_bytes: int
    isolation: int
    rack: str = ""
    looks_back: Mapping[int, int] = attrs.field(factory=dict)
    """Last fetched epochs, where there are any."""
    frame_bytes: int = 0
    """With its size."""
    part_bytes: Mapping[int, int] = attrs.field(factory=dict)
    """The most of each partition."""


def topology(
    partitions: int = 3,
    *,
    leaders: Mapping[int, int] | None = None,
    epoch: int = 5,
    topic_id: uuid.UUID = TOPIC_ID,
    in_sync: Sequence[int] = (1, 2, 3),
    online: Sequence[int] = (1, 2, 3),
    racks: Sequence[str | None] = ("a", "b", "c"),
) -> Topology:
    """Topic ``t`` in a cluster of nodes 1, 2 and 3, all of which have replicas."""
    replicas = Replicas(*(tuple(BrokerId(node) for node in each) for each in (online, in_sync)))
    led = {p: Leader(BrokerId((leaders or {}).get(p, 1)), epoch) for p in range(partitions)}
    info = TopicInfo("t", TopicId(topic_id.bytes), 0, led, dict.fromkeys(range(partitions), replicas))
    brokers = {
        BrokerId(node): Broker(BrokerId(node), "broker.internal", 19000 + node, rack)
        for node, rack in enumerate(racks, start=1)
    }
    return Topology("cluster", brokers, {"t": info, TopicId(topic_id.bytes): info})


def of_type(kind: type[C], commands: Iterable[Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


class Play:
    """A conversation; time stands at ``now_s`` unless a test moves it."""

    def __init__(
        self,
        known: Topology | None = None,
        *,
        broker_fetch: int = NEWEST,
        upstream_max_wait_s: float = 0,
        policy: Policy = DEFAULT_POLICY,
        rack: str = "",
        selector: Selector = Selector.BROKER,
        works: bool = True,
        client_sessions: int = 0,
        records_exchanges: bool = True,
        reads_ahead: bool = False,
    ) -> None:
        """Args: works: long tasks are done at once."""
        self.now_s = 1000.0
        self.broker_fetch = broker_fetch
        self.part_bytes = 1 << 20
        """The client's limit of a partition."""
        self.known = known or topology()
        ids = count(100)
        self.sessions = ClientSessions(client_sessions, lambda: next(ids))
        """The sessions of clients, with ids from 100 on; they stay if ``reconnect`` replaces the relay."""
        self._reading = FetchConfig(
            upstream_max_wait_s,
            fetch_buffer_bytes=8 << 20,
            response_timeout_s=5,
            policy=policy,
            rack=rack,
            selector=selector,
            sessions=self.sessions,
            reads_ahead=reads_ahead,
            records_exchanges=records_exchanges,
            checks_liveness=True,
        )
        self._works = works
        self.relay = Solo(BrokerId(1), self.map_address, self._reading)
        self.bypass = FetchRules()
        self.share_reads_except = FetchRules()
        self.asked: list[Asked] = []
        """The fetches that the broker has been sent."""
        self.passed: list[bytes] = []
        """The frames that it has been sent as they came."""
        self._correlation_ids: dict[Link, int] = {}
        self._last: dict[Link, Asked] = {}

    @staticmethod
    def map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
        assert (host, port) == ("broker.internal", 19000 + node_id)
        return "127.0.0.1", 9093 + node_id

    def handle(self, event: Event | MemoryNeeded) -> list[Command]:
        """Handle one event, and open the links that the relay requests; return the remaining commands."""
        left: list[Command] = []
        pending: list[Event | MemoryNeeded] = [event]
        while pending:
            for command in self.relay.handle(pending.pop(0), self.now_s):
                match command:
                    case Send(Pass.PASS, pieces):
                        self.passed.append(b"".join(pieces))
                    case Send(link, pieces):
                        self._last[link] = self._read_fetch(link, b"".join(pieces))
                        self.asked.append(self._last[link])
                    case RunInThread(worker, run) if self._works:
                        pending.append(ThreadFinished(worker, run()))
                    case _:
                        left.append(command)
        return left

    def reconnect(self) -> None:
        """The client comes on another connection; nothing is open."""
        self.relay = Solo(BrokerId(1), self.map_address, self._reading)

    def open(self, link: Link) -> list[Command]:
        """The link has come up; that of a fetcher to a broker that serves Fetch up to ``broker_fetch``."""
        ranges = {} if link is PASS else {1: VersionRange(0, self.broker_fetch)}
        return self.handle(LinkOpened(link, ranges))

    def open_wanted(self, commands: Iterable[Command]) -> list[Command]:
        """Open the links that *commands* ask for; return the commands that follow."""
        return [each for wanted in of_type(OpenLink, commands) for each in self.open(wanted.link)]

    def fetch(
        self,
        offsets: Mapping[int, int],
        *,
        version: int = 11,
        correlation_id: int = 1,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        last_fetched_epochs: Mapping[int, int] | None = None,
        epochs: Mapping[int, int] | None = None,
        client_id: str = "the-client",
        **options: Any,
    ) -> list[Command]:
        """Handle a client's fetch of partitions of ``t``.

        Args: last_fetched_epochs: by partition; from version 12 on.
              epochs: the leader epochs that the client knows, by partition; from version 9 on.
        """
        kind: Any = load_request_schema(i16(1), i16(version))
        topic_type = item_type(kind, "topics")
        partition_type = item_type(topic_type, "partitions")
        partitions = tuple(
            made(
                partition_type,
                partition=i32(p),
                fetch_offset=i64(offset),
                partition_max_bytes=i32(self.part_bytes),
                **({"current_leader_epoch": i32(epochs[p])} if epochs else {}),
                **({"last_fetched_epoch": i32(last_fetched_epochs[p])} if last_fetched_epochs else {}),
            )
            for p, offset in offsets.items()
        )
        name = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
        body = made(
            kind,
            topics=(made(topic_type, partitions=partitions, **name),) if partitions else (),
            max_wait=i32Timedelta.parse(timedelta(milliseconds=max_wait_ms)),
            min_bytes=i32(min_bytes),
            **options,
        )
        return self.request(messages.request_frame(correlation_id, client_id, body))

    def request(self, frame: bytes) -> list[Command]:
        """Any request of the client, with its size."""
        return self.handle(ClientFrame(memoryview(frame)[4:], self.known, self.bypass, self.share_reads_except))

    def answer(
        self,
        parts: Mapping[int, Part],
        *,
        link: Link = LONG_POLL,
        session_id: int | None = None,
        **fields: Any,
    ) -> list[Command]:
        """Send the broker's response to the fetcher's last request; within its session, unless another is given.

        Args: fields: as for ``answer_frame``.
        """
        if session_id is None:
            asked = self._last[link]
            session_id = asked.session_id if asked.epoch > 0 else 0
        return self.handle(LinkFrame(link, self.answer_frame(parts, link, session_id, **fields)))

    def answer_frame(
        self,
        parts: Mapping[int, Part],
        link: Link,
        session_id: int,
        *,
        error: int = 0,
        throttle_ms: int = 0,
        leaders: Iterable[int] = (),
        topic_id: uuid.UUID = TOPIC_ID,
    ) -> memoryview:
        """Return a broker's response to its last request, without its size.

        Args: leaders: the nodes whose addresses it contains.
        """
        kind: Any = load_response_schema(i16(1), i16(self.broker_fetch))
        topic_type = item_type(kind, "responses")
        name = {"topic_id": topic_id} if self.broker_fetch >= 13 else {"topic": "t"}
        topics = (made(topic_type, partitions=tuple(_parts(topic_type, parts)), **name),) if parts else ()
        body = made(
            kind,
            throttle_time=i32Timedelta.parse(timedelta(milliseconds=throttle_ms)),
            responses=topics,
            **({"error_code": ErrorCode(error), "session_id": i32(session_id)} if self.broker_fetch >= 7 else {}),
            **({"node_endpoints": tuple(_endpoints(kind, leaders))} if self.broker_fetch >= 16 else {}),
        )
        return memoryview(messages.response_frame(self._correlation_ids[link], body))[4:]

    def asked_on(self, link: Link) -> list[Asked]:
        return [asked for asked in self.asked if asked.link == link]

    def wait(self, seconds: float) -> list[Command]:
        """Time passes, and whatever it was waited for is done."""
        left: list[Command] = []
        until_s = self.now_s + seconds
        while (due_s := self.relay.deadline_s) is not None and due_s <= until_s:
            self.now_s = due_s
            left += self.handle(Tick())
        self.now_s = until_s
        return left

    def lose(self, link: Link) -> list[Command]:
        return self.handle(LinkLost(link))

    def update_topology(self, known: Topology) -> list[Command]:
        self.known = known
        return self.handle(MetadataUpdated(known))

    def established(self, *partitions: int, session_id: int = 7, version: int = 11) -> None:
        """Two fetches of *partitions* from offset 0, after which there is a session."""
        offsets = dict.fromkeys(partitions, 0)
        idle = dict.fromkeys(partitions, Part())
        self.fetch(offsets, version=version)
        self.open(LONG_POLL)
        self.wait(0.5)
        self.answer(idle)
        self.fetch(offsets, version=version)
        self.answer(idle, session_id=session_id)
        self.wait(0.5)
        self.asked.clear()

    def forget(self) -> None:
        """Drop all memory except the relay's. No fetcher can be answered before its next request."""
        self.asked.clear()
        self._last.clear()

    def _read_fetch(self, link: Link, frame: bytes) -> Asked:
        kind: Any = load_request_schema(i16(1), i16(self.broker_fetch))
        header, size = entity_reader(kind.__header_schema__)(frame, 4)
        body, _ = entity_reader(kind)(frame, 4 + size)
        self._correlation_ids[link] = header.correlation_id
        parts = [part for topic in body.topics for part in topic.partitions]
        forgotten = [p for topic in getattr(body, "forgotten_topics_data", ()) for p in topic.partitions]
        return Asked(
            link,
            header.client_id,
            getattr(body, "session_id", 0),
            getattr(body, "session_epoch", -1),
            {part.partition: part.fetch_offset for part in parts},
            {part.partition: getattr(part, "current_leader_epoch", -1) for part in parts},
            forgotten,
            round(body.max_wait.total_seconds() * 1000),
            body.min_bytes,
            body.isolation_level,
            getattr(body, "rack_id", ""),
            {part.partition: epoch for part in parts if (epoch := getattr(part, "last_fetched_epoch", -1)) != -1},
            len(frame),
            {part.partition: part.partition_max_bytes for part in parts},
        )


def _parts(topic_type: Any, parts: Mapping[int, Part]) -> Iterable[Any]:
    kind = item_type(topic_type, "partitions")
    for partition, part in parts.items():
        aborted = None
        if part.aborted is not None:
            aborted_type = _aborted_type(kind)
            aborted = tuple(
                made(aborted_type, producer_id=i64(producer), first_offset=i64(first))
                for producer, first in part.aborted
            )
        offsets: dict[str, Any] = {"last_stable_offset": i64(part.high_watermark)}
        offsets["log_start_offset"] = i64(part.log_start)
        if part.preferred != -1:
            offsets["preferred_read_replica"] = i32(part.preferred)
        if part.diverging is not None:
            epoch, end_offset = part.diverging
            diverging_type = get_type_hints(kind)["diverging_epoch"]
            offsets["diverging_epoch"] = made(diverging_type, epoch=i32(epoch), end_offset=i64(end_offset))
        names = set(kind.__dataclass_fields__)
        yield made(
            kind,
            partition_index=i32(partition),
            error_code=ErrorCode(part.error),
            high_watermark=i64(part.high_watermark),
            aborted_transactions=aborted,
            records=part.records,
            **{name: value for name, value in offsets.items() if name in names},
        )


def _endpoints(kind: Any, leaders: Iterable[int]) -> Iterable[Any]:
    endpoint_type = item_type(kind, "node_endpoints")
    for node_id in leaders:
        yield made(endpoint_type, node_id=i32(node_id), host="broker.internal", port=i32(19000 + node_id))


def _aborted_type(kind: Any) -> Any:
    (array,) = (each for each in get_args(get_type_hints(kind)["aborted_transactions"]) if each is not type(None))
    return get_args(array)[0]


def client_responses(commands: Iterable[Command], *, version: int = 11) -> list[Any]:
    """The fetch answers among *commands*, as kio reads them."""
    kind: Any = load_response_schema(i16(1), i16(version))
    answers = []
    for reply in of_type(Reply, commands):
        frame = joined(reply.pieces)
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        answers.append(messages.read_response(kind, frame[4:])[1])
    return answers


def parts_of(answer: Any) -> dict[int, tuple[int, int]]:
    """(error, high watermark) by partition, in the answer's order."""
    return {
        part.partition_index: (int(part.error_code), part.high_watermark)
        for topic in answer.responses
        for part in topic.partitions
    }


def learnt(commands: Iterable[Command]) -> list[frozenset[Any]]:
    return [command.topics for command in of_type(RefreshMetadata, commands)]


def brokers_answer(correlation_id: int, *, version: int = 11, **options: Any) -> tuple[bytes, LinkFrame]:
    """With its size, and as it comes."""
    kind: Any = load_response_schema(i16(1), i16(version))
    frame = messages.response_frame(correlation_id, made(kind, **options))
    return frame, LinkFrame(PASS, memoryview(frame)[4:])
