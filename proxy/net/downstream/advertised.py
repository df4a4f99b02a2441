"""Where a client is told that brokers are."""

from proxy.cluster.topology import BrokerId
from proxy.net.downstream.listeners import Listeners
from proxy.net.io.sockets import FrameSocket
from proxy.net.upstream.topology import TopologyService
from proxy.wire.addresses import Place

__all__ = ["broker_address", "local_address"]


def local_address(
    advertise: str | None, topology: TopologyService, listeners: Listeners, client: FrameSocket
) -> Place:
    """With us: *advertise*, or the host that this client has reached us by, and the broker's port."""
    host_here = advertise or client.local_host

    def place(node_id: int, host: str, port: int) -> tuple[str, int] | None:
        topology.saw(node_id, host, port)
        local = listeners.open_for(BrokerId(node_id))
        return None if local is None else (host_here, local)

    return place


def broker_address(topology: TopologyService, _: FrameSocket) -> Place:
    """Where they really are: the client will be redirected on its way there, as it was."""

    def place(node_id: int, host: str, port: int) -> tuple[str, int]:
        topology.saw(node_id, host, port)
        return host, port

    return place
