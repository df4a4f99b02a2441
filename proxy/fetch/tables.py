"""A client's two tables: what it wants, and the answer that it would get if nothing were new."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, assert_never

import attrs

from proxy.cluster.routing import Routes
from proxy.cluster.topology import BrokerId, Topology
from proxy.convert.types import CodecRefused, Converted, DamagedEntry, IncompleteEntry, NothingForClient
from proxy.errors import ErrorCode
from proxy.events import DamageRecord, TruncationRecord
from proxy.fetch.ahead import AHEAD_BYTES
from proxy.fetch.commands import Note
from proxy.fetch.converting import Job
from proxy.fetch.exchange import Exchange, erroneous
from proxy.fetch.held import Given, Ready
from proxy.fetch.lane import Landed, Lane
from proxy.fetch.lanes import Lanes
from proxy.fetch.lowering import STALE_TOPOLOGY
from proxy.fetch.reading import Reading
from proxy.fetch.sheet import Offsets, Sheet, highest, raised
from proxy.fetch.wanted import Asker, Wanted
from proxy.wire.fetch import (
    UNKNOWN,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
    request_layout,
    response_layout,
)

__all__ = ["Tables"]

_CONVERTED_AHEAD_BYTES: Final = 4 * AHEAD_BYTES
"""More than this takes its time to be converted, and its memory: what comes next need not be there by then."""
_RESPONSE_LIMIT_VERSION: Final = 3
"""Of Fetch: from it on, a response has a limit, and a first batch may exceed it (KIP-74)."""
_MOST_FLOORS: Final = 1000
"""Of partitions that the client has left out; those that it left out first are given up first."""
_TOPIC_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""They hold for all partitions of a topic: it is gone, or the client may read it no more."""
_ID_ERRORS: Final = (ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id)
_EPOCH_ERRORS: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


@attrs.define
class TakenIn:
    """What is to be done about an answer of the broker's."""

    stale: set[Topic] = attrs.field(factory=set)
    """The client's topics whose errors call for a new look."""
    needs_topology: bool = False
    """Whether the broker refuses a topic id or a leader epoch that the client has not sent: ours is out of date."""
    has_strays: bool = False
    """Whether a partition must be asked for again, elsewhere or in another way, before anything is said of it."""
    record_bytes: int = 0
    """Of records that are held for the client now."""
    notes: list[Note] = attrs.field(factory=list)


