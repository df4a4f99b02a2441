"""One broker's part of a ledger, played through a cache of another size.

What lanes did is taken as what they want: from its first full fetch on, a lane wants a session with as many
partitions as it then reads, at the times at which it has fetched, until it is told that it was closed. What became
of it, its evictions and refusals among it, is left out, and decided anew by the cache and by Sidefetch's own rule:
who loses its session, or gets none, does without for ten seconds, and then asks again.

What ledgers do not tell: followers and clients without a sidecar, which take slots, too (``Others``). When a lane
without a session has ended: it is forgotten once nothing was heard of it for ten minutes; a slot that it has here
meanwhile counts as unused, so that it is the first to go. Sampled ledgers lack fetches, for want of which sessions
may seem unused: take whole ones.
"""

from collections.abc import Hashable
from typing import Final

import attrs

from proxy.analysis.whatif.broker import SHARDS, SessionCacheModel
from proxy.session.epochs import NO_SESSION

__all__ = ["BACK_OFF_S", "Others", "Outcome", "Replay"]

BACK_OFF_S: Final = 10.0
"""What Sidefetch's lanes wait for, less the jitter that each has."""
_FORGOTTEN_S: Final = 600.0
_HEARTBEAT_S: Final = 60.0
"""Between fetches of others, which are always in use: half of the time after which they would be stale."""

_Key = tuple[Hashable, Hashable]
"""A sidecar, and its lane."""


@attrs.frozen
class Others:
    """Who has sessions with each broker that no ledger tells of."""

    followers: int = 0
    """Fetchers of other brokers: ``num.replica.fetchers`` (1) for each that follows any partition."""
    follower_partitions: int = 1000
    """Of each."""
    clients: int = 0
    client_partitions: int = 100
    """Of each."""


@attrs.define
class Outcome:
    """What has become of one broker's sessions."""

    granted: int = 0
    refused: int = 0
    evicted: int = 0
    """To make room for others."""
    noticed: int = 0
    """Of those, the ones whose lane has fetched in them again."""
    fetches: int = 0
    """Of lanes that want a session."""
    in_session: int = 0
    """Of these, those that named only what has changed."""
    named_anew: int = 0
    """Partitions in those that named all."""
    peak_sessions: int = 0
    """Others' included."""
    peak_partitions: int = 0


@attrs.define
class _Lane:
    session_id: int
    """In the cache; 0 without."""
    told_id: int
    """In the ledger."""
    asks_at_s: float
    seen_s: float


class Replay:
    """Events of one broker, in the order of their times.

    Cost: O(log slots) an event, and memory for the lanes of the last ten minutes and the slots.
    """

    def __init__(self, slots: int, shards: int = SHARDS, others: Others | None = None) -> None:
        self._broker = SessionCacheModel(slots, shards)
        self._outcome = Outcome()
        self._lanes: dict[_Key, _Lane] = {}
        self._by_told: dict[tuple[Hashable, int], _Key] = {}
        self._others = others or Others()
        self._other_ids: list[tuple[int, bool]] | None = None
        self._heartbeat_s = 0.0
        self._swept_s = 0.0

    @property
    def outcome(self) -> Outcome:
        """As of now."""
        return attrs.evolve(
            self._outcome,
            refused=self._broker.refusals,
            evicted=self._broker.evictions,
            peak_sessions=self._broker.peak_sessions,
            peak_partitions=self._broker.peak_partitions,
        )

    def fetched(
        self,
        proxy: Hashable,
        lane: Hashable,
        told_id: int,
        partitions: int,
        fetches: int,
        now_s: float,
        *,
        full: bool,
    ) -> bool:
        """*lane*, of the sidecar *proxy*, has fetched so often; whether it has a session now.

        Args: told_id: the session that it had; 0 for none.
              partitions: that it reads; 0 where it gives its session up.
              full: whether it has asked for a session.
        """
        self._go_on(now_s)
        key = (proxy, lane)
        known = self._lanes.get(key)
        if not partitions:
            self._end(key)
            return False
        if known is None:
            if not full and not told_id:
                return False  # it wants none yet
            known = self._lanes[key] = _Lane(NO_SESSION, 0, now_s, now_s)
        if told_id and told_id != known.told_id:
            self._by_told.pop((proxy, known.told_id), None)
            known.told_id = told_id
            self._by_told[proxy, told_id] = key
        known.seen_s = now_s
        self._fetch(known, partitions, fetches, now_s)
        return known.session_id != NO_SESSION

    def closed(self, proxy: Hashable, told_id: int, now_s: float) -> None:
        """The lane with this session has ended, and said so to the broker."""
        self._go_on(now_s)
        key = self._by_told.get((proxy, told_id))
        if key is not None:
            self._end(key)

    def _end(self, key: _Key) -> None:
        """The lane wants no session any more."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            self._by_told.pop((key[0], lane.told_id), None)
            self._broker.close(lane.session_id)

    def _fetch(self, lane: _Lane, partitions: int, fetches: int, now_s: float) -> None:
        outcome = self._outcome
        outcome.fetches += fetches
        if lane.session_id:
            if self._broker.use(lane.session_id, partitions, now_s):
                outcome.in_session += fetches
                return
            outcome.noticed += 1
            lane.session_id, lane.asks_at_s = NO_SESSION, now_s + BACK_OFF_S
        elif now_s >= lane.asks_at_s:
            lane.session_id = self._broker.create(partitions, now_s)
            if lane.session_id:
                outcome.granted += 1
                outcome.in_session += fetches - 1
                outcome.named_anew += partitions
                return
            lane.asks_at_s = now_s + BACK_OFF_S
        outcome.named_anew += fetches * partitions

    def _go_on(self, now_s: float) -> None:
        if self._other_ids is None:
            self._begin(now_s)
        if now_s - self._heartbeat_s >= _HEARTBEAT_S:
            self._keep_others(now_s)
        if now_s - self._swept_s >= _FORGOTTEN_S:
            self._sweep(now_s)

    def _begin(self, now_s: float) -> None:
        self._heartbeat_s = self._swept_s = now_s
        others = self._others
        kinds = [True] * others.followers + [False] * others.clients
        self._other_ids = [(self._other(is_follower, now_s), is_follower) for is_follower in kinds]

    def _other(self, is_follower: bool, now_s: float) -> int:
        size = self._others.follower_partitions if is_follower else self._others.client_partitions
        return self._broker.create(size, now_s, is_follower=is_follower)

    def _keep_others(self, now_s: float) -> None:
        """They fetch all the time; who has lost its session asks for another."""
        assert self._other_ids is not None
        self._heartbeat_s = now_s
        for index, (session_id, is_follower) in enumerate(self._other_ids):
            size = self._others.follower_partitions if is_follower else self._others.client_partitions
            if not session_id or not self._broker.use(session_id, size, now_s):
                self._other_ids[index] = self._other(is_follower, now_s), is_follower

    def _sweep(self, now_s: float) -> None:
        self._swept_s = now_s
        gone = [key for key, lane in self._lanes.items() if now_s - lane.seen_s > _FORGOTTEN_S]
        for key in gone:
            lane = self._lanes.pop(key)
            self._by_told.pop((key[0], lane.told_id), None)
