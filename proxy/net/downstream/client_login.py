"""The credentials of a client that logs in to brokers itself, for its further connections."""

from collections.abc import Callable
from typing import Final

from proxy.net.services import Services
from proxy.net.upstream.access import Access
from proxy.sasl.logins import Login

__all__ = ["ClientLogin"]

_SINGLE_EVERY_S: Final = 60.0


class ClientLogin:
    """The login of one client, repeated on further connections to brokers."""

    def __init__(self, peer: str, services: Services, use: Callable[[Access], None]) -> None:
        """Create the state; *use* gets the access for the client's connections, once it is known."""
        self._peer = peer
        self._services = services
        self._use = use
        self._login: Login | None = None
        """The client's credentials, if they can be repeated."""
        self._entered: str | None = None
        """The client's principal, if ``topology`` is that of the principal."""
        self.topology = services.topology
        """The topology as the client's principal may see it."""

    def identified(self, principal: str, mechanism: str, login: Login | None) -> None:
        """Take a login that the broker has accepted; *login* is None if it cannot be repeated."""
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
        """Release the principal's topology: the client has left."""
        if self._entered is not None and self._services.principals is not None:
            self._services.principals.leave(self._entered)

    async def _current(self) -> Login:
        assert self._login is not None
        return self._login
