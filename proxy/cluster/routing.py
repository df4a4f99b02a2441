"""The broker from which each partition is read: its leader, or a closer replica (KIP-392).

::

    leader, with our rack ----- it prefers a follower, or our own selector does -----> follower
         ^      ^                                                                         |
         |      +------------- after the metadata's age, or when it is not in sync -------+
         |                                                                                |
         +------ back-off ------ leader, without a rack <-- an error, or its loss --------+

A follower's error never reaches the client: Sidefetch asks the leader instead. A leader that receives our rack may
prefer the failed follower again, so fetches to it name no rack until the back-off is over. The back-off doubles as
long as the follower fails.

Source: Kafka's ``AbstractFetch`` and ``SubscriptionState`` (the client's half), ``RackAwareReplicaSelector``.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

import attrs

from proxy.cluster.topology import Broker, BrokerId, TopicInfo, Topology
from proxy.events import RouteKind
from proxy.wire.fetch import PartitionKey

__all__ = ["Routes", "Selector", "Source", "find_closest"]

_FIRST_BACK_OFF_S: Final = 1.0


class Selector(enum.Enum):
    """The setting that decides who selects the replica to read: the leader, Sidefetch, or nobody."""

    BROKER = "broker"
    """The leader selects it (KIP-392), by the cluster's ``replica.selector.class``."""
    RACK_AWARE = "rack-aware"
    """Sidefetch selects it by Kafka's rules; if it finds none, it reads the leader."""
    LEADER = "leader"
    """Nobody selects: Sidefetch always reads the leader."""


class Source(NamedTuple):
    """A broker from which partitions are fetched, and whether the fetch omits the rack.

    Without a rack in the fetch, a leader returns records and never names a preferred read replica.
    """

    node_id: BrokerId
    is_rackless: bool = False
    """Whether the fetch omits the rack."""


@attrs.frozen
class _Preferred:
    """A follower that the leader named as the preferred read replica."""

    node_id: BrokerId
    until_s: float
    info: TopicInfo
    """The topic's metadata when the follower was last found to be usable."""


@attrs.frozen
class _BackOff:
    """A time during which a follower is not read; it doubles with each failure."""

    until_s: float
    length_s: float

    @classmethod
    def after(cls, last: "_BackOff | None", longest_s: float, now_s: float) -> "_BackOff":
        length_s = _FIRST_BACK_OFF_S if last is None else last.length_s * 2
        length_s = min(length_s, max(longest_s, _FIRST_BACK_OFF_S))
        return cls(now_s + length_s, length_s)


