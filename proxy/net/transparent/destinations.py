"""Which broker is where: the cluster's addresses, resolved, to be compared with where connections were going."""

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
"""Names are not resolved again within this time: an address may have become another broker's after that."""
_ANEW_S: Final = 30.0
"""After so long they are, where a client is going to an address of no broker: its name may be told late."""
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
        self._since_s = self._looked_s = -float("inf")
        self._hosts: dict[str, list[str]] = {}
        """What each broker's name stands for, as far as that could ever be found out."""
        self._nodes: dict[Address, BrokerId | None] = {}
        self._unknown: TTLCache[Address, None] = TTLCache(_UNKNOWN, _UNKNOWN_S, timer=trio.current_time)

    def known(self, address: Address) -> BrokerId | None:
        """The broker at *address*, as far as is known."""
        return self._nodes.get(address)

    async def node_at(self, address: Address) -> BrokerId | None:
        """The broker at *address*; None if it is that of none, or of several. Asks a broker where it is new."""
        came_s = trio.current_time()
        async with self._lock:
            if self._is_older(_FRESH_S):
                await self._resolve()
            if address not in self._nodes and address not in self._unknown:
                if self._look_s and self._looked_s < came_s:
                    await self._look()
                await self._resolve()
                if address not in self._nodes:
                    self._unknown[address] = None
        return self.known(address)

    async def keep_up(self, *, any_unknown: bool) -> None:
        """Resolve anew where the brokers are others than they were; now and then, where *any_unknown* is served."""
        if self._is_older(_ANEW_S if any_unknown else float("inf")):
            async with self._lock:
                await self._resolve()

    async def _look(self) -> None:
        """Have a broker asked which there are; those that came before this began need not ask again."""
        self._looked_s = trio.current_time()
        with trio.move_on_after(self._look_s):
            await self._topology.ask_anew()

    def _is_older(self, age_s: float) -> bool:
        """Whether what is known is older than *age_s*, or of other brokers than there are."""
        return trio.current_time() - self._since_s > age_s or self._brokers() != self._of

    def _brokers(self) -> Mapping[BrokerId, Address]:
        """Those that live; where only clients may ask for those, all that they were told of."""
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
            # A name that cannot be resolved just now stands for what it stood for.
            hosts[address.host] = hosts[address.host] or former.get(address.host, [])
            for host in hosts[address.host]:
                self._put(nodes, Address(host, address.port), node_id)
        self._nodes, self._of, self._since_s = nodes, brokers, trio.current_time()
        self._resolved()

    def _put(self, nodes: dict[Address, BrokerId | None], address: Address, node_id: BrokerId) -> None:
        if nodes.setdefault(address, node_id) == node_id:
            return
        nodes[address] = None
        self._log.warning(
            "broker-address-ambiguous",
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
