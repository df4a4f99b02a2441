"""The assignment of a local listening port to each broker of the cluster."""

from collections.abc import Collection

import attrs

from proxy.cluster.topology import BrokerId
from proxy.config import PortRange
from proxy.errors import ProxyError

__all__ = ["NoPortLeft", "PortAssignments"]


class NoPortLeft(ProxyError):
    """No port of the configured range is available for a broker."""


@attrs.define
class PortAssignments:
    """The local port of each broker: the range's first port plus the broker's node id, or else the first free port.

    An assigned port stays with its broker for the life of the process, even if the broker fails: a client that uses
    an old address must never reach another broker at it. Ports that are computed from the id are the same after a
    restart. The others are the same if the brokers are the same, so assign them together, lowest id first. If the
    brokers have changed, a client that uses an old address gets an error that makes it refresh its metadata.

    Processes that share their ports must agree on them without communication: for them, a broker has the port
    computed from its id, or none.
    """

    range: PortRange
    """The ports that may be assigned."""
    is_shared: bool = False
    """Whether other processes listen on the same ports."""
    assigned: dict[BrokerId, int] = attrs.field(factory=dict)
    """The ports that were assigned so far, by node id."""

    def assign(self, node_id: BrokerId, unusable: Collection[int] = ()) -> int:
        """Return the port of broker *node_id*; assign one if it has none.

        Args:   unusable: ports that must not be assigned, because other programs listen on them.
        Raises: NoPortLeft: no port of the range is free. If ports are shared: the one that is computed from the
            node id is not in the range, or not free.
        """
        if node_id in self.assigned:
            return self.assigned[node_id]
        taken = {*self.assigned.values(), *unusable}
        computed = self.range.first + node_id
        others: Collection[int] = () if self.is_shared else range(self.range.first, self.range.last + 1)
        for port in (computed, *others):
            if port in self.range and port not in taken:
                self.assigned[node_id] = port
                return port
        if self.is_shared:
            raise NoPortLeft(
                f"broker {node_id} finds no port in {self.range}: with share-ports it is {computed} or none;"
                " accepted: a range that has it, free on this host"
            )
        raise NoPortLeft(
            f"broker {node_id} finds no port in {self.range}: all are taken; accepted: a port for each broker"
        )
