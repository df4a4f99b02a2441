"""Which local port stands for which broker."""

from collections.abc import Collection

import attrs

from proxy.config import PortRange
from proxy.errors import ProxyError
from proxy.fetch.topology import BrokerId

__all__ = ["PortBook", "RangeUsedUp"]


class RangeUsedUp(ProxyError):
    """No port of the range is left for this broker."""


@attrs.define
class PortBook:
    """Ports by node id: the first port plus the node id where that fits, else the first free one.

    A port once given stays its broker's for the life of the process, also when the broker dies: a client with an
    old address must never reach another broker by it. Ports of ids that fit are the same after a restart, too.
    Those of ids that do not are the same if the brokers are, so assign them together, lowest id first. Where they
    are not, a client with an old address is told by the broker, or by ``fetch.Wanted``, to look again.
    """

    range: PortRange
    assigned: dict[BrokerId, int] = attrs.field(factory=dict)

    def assign(self, node_id: BrokerId, unusable: Collection[int] = ()) -> int:
        """The port of *node_id*; *unusable* are ports that others listen on.

        Raises: RangeUsedUp: every port is taken.
        """
        if node_id in self.assigned:
            return self.assigned[node_id]
        taken = {*self.assigned.values(), *unusable}
        ports: tuple[int, ...] = (self.range.first + node_id, *range(self.range.first, self.range.last + 1))
        for port in ports:
            if port in self.range and port not in taken:
                self.assigned[node_id] = port
                return port
        raise RangeUsedUp(f"broker {node_id} finds no port in {self.range}: all are taken")
