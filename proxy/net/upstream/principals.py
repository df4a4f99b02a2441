"""Where brokers know clients by what those say themselves: a view of the cluster for each, while it is here.

What a principal may see of a cluster is its own. Addresses of brokers are the same for all.
"""

from collections.abc import Callable

import attrs
import trio

from proxy.net.upstream.access import Access
from proxy.net.upstream.topology import TopologyService
from proxy.sasl.logins import Login

__all__ = ["Principals"]


@attrs.define(eq=False)
class _Known:
    login: Login
    topology: TopologyService = attrs.field(init=False)
    connections: int = 0
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def current(self) -> Login:
        return self.login

    async def run(self) -> None:
        with self.scope:
            await self.topology.run()


class Principals:
    """Topologies by principal, each asked for as whoever told a login last."""

    def __init__(self, access: Access, made: Callable[[Access], TopologyService]) -> None:
        """*made* makes a topology that is asked for by the access given."""
        self._access = access
        self._made = made
        self._known: dict[str, _Known] = {}
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    async def run(self) -> None:
        """Keep them up to date for ever."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def enter(self, principal: str, login: Login) -> TopologyService:
        """One more connection is *principal*'s; ``leave`` must follow."""
        known = self._known.get(principal)
        if known is None:
            assert self._nursery is not None
            known = _Known(login)
            known.topology = self._made(self._access.as_client(known.current))
            self._known[principal] = known
            self._nursery.start_soon(known.run)
        known.connections += 1
        known.login = login
        return known.topology

    def renew(self, principal: str, login: Login) -> None:
        """It has logged in again."""
        self._known[principal].login = login

    def leave(self, principal: str) -> None:
        """One of its connections has gone; with the last, what is known for it."""
        known = self._known[principal]
        known.connections -= 1
        if not known.connections:
            del self._known[principal]
            known.scope.cancel()
