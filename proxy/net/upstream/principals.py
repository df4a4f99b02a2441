"""A topology for each principal, for the setting in which clients log in to brokers with their own credentials.

Each principal may see different topics, so each has a topology of its own while it has connections. Addresses of
brokers are the same for all.
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
    """A principal with open connections, its last credentials and its topology."""

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
    """The topology services of all principals with open client connections, by the principal's name."""

    def __init__(self, access: Access, create_topology: Callable[[Access], TopologyService]) -> None:
        """Create an empty map; *create_topology* creates a service that connects to brokers by an ``Access``."""
        self._access = access
        self._create_topology = create_topology
        self._known: dict[str, _Known] = {}
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        """Return the number of principals."""
        return len(self._known)

    async def run(self) -> None:
        """Run the topology services of all principals until cancelled; must run before ``enter`` is called."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def enter(self, principal: str, login: Login) -> TopologyService:
        """Count one more client connection of *principal*, and return the principal's topology service.

        The first connection creates and starts the service. *login*, the client's credentials, replaces the
        credentials of earlier connections. ``leave`` must follow when the connection ends.
        """
        known = self._known.get(principal)
        if known is None:
            assert self._nursery is not None
            known = _Known(login)
            known.topology = self._create_topology(self._access.as_client(known.current))
            self._known[principal] = known
            self._nursery.start_soon(known.run)
        known.connections += 1
        known.login = login
        return known.topology

    def renew(self, principal: str, login: Login) -> None:
        """Replace the credentials of *principal* by *login*, with which one of its clients has re-authenticated."""
        self._known[principal].login = login

    def leave(self, principal: str) -> None:
        """Count one client connection of *principal* less; after the last one, end its topology service."""
        known = self._known[principal]
        known.connections -= 1
        if not known.connections:
            del self._known[principal]
            known.scope.cancel()
