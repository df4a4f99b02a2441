"""The broker addresses in responses to clients: Sidefetch's own or, in transparent mode, the brokers'."""

from proxy.cluster.topology import BrokerId
from proxy.net.downstream.listeners import Listeners
from proxy.net.io.sockets import FrameSocket
from proxy.net.upstream.topology import TopologyService
from proxy.wire.addresses import AddressMap

__all__ = ["broker_address", "local_address"]


def local_address(
    advertise: str | None, topology: TopologyService, listeners: Listeners, client: FrameSocket
) -> AddressMap:
    """Return a function that maps a broker to the address of Sidefetch which stands for it, for one client.

    The function takes the broker's node id, host and port, as in a response of a broker. It records them in
    *topology*, opens the local listener of the broker if needed, and returns the host of Sidefetch and the port of
    that listener; None if no port is available. The host is *advertise* or, if that is None, the local IP address
    to which *client* has connected.
    """
    host_here = advertise or client.local_host

    def map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
        topology.record_address(node_id, host, port)
        local = listeners.open_for(BrokerId(node_id))
        return None if local is None else (host_here, local)

    return map_address


def broker_address(topology: TopologyService, _: FrameSocket) -> AddressMap:
    """Return a function that maps a broker to the broker's own address, for clients in transparent mode.

    The function takes the broker's node id, host and port, as in a response of a broker. It records them in
    *topology*, and returns host and port unchanged: the packet filter redirects the client's connections.
    """

    def map_address(node_id: int, host: str, port: int) -> tuple[str, int]:
        topology.record_address(node_id, host, port)
        return host, port

    return map_address