class Routes:
    """The choice, for each partition that a client reads from one broker, of the broker that Sidefetch reads.

    Sidefetch reads a partition from the client's broker, usually its leader, or from a closer follower (KIP-392).
    The choice is a ``Source``. Times are in seconds.
    """

    def __init__(self, node_id: BrokerId, selector: Selector, max_age_s: float) -> None:
        """Create the choices for the partitions that a client reads from broker *node_id*.

        Args:
            node_id: the leader, as the client knows it.
            max_age_s: the time for which a preferred replica is read before the leader is asked again; also the
                longest back-off.
        """
        self.home = Source(node_id)
        """The leader, with our rack in the request if there is one."""
        self.rackless = Source(node_id, is_rackless=True)
        """The leader, without a rack, so that it prefers no follower."""
        self._selector = selector
        self._max_age_s = max_age_s
        self._preferred: dict[PartitionKey, _Preferred] = {}
        self._avoided: dict[PartitionKey, _BackOff] = {}
        self._down: dict[BrokerId, _BackOff] = {}
        self._kept_away: dict[BrokerId, dict[PartitionKey, None]] = {}
        """By follower that is down, the partitions that would be read from it."""
        self._timers: list[tuple[float, PartitionKey]] = []

    def choose_source(self, key: PartitionKey, rack: str, topology: Topology, now_s: float) -> Source:
        """Return the broker to fetch the partition *key* from at *now_s*, for a client in *rack*.

        In a back-off after a follower's failure, it is the leader, without a rack in the fetch. Otherwise it is the
        preferred replica that the leader has named, unless it has expired or is not online and in sync any more;
        then, with ``Selector.RACK_AWARE``, the closest replica (``find_closest``), unless it is in a back-off; then
        the leader.
        """
        avoided = self._avoided.get(key)
        if avoided is not None and now_s < avoided.until_s:
            return self.rackless
        info = topology.topic(key.topic)
        preferred = self._preferred.get(key)
        if preferred is not None:
            if now_s < preferred.until_s and self._is_still_usable(key, preferred, info, topology):
                return Source(preferred.node_id)
            del self._preferred[key]
        if self._selector is Selector.RACK_AWARE and info is not None and self._is_led_here(info, key.partition):
            node_id = find_closest(info, key.partition, rack, topology.brokers)
            if node_id is not None:
                if not self._is_down(node_id, now_s):
                    return Source(node_id)
                self._kept_away.setdefault(node_id, {})[key] = None
        return self.home

    def prefer(self, key: PartitionKey, node_id: int, topology: Topology, now_s: float) -> bool:
        """Make follower *node_id*, which the leader named as preferred read replica, the source of partition *key*.

        This lasts for ``max_age_s``; a further call with the same follower does not extend it. If the follower is
        in a back-off, the source is the leader without a rack until that ends.

        Return False if the metadata in *topology* does not have *node_id* as an online follower of the partition:
        the source is then the leader without a rack, for a back-off, and the caller should refresh the metadata.
        Otherwise return True.
        """
        follower = BrokerId(node_id)
        info = topology.topic(key.topic)
        if follower == self.home.node_id or info is None or not _is_online(info, key.partition, follower, topology):
            self._avoid(key, now_s)
            return False
        if self._is_down(follower, now_s):
            self._avoid(key, now_s, self._down[follower])
            return True
        last = self._preferred.get(key)
        if last is None or last.node_id != follower:
            self._preferred[key] = _Preferred(follower, now_s + self._max_age_s, info)
            heappush(self._timers, (now_s + self._max_age_s, key))
        return True

    def avoid_followers(self, key: PartitionKey, now_s: float) -> None:
        """Make the leader, without a rack, the source of partition *key*, because a follower returned an error.

        This lasts for a back-off of 1 s, which doubles with each further call until ``end_back_off``, up to
        ``max_age_s``. The preferred replica is forgotten.
        """
        self._preferred.pop(key, None)
        self._avoid(key, now_s)

    def end_back_off(self, key: PartitionKey) -> None:
        """End the back-off of the partition *key*, because a follower returned its records without an error."""
        self._avoided.pop(key, None)

    def exclude_follower(self, node_id: BrokerId, keys: Iterable[PartitionKey], now_s: float) -> None:
        """Exclude the follower *node_id* as a source for a back-off, because it cannot be reached or used.

        The back-off is 1 s, and doubles with each further call until ``readmit_follower``, up to ``max_age_s``.
        *keys* are the partitions that were read from the follower: ``take_expired`` yields them once the back-off
        is over.
        """
        self._down[node_id] = _BackOff.after(self._down.get(node_id), self._max_age_s, now_s)
        for key in [key for key, each in self._preferred.items() if each.node_id == node_id]:
            del self._preferred[key]
        self._kept_away.setdefault(node_id, {}).update(dict.fromkeys(keys))

    def readmit_follower(self, node_id: BrokerId) -> None:
        """End the back-off that ``exclude_follower`` began for the follower *node_id*, because it responded.

        The next ``take_expired`` yields the partitions that were to be read from it.
        """
        self._down.pop(node_id, None)

    def forget(self, key: PartitionKey) -> None:
        """Drop the preferred replica and the back-off of the partition *key*, such as one no longer fetched."""
        self._preferred.pop(key, None)
        self._avoided.pop(key, None)

    def take_expired(self, now_s: float) -> Iterator[PartitionKey]:
        """Yield the partitions whose preferred replica or back-off has expired since the last call.

        ``choose_source`` may return another broker for them now. A partition may be yielded twice.
        """
        while self._timers and self._timers[0][0] <= now_s:
            yield heappop(self._timers)[1]
        for node_id in [node_id for node_id in self._kept_away if not self._is_down(node_id, now_s)]:
            yield from self._kept_away.pop(node_id)

    def route_kind(self, source: Source) -> RouteKind:
        """Return the reason why *source* is read, for telemetry.

        It is "leader", or "rackless" without a rack; for a follower "selected" with ``Selector.RACK_AWARE``,
        otherwise "preferred".
        """
        if source.node_id == self.home.node_id:
            return "rackless" if source.is_rackless else "leader"
        return "selected" if self._selector is Selector.RACK_AWARE else "preferred"

    def _is_led_here(self, info: TopicInfo, partition: int) -> bool:
        """Return whether the client's broker leads the partition; if not, the client chose that replica itself."""
        leader = info.leaders.get(partition)
        return leader is not None and leader.node_id == self.home.node_id

    def _avoid(self, key: PartitionKey, now_s: float, back_off: _BackOff | None = None) -> None:
        self._avoided[key] = back_off or _BackOff.after(self._avoided.get(key), self._max_age_s, now_s)
        heappush(self._timers, (self._avoided[key].until_s, key))

    def _is_down(self, node_id: BrokerId, now_s: float) -> bool:
        back_off = self._down.get(node_id)
        return back_off is not None and now_s < back_off.until_s

    def _is_still_usable(
        self, key: PartitionKey, preferred: _Preferred, info: TopicInfo | None, topology: Topology
    ) -> bool:
        """Return whether newer metadata still has the preferred follower online and in sync."""
        if info is preferred.info:
            return True
        if info is None or not _is_online(info, key.partition, preferred.node_id, topology):
            return False
        if preferred.node_id not in info.replicas[key.partition].in_sync:
            return False
        self._preferred[key] = attrs.evolve(preferred, info=info)
        return True


def _is_online(info: TopicInfo, partition: int, node_id: BrokerId, topology: Topology) -> bool:
    replicas = info.replicas.get(partition)
    return replicas is not None and node_id in replicas.online and node_id in topology.brokers


def find_closest(info: TopicInfo, partition: int, rack: str, brokers: Mapping[BrokerId, Broker]) -> BrokerId | None:
    """Return the in-sync follower in *rack* that a client there should read; None if it should read the leader.

    The leader is read if it is in the rack, or no in-sync replica is; also if *rack* is empty or the partition is
    not known. Of several followers, the partition's number selects one. Kafka's ``RackAwareReplicaSelector`` takes
    the one with the longest log, but metadata does not have log ends. An in-sync replica is at most
    ``replica.lag.time.max.ms`` behind.
    """
    replicas, leader = info.replicas.get(partition), info.leaders.get(partition)
    if not rack or replicas is None or leader is None:
        return None
    near = sorted(node for node in replicas.in_sync if node in brokers and brokers[node].rack == rack)
    if not near or leader.node_id in near:
        return None
    return near[partition % len(near)]
