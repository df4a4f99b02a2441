"""Which broker is where: the cluster's addresses, resolved, to be compared with where connections were going."""

import socket
from collections.abc import Callable, Mapping
from typing import Final

import trio
from cachetools import TTLCache

from proxy.config import Address
from proxy.fetch.topology import BrokerId
from proxy.net.logs import Log
from proxy.net.topology import TopologyService

__all__ = ["Destinations"]

_FRESH_S: Final = 5.0
"""Names are not resolved again within this time: an address may have become another broker's after that."""
_UNKNOWN_S: Final = 5.0
"""For how long an address that was looked for in vain is not looked for again."""
_UNKNOWN: Final = 1000
"""How many such addresses are remembered."""
_RESOLVE_S: Final = 5.0
_COMPLAIN_EVERY_S: Final = 60.0


class Destinations:
    """The brokers of one cluster by their addresses, as numbers.

    A broker may have many. An address that two brokers have says nothing, as where a load balancer stands before
    them: then there is no telling which of them a client means.
    """

    def __init__(self, topology: TopologyService, *, look_s: float, log: Log, resolved: Callable[[], None]) -> None:
        """*look_s*: how long to wait for a broker to be asked anew; 0 where only clients may ask.

        *resolved* is called whenever the addresses may have changed.
        """
        self._topology = topology
        self._look_s = look_s
        self._log = log
        self._resolved = resolved
        self._lock = trio.Lock()
        self._of: Mapping[BrokerId, Address] = {}
        self._since_s = -float("inf")
        self._nodes: dict[Address, BrokerId | None] = {}
        self._unknown: TTLCache[Address, None] = TTLCache(_UNKNOWN, _UNKNOWN_S, timer=trio.current_time)

    def known(self, address: Address) -> BrokerId | None:
        """The broker at *address*, as far as is known."""
        return self._nodes.get(address)

    async def node_at(self, address: Address) -> BrokerId | None:
        """The broker at *address*; None if it is that of none, or of several. Asks a broker where it is new."""
        async with self._lock:
            await self._resolve_again()
            if address not in self._nodes and address not in self._unknown:
                with trio.move_on_after(self._look_s):
                    await self._topology.ask_anew()
                await self._resolve()
                if address not in self._nodes:
                    self._unknown[address] = None
        return self.known(address)

    async def keep_up(self) -> None:
        """Resolve anew where the brokers are others than they were."""
        if self._brokers() != self._of:
            async with self._lock:
                await self._resolve()

    def _brokers(self) -> Mapping[BrokerId, Address]:
        """Those that live; where only clients may ask for those, all that they were told of."""
        live = self._topology.topology.brokers.values()
        if live:
            return {each.node_id: Address(each.host, each.port) for each in live}
        return {node_id: each for node_id, each in self._topology.addresses.items() if node_id >= 0}

    async def _resolve_again(self) -> None:
        if trio.current_time() - self._since_s > _FRESH_S or self._brokers() != self._of:
            await self._resolve()

    async def _resolve(self) -> None:
        brokers = dict(self._brokers())
        hosts: dict[str, list[str]] = {each.host: [] for each in brokers.values()}
        with trio.move_on_after(_RESOLVE_S):
            async with trio.open_nursery() as nursery:
                for host, found in hosts.items():
                    nursery.start_soon(_look_up, host, found)
        nodes: dict[Address, BrokerId | None] = {}
        for node_id, address in brokers.items():
            for host in hosts[address.host]:
                self._put(nodes, Address(host, address.port), node_id)
        self._nodes, self._of, self._since_s = nodes, brokers, trio.current_time()
        self._resolved()

    def _put(self, nodes: dict[Address, BrokerId | None], address: Address, node_id: BrokerId) -> None:
        if nodes.setdefault(address, node_id) == node_id:
            return
        nodes[address] = None
        self._log.warning(
            "address-of-several-brokers",
            every_s=_COMPLAIN_EVERY_S,
            per=address,
            address=address,
            node=node_id,
            remedy="give each broker an address and port of its own",
        )


async def _look_up(host: str, found: list[str]) -> None:
    """Put the addresses of *host* into *found*: none if it has none, or is no name."""
    try:
        each = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    found += dict.fromkeys(str(name[0]).partition("%")[0] for *_, name in each)
