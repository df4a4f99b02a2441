"""Which local port stands for which broker."""

from collections.abc import Collection

import attrs

from proxy.cluster.topology import BrokerId
from proxy.config import PortRange
from proxy.errors import ProxyError

__all__ = ["NoPortLeft", "PortAssignments"]


class NoPortLeft(ProxyError):
    """No port of the range can be this broker's."""


@attrs.define
class PortAssignments:
    """Ports by node id: the first port plus the node id where that fits, else the first free one.

    A port once given stays its broker's for the life of the process, also when the broker dies: a client with an
    old address must never reach another broker by it. Ports of ids that fit are the same after a restart, too.
    Those of ids that do not are the same if the brokers are, so assign them together, lowest id first. Where they
    are not, a client with an old address is told by the broker, or by ``fetch.Wanted``, to look again.

    Processes that share their ports have to agree on them without a word: for them, no other port than that of its
    id is a broker's.
    """

    range: PortRange
    is_shared: bool = False
    assigned: dict[BrokerId, int] = attrs.field(factory=dict)

    def assign(self, node_id: BrokerId, unusable: Collection[int] = ()) -> int:
        """The port of *node_id*; *unusable* are ports that others listen on.

        Raises: NoPortLeft: every port is taken, or the one that all processes would find.
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