class Tables:
    """Both, brought up to each fetch of the client and to each answer of broker *node_id*."""

    def __init__(self, node_id: BrokerId, lanes: Lanes, routes: Routes, reading: Reading) -> None:
        self._node_id = node_id
        self._policy = reading.policy
        self._reads_ahead = reading.reads_ahead
        self._lanes = lanes
        self._routes = routes
        self._seen = reading.seen
        self._client_id: str | None = None
        self._tells_epochs = False
        self.follows = False
        """Whether the client goes by itself to the replica that a leader prefers: it has told its rack (v11+)."""
        self.wanted = Wanted()
        self.sheet = Sheet(response_layout(0), committed=False)
        """Of no use before the first ``update``."""
        self._floors: dict[PartitionKey, tuple[int, TopicId | None, Offsets]] = {}
        """Leader epoch, topic id and offsets that the client has seen of partitions that the sheet has lost."""
        self._topology = Topology()
        """That of the client's last fetch."""
        self._converting: dict[PartitionKey, Given] = {}
        self._ahead: list[PartitionKey] = []
        """What there is more of than the client was given, and can be asked for before it asks."""

    def update(self, request: FetchRequest, topology: Topology) -> bool:
        """Take in a fetch; returns whether it is of another kind than the last, so that nothing can be kept."""
        layout = request_layout(request.version)
        self._client_id = request.header.client_id
        self.follows = bool(request.options.rack_id)
        self._tells_epochs = tells_epochs(request)
        readable = self._policy.switch_for(request.version)
        asker = Asker(self._node_id, self._lanes.home.patient.by_id, self.follows, readable)
        self._ahead.clear()
        named, asked = self.wanted.named, self.wanted.asks
        committed = bool(request.options.isolation)
        is_other = not self.sheet.suits(request.version, committed=committed)
        before = list(asked) if is_other else ()
        change = self.wanted.update(layout, request.sections, topology, asker)
        for key in change.touched:
            self._look_back(key)
        self._lanes.changed(change.touched)
        self._lanes.made_anew(change.made_anew)
        for key in change.made_anew:
            self._routes.forget(key)  # by name, the new topic may have been read before; its leader knows best
        self._keep_floors(before or (key for key in change.touched if key not in self.wanted.asks), named)
        self._topology = topology
        reshaped: Collection[int] = change.reshaped
        if is_other:
            self.sheet = Sheet(response_layout(request.version), committed=committed)
            reshaped = range(len(request.sections))
        if reshaped or change.is_rearranged:
            self.sheet.reshape(layout, request.sections, reshaped, change.replaced)
        if reshaped and self._lanes.held and not is_other:
            self._learn_from_held()
        return is_other

    def know(self, topology: Topology) -> bool:
        """Return whether the client's fetch was taken in by *topology*."""
        return self._topology is topology

    def _keep_floors(self, keys: Iterable[PartitionKey], named: Mapping[Topic, Topic]) -> None:
        """Remember what the client has seen of partitions that it leaves out, or asks for in another way.

        A replica that learns the high watermark later must not take it back when the client returns to it.
        """
        for key in keys:
            epoch, offsets = self.sheet.known(named[key.topic], key.partition)
            if epoch != UNKNOWN:
                identity = self._identity(key)
                floor = self._floors.pop(key, None)
                if floor is not None and floor[:2] == (epoch, identity):
                    fewer, more = sorted((offsets, floor[2]), key=len)  # old versions lack the last stable offset
                    offsets = highest(more, fewer)
                self._floors[key] = epoch, identity, offsets
        for key in list(islice(self._floors, max(0, len(self._floors) - len(self.wanted.asks) - _MOST_FLOORS))):
            del self._floors[key]

    def _identity(self, key: PartitionKey) -> TopicId | None:
        info = self._topology.topic(key.topic)
        return None if info is None else info.topic_id

    def _learn_from_held(self) -> None:
        """Know the offsets of partitions whose records are held: they may not fit into the next response."""
        for key in self._lanes.held:
            ask = self.wanted.asks.get(key)
            reply = None if ask is None else self._lanes.held.reply(key, ask)
            if ask is not None and reply is not None:
                self._learn(key, reply, ask.epoch, may_fall=False)

    def _learn(self, key: PartitionKey, reply: PartitionReply, epoch: int, *, may_fall: bool) -> None:
        floor = self._floors.get(key)
        if floor is not None:
            is_another_log = may_fall and reply.high_watermark < floor[2][0]
            if is_another_log or floor[:2] != (epoch, self._identity(key)):
                del self._floors[key]
            elif not may_fall:
                reply = raised(reply, floor[2])
        self.sheet.learn(self.wanted.named[key.topic], reply, epoch, may_fall=may_fall)

    def _look_back(self, key: PartitionKey) -> None:
        ask = self.wanted.asks.get(key)
        if ask is None:
            self._routes.forget(key)
        elif not self._tells_epochs and ask.last_fetched_epoch == UNKNOWN:
            epoch = self._seen.suspected(self._client_id, key, ask)
            if epoch != UNKNOWN:
                self.wanted.check(key, epoch)

    def take_in(
        self, lane: Lane, landed: Landed, asking: Exchange | None, topology: Topology, now_s: float
    ) -> TakenIn:
        """Take over what an answer tells.

        A lane may bring what has moved to another one meanwhile. It is news all the same, unless the client has
        gone on from there.
        """
        taken = TakenIn()
        for topic, replies in landed.response.topics:
            named = self.wanted.named.get(topic)
            for reply in replies:
                key = PartitionKey(topic, reply.partition)
                ask, wanted = landed.asked(key), self.wanted.expected(key)
                if named is None or ask is None or wanted is None:
                    continue
                is_current = ask == wanted
                is_news = is_current and _is_news(reply)
                if key not in self.wanted.asks:
                    # Read ahead of a client that has left it out since: it may come back to it.
                    if is_news and not (reply.error or lane.is_follower):
                        self._lanes.brought(key, ask, reply, lane.id.source, now_s)
                        taken.record_bytes += len(reply.records)
                    continue
                if is_current and reply.error in STALE_TOPOLOGY:
                    taken.stale.add(named)
                if is_current and asking is not None and not lane.is_follower:
                    taken.needs_topology |= _is_ours(reply, asking, named, by_id=lane.by_id)
                is_outdated = lane.is_follower and ask.epoch != wanted.epoch
                if not (reply.error or is_outdated):
                    # Brokers tell an offset once in a session, so a leftover's counts too; but it may be overtaken.
                    # Followers hear of the high watermark after their leader, so theirs may be within an epoch; and
                    # of an election, so that they may tell of records that are cut off.
                    # Nor do they fall at a leader within its epoch, but its responses on two lanes may overtake.
                    is_log_known = lane.by_id and ask.epoch != UNKNOWN
                    may_fall = not (lane.is_follower or is_log_known) and (is_news or key in lane.asks)
                    self._learn(key, reply, ask.epoch, may_fall=may_fall)
                if reply.error and not (is_current or lane.is_follower):
                    taken.has_strays |= self._lanes.disproved(key, wanted)
                if not is_news:
                    continue
                if len(reply.records) and not reply.error:
                    if lane.is_follower:
                        self._routes.works(key)
                    self._lanes.brought(key, ask, reply, lane.id.source, now_s)
                    taken.record_bytes += len(reply.records)
                elif lane.is_follower:
                    self._routes.failed(key, now_s)
                    self._stray(key, taken)
                elif reply.preferred_read_replica != UNKNOWN and not self.follows:
                    if not self._routes.prefer(key, reply.preferred_read_replica, topology, now_s):
                        taken.stale.add(named)
                    self._stray(key, taken)
                else:
                    self._lanes.failed(key)
                    if reply.error in _TOPIC_ERRORS:
                        taken.has_strays |= self._lanes.held.forget_topic(topic, lane.sent_s)
                    if self._is_to_be_asked_again(key, reply):
                        taken.has_strays = True
                    elif asking is not None:
                        asking.add(named, self._leaders_word(asking, named, key, ask, reply, topology, taken))
        if self.wanted.checked and not lane.is_follower:
            looked_back = self._looked_back(landed)
            self._lanes.changed(looked_back)
            taken.has_strays |= bool(looked_back)
        return taken

    def _stray(self, key: PartitionKey, taken: TakenIn) -> None:
        self._lanes.redirected(key)
        taken.has_strays = True

    def _leaders_word(
        self,
        exchange: Exchange,
        named: Topic,
        key: PartitionKey,
        ask: FetchPartition,
        reply: PartitionReply,
        topology: Topology,
        taken: TakenIn,
    ) -> PartitionReply:
        """What the client is told of it."""
        if reply.diverging_epoch is None or key not in self.wanted.checked:
            is_ours = _is_ours(reply, exchange, named, by_id=False)
            return reply._replace(error=ErrorCode.not_leader_or_follower) if is_ours else reply
        self._seen.forget(self._client_id, key)
        self.wanted.uncheck(key)
        topic, read_under = topology.name_of(key.topic), ask.last_fetched_epoch
        record = TruncationRecord(
            self._node_id, topic, key.partition, ask.offset, read_under, *reply.diverging_epoch
        )
        taken.notes.append(Note(record))
        return erroneous(reply.partition, ErrorCode.offset_out_of_range)

    def _looked_back(self, landed: Landed) -> list[PartitionKey]:
        """What the leader has found nothing missing of: it need not be asked to look again."""
        news = {
            PartitionKey(topic, each.partition)
            for topic, replies in landed.response.topics
            for each in replies
            if _is_news(each)
        }
        asks = self.wanted.asks
        found = [key for key in self.wanted.checked if key not in news and landed.asked(key) == asks[key]]
        for key in found:
            self.wanted.uncheck(key)
        return found

    def _is_to_be_asked_again(self, key: PartitionKey, reply: PartitionReply) -> bool:
        """Whether the leader was asked for more than the client has asked for; it is not, from now on."""
        if reply.diverging_epoch is not None:
            _, end_offset = reply.diverging_epoch
            # The epoch that we know may have no records of its own: then nothing is missing up to its end.
            return end_offset >= self.wanted.asks[key].offset and self.wanted.uncheck(key)
        if reply.error != ErrorCode.offset_out_of_range:
            return False
        # What we skipped may be gone, and what the client asks for still there; or no epochs so old are known.
        return self.wanted.ask_again_at_own(key) | self.wanted.uncheck(key)

    def lacking(self, exchange: Exchange, ready: Ready) -> set[tuple[Topic, int]]:
        """Return the partitions, by the client's names, of which no broker has told anything yet."""
        return self.sheet.lacking(self._told(exchange, ready))

    def answered_by(self, exchange: Exchange) -> Callable[[PartitionKey], bool]:
        """Return a function: whether the response of *exchange* has a partition already."""
        answered, named = exchange.answered, self.wanted.named
        return lambda key: bool(answered) and (named.get(key.topic), key.partition) in answered

    def are_under_way(self, partitions: Collection[tuple[Topic, int]]) -> bool:
        """Return whether a broker owes an answer about any of *partitions*, which have the client's names."""
        return any(self.asks_for(lane, partitions) for lane in self._lanes if lane.is_asking)

    def asks_for(self, lane: Lane, partitions: Collection[tuple[Topic, int]]) -> bool:
        """Return whether *lane* has any of *partitions*, which have the client's names."""
        named = self.wanted.named
        return bool(partitions) and any((named[key.topic], key.partition) in partitions for key in lane.asks)

    def _told(self, exchange: Exchange, ready: Ready) -> Iterator[tuple[Topic, int]]:
        """What the answer has news of, or would have."""
        for topic, news in exchange.news.items():
            for each in news:
                yield topic, each.reply.partition
        for key, _ in ready.replies:
            yield self.wanted.named[key.topic], key.partition

    def ready(self, exchange: Exchange) -> Ready:
        """What is held and fits in the answer."""
        wanted = self.wanted
        max_bytes, is_cut = exchange.request.options.max_bytes, exchange.version < _RESPONSE_LIMIT_VERSION
        return self._lanes.held.ready(wanted.asks, wanted.ahead.own_bytes, max_bytes, is_cut=is_cut)

    def hand_out(self, exchange: Exchange, ready: Ready, now_s: float) -> tuple[Job, ...]:
        """Put what is *ready* into the answer, but for what must be converted first, which is returned."""
        target = self._policy.target(exchange.version, committed=bool(exchange.request.options.isolation))
        jobs = []
        for key, reply in ready.replies:
            ask, named = self.wanted.asks[key], self.wanted.named[key.topic]
            shown_epoch, shown = self.sheet.known(named, key.partition)
            if shown_epoch == ask.epoch != UNKNOWN:
                reply = raised(reply, shown)
            job = None if target is None else Job.of(key, reply, ask.offset, target)
            if not self._tells_epochs:
                self._seen.told(self._client_id, key, ask.epoch, reply.high_watermark)
            given = self._lanes.held.give(key, len(reply.records))
            if exchange.telling is not None:
                exchange.telling.handed_out(key.topic, given.source, len(reply.records), given.brought_s)
            if job is None:
                exchange.add(named, reply)
                self._go_on(key, given, now_s)
            else:
                jobs.append(job)
                self._converting[key] = given
        return tuple(jobs)

    def _go_on(self, key: PartitionKey, given: Given, now_s: float) -> None:
        """See to what comes behind what the client is given, if it may be expected to ask for that."""
        reply = given.reply
        ends = reply.high_watermark if reply.aborted is None else reply.last_stable_offset
        if not self._reads_ahead or given.next_offset == UNKNOWN:
            return
        if not self.wanted.go_on(key, given.next_offset, now_s):
            return
        if given.rest is not None:
            self._lanes.held.keep(key, self.wanted.asks[key], given.rest, given.source, given.brought_s)
        elif given.next_offset < ends:
            self._ahead.append(key)

    def take_ahead(self) -> list[PartitionKey]:
        """What is to be read for the client before it asks, since the last time."""
        ahead, self._ahead = self._ahead, []
        return ahead

    def converted(self, exchange: Exchange, jobs: tuple[Job, ...], now_s: float) -> Iterator[Note]:
        """Put what has become of *jobs* into the answer.

        Where nothing has, the next ask is for what comes behind it: old clients do not go on by themselves from
        records that they never see (KAFKA-5443, ruby-kafka 555).
        """
        reads_on = sum(len(job.reply.records) for job in jobs) <= _CONVERTED_AHEAD_BYTES
        for job in jobs:
            key, topic = job.key, self.wanted.named[job.key.topic]
            given = self._converting.pop(key)
            match job.outcome:
                case Converted():
                    exchange.add(topic, job.reply, job.conversion)
                    if reads_on:
                        self._go_on(key, given, now_s)
                case NothingForClient(next_offset):
                    self.wanted.skip(key, next_offset)
                    self._lanes.changed((key,))
                case DamagedEntry(offset, why):
                    exchange.add(topic, erroneous(key.partition, ErrorCode.corrupt_message))
                    yield Note(DamageRecord(self._node_id, str(topic), key.partition, offset, why))
                case CodecRefused():
                    exchange.add(topic, erroneous(key.partition, ErrorCode.unsupported_compression_type))
                case IncompleteEntry():
                    exchange.add(topic, job.reply, b"")
                case None:
                    raise AssertionError("it was not begun")
                case never:
                    assert_never(never)


def tells_epochs(request: FetchRequest) -> bool:
    """Whether a client knows leader epochs, and looks back by itself when they grow."""
    layout = request_layout(request.version)
    first = next((section.entries for section in request.sections if section.entries), None)
    return first is not None and layout.ask(layout.entry.unpack_from(first)).epoch != UNKNOWN


def _is_news(reply: PartitionReply) -> bool:
    """Whether an answer says more of a partition than its offsets."""
    redirected = reply.preferred_read_replica != UNKNOWN
    return bool(reply.error or len(reply.records) or redirected or reply.diverging_epoch is not None)


def _is_ours(reply: PartitionReply, exchange: Exchange, topic: Topic, *, by_id: bool) -> bool:
    """Return whether a broker refuses a leader epoch, or a topic id, that Sidefetch sent and the client did not.

    *by_id*: whether it was asked by topic id.
    """
    if reply.error in _EPOCH_ERRORS:
        return not exchange.has_epoch(topic, reply.partition)
    return by_id and reply.error in _ID_ERRORS and isinstance(topic, str)
