"""The credentials with which a client logs in to a broker, used again for further connections to brokers."""

from collections.abc import Callable
from typing import Final

from proxy.net.services import Services
from proxy.net.upstream.access import Access
from proxy.sasl.logins import Login

__all__ = ["ClientLogin"]

_SINGLE_EVERY_S: Final = 60.0


class ClientLogin:
    """The login of one client at a broker, which Sidefetch repeats on its further connections for this client.

    It is used if the client's SASL exchange is forwarded to the brokers. With ``upstream-sasl client``,
    ``topology`` is that of the client's principal after the login; otherwise, it is the one that all clients share.
    """

    def __init__(self, peer: str, services: Services, use: Callable[[Access], None]) -> None:
        """Create the state before the login of the client at the address *peer*.

        Args: use: called once, with the access by which connections for this client log in from then on.
        """
        self._peer = peer
        self._services = services
        self._use = use
        self._login: Login | None = None
        """The client's credentials, if they can be repeated."""
        self._principal: str | None = None
        """The principal whose topology ``topology`` is; None while that is the shared one."""
        self.topology = services.topology
        """The topology that the client's principal may see."""

    def set_login(self, principal: str, mechanism: str, login: Login | None) -> None:
        """Use a login that the broker has accepted for further connections, at first or at a re-authentication.

        *login* has the client's credentials; with ``upstream-sasl client``, ``topology`` becomes that of
        *principal*. *login* is None if *mechanism*, such as SCRAM, cannot be repeated: then this is counted and
        logged, and nothing else changes.
        """
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
            self._use(services.access.as_client(self._current_login))
            services.log.debug("client-identified", client=self._peer, mechanism=mechanism)
        if services.principals is None:
            return
        if self._principal is None:
            self._principal = principal
            self.topology = services.principals.enter(principal, login)
        else:
            services.principals.renew(self._principal, login)

    def release(self) -> None:
        """Release the topology of the client's principal, when the client's connection has ended.

        Without further connections of this principal, its topology is dropped. There is no effect before a login.
        """
        if self._principal is not None and self._services.principals is not None:
            self._services.principals.leave(self._principal)

    async def _current_login(self) -> Login:
        assert self._login is not None
        return self._login
