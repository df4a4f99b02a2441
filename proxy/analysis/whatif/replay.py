"""Replay of a ledger's fetches and session ends on one broker, with a fetch session cache of another size.

The rows of fetchers (upstream fetch loops, each on one connection) show their demand: from its first full fetch
on, a fetcher wants a session with the partitions that it reads, at the times of its fetches, until the ledger has
the end of its session. The replay ignores the actual evictions and refusals; the model of the cache decides these
again, by Sidefetch's own rule: a fetcher that loses its session, or gets none, fetches without one for ten seconds,
and then asks for another.

Ledgers do not contain sessions of followers and of clients without a sidecar, which take slots, too (``Others``),
nor the end of a fetcher without a session: the replay forgets such a fetcher after ten minutes without rows;
meanwhile its slot in the cache counts as unused, and is the first to be evicted. Sampled ledgers lack fetches, so
that sessions may seem unused; use complete ledgers.
"""

from collections.abc import Hashable
from typing import Final

import attrs

from proxy.analysis.whatif.broker import SHARDS, SessionCacheModel
from proxy.session.epochs import NO_SESSION

__all__ = ["BACK_OFF_S", "Others", "Outcome", "Replay"]

BACK_OFF_S: Final = 10.0
"""Time that a fetcher of Sidefetch fetches without a session after an eviction or refusal, without the random
jitter."""
_FORGOTTEN_S: Final = 600.0
"""Time without rows after which the replay forgets a fetcher."""
_HEARTBEAT_S: Final = 60.0
"""Interval between fetches of other sessions, which are always in use: half of the time until they can be
evicted."""

_Key = tuple[Hashable, Hashable]
"""The ``proxy_id`` of a sidecar, and the id of one of its fetchers."""


@attrs.frozen
class Others:
    """Numbers and sizes of the fetch sessions with each broker that are not in a ledger, but take slots."""

    followers: int = 0
    """Sessions of replica fetchers: ``num.replica.fetchers`` (1) for each broker that follows any partition."""
    follower_partitions: int = 1000
    """Partitions of each of these sessions."""
    clients: int = 0
    """Sessions of clients without a sidecar."""
    client_partitions: int = 100
    """Partitions of each of these sessions."""


@attrs.define
class Outcome:
    """The counts of sessions and fetches from a replay or simulation of one broker."""

    granted: int = 0
    """Sessions that the fetchers got."""
    refused: int = 0
    """Requests for a session that were refused, those of ``Others`` included."""
    evicted: int = 0
    """Sessions that were evicted to make room for another, those of ``Others`` included."""
    noticed: int = 0
    """Evicted sessions of fetchers that fetched in them again, and so noticed the eviction."""
    fetches: int = 0
    """Fetches of fetchers that want a session."""
    in_session: int = 0
    """Incremental fetches among ``fetches``."""
    named_anew: int = 0
    """Partitions in the requests of the other ``fetches``, which name all their partitions."""
    peak_sessions: int = 0
    """The largest number of sessions at one time, those of ``Others`` included."""
    peak_partitions: int = 0
    """The largest number of partitions in all sessions at one time."""


@attrs.define
class _Fetcher:
    """The state of a fetcher in the replay."""

    session_id: int
    """The id of its session in the model of the cache; 0 for none."""
    ledger_id: int
    """The id of its session in the ledger; 0 for none."""
    asks_at_s: float
    """The earliest time at which it asks for a session."""
    seen_s: float
    """The time of its last ledger row."""


