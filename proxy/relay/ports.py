"""The assignment of local ports to brokers."""

from collections.abc import Collection

import attrs

from proxy.cluster.topology import BrokerId
from proxy.config import PortRange
from proxy.errors import ProxyError

__all__ = ["NoPortLeft", "PortAssignments"]


class NoPortLeft(ProxyError):
    """No port of the range is available for this broker."""


@attrs.define
class PortAssignments:
    """Ports by node id: the first port plus the node id if the range has it, else the first free port.

    An assigned port stays with its broker for the life of the process, even if the broker fails: a client with an
    old address must never reach another broker by it. Ports that are computed from the id are the same after a
    restart. The others are the same if the brokers are, so assign them together, lowest id first. If they are not,
    the broker, or ``fetch.Wanted``, answers a client with an old address with an error that makes it refresh its
    metadata.

    Processes that share their ports must agree on them without communication: for them, a broker has the port
    computed from its id, or none.
    """

    range: PortRange
    is_shared: bool = False
    assigned: dict[BrokerId, int] = attrs.field(factory=dict)

    def assign(self, node_id: BrokerId, unusable: Collection[int] = ()) -> int:
        """Return the port of *node_id*, assigning one if needed.

        Args: unusable: ports on which other programs listen.
        Raises: NoPortLeft: every port is taken, or the one that all processes would choose.
        """
        if node_id in self.assigned:
            return self.assigned[node_id]
        taken = {*self.assigned.values(), *unusable}
        of_its_id = self.range.first + node_id
        others: Collection[int] = () if self.is_shared else range(self.range.first, self.range.last + 1)
        for port in (of_its_id, *others):
            if port in self.range and port not in taken:
                self.assigned[node_id] = port
                return port
        if self.is_shared:
            raise NoPortLeft(
                f"broker {node_id} finds no port in {self.range}: with share-ports it is {of_its_id} or none;"
                " accepted: a range that has it, free on this host"
            )
        raise NoPortLeft(
            f"broker {node_id} finds no port in {self.range}: all are taken; accepted: a port for each broker"
        )
