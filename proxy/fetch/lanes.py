"""Where each partition that a client wants is: on a lane of its source, held, or homeless until the client asks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from proxy.cluster.routing import Source
from proxy.cluster.topology import Topology
from proxy.events import RouteKind
from proxy.fetch.commands import CloseLane, Command, Farewell, LaneId, LaneKind, Note
from proxy.fetch.heat import Heat, Parks
from proxy.fetch.held import Held
from proxy.fetch.lane import Lane
from proxy.wire.fetch import FetchPartition, PartitionKey, PartitionReply

__all__ = ["Lanes", "Pair"]

_SOON_S: Final = 0.05
"""A wait that ends within this is waited for: another connection and its login would take as long."""
_WORTH_PARKING: Final = 100
"""Idle partitions from which it pays to read the moving ones apart; and moving ones from which a session pays."""
_UNUSED_S: Final = 30.0
"""After so long, a source that nothing is read from is left, and the slot of its session given back."""


class Pair:
    """The two lanes to one source."""

    def __init__(self, source: Source, jitter: float, route: RouteKind) -> None:
        self.patient = Lane(LaneId(source, LaneKind.PATIENT), jitter, route)
        self.quick = Lane(LaneId(source, LaneKind.QUICK), jitter, route, session_from=_WORTH_PARKING)
        self.parks = Parks()

    def __iter__(self) -> Iterator[Lane]:
        yield self.patient
        yield self.quick


class Lanes:
    """A reader's lanes, two to each source, and what is on none.

    A partition is asked for on one lane. What a lane has brought leaves it, until it was handed out and the client
    asks on from there: a long wait would end at once as long as there is something to bring.
    """

    def __init__(self, home: Source, jitter: float, route_of: Callable[[Source], RouteKind]) -> None:
        """*home*: where is read what has no other source. *route_of*: why one is read."""
        self._jitter = jitter
        self._route_of = route_of
        self._pairs: dict[Source, Pair] = {}
        self._lanes: tuple[Lane, ...] = ()
        self.home = self.pair(home)
        self.held = Held()
        self.heat = Heat()
        self._homeless: dict[PartitionKey, None] = {}
        self.is_crowded = False
        """Whether some that are asked for have no lane before one has brought what it reads ahead."""

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    @property
    def pairs(self) -> Collection[Pair]:
        return self._pairs.values()

    def pair(self, source: Source) -> Pair:
        """That of *source*."""
        if source not in self._pairs:
            self._pairs[source] = Pair(source, self._jitter, self._route_of(source))
            self._lanes = tuple(lane for pair in self._pairs.values() for lane in pair)
        return self._pairs[source]

    def named(self, lane_id: LaneId) -> Lane:
        pair = self.pair(lane_id.source)
        return pair.patient if lane_id.kind is LaneKind.PATIENT else pair.quick

    @property
    def is_under_way(self) -> bool:
        """Whether a broker owes any answer."""
        return any(lane.is_asking for lane in self)

    @property
    def have_all(self) -> bool:
        """Whether every partition is on a lane."""
        return not self._homeless

    def is_homeless(self, key: PartitionKey) -> bool:
        """Whether it is on no lane."""
        return key in self._homeless

    def changed(self, keys: Iterable[PartitionKey]) -> None:
        """What is wanted of these is not what it was, or they may have another source.

        In the client's order: brokers fill a response in the order of the request, and partitions that brought
        records go last.
        """
        for key in keys:
            self._homeless.pop(key, None)
            self._homeless[key] = None

    def made_anew(self, keys: Iterable[PartitionKey]) -> None:
        """Drop the records of, and the requests for, topics that were replaced under the same name."""
        for key in keys:
            self.held.forget((key,))
            self._leave(key)

    def outdated(self, before: Topology, now: Topology) -> bool:
        """Forget what was brought of partitions that have another leader since; whether that is anything.

        Answers wait here for those of other brokers. Meanwhile an election may have cut off what they tell.
        """
        outdated = [key for key in self.held if before.led(key) != now.led(key)]
        self.held.forget(outdated)
        self.changed(outdated)
        return bool(outdated)

    def brought(
        self, key: PartitionKey, ask: FetchPartition, reply: PartitionReply, source: Source, now_s: float
    ) -> None:
        """A broker has answered *ask* with records."""
        self._leave(key)
        self.heat.brought(key)
        self.held.keep(key, ask, reply, source, now_s)

    def failed(self, key: PartitionKey) -> None:
        """A broker has answered with an error: others must not be asked together with this one for now."""
        self._leave(key)
        self.held.forget((key,))
        self.heat.failed(key)

    def disproved(self, key: PartitionKey, ask: FetchPartition) -> bool:
        """A leader has answered an earlier ask with an error: whether what *ask* has brought is dropped."""
        if not self.held.has(key, ask):
            return False
        self.held.forget((key,))
        self.changed((key,))
        return True

    def redirected(self, key: PartitionKey) -> None:
        """It is to be read elsewhere."""
        self._leave(key)

    def vacate(self, lane: Lane) -> None:
        """What *lane* was asked for is to be asked for elsewhere: it cannot wait for this one."""
        for key in list(lane.asks):
            self._leave(key)

    def find_homes(
        self,
        asks: Mapping[PartitionKey, FetchPartition],
        source_of: Callable[[PartitionKey], Source],
        now_s: float,
        *,
        together: bool,
        is_answered: Callable[[PartitionKey], bool],
    ) -> Iterator[Command]:
        """Give every partition that has changed to the lane of its source that can ask for it first.

        *asks* is all that is wanted; *together*: on one lane a source, where that is free; *is_answered*: whether
        the client fetch has its response about a partition, which then stays on no lane until the next one.
        Cost: O(changed + moving).
        """
        changed, self._homeless = self._homeless, {}
        self.is_crowded = False
        new: dict[Source, list[PartitionKey]] = {}
        for key in changed:
            if is_answered(key):
                self._leave(key)
                continue
            ask = asks.get(key)
            source = None if ask is None else source_of(key)
            if source is not None and any(lane.asks.get(key) == ask for lane in self.pair(source)):
                continue
            self._leave(key)
            if ask is None or source is None:
                del self._homeless[key]
            elif not self.held.has(key, ask):
                del self._homeless[key]
                new.setdefault(source, []).append(key)
        for source, pair in self._pairs.items():
            yield from self._place(pair, new.get(source, []), asks, now_s, together=together)

    def read_ahead(
        self,
        keys: Iterable[PartitionKey],
        asks: Mapping[PartitionKey, FetchPartition],
        source_of: Callable[[PartitionKey], Source],
        now_s: float,
    ) -> Iterator[Command]:
        """Give each of these, which was handed out, a lane of its source before it is asked for, if one is free."""
        new: dict[Source, list[PartitionKey]] = {}
        for key in keys:
            new.setdefault(source_of(key), []).append(key)
        for source, following in new.items():
            pair = self.pair(source)
            if not pair.quick.is_asking:
                for key in following:
                    del self._homeless[key]
                yield from self._place(pair, following, asks, now_s, together=False)

    def _place(
        self,
        pair: Pair,
        new: list[PartitionKey],
        asks: Mapping[PartitionKey, FetchPartition],
        now_s: float,
        *,
        together: bool,
    ) -> Iterator[Command]:
        if pair.patient.is_asking:
            quick: Collection[PartitionKey] = new
        else:
            wanted = len(pair.patient.asks) + len(pair.quick.asks) + len(new)
            quick = set() if together else self._moving(pair, [*pair.quick.asks, *new], wanted, now_s)
            for key in [key for key in pair.quick.asks if key not in quick]:
                pair.quick.take_out(key)
                pair.patient.put(key, asks[key])
            for key in new:
                if key not in quick:
                    pair.patient.put(key, asks[key])
        late = [key for key in new if key in quick]
        if late and (pair.quick.reads_ahead or pair.quick.ends_waiting_by(now_s + _SOON_S)):
            self.is_crowded = True
            self._homeless.update(dict.fromkeys(late))
            return
        if late and pair.quick.is_asking:
            yield CloseLane(pair.quick.id, "it waits, and others cannot wait for it", is_fault=False)
            yield from pair.quick.lost(now_s)
        for key in late:
            pair.quick.put(key, asks[key])

    def start_over(self, now_s: float, why: str = "its client asks in another way") -> Iterator[Command]:
        """Give up all that was asked for and brought: it was meant for another kind of fetch, or is stuck."""
        self.held.drop()
        for lane in self:
            if lane.is_asking:
                yield CloseLane(lane.id, why, is_fault=False)
                yield from lane.lost(now_s)
            lane.restart()

    def unused(self, now_s: float) -> Iterator[Lane]:
        """Open lanes that have asked for nothing for long."""
        return (
            lane
            for lane in self
            if lane.is_open and not (lane.asks or lane.is_asking) and now_s - lane.sent_s > _UNUSED_S
        )

    def farewell(self, now_s: float) -> list[Note | Farewell]:
        """Give up what is under way, and close the sessions at the brokers."""
        return [command for lane in self for command in lane.farewell(now_s)]

    def _leave(self, key: PartitionKey) -> None:
        for lane in self:
            if key in lane.asks:
                lane.take_out(key)
        self._homeless[key] = None

    def _moving(
        self, pair: Pair, candidates: Iterable[PartitionKey], wanted: int, now_s: float
    ) -> set[PartitionKey]:
        """Those of *candidates* that are better read apart from the rest."""
        self.heat.prune()
        hot = {key for key in candidates if self.heat.is_hot(key)}
        return hot if wanted - len(hot) >= _WORTH_PARKING and pair.parks.pay(now_s) else set()
