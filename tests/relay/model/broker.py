"""A broker under a virtual clock: long polls, sessions by the real broker half, and every kind of failure.

A fetch is read when it arrives, and again whenever something may have changed, until it has enough bytes or its max
wait is over. The reads are kept, so that the judge can compare them with the client's responses.
"""

import struct
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final
from uuid import UUID

import attrs

from proxy.cluster.topology import Topology
from proxy.errors import ErrorCode
from proxy.fetch.commands import FetcherId
from proxy.session.downstream import (
    FetchContext,
    FetchSessionCache,
    Key,
    PlainPartitionState,
    SessionPartition,
    SessionRequest,
    SessionResponse,
)
from proxy.session.epochs import NO_SESSION, SessionId
from proxy.wire.fetch import FetchRequest, PartitionReply, TopicId, read_request, response_layout
from proxy.wire.fetch import Topic as WireTopic
from proxy.wire.fetch.requests import request_layout
from proxy.wire.headers import read_request_header
from tests.relay.model.logs import Kind, Log, Replica, Stored, Topic

__all__ = ["FOLLOWER", "FOLLOWERS_VERSION", "LEADER", "RACK", "Flight", "Look", "ModelBroker", "ModelFollower"]

LEADER: Final = 1
FOLLOWER: Final = 2
RACK: Final = "b"
"""That of the follower, and ours where we have one."""
FOLLOWERS_VERSION: Final = 11
"""The first version of Fetch in which consumers may read followers, and send racks."""

_REFUSALS: Final = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)


@attrs.frozen
class Look(PlainPartitionState):
    """The result of reading one partition."""

    last_stable: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None
    records: bytes = b""
    log: Log | None = None
    found_nothing: bool = False
    """Whether there was nothing to read, as against nothing that had room."""
    is_followers: bool = False
    """Whether the leader was meant, and it is no leader's word.

    Asked without an epoch, a follower answers all the same (KIP-392).
    """
    diverging_epoch: tuple[int, int] | None = None
    missed_bytes: int = 0
    """The bytes that could have been read without a redirect."""


@attrs.define(eq=False)
class Flight:
    """A fetch that was sent to the broker."""

    request: FetchRequest
    link: FetcherId
    sent_at: int
    """On the count of all events."""
    sent_s: float
    meant: Topology
    """The relay's knowledge of the cluster when the fetch was sent."""
    due_s: float = 0.0
    redirected: frozenset[Key] = frozenset()
    """The partitions to be read elsewhere when the broker first looked."""
    is_looked_at: bool = False
    context: FetchContext | None = None
    """None as long as the broker has not looked at it."""
    covers: Mapping[Key, SessionPartition] = attrs.field(factory=dict)
    """The partitions that it covers, including those of the session."""
    looks: Mapping[Key, Look] = attrs.field(factory=dict)
    """The results; empty until it is answered, and when it was throttled."""
    answer: bytes | None = None
    session_id: SessionId = NO_SESSION
    """The session id of the response."""
    is_throttled: bool = False
    is_lost: bool = False
    begun_at: int | None = None
    """The start of its response, if there was no memory for the rest."""
    begun_s: float = 0.0
    delivered_at: int | None = None
    delivered_s: float = 0.0
    known: Topology = attrs.field(factory=Topology)
    """The relay's knowledge of the cluster when the response came."""

    @property
    def node_id(self) -> int:
        return self.link.source.node_id

    @property
    def is_under_way(self) -> bool:
        return not self.is_lost and self.delivered_at is None


