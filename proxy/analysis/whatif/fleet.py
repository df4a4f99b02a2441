"""A simulation of a fleet's fetch sessions with one broker, to find the size of the broker's session cache."""

import heapq
import math
from random import Random
from typing import Final

import attrs

from proxy.analysis.whatif.broker import SHARDS
from proxy.analysis.whatif.replay import Others, Outcome, Replay

__all__ = ["Fleet", "candidates", "heap_bytes", "play"]

_PARTITION_BYTES: Final = 112
"""Bytes of broker heap per partition of a session: 80 for the object, up to 16 for its hash table entry, 16 for its
leader epoch. Source: heap histograms of Kafka 4.3.1 with 40 sessions of 2,000 partitions, and without sessions."""
_SESSION_BYTES: Final = 600
"""Bytes of broker heap per session: a high estimate, negligible compared with its partitions."""
_FETCH_S: Final = 10.0
"""The wait of a fetch without new records at the broker, in seconds."""
_EVENT_S: Final = 100.0
"""Interval of the simulated events of a fetcher with a session: below the 120 s after which the session could be
evicted."""
_RAMP_S: Final = 300.0
"""All fetchers start within these seconds."""


@attrs.frozen
class Fleet:
    """The parameters of a fleet of clients with sidecars, and of the cluster that they read."""

    clients: int = 100_000
    partitions: int = 100_000
    """Partitions of the cluster."""
    brokers: int = 100
    read: int = 100_000
    """Partitions that each client reads, chosen at random."""
    fetchers: float = 1.0
    """Fetchers with a session for each client and broker, on average: if a hundred or more partitions move, the
    live fetcher has one as well as the long-poll fetcher."""
    restart_s: float = 1800.0
    """Mean lifetime of a client. It is shorter than in practice, so that shards fill unevenly in the simulated
    time."""
    crashes: float = 0.05
    """Share of the clients that end without closing their session, which stays until another needs its slot."""

    @property
    def sessions(self) -> int:
        """The number of fetch sessions with each broker at one time, of all clients that read from it."""
        return round(self.clients * self.fetchers * self._share)

    @property
    def session_partitions(self) -> float:
        """The mean number of partitions in a session with one broker."""
        return min(self.read, self.partitions) / self.brokers / self._share / self.fetchers

    @property
    def _share(self) -> float:
        """The share of the clients that read from a given broker."""
        return 1.0 - (1.0 - 1.0 / self.brokers) ** min(self.read, self.partitions)


def candidates(fleet: Fleet, others: Others) -> list[int]:
    """Return numbers of session slots to simulate: from 0.75 to 2 times the sessions with a broker.

    They are multiples of the number of shards, in ascending order.

    Args: others: sessions that do not belong to the fleet; they count as well.
    """
    sessions = fleet.sessions + others.followers + others.clients
    each = {
        math.ceil(sessions * percent / (100 * SHARDS))
        for percent in (75, 90, 100, 101, 102, 105, 110, 120, 150, 200)
    }
    return [slots * SHARDS for slots in sorted(each)]


def heap_bytes(sessions: int, partitions: int) -> int:
    """Estimate the broker heap, in bytes, that *sessions* sessions with *partitions* partitions in total take."""
    return sessions * _SESSION_BYTES + partitions * _PARTITION_BYTES


def play(
    fleet: Fleet, slots: int, seed: int, *, hours: float = 1.0, shards: int = SHARDS, others: Others | None = None
) -> Outcome:
    """Simulate the fleet's fetch sessions with one broker that has *slots* session slots; return the counts.

    Clients start and end at random, some without closing their session. *seed* and *slots* determine the random
    numbers.

    Args: hours: the simulated time.
          shards: the number of shards of the session cache, which share the slots.
          others: sessions with the broker that do not belong to the fleet; None for none.
    Cost: 36 events per hour and session, of about 3 us each; 360 for a sidecar whose requests for a session are
          refused.
    """
    rng, replay = Random(f"{seed}/{slots}"), Replay(slots, shards, others)
    sizes = [_size(rng, fleet) for _ in range(fleet.sessions)]
    lives, fetches = [0] * len(sizes), [1] * len(sizes)
    ends_s = [0.0] * len(sizes)
    due = [(rng.uniform(0, _RAMP_S), fetcher) for fetcher in range(len(sizes))]
    heapq.heapify(due)
    while due and due[0][0] < hours * 3600.0:
        now_s, fetcher = due[0]
        if not ends_s[fetcher]:
            ends_s[fetcher] = now_s + rng.expovariate(1 / fleet.restart_s)
        if now_s >= ends_s[fetcher]:
            if rng.random() >= fleet.crashes:
                replay.apply_fetches(fetcher, lives[fetcher], 0, 0, 1, now_s, full=False)
            lives[fetcher], ends_s[fetcher], fetches[fetcher] = lives[fetcher] + 1, 0.0, 1
            wait_s = rng.uniform(1, 30)
        else:
            is_held = replay.apply_fetches(
                fetcher, lives[fetcher], 0, sizes[fetcher], fetches[fetcher], now_s, full=True
            )
            fetches[fetcher] = int(_EVENT_S / _FETCH_S) if is_held else 1
            wait_s = min(fetches[fetcher] * _FETCH_S, ends_s[fetcher] - now_s)
        heapq.heapreplace(due, (now_s + wait_s, fetcher))
    return replay.outcome


def _size(rng: Random, fleet: Fleet) -> int:
    """Return a random number of partitions of a session, normally distributed about the mean."""
    mean = fleet.session_partitions
    spread = 0.0 if fleet.read >= fleet.partitions else math.sqrt(mean)
    return max(1, round(rng.gauss(mean, spread)))
