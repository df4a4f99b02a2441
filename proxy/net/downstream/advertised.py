"""The broker addresses that clients get."""

from proxy.cluster.topology import BrokerId
from proxy.net.downstream.listeners import Listeners
from proxy.net.io.sockets import FrameSocket
from proxy.net.upstream.topology import TopologyService
from proxy.wire.addresses import Place

__all__ = ["broker_address", "local_address"]


def local_address(
    advertise: str | None, topology: TopologyService, listeners: Listeners, client: FrameSocket
) -> Place:
    """Map brokers to Sidefetch: *advertise*, or the host by which this client connected, and the broker's port."""
    host_here = advertise or client.local_host

    def place(node_id: int, host: str, port: int) -> tuple[str, int] | None:
        topology.saw(node_id, host, port)
        local = listeners.open_for(BrokerId(node_id))
        return None if local is None else (host_here, local)

    return place


def broker_address(topology: TopologyService, _: FrameSocket) -> Place:
    """Map brokers to their real addresses: the packet filter redirects the client's connections to them."""

    def place(node_id: int, host: str, port: int) -> tuple[str, int]:
        topology.saw(node_id, host, port)
        return host, port

    return place
