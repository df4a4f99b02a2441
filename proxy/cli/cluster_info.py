"""What ``check`` has seen of a cluster, and what it finds."""

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from proxy.config import Address

__all__ = ["FETCH", "BrokerInfo", "ClusterInfo", "Diagnostic", "Range", "named"]

Range = tuple[int, int]
"""The lowest and the highest version of an API."""

FETCH: Final = 1
"""Its API key."""


@attrs.frozen
class BrokerInfo:
    """One broker, as its cluster and itself tell of it."""

    node: int
    address: Address
    rack: str | None
    versions: Mapping[int, Range] = attrs.field(factory=dict)
    """By API key; empty where it was not reached."""
    problem: str = ""
    """Why it was not reached."""
    selector_class: str | None = None
    """Its ``replica.selector.class``: empty for none, None where it did not tell."""

    @property
    def oldest_fetch(self) -> int:
        """Its lowest Fetch version."""
        return self.versions.get(FETCH, (0, -1))[0]

    @property
    def fetch(self) -> int:
        """Its highest Fetch version; -1 for none."""
        return self.versions.get(FETCH, (0, -1))[1]


@attrs.frozen
class ClusterInfo:
    """What Metadata told."""

    cluster_id: str | None
    through: Address
    """The bootstrap server that answered."""
    brokers: tuple[BrokerInfo, ...]


@attrs.frozen
class Diagnostic:
    """One sentence; ``failure`` means that clients cannot be served as things are."""

    level: Literal["ok", "note", "warning", "failure"]
    text: str


def named(brokers: list[BrokerInfo]) -> str:
    """``nodes 1, 2``; empty for none."""
    if not brokers:
        return ""
    numbers = ", ".join(str(broker.node) for broker in sorted(brokers, key=lambda broker: broker.node))
    return f"node{'s' if len(brokers) > 1 else ''} {numbers}"
