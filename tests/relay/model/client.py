"""A client that fetches partitions in its own order and accepts, discards or skips responses at random."""

from collections.abc import Mapping
from typing import Final

import attrs

from proxy.cluster.topology import Topology
from proxy.errors import ErrorCode
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import AcceptedResponse, FetchPlan, SessionResponseFields, UpstreamSession
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    UNKNOWN,
    FetchOptions,
    FetchPartition,
    FetchResponse,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
    read_response,
    write_request,
)
from proxy.wire.headers import RequestHeader
from tests.relay.model.broker import ModelBroker
from tests.relay.model.logs import Log, whole_batches

__all__ = ["Exchange", "ModelClient", "Position", "Said"]

_EPOCHS_VERSION: Final = 9
_SESSIONS_VERSION: Final = 7

Name = tuple[str, int]
"""Topic and partition."""


@attrs.define
class Position:
    """The client's position in a partition."""

    offset: int
    max_bytes: int = 1 << 20
    epoch: int = UNKNOWN
    """The leader epoch that it knows; -1 if it knows none."""


@attrs.define(eq=False)
class Exchange:
    """A fetch of the client."""

    correlation_id: int
    options: FetchOptions
    asks: dict[Name, FetchPartition]
    """In the client's order."""
    ids: dict[str, TopicId]
    heeds: int
    """The answered partitions that it accepts: a bit for each, in its order."""
    sent_at: int
    """On the count of all events."""
    begun_s: float
    """The time when it was sent, or when the one before it was answered."""
    bounds: dict[Name, tuple[int, int]]
    """(generation, offset up to which there were records) of each partition when it was sent."""
    follower_bounds: dict[Name, tuple[int, int]]
    """The same bounds of the follower's replica."""
    known: list[Topology] = attrs.field(factory=list)
    """The relay's topology when it was sent, and all later ones."""
    ready_s: float = float("inf")
    """The time since when there have been records to answer it with."""
    delays_s: float = 0.0
    """The sum of delays until then."""


@attrs.frozen
class Said:
    """A partition of an answer."""

    name: Name
    ask: FetchPartition
    reply: PartitionReply