class ModelBroker:
    """Node 1, which leads everything, or is thought to; serves Fetch up to *version*."""

    node_id = LEADER

    def __init__(self, version: int, partitions: Mapping[str, int], slots: int) -> None:
        ids = count(1)
        self.replicas: dict[Log, Replica] = {}
        """The follower's."""
        self.selects = True
        """Whether it sends readers to the follower, if that is in their rack."""
        self.is_slow_to_redirect = False
        """Whether it does so only when their time is up, as old brokers did."""
        self.is_mistaken = False
        """Whether it names a follower that has left the in-sync set, or that cannot have the offset."""
        self.version = version
        self.sessions = FetchSessionCache(slots, lambda: next(ids))
        self.topics: dict[str, Topic] = {}
        self.names: dict[UUID, str] = {}
        self.past: dict[tuple[str, int], list[Log]] = {}
        """Every incarnation of a partition, oldest first."""
        self.flights: list[Flight] = []
        """All that were ever sent and not forgotten, oldest first."""
        self.sent: dict[Stored, list[tuple[Flight, Key]]] = {}
        """In which answers a batch went out whole."""
        self.failed_s: dict[tuple[str, int], float] = {}
        """The last time when an error of a partition was delivered."""
        self.failed_at: dict[tuple[Key, int], int] = {}
        """The same in the count of all events, by the name or id and the leader epoch of the request."""
        self.by_bytes: dict[bytes, Stored] = {}
        self.throttle_ms = 0
        """The throttle time of the next responses; 0 for none."""
        self.accidents = self.refusals = 0
        self.heard: set[SessionId] = set()
        """Sessions that were granted in an answer that arrived."""
        self._ids = count(1)
        self._values = count()
        for name, number in partitions.items():
            self.create(name, number)

    # ------------------------------------------------------------------------------------------- its topics

    def create(self, name: str, partitions: int) -> None:
        """A topic, or a new one in place of one with the same name."""
        old = self.topics.get(name)
        if old is not None:
            del self.names[old.topic_id]
        topic_id = UUID(int=next(self._ids))
        self.names[topic_id] = name
        self.topics[name] = Topic(name, topic_id, [Log(name, topic_id, index) for index in range(partitions)])
        for log in self.topics[name].logs:
            self.past.setdefault(log.key, []).append(log)
            self.replicas[log] = Replica(name, topic_id, log.index, leaders=log)

    def log(self, key: tuple[str, int]) -> Log:
        return self.topics[key[0]].logs[key[1]]

    def logs(self) -> Iterable[Log]:
        return (log for topic in self.topics.values() for log in topic.logs)

    def append(self, log: Log, kind: Kind, records: int, producer: int = -1) -> None:
        """A batch of so many records, no two of which are alike."""
        stored = log.append(kind, [b"%06d" % next(self._values) for _ in range(records)], producer)
        self.by_bytes[stored.data] = stored

    def replicate(self, log: Log, *, hears: bool = True) -> None:
        """All that are in sync have all of it; the follower may not have heard that they do."""
        replica = self.replicas[log]
        replica.is_in_sync &= replica.is_assigned and not replica.error
        if replica.is_in_sync:
            replica.follow(hears=False)
        log.replicate()
        if replica.is_in_sync and hears:
            replica.follow()

    def evict(self) -> None:
        """All sessions, for others' sake."""
        for session_id in list(self.sessions._slots._held):
            self.accidents += self.sessions.evict(session_id)

    # ------------------------------------------------------------------------------------------ its fetches

    def take(self, frame: bytes, link: FetcherId, at: int, now_s: float, known: Topology) -> Flight:
        """A frame, with its size, is on its way."""
        header, cursor = read_request_header(memoryview(frame)[4:])
        assert header.api_version == self.version
        flight = Flight(read_request(header, cursor), link, at, now_s, known)
        said = session_request(flight.request)
        session = self.sessions._slots.get(said.session_id) if said.epoch > 0 else None
        remembered = {} if session is None else {key: entry.wanted for key, entry in session.entries.items()}
        flight.covers = {
            key: ask for key, ask in {**remembered, **said.requested}.items() if key not in said.forget
        }
        self.flights.append(flight)
        return flight

    def open(self, flight: Flight, now_s: float) -> None:
        """Look at a request for the first time."""
        request = flight.request
        flight.context = context = self.sessions.open(session_request(request), now_s)
        flight.due_s = now_s + request.options.max_wait_ms / 1000
        if not context.error:
            flight.covers = dict(context.partitions())
        self.refusals += context.error in _REFUSALS

    def look(self, flight: Flight, now_s: float) -> bool:
        """Read the partitions of a fetch, and answer it if that is enough; return whether it was."""
        context, options = flight.context, flight.request.options
        assert context is not None
        if context.error:
            self._answer(flight, context.answer({}, now_s), {})
            return True
        is_first, flight.is_looked_at = not flight.is_looked_at, True
        looks = self._read(flight, context)
        redirected = frozenset(key for key, look in looks.items() if look.preferred_replica != -1)
        if is_first:
            flight.redirected = redirected
        size = sum(
            len(look.records) or (look.missed_bytes if key not in flight.redirected else 0)
            for key, look in looks.items()
        )
        failed = any(look.error or look.diverging for look in looks.values())
        is_sent_off = is_first and redirected and not self.is_slow_to_redirect
        waits = size < options.min_bytes and looks and not failed and not is_sent_off
        if waits and now_s < flight.due_s:
            return False
        if self.throttle_ms:
            flight.is_throttled = True
            self._answer(flight, context.answer_throttled(), {})
            return True
        evictions = self.sessions.evictions
        answer = context.answer(looks, now_s)
        self.accidents += self.sessions.evictions - evictions
        self.refusals += answer.error in _REFUSALS
        self._answer(flight, answer, looks)
        return True

    def delivered(self, flight: Flight, at: int, now_s: float, known: Topology) -> None:
        flight.delivered_at, flight.delivered_s, flight.known = at, now_s, known
        self.heard.add(flight.session_id)
        for key, look in flight.looks.items():
            if look.error:
                name = self.name_of(key[0], known)
                self.failed_at[key, flight.covers[key].leader_epoch] = at
                if name is not None:
                    self.failed_s[name, key[1]] = now_s

    def name_of(self, topic: str | UUID, known: Topology) -> str | None:
        if isinstance(topic, str):
            return topic
        info = known.topic(TopicId(topic.bytes))
        return self.names.get(topic) or (info.name if info is not None else None)

    def _read(self, flight: Flight, context: FetchContext) -> dict[Key, Look]:
        found: dict[Key, Look] = {}
        missing: dict[Key, Look] = {}
        options = flight.request.options
        room = options.max_bytes
        is_first = True
        for key, ask in context.partitions():
            log = self._locate(key, context.topic_names)
            if not isinstance(log, Log):
                missing[key] = Look(-1, -1, error=log)
                continue
            log = self.own(log)
            refusal = self.refusal(log, key, ask)
            preferred = self._preferred(log, ask, flight.request)
            if refusal and not (refusal == ErrorCode.offset_out_of_range and preferred != -1):
                found[key] = Look(-1, -1, error=refusal)
                continue
            bound = log.bound(options.isolation)
            records = log.read(ask.offset, bound, min(ask.max_bytes, room), at_least_one=is_first)
            missed_bytes = 0
            diverging = None
            if preferred != -1:
                missed_bytes, records = len(records), b""
            elif ask.last_fetched_epoch != -1:
                diverging = log.diverges(ask.last_fetched_epoch, ask.offset)
                records = records if diverging is None else b""
            is_first &= not records
            room = max(room - len(records), 0)
            found[key] = Look(
                log.high_watermark,
                log.start,
                has_records=bool(records),
                last_stable=log.last_stable,
                aborted=log.aborted(ask.offset, bound) if options.isolation else None,
                records=records,
                log=log,
                found_nothing=ask.offset >= bound and preferred == -1 and diverging is None,
                is_followers=self.node_id == LEADER and not log.is_led_here,
                preferred_replica=preferred,
                diverging=diverging is not None,
                diverging_epoch=diverging,
                missed_bytes=missed_bytes,
            )
        return found | missing

    def own(self, log: Log) -> Log:
        """Return this broker's replica of a log."""
        return log

    def would_redirect(self, log: Log, offset: int) -> bool:
        """Whether it would send on who asks for *offset* and is in the follower's rack."""
        replica = self.replicas[log]
        if not (self.selects and log.is_led_here and replica.is_assigned):
            return False
        return self.is_mistaken or (replica.is_in_sync and replica.start <= offset <= replica.end)

    def _preferred(self, log: Log, ask: SessionPartition, request: FetchRequest) -> int:
        is_near = request.version >= FOLLOWERS_VERSION and request.options.rack_id == RACK
        return FOLLOWER if is_near and self.would_redirect(log, ask.offset) else -1

    def _locate(self, key: Key, names: dict[UUID, str]) -> Log | ErrorCode:
        topic, index = key
        if isinstance(topic, UUID):
            name = names.get(topic) or self.names.get(topic)
            if name is None:
                return ErrorCode.unknown_topic_id
            names[topic] = name
        else:
            name = topic
        found = self.topics.get(name)
        if found is None or not 0 <= index < len(found.logs):
            return ErrorCode.unknown_topic_or_partition
        return found.logs[index]

    def refusal(self, log: Log, key: Key, ask: SessionPartition) -> int:
        """The error that this broker answers with; 0 if it reads. *log*: its own."""
        if isinstance(key[0], UUID) and key[0] != log.topic_id:
            return ErrorCode.inconsistent_topic_id
        if log.error and log.error != ErrorCode.offset_out_of_range:
            return log.error
        if 0 <= ask.leader_epoch < log.epoch:
            return ErrorCode.fenced_leader_epoch
        if ask.leader_epoch > log.epoch:
            return ErrorCode.unknown_leader_epoch
        if log.error:
            return log.error  # an offset is looked at last
        if not log.is_led_here and self.version < FOLLOWERS_VERSION:
            return ErrorCode.not_leader_or_follower
        is_unknown = ask.last_fetched_epoch != -1 and log.diverges(ask.last_fetched_epoch, ask.offset) == (-1, -1)
        is_there = log.start <= ask.offset <= log.end
        if ask.last_fetched_epoch != -1:
            is_there = log.start <= ask.offset and not is_unknown
        return ErrorCode.none if is_there else ErrorCode.offset_out_of_range

    def _answer(self, flight: Flight, answer: SessionResponse, looks: Mapping[Key, Look]) -> None:
        flight.looks = looks
        flight.session_id = answer.session_id
        for key in answer.keys:
            at = 0
            look = looks[key]
            while (stored := _batch_at(look, at, self.by_bytes)) is not None:
                self.sent.setdefault(stored, []).append((flight, key))
                at += len(stored.data)
        throttle_ms = self.throttle_ms if flight.is_throttled else 0
        flight.answer = _written(flight.request, answer, looks, throttle_ms)


