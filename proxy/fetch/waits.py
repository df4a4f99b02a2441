"""How long a reader's fetches wait at the broker, and whose silence may be taken for its word."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Final

import attrs

from proxy.fetch.ahead import AHEAD_BYTES
from proxy.fetch.commands import Ask, LaneKind
from proxy.fetch.exchange import Exchange, Manner
from proxy.fetch.lane import Landed, Lane, Terms
from proxy.fetch.lanes import Lanes
from proxy.fetch.pace import Pace
from proxy.fetch.reading import Reading
from proxy.wire.fetch import FetchOptions

__all__ = ["Waits"]

_SURE_S: Final = 0.05
"""A broker that had something would have said so this long after it was asked."""
_PLAIN_S: Final = 30.0
"""How long the client's own wait is used after less came than it wants: brokers can wait for more, we would ask."""


class Waits:
    """What a reader's lanes are asked with, exchange by exchange."""

    def __init__(self, lanes: Lanes, reading: Reading) -> None:
        self._lanes = lanes
        self._reading = reading
        self._plain_until_s = float("-inf")
        self.number = 0
        """Of the client's exchange at hand, or of its last one."""
        self._is_instant = False
        """Whether that exchange needs a response to a fetch that was sent after it began: see ``Manner``."""
        self.is_draining = False
        self.pace = Pace()

    def next_exchange(self, manner: Manner) -> None:
        self.number += 1
        self._is_instant = manner.is_instant
        self._lanes.heat.now = self.number

    @property
    def upstream_max_wait_s(self) -> float:
        return self._reading.upstream_max_wait_s

    def is_plain(self, manner: Manner, now_s: float) -> bool:
        """Whether fetches wait as the client does, for as much, and no longer."""
        return self.upstream_max_wait_s == 0 or (manner.min_bytes > 1 and now_s < self._plain_until_s)

    def be_plain(self, now_s: float) -> None:
        """For a while: the client wants more than has come."""
        self._plain_until_s = now_s + _PLAIN_S

    def told(self, lane: Lane, landed: Landed) -> None:
        """A broker has looked at all that the lane has asked it for.

        What ends a park tells of all that was parked, as of now, or as of when it began to come. What waits as the
        client does may be no word for the next of its fetches; and a redirect ends that wait at once (KIP-392):
        then the others have not waited for as much as the client wants.
        """
        terms = landed.terms
        if terms.is_parked and not self._is_instant:
            lane.answered_in = self.number if landed.begun_in is None else landed.begun_in
        elif not (terms.wait_s and landed.response.redirects):
            lane.answered_in = terms.exchange

    def has_told(self, lane: Lane) -> bool:
        """Whether the lane has been answered about all that it asks for, as of the exchange at hand."""
        return not lane.asks or lane.answered_in == self.number

    def is_sure(self, lane: Lane, now_s: float, *, enough: bool) -> bool:
        """Whether "nothing new" of what the lane asks for would be the broker's word.

        *enough*: other lanes have brought what the client waits for. A broker that waits for more than the first
        byte is then taken to have too little, which it goes on waiting with. Whose answer has begun to come is
        silent no more, though there may be no room for the rest yet.
        """
        if self.has_told(lane):
            return True
        if not lane.is_asking or (self._is_instant and not self.is_draining):
            return False
        if lane.is_answering or not (lane.is_parked or (lane.waits and enough)):
            return self.is_draining and lane.asked_in < self.number
        return now_s >= lane.heard_s + (_SURE_S if lane.asked_in == self.number else 0.0)

    def overlong(self, exchange: Exchange, lacking: Callable[[Lane], bool]) -> Iterator[Lane]:
        """Return the lanes that wait for more than *exchange* does, or for longer, on behalf of an earlier one.

        *lacking*: whether a lane waits for partitions whose offsets are unknown, so that its silence is no answer.
        While draining nobody is waited for that was asked for an earlier one.
        """
        for lane in () if self.is_draining else self._lanes:
            if lane.asked_in == self.number or not lane.is_asking:
                continue
            manner = exchange.manner
            outwaits = lane.outwaits(exchange.deadline_s, manner.min_bytes, needs_response=lacking(lane))
            if self._is_instant or outwaits:
                yield lane

    def turns_s(self) -> Iterator[float]:
        """When what is said here may become another, while an exchange waits."""
        for lane in self._lanes:
            yield lane.heard_s
            yield lane.heard_s + _SURE_S
        yield self.pace.until_s

    def longest_s(self, lane: Lane, exchange: Exchange, now_s: float, *, lacks: bool) -> float:
        """How long the lane's next fetch may wait; *lacks*: the broker has not told all offsets yet."""
        remaining_s = max(exchange.deadline_s - now_s, 0.0)
        if lacks and not self.has_told(lane) and any(each.asks for each in self._lanes if each is not lane):
            return 0.0  # what another one brings is not given before the offsets are known that this one tells
        if self.is_plain(exchange.manner, now_s):
            return remaining_s
        may_be_redirected = exchange.rack and lane.sits_on_redirects and not lane.answered_in
        if lane.id.kind is LaneKind.QUICK or self.is_draining or lacks or may_be_redirected:
            return min(remaining_s, self.upstream_max_wait_s)
        if self._is_instant or lane.makes_session(now_s) or (remaining_s < _SURE_S and not self.has_told(lane)):
            return 0.0
        return self.upstream_max_wait_s

    @property
    def _waiting(self) -> int:
        """Lanes that are to bring as much as the client waits for. What is parked brings anything."""
        return sum(bool(lane.asks) and not (lane.is_asking and lane.is_parked) for lane in self._lanes)

    def ask(self, lane: Lane, manner: Manner, wait_s: float, now_s: float, *, brought: int = 0) -> Ask:
        """Have the lane ask for all that it is to ask for; *brought*: the bytes that others have brought already.

        What the client waits for at least may come from several brokers, none of which knows of the others: each is
        asked for its share.
        """
        most = self._reading.fetch_buffer_bytes
        plain = self.is_plain(manner, now_s)
        share = ceil((min(manner.min_bytes, most) - brought) / self._waiting)
        min_bytes = max(share, min(manner.min_bytes, 1)) if plain else 1
        max_bytes = min(manner.options.max_bytes, most)
        terms = Terms(self.number, wait_s, self._reading.ask_timeout_s, is_parked=wait_s > 0 and not plain)
        return lane.ask(manner.client_id, _options(lane, manner, min_bytes, max_bytes), terms, now_s)

    def ask_ahead(self, lane: Lane, manner: Manner, now_s: float) -> Ask:
        """Have the lane ask for what it is to ask for before the client asks."""
        wait_s = self.upstream_max_wait_s
        if lane.id.kind is LaneKind.QUICK:
            wait_s = min(manner.options.max_wait_ms / 1000, wait_s)
        elif lane.makes_session(now_s):
            wait_s = 0.0
        max_bytes = min(max(manner.options.max_bytes, AHEAD_BYTES), self._reading.fetch_buffer_bytes)
        timeout_s = self._reading.ask_timeout_s
        terms = Terms(self.number, wait_s, timeout_s, is_parked=wait_s > 0, is_ahead=True)
        return lane.ask(manner.client_id, _options(lane, manner, 1, max_bytes), terms, now_s)


def _options(lane: Lane, manner: Manner, min_bytes: int, max_bytes: int) -> FetchOptions:
    rack = "" if lane.id.source.is_rackless else manner.rack
    return attrs.evolve(manner.options, min_bytes=min_bytes, max_bytes=max_bytes, rack_id=rack)
