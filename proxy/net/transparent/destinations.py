"""The brokers by their IP addresses, to find the broker to which a client has opened a redirected connection."""

import socket
from collections.abc import Callable, Mapping
from typing import Final

import trio
from cachetools import TTLCache

from proxy.cluster.topology import BrokerId
from proxy.config import Address
from proxy.net.io.logs import Log
from proxy.net.upstream.topology import TopologyService

__all__ = ["Destinations"]

_FRESH_S: Final = 5.0
"""The age in seconds at which names are resolved again: an address may since belong to another broker."""
_ANEW_S: Final = 30.0
"""The age in seconds at which names are resolved again while a client of an unknown address is connected, since the
broker may be announced late."""
_UNKNOWN_S: Final = 5.0
"""The time in seconds for which an address of no broker is not looked up again."""
_UNKNOWN: Final = 1000
"""The maximum number of addresses that are remembered as unknown."""
_RESOLVE_S: Final = 5.0
_COMPLAIN_EVERY_S: Final = 60.0


class Destinations:
    """A map from IP addresses and ports to the brokers of one cluster; it resolves the brokers' host names.

    A broker may have many addresses. An address that several brokers share, as with a load balancer before them,
    identifies none of them: a client that connects to it may mean any.
    """

    def __init__(
        self, topology: TopologyService, *, refresh_s: float, log: Log, on_resolved: Callable[[], None]
    ) -> None:
        """Create an empty map.

        Args:
            refresh_s:   the longest wait in seconds for a new topology from a broker; 0 if Sidefetch must not
                request one, because only clients can log in to the brokers.
            on_resolved: called after each resolution of the host names.
        """
        self._topology = topology
        self._refresh_s = refresh_s
        self._log = log
        self._on_resolved = on_resolved
        self._lock = trio.Lock()
        self._resolved_brokers: Mapping[BrokerId, Address] = {}
        self._since_s = self._refreshed_s = -float("inf")
        self._hosts: dict[str, list[str]] = {}
        """The last resolved addresses of each broker's host name."""
        self._nodes: dict[Address, BrokerId | None] = {}
        self._unknown: TTLCache[Address, None] = TTLCache(_UNKNOWN, _UNKNOWN_S, timer=trio.current_time)

    def find_known(self, address: Address) -> BrokerId | None:
        """Return the broker that had *address* when the host names were last resolved.

        Returns: None if no broker had it, or several.
        """
        return self._nodes.get(address)

    async def node_at(self, address: Address) -> BrokerId | None:
        """Return the broker at *address*; None if no broker or several brokers have it.

        It first resolves the brokers' host names again if the last time is over 5 s ago, or the set of brokers has
        changed. If no broker has *address* then, it requests a new topology from a broker and resolves once more,
        but not again for this address within 5 s.
        """
        came_s = trio.current_time()
        async with self._lock:
            if self._is_older(_FRESH_S):
                await self._resolve()
            if address not in self._nodes and address not in self._unknown:
                if self._refresh_s and self._refreshed_s < came_s:
                    await self._refresh_topology()
                await self._resolve()
                if address not in self._nodes:
                    self._unknown[address] = None
        return self.find_known(address)

    async def refresh(self, *, any_unknown: bool) -> None:
        """Resolve the brokers' host names again if the set of brokers has changed since the last time.

        With *any_unknown*, also if the last time is over 30 s ago: a client is connected to an address of no known
        broker, and that broker may become known late. It is called once a second while clients are connected.
        """
        if self._is_older(_ANEW_S if any_unknown else float("inf")):
            async with self._lock:
                await self._resolve()

    async def _refresh_topology(self) -> None:
        """Request a new topology, waiting up to ``_refresh_s``; earlier calls of ``node_at`` need no other one."""
        self._refreshed_s = trio.current_time()
        with trio.move_on_after(self._refresh_s):
            await self._topology.refresh_brokers()

    def _is_older(self, age_s: float) -> bool:
        """Return whether the addresses are older than *age_s*, or belong to an outdated set of brokers."""
        return trio.current_time() - self._since_s > age_s or self._brokers() != self._resolved_brokers

    def _brokers(self) -> Mapping[BrokerId, Address]:
        """Return the addresses of the live brokers or, if only clients can request them, of those in responses."""
        live = self._topology.topology.brokers.values()
        if live:
            return {each.node_id: Address(each.host, each.port) for each in live}
        return {node_id: each for node_id, each in self._topology.addresses.items() if node_id >= 0}

    async def _resolve(self) -> None:
        brokers = dict(self._brokers())
        hosts: dict[str, list[str]] = {each.host: [] for each in brokers.values()}
        former, self._hosts = self._hosts, hosts
        with trio.move_on_after(_RESOLVE_S):
            async with trio.open_nursery() as nursery:
                for host, found in hosts.items():
                    nursery.start_soon(_look_up, host, found)
        nodes: dict[Address, BrokerId | None] = {}
        for node_id, address in brokers.items():
            # A name that cannot be resolved at present keeps its last addresses.
            hosts[address.host] = hosts[address.host] or former.get(address.host, [])
            for host in hosts[address.host]:
                self._add_node(nodes, Address(host, address.port), node_id)
        self._nodes, self._resolved_brokers, self._since_s = nodes, brokers, trio.current_time()
        self._on_resolved()

    def _add_node(self, nodes: dict[Address, BrokerId | None], address: Address, node_id: BrokerId) -> None:
        if nodes.setdefault(address, node_id) == node_id:
            return
        nodes[address] = None
        self._log.warning(
            "broker-address-ambiguous",
            every_s=_COMPLAIN_EVERY_S,
            address=address,
            node=node_id,
            remedy="give each broker an address and port of its own",
        )


async def _look_up(host: str, found: list[str]) -> None:
    """Append the IP addresses of *host* to *found*; none if *host* cannot be resolved or is not a valid name."""
    try:
        each = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    found += dict.fromkeys(str(name[0]).partition("%")[0] for *_, name in each)