class ModelFollower(ModelBroker):
    """Node 2, which follows *leader* in everything; serves Fetch up to *version*."""

    node_id = FOLLOWER

    def __init__(self, version: int, leader: ModelBroker, slots: int) -> None:
        super().__init__(version, {}, slots)
        self.topics, self.names, self.past, self.replicas = (
            leader.topics,
            leader.names,
            leader.past,
            leader.replicas,
        )
        self.flights, self.sent, self.by_bytes = leader.flights, leader.sent, leader.by_bytes
        self.sends_back = False
        """Whether it names a replica itself, as old ones did (KAFKA-13778)."""

    def own(self, log: Log) -> Log:
        return self.replicas[log]

    def refusal(self, log: Log, key: Key, ask: SessionPartition) -> int:
        assert isinstance(log, Replica)
        if not log.is_assigned:
            return ErrorCode.not_leader_or_follower
        if not log.is_hosted:
            by_id = isinstance(key[0], UUID)
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        return super().refusal(log, key, ask)

    def _preferred(self, log: Log, ask: SessionPartition, request: FetchRequest) -> int:  # noqa: ARG002
        return LEADER if self.sends_back and request.options.rack_id else -1


def session_request(request: FetchRequest) -> SessionRequest:
    """Return the session fields of a fetch."""
    layout = request_layout(request.version)
    asks: dict[Key, SessionPartition] = {}
    for section in request.sections:
        for fields in layout.entry.iter_unpack(section.entries):
            ask = layout.fetch_partition(fields)
            asks[_heard(section.topic), fields[0]] = SessionPartition(
                ask.offset, ask.max_bytes, ask.epoch, ask.last_fetched_epoch
            )
    forgotten: list[Key] = [(_heard(key.topic), key.partition) for key in request.forgotten]
    session_id = SessionId(request.session_id)
    return SessionRequest(session_id, request.session_epoch, asks, forgotten, layout.by_id)