class ModelClient:
    """Speaks Fetch *version*. Positions are kept per partition, in the order of asking."""

    def __init__(
        self, version: int, isolation: int, *, knows_epochs: bool, has_sessions: bool, broker: ModelBroker
    ) -> None:
        self.version = version
        self.has_session = has_sessions and version >= _SESSIONS_VERSION
        """Whether it asks incrementally, and is answered so."""
        self._session = UpstreamSession()
        self._plan = FetchPlan(NO_SESSION, FINAL_EPOCH, {}, (), 0)
        """The session fields of the waiting exchange."""
        self._asked: Mapping[PartitionKey, FetchPartition] = {}
        self._reported: dict[PartitionKey, PartitionReply] = {}
        """The values that responses within the session need not repeat."""
        self.isolation = isolation
        self.positions: dict[Name, Position] = {}
        self.waiting: list[Exchange] = []
        """Exchanges without an answer, oldest first."""
        self.answered_s = 0.0
        self._ids: dict[str, TopicId] = {}
        self._epochs: dict[Name, int] = {}
        self._knows_epochs = knows_epochs and version >= _EPOCHS_VERSION
        self._broker = broker
        self._correlation_id = 0
        self.refresh()

    @property
    def may_ask(self) -> bool:
        """Whether it sends another fetch now: up to two ahead, but in a session one after the other."""
        return len(self.waiting) < (1 if self.has_session else 2)

    @property
    def by_id(self) -> bool:
        return self.version >= IDS_VERSION

    def refresh(self) -> None:
        """Ask for metadata; a topic with a new id is read from its start."""
        for topic in self._broker.topics.values():
            topic_id = TopicId(topic.topic_id.bytes)
            is_new = self._ids.get(topic.name, topic_id) != topic_id
            self._ids[topic.name] = topic_id
            for log in topic.logs:
                self._epochs[log.key] = log.epoch if self._knows_epochs else UNKNOWN
                position = self.positions.get(log.key)
                if position is not None:
                    position.epoch = self._epochs[log.key]
                    if is_new and self.by_id:
                        position.offset = log.start

    def assign(self, name: Name, offset: int, max_bytes: int) -> None:
        """Ask for a partition from now on, last of all."""
        self.positions.pop(name, None)
        self.positions[name] = Position(offset, max_bytes, self._epochs[name])

    def fetch(self, options: FetchOptions, heeds: int, at: int, now_s: float) -> bytes:
        """The next fetch, as a frame with its size."""
        self._correlation_id += 1
        asks = {
            name: FetchPartition(each.offset, each.max_bytes, each.epoch) for name, each in self.positions.items()
        }
        logs = {name: self._broker.log(name) for name in asks}
        replicas = {name: self._broker.replicas[log] for name, log in logs.items()}
        bounds, follower_bounds = self._bounds(logs), self._bounds(replicas)
        self.waiting.append(
            Exchange(
                self._correlation_id, options, asks, dict(self._ids), heeds, at, now_s, bounds, follower_bounds
            )
        )
        header = RequestHeader(FETCH, self.version, self._correlation_id, "the-client")
        keyed = {
            PartitionKey(self._ids[name[0]] if self.by_id else name[0], name[1]): ask for name, ask in asks.items()
        }
        self._asked = keyed
        for key in list(self._session.requested):
            self._session.remove(key)
        for key, ask in keyed.items():
            self._session.put(key, ask)
        self._plan = plan = self._session.plan(keep=self.has_session)
        return write_request(header, options, plan.session_id, plan.epoch, plan.requested, plan.forgotten)

    def _bounds(self, logs: Mapping[Name, Log]) -> dict[Name, tuple[int, int]]:
        return {name: (log.generation, log.bound(self.isolation)) for name, log in logs.items()}

    def hear(self, frame: bytes, now_s: float) -> tuple[Exchange, FetchResponse, list[Said]]:
        """Take an answer apart, and see that it is one to the oldest fetch, with every partition in its place."""
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert self.waiting, "an answer to nothing"
        response = read_response(self.version, frame[4:])
        exchange = self.waiting.pop(0)
        assert response.correlation_id == exchange.correlation_id
        assert response.error == ErrorCode.none
        self.answered_s = now_s
        if self.waiting:
            self.waiting[0].begun_s = now_s
        replies = [(topic, reply) for topic, part in response.topics for reply in part]
        if self.has_session:
            replies = self._filled_in(response, replies)
        if not replies and response.throttle_ms and self.version >= _SESSIONS_VERSION + 1:
            return exchange, response, []
        names = {topic_id: name for name, topic_id in exchange.ids.items()} if self.by_id else {}
        reported = [
            (names[topic] if isinstance(topic, bytes) else topic, reply.partition) for topic, reply in replies
        ]
        assert reported == list(exchange.asks), "partitions are missing, or not in the client's order"
        said = [Said(name, exchange.asks[name], reply) for name, (_, reply) in zip(reported, replies, strict=True)]
        return exchange, response, said

    def _filled_in(
        self, response: FetchResponse, replies: list[tuple[Topic, PartitionReply]]
    ) -> list[tuple[Topic, PartitionReply]]:
        """*replies*, and the last response of the session for all others, in the order of the request."""
        given = {PartitionKey(topic, reply.partition): reply for topic, reply in replies}
        session_id = SessionId(response.session_id)
        said = SessionResponseFields(response.error, session_id, response.throttle_ms, given.keys())
        outcome = self._session.receive(self._plan, said)
        assert isinstance(outcome, AcceptedResponse), f"a session that is well is refused: {outcome}"
        if not given and response.throttle_ms:
            return []
        if self._plan.is_full:
            self._reported = {}
        for key, reply in given.items():
            offsets_only = reply._replace(aborted=None, preferred_read_replica=UNKNOWN, records=b"")
            self._reported.pop(key, None)
            if not reply.error:
                self._reported[key] = offsets_only
        if self._plan.is_full:
            return replies
        assert all(key in given or key in self._reported for key in self._asked), "no response ever had it"
        return [(key.topic, given.get(key) or self._reported[key]) for key in self._asked]

    def heed(self, exchange: Exchange, said: list[Said]) -> None:
        """Continue from the response, or discard it."""
        look_again = False
        for index, each in enumerate(said):
            position = self.positions.get(each.name)
            if position is None or position.offset != each.ask.offset or not exchange.heeds >> index & 1:
                continue
            if each.reply.error == ErrorCode.offset_out_of_range:
                position.offset = self._broker.log(each.name).start
            elif each.reply.error:
                look_again = True
            else:
                for data in whole_batches(each.reply.records)[0]:
                    position.offset = self._broker.by_bytes[data].last + 1
        if look_again:
            self.refresh()
