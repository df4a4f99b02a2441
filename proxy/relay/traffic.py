"""Sums of the records that brokers have sent to Sidefetch, by topic and rack, and of upstream fetches, by route.

Cloud providers charge for traffic between racks. A process has one ``Traffic`` for all of its clients.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from proxy.events import RouteKind

__all__ = ["OTHER_TOPICS", "Traffic", "TrafficSource"]

OTHER_TOPICS: Final = "(other topics)"
"""The name for all topics that are not counted separately; no topic can have it."""
_TOPICS: Final = 300
_LOGGED_TOPICS: Final = 5
"""The largest number of topics in the log."""
_CLOSEST: Final = ("preferred", "selected")
"""The routes by which a replica is read because it is close to Sidefetch."""


class TrafficSource(NamedTuple):
    """The labels of a byte counter: the topic of the records, and the rack of the broker that sent them."""

    topic: str
    """The topic's name, or ``OTHER_TOPICS``."""
    rack: str | None
    """The broker's rack; None if it has none."""
    crossed: bool | None
    """Whether the broker's rack differs from Sidefetch's; None if either is unknown."""


class Traffic:
    """Sums of record bytes and upstream fetches since the start of the process; they never decrease."""

    def __init__(self, topics: int = _TOPICS) -> None:
        """Create counters for the first *topics* topics that are read; the others are counted together."""
        self._most_topics = topics
        self._topics: set[str] = set()
        self.record_bytes: Counter[TrafficSource] = Counter()
        """Bytes of records as the brokers sent them, before conversion."""
        self.fetches: Counter[RouteKind] = Counter()
        """Upstream fetches by route: the reason that their broker was read."""
        self.partitions: Counter[RouteKind] = Counter()
        """Partitions of those fetches by route, both named and remembered by a session."""

    def add_records(self, topic: str, rack: str | None, crossed: bool | None, record_bytes: int) -> None:
        """Count *record_bytes* of *topic* that were read from a broker in *rack*; do nothing if there are none.

        Topics beyond the largest number of counted topics are counted together as ``OTHER_TOPICS``.

        Args: rack:    the broker's rack; None if it has none.
              crossed: whether that is another rack than Sidefetch's; None if either is unknown.
        """
        if not record_bytes:
            return
        if topic not in self._topics:
            if len(self._topics) < self._most_topics:
                self._topics.add(topic)
            else:
                topic = OTHER_TOPICS
        self.record_bytes[TrafficSource(topic, rack, crossed)] += record_bytes

    def add_fetch(self, kind: RouteKind, partitions: int) -> None:
        """Count an upstream fetch of *partitions* partitions by its route *kind*."""
        self.fetches[kind] += 1
        self.partitions[kind] += partitions

    def total(self, counted: Callable[[TrafficSource], bool] = lambda _: True) -> int:
        """Return the sum of the record bytes whose labels *counted* selects; by default, of all."""
        return sum(record_bytes for source, record_bytes in self.record_bytes.items() if counted(source))

    def topics(self) -> list[tuple[str, int, int]]:
        """Return a tuple for each topic: its name, its record bytes, and its record bytes from other racks."""
        read: Counter[str] = Counter()
        crossed: Counter[str] = Counter()
        for source, record_bytes in self.record_bytes.items():
            read[source.topic] += record_bytes
            crossed[source.topic] += record_bytes if source.crossed else 0
        return [(topic, record_bytes, crossed[topic]) for topic, record_bytes in read.items()]

    @property
    def closest_share(self) -> float | None:
        """The share of requested partitions that were read from a close replica, 0 to 1; None before any fetch.

        Close replicas are those that the leader preferred (KIP-392), or that Sidefetch selected.
        """
        partitions = self.partitions.total()
        return sum(self.partitions[kind] for kind in _CLOSEST) / partitions if partitions else None

    def as_log_fields(self) -> dict[str, Any]:
        """Return the sums as fields of a log event, by name; empty before the first fetch.

        They are the record bytes from Sidefetch's own rack, from other racks and from unknown ones, by rack, and
        for the five topics with the most bytes from other racks; and the upstream fetches and partitions by route.
        """
        fields: dict[str, Any] = {}
        if total := self.total():
            fields["record_bytes"] = total
            fields["own_rack_bytes"] = self.total(lambda source: source.crossed is False)
            fields["crossed_bytes"] = self.total(lambda source: source.crossed is True)
            fields["unknown_rack_bytes"] = self.total(lambda source: source.crossed is None)
            fields["by_rack"] = _format_pairs(self._by_rack())
            fields["crossed_by_topic"] = _format_pairs(self._crossed_by_topic()[:_LOGGED_TOPICS]) or None
        fields |= {f"{kind}_fetches": number for kind, number in self.fetches.items()}
        fields |= {f"{kind}_partitions": number for kind, number in self.partitions.items()}
        share = self.closest_share
        return fields if share is None else fields | {"closest_share": f"{share:.3f}"}

    def _by_rack(self) -> list[tuple[str, int]]:
        racks = sorted({source.rack for source in self.record_bytes}, key=lambda rack: (rack is None, rack or ""))
        return [("no rack" if rack is None else rack, self.total(_is_from(rack))) for rack in racks]

    def _crossed_by_topic(self) -> list[tuple[str, int]]:
        crossed = [(topic, crossed_bytes) for topic, _, crossed_bytes in self.topics() if crossed_bytes]
        return sorted(crossed, key=lambda each: -each[1])


def _is_from(rack: str | None) -> Callable[[TrafficSource], bool]:
    return lambda source: source.rack == rack


def _format_pairs(pairs: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in pairs)