def _heard(topic: WireTopic) -> str | UUID:
    return UUID(bytes=topic) if isinstance(topic, bytes) else topic


def _batch_at(look: Look, at: int, known: Mapping[bytes, Stored]) -> Stored | None:
    size = 12 + int.from_bytes(look.records[at + 8 : at + 12])
    return known.get(look.records[at : at + size])


def _written(request: FetchRequest, answer: SessionResponse, looks: Mapping[Key, Look], throttle_ms: int) -> bytes:
    layout = response_layout(request.version)
    topics: list[tuple[str | UUID, list[PartitionReply]]] = []
    for key in answer.keys:
        if not topics or topics[-1][0] != key[0]:
            topics.append((key[0], []))
        look = looks[key]
        topics[-1][1].append(
            PartitionReply(
                key[1],
                look.error,
                look.high_watermark,
                look.last_stable,
                look.log_start,
                look.aborted,
                look.preferred_replica,
                look.records,
                look.diverging_epoch,
            )
        )
    front = layout.header(request.header.correlation_id, throttle_ms, answer.error, len(topics))
    if request.version >= 7:
        at = 10 + layout.flexible
        front = front[:at] + struct.pack(">i", answer.session_id) + front[at + 4 :]
    parts: list[bytes | memoryview] = [front]
    for topic, replies in topics:
        parts.append(layout.topic(TopicId(topic.bytes) if isinstance(topic, UUID) else topic, len(replies)))
        for reply in replies:
            head, end = layout.partition(reply, len(reply.records))
            parts += (head, reply.records, end)
        parts.append(layout.topic_end)
    return b"".join([*parts, layout.end(())])
