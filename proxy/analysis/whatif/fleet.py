"""A fleet's sessions with one broker, as far as they matter to its cache."""

import heapq
import math
from random import Random
from typing import Final

import attrs

from proxy.analysis.whatif.broker import SHARDS
from proxy.analysis.whatif.replay import Others, Outcome, Replay

__all__ = ["Fleet", "candidates", "heap_bytes", "play"]

_PARTITION_BYTES: Final = 112
"""Of a broker's heap, for a partition of a session: 80 for itself, up to 16 for its place in the hash table, 16 for
its leader epoch. By the histograms of Kafka 4.3.1's heap with 40 sessions of 2,000 partitions, and with none."""
_SESSION_BYTES: Final = 600
"""Rather too much: nothing beside its partitions."""
_FETCH_S: Final = 10.0
"""How long a fetch waits where there is nothing new."""
_TOLD_S: Final = 100.0
"""Lanes that have a session are looked at so often: below the 120 s after which it would be stale."""
_RAMP_S: Final = 300.0
"""All begin within these."""


@attrs.frozen
class Fleet:
    """Clients with sidecars, and the cluster that they read."""

    clients: int = 100_000
    partitions: int = 100_000
    """Of the cluster."""
    brokers: int = 100
    read: int = 100_000
    """Partitions that each client reads, by chance."""
    lanes: float = 1.0
    """Sessions that a sidecar has with a broker: a second one where a hundred partitions or more are busy."""
    restart_s: float = 1800.0
    """How long a client lives; the mean. Shorter than in life, so that shards drift apart in what is played."""
    crashes: float = 0.05
    """Share of the clients that end without a word: their session stays until somebody needs its slot."""

    @property
    def sessions(self) -> int:
        """With each broker: of all clients that read anything from it."""
        return round(self.clients * self.lanes * self._share)

    @property
    def session_partitions(self) -> float:
        """In each; the mean."""
        return min(self.read, self.partitions) / self.brokers / self._share / self.lanes

    @property
    def _share(self) -> float:
        """Of the clients, those that read anything from a broker."""
        return 1.0 - (1.0 - 1.0 / self.brokers) ** min(self.read, self.partitions)


def candidates(fleet: Fleet, others: Others) -> list[int]:
    """Numbers of slots to try: from three quarters of the sessions to twice as many, the same for each shard."""
    sessions = fleet.sessions + others.followers + others.clients
    each = {
        math.ceil(sessions * percent / (100 * SHARDS))
        for percent in (75, 90, 100, 101, 102, 105, 110, 120, 150, 200)
    }
    return [slots * SHARDS for slots in sorted(each)]


def heap_bytes(sessions: int, partitions: int) -> int:
    """Of a broker's heap, what so many sessions with so many partitions in all take; an estimate."""
    return sessions * _SESSION_BYTES + partitions * _PARTITION_BYTES


def play(
    fleet: Fleet, slots: int, seed: int, *, hours: float = 1.0, shards: int = SHARDS, others: Others | None = None
) -> Outcome:
    """So many *hours* of one broker with so many *slots*.

    Cost: 36 events an hour for each session, each some 3 us; 360 for each that is not granted.
    """
    rng, replay = Random(f"{seed}/{slots}"), Replay(slots, shards, others)
    sizes = [_size(rng, fleet) for _ in range(fleet.sessions)]
    lives, fetches = [0] * len(sizes), [1] * len(sizes)
    ends_s = [0.0] * len(sizes)
    due = [(rng.uniform(0, _RAMP_S), lane) for lane in range(len(sizes))]
    heapq.heapify(due)
    while due[0][0] < hours * 3600.0:
        now_s, lane = due[0]
        if not ends_s[lane]:
            ends_s[lane] = now_s + rng.expovariate(1 / fleet.restart_s)
        if now_s >= ends_s[lane]:
            if rng.random() >= fleet.crashes:
                replay.fetched(lane, lives[lane], 0, 0, 1, now_s, full=False)
            lives[lane], ends_s[lane], fetches[lane] = lives[lane] + 1, 0.0, 1
            wait_s = rng.uniform(1, 30)
        else:
            is_held = replay.fetched(lane, lives[lane], 0, sizes[lane], fetches[lane], now_s, full=True)
            fetches[lane] = int(_TOLD_S / _FETCH_S) if is_held else 1
            wait_s = min(fetches[lane] * _FETCH_S, ends_s[lane] - now_s)
        heapq.heapreplace(due, (now_s + wait_s, lane))
    return replay.outcome


def _size(rng: Random, fleet: Fleet) -> int:
    """About as chance deals partitions out."""
    mean = fleet.session_partitions
    spread = 0.0 if fleet.read >= fleet.partitions else math.sqrt(mean)
    return max(1, round(rng.gauss(mean, spread)))
