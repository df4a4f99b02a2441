"""As whom brokers are asked for one client, where it logs in to them itself."""

from collections.abc import Callable
from typing import Final

from proxy.net.services import Services
from proxy.net.upstream.access import Access
from proxy.sasl.logins import Login

__all__ = ["ClientLogin"]

_SINGLE_EVERY_S: Final = 60.0


class ClientLogin:
    """What a client has said to its broker, said again to others."""

    def __init__(self, peer: str, services: Services, use: Callable[[Access], None]) -> None:
        """*use* takes how brokers are logged in to for the client, once that is known."""
        self._peer = peer
        self._services = services
        self._use = use
        self._login: Login | None = None
        """What the client has said, if it may be said again."""
        self._entered: str | None = None
        """The principal that the client is, if the topology is that one's."""
        self.topology = services.topology
        """The cluster, as the client's principal may see it."""

    def identified(self, principal: str, mechanism: str, login: Login | None) -> None:
        """The broker has let the client in, as *principal*; *login* is None if it cannot be repeated."""
        services = self._services
        if login is None:
            services.counts["clients_on_one_connection"] += 1
            services.log.warning(
                "client-limited-to-one-connection",
                every_s=_SINGLE_EVERY_S,
                per=mechanism,
                client=self._peer,
                mechanism=mechanism,
                reason="its login cannot be repeated, so its fetches pass to leaders as they came:"
                " give Sidefetch a login of its own (upstream-sasl), or the client PLAIN or OAUTHBEARER",
            )
            return
        is_first, self._login = self._login is None, login
        if is_first:
            self._use(services.access.as_client(self._current))
            services.log.debug("client-identified", client=self._peer, mechanism=mechanism)
        if services.principals is None:
            return
        if self._entered is None:
            self._entered = principal
            self.topology = services.principals.enter(principal, login)
        else:
            services.principals.renew(self._entered, login)

    def left(self) -> None:
        """The client has gone."""
        if self._entered is not None and self._services.principals is not None:
            self._services.principals.leave(self._entered)

    async def _current(self) -> Login:
        assert self._login is not None
        return self._login
