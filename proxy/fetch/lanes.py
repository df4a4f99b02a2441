"""Where each partition that a client wants is: on one of two lanes, held, or homeless until the client asks."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from proxy.fetch.commands import CloseLane, Command, LaneName
from proxy.fetch.heat import Heat, Parks
from proxy.fetch.held import Held
from proxy.fetch.lane import Lane
from proxy.fetch.topology import BrokerId
from proxy.wire.fetch import Ask, Key, PartitionReply

__all__ = ["Lanes"]

_WORTH_PARKING: Final = 100
"""Idle partitions from which it pays to read the moving ones apart; and moving ones from which a session pays."""


class Lanes:
    """A reader's two lanes to its broker, and what is on neither.

    A partition is asked for on one lane. What a lane has brought leaves it, until it was handed out and the client
    asks on from there: a long wait would end at once as long as there is something to bring.
    """

    def __init__(self, node_id: BrokerId, jitter: float) -> None:
        self.patient = Lane(LaneName.PATIENT, node_id, jitter)
        self.quick = Lane(LaneName.QUICK, node_id, jitter, session_from=_WORTH_PARKING)
        self.held = Held()
        self.heat = Heat()
        self.parks = Parks()
        self._homeless: dict[Key, None] = {}

    def __iter__(self) -> Iterator[Lane]:
        yield self.patient
        yield self.quick

    def named(self, name: LaneName) -> Lane:
        return self.patient if name is LaneName.PATIENT else self.quick

    @property
    def is_under_way(self) -> bool:
        """Whether the broker owes any answer."""
        return any(lane.is_asking for lane in self)

    @property
    def have_all(self) -> bool:
        """Whether every partition is on a lane."""
        return not self._homeless

    def changed(self, keys: Iterable[Key]) -> None:
        """What is wanted of these is not what it was."""
        self._homeless.update(dict.fromkeys(keys))

    def made_anew(self, keys: Iterable[Key]) -> None:
        """The topics of these are others, though they may be called the same: what was brought is not theirs."""
        self.held.forget(keys)

    def brought(self, key: Key, ask: Ask, reply: PartitionReply, now_s: float) -> None:
        """A broker has answered *ask* with records."""
        self._leave(key)
        self.heat.brought(key)
        self.held.keep(key, ask, reply, now_s)

    def failed(self, key: Key) -> None:
        """A broker has answered with an error: others must not be asked together with this one for now."""
        self._leave(key)
        self.heat.failed(key)

    def find_homes(self, asks: Mapping[Key, Ask], now_s: float, *, together: bool) -> Iterator[Command]:
        """Give every partition that has changed to the lane that can ask for it first.

        *asks* is all that is wanted; *together*: on one lane, where that is free. Cost: O(changed + moving).
        """
        changed, self._homeless = self._homeless, {}
        new: list[Key] = []
        for key in changed:
            ask = asks.get(key)
            if ask is not None and any(lane.asks.get(key) == ask for lane in self):
                continue
            self._leave(key)
            if ask is None:
                del self._homeless[key]
            elif not self.held.has(key, ask):
                del self._homeless[key]
                new.append(key)
        if self.patient.is_asking:
            quick: Collection[Key] = new
        else:
            quick = set() if together else self._moving([*self.quick.asks, *new], len(asks), now_s)
            for key in [key for key in self.quick.asks if key not in quick]:
                self.quick.take_out(key)
                self.patient.put(key, asks[key])
            for key in new:
                if key not in quick:
                    self.patient.put(key, asks[key])
        late = [key for key in new if key in quick]
        if late and self.quick.is_asking:
            yield CloseLane(LaneName.QUICK, "it waits, and others cannot wait for it", is_fault=False)
            self.quick.lost()
        for key in late:
            self.quick.put(key, asks[key])

    def start_over(self) -> Iterator[Command]:
        """What was asked for and brought was meant for another kind of fetch."""
        self.held.drop()
        for lane in self:
            if lane.is_asking:
                yield CloseLane(lane.name, "its client asks in another way", is_fault=False)
                lane.lost()
            lane.restart()

    def farewell(self) -> list[Command]:
        """Close the sessions at the broker."""
        return [command for lane in self for command in lane.farewell()]

    def _leave(self, key: Key) -> None:
        for lane in self:
            if key in lane.asks:
                lane.take_out(key)
        self._homeless[key] = None

    def _moving(self, candidates: Iterable[Key], wanted: int, now_s: float) -> set[Key]:
        """Those of *candidates* that are better read apart from the rest."""
        self.heat.prune()
        hot = {key for key in candidates if self.heat.is_hot(key)}
        return hot if wanted - len(hot) >= _WORTH_PARKING and self.parks.pay(now_s) else set()
