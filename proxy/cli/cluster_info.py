"""Values for ``check``: a cluster, its brokers and the diagnostics about them."""

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from proxy.config import Address

__all__ = ["FETCH", "BrokerInfo", "ClusterInfo", "Diagnostic", "Range", "name_nodes"]

Range = tuple[int, int]
"""The lowest and the highest version of an API."""

FETCH: Final = 1
"""The API key of Fetch."""


@attrs.frozen
class BrokerInfo:
    """The results of querying one broker: from the cluster's metadata, and from the broker's own responses."""

    node: int
    """The node id; -1 if it is not known."""
    address: Address
    rack: str | None
    """``broker.rack``; None if it is not set or not known."""
    versions: Mapping[int, Range] = attrs.field(factory=dict)
    """Supported versions by API key; empty if the broker was not reached."""
    problem: str = ""
    """The reason that the broker was not reached; empty if it was."""
    selector_class: str | None = None
    """The broker's ``replica.selector.class``; empty if it is not set, None if the broker did not report it."""

    @property
    def oldest_fetch(self) -> int:
        """The lowest supported Fetch version; 0 if it is not known."""
        return self.versions.get(FETCH, (0, -1))[0]

    @property
    def fetch(self) -> int:
        """The highest supported Fetch version; -1 if it is not known."""
        return self.versions.get(FETCH, (0, -1))[1]


@attrs.frozen
class ClusterInfo:
    """A cluster, from its Metadata response and the responses of its brokers."""

    cluster_id: str | None
    """The cluster's id; None if the broker did not report it."""
    through: Address
    """The bootstrap server that sent the Metadata response."""
    brokers: tuple[BrokerInfo, ...]


@attrs.frozen
class Diagnostic:
    """One finding of ``sidefetch check``: a text for people, and its severity."""

    level: Literal["ok", "note", "warning", "failure"]
    """The severity; ``failure`` means that clients cannot be served."""
    text: str
    """The finding, and the remedy if there is one."""


def name_nodes(brokers: list[BrokerInfo]) -> str:
    """Return the node ids of *brokers* for people: ``node 1``, ``nodes 1, 2``, or an empty text for no brokers."""
    if not brokers:
        return ""
    numbers = ", ".join(str(broker.node) for broker in sorted(brokers, key=lambda broker: broker.node))
    return f"node{'s' if len(brokers) > 1 else ''} {numbers}"