class Replay:
    """A replay of a ledger's upstream fetches on one broker against a model of the broker's session cache.

    Call ``apply_fetches`` and ``apply_end`` for the broker's fetches and session ends in the order of time;
    ``outcome`` has the counts.

    Args: slots: the number of session slots of the broker.
          shards: the number of shards of its cache, which share the slots.
          others: sessions that are not in the ledger; None for none.
    Cost: O(log slots) per event, and memory for the slots and for the fetchers of the last ten minutes.
    """

    def __init__(self, slots: int, shards: int = SHARDS, others: Others | None = None) -> None:
        self._broker = SessionCacheModel(slots, shards)
        self._outcome = Outcome()
        self._fetchers: dict[_Key, _Fetcher] = {}
        self._by_ledger_id: dict[tuple[Hashable, int], _Key] = {}
        self._others = others or Others()
        self._other_ids: list[tuple[int, bool]] | None = None
        self._heartbeat_s = 0.0
        self._swept_s = 0.0

    @property
    def outcome(self) -> Outcome:
        """The counts up to the last event."""
        return attrs.evolve(
            self._outcome,
            refused=self._broker.refusals,
            evicted=self._broker.evictions,
            peak_sessions=self._broker.peak_sessions,
            peak_partitions=self._broker.peak_partitions,
        )

    def apply_fetches(
        self,
        proxy: Hashable,
        fetcher: Hashable,
        ledger_id: int,
        partitions: int,
        fetches: int,
        now_s: float,
        *,
        full: bool,
    ) -> bool:
        """Replay fetches of one fetcher; return whether it has a session now.

        A fetcher is ignored until its first full fetch, or fetch in a session. Then it uses its session; if it has
        none, it asks for one, but not within ten seconds after an eviction or refusal.

        Args: proxy: the sidecar's ``proxy_id``.
              fetcher: the fetcher's id, unique in the sidecar.
              ledger_id: the id of the fetcher's session in the ledger; 0 for none.
              partitions: the number of partitions that it reads; 0: it closes its session, and the replay forgets
              it.
              fetches: the number of consecutive fetches.
              now_s: the time in seconds, not before that of the last event.
              full: whether it was a full fetch, which asks for a session.
        """
        self._advance(now_s)
        key = (proxy, fetcher)
        known = self._fetchers.get(key)
        if not partitions:
            self._end(key)
            return False
        if known is None:
            if not full and not ledger_id:
                return False  # it has not asked for a session yet
            known = self._fetchers[key] = _Fetcher(NO_SESSION, 0, now_s, now_s)
        if ledger_id and ledger_id != known.ledger_id:
            self._by_ledger_id.pop((proxy, known.ledger_id), None)
            known.ledger_id = ledger_id
            self._by_ledger_id[proxy, ledger_id] = key
        known.seen_s = now_s
        self._fetch(known, partitions, fetches, now_s)
        return known.session_id != NO_SESSION

    def apply_end(self, proxy: Hashable, ledger_id: int, now_s: float) -> None:
        """Replay the end of a fetcher: close its session in the model, and forget the fetcher.

        The fetcher is found by *ledger_id*, the id of its session in the ledger; an unknown id has no effect.
        """
        self._advance(now_s)
        key = self._by_ledger_id.get((proxy, ledger_id))
        if key is not None:
            self._end(key)

    def _end(self, key: _Key) -> None:
        """Forget the fetcher and close its session in the model; do nothing for an unknown fetcher."""
        fetcher = self._fetchers.pop(key, None)
        if fetcher is not None:
            self._by_ledger_id.pop((key[0], fetcher.ledger_id), None)
            self._broker.close(fetcher.session_id)

    def _fetch(self, fetcher: _Fetcher, partitions: int, fetches: int, now_s: float) -> None:
        outcome = self._outcome
        outcome.fetches += fetches
        if fetcher.session_id:
            if self._broker.use(fetcher.session_id, partitions, now_s):
                outcome.in_session += fetches
                return
            outcome.noticed += 1
            fetcher.session_id, fetcher.asks_at_s = NO_SESSION, now_s + BACK_OFF_S
        elif now_s >= fetcher.asks_at_s:
            fetcher.session_id = self._broker.create(partitions, now_s)
            if fetcher.session_id:
                outcome.granted += 1
                outcome.in_session += fetches - 1
                outcome.named_anew += partitions
                return
            fetcher.asks_at_s = now_s + BACK_OFF_S
        outcome.named_anew += fetches * partitions

    def _advance(self, now_s: float) -> None:
        if self._other_ids is None:
            self._create_others(now_s)
        if now_s - self._heartbeat_s >= _HEARTBEAT_S:
            self._keep_others(now_s)
        if now_s - self._swept_s >= _FORGOTTEN_S:
            self._sweep(now_s)

    def _create_others(self, now_s: float) -> None:
        self._heartbeat_s = self._swept_s = now_s
        others = self._others
        kinds = [True] * others.followers + [False] * others.clients
        self._other_ids = [(self._create_other(is_follower, now_s), is_follower) for is_follower in kinds]

    def _create_other(self, is_follower: bool, now_s: float) -> int:
        size = self._others.follower_partitions if is_follower else self._others.client_partitions
        return self._broker.create(size, now_s, is_follower=is_follower)

    def _keep_others(self, now_s: float) -> None:
        """Replay a fetch in each of the other sessions; where one was lost, ask for another."""
        assert self._other_ids is not None
        self._heartbeat_s = now_s
        for index, (session_id, is_follower) in enumerate(self._other_ids):
            size = self._others.follower_partitions if is_follower else self._others.client_partitions
            if not session_id or not self._broker.use(session_id, size, now_s):
                self._other_ids[index] = self._create_other(is_follower, now_s), is_follower

    def _sweep(self, now_s: float) -> None:
        self._swept_s = now_s
        gone = [key for key, fetcher in self._fetchers.items() if now_s - fetcher.seen_s > _FORGOTTEN_S]
        for key in gone:
            fetcher = self._fetchers.pop(key)
            self._by_ledger_id.pop((key[0], fetcher.ledger_id), None)
