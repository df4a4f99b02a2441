"""Who a client is to the brokers, as told by the exchange that passes between them untouched.

A login of PLAIN or OAUTHBEARER is one message, which can be said again on further connections; it counts from the
moment that the broker has accepted it. That of SCRAM, and of all others, proves something about one connection: it
cannot be repeated, and such a client keeps to that connection.
"""

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import MalformedFrame
from proxy.relay.commands import PrincipalChanged
from proxy.sasl.logins import Login, bearer_token, plain_user

__all__ = ["ClientIdentity"]

_REPEATED: Final[Mapping[str, Callable[[bytes], tuple[str, Login]]]] = MappingProxyType(
    {"PLAIN": plain_user, "OAUTHBEARER": bearer_token}
)


class ClientIdentity:
    """Follows the login of one client connection, and its renewals, in order."""

    def __init__(self) -> None:
        self._asked: deque[str] = deque()
        """Mechanisms, of handshakes without an answer."""
        self._said: deque[bytes] = deque()
        """Messages without an answer."""
        self._mechanism = ""
        self._principal: str | None = None
        """Of the first login: a broker takes no other on the same connection."""
        self.is_known = False
        """Whether the client has logged in, or is in the midst of it by what cannot be repeated."""
        self.is_single = False
        """Whether it must keep to its connection."""

    def asks(self, mechanism: str) -> None:
        """The client asks for *mechanism*."""
        self._asked.append(mechanism)

    def may_begin(self, *, is_accepted: bool) -> PrincipalChanged | None:
        """The broker's answer to that."""
        mechanism = self._asked.popleft() if self._asked else ""
        if not is_accepted:
            return None
        self._mechanism = mechanism
        if mechanism in _REPEATED:
            return None
        return self._alone()

    def says(self, message: bytes) -> PrincipalChanged | None:
        """The client's next message. One without a handshake is GSSAPI's, of clients of 0.9."""
        self._said.append(message)
        return None if self._mechanism or self._asked else self._alone()

    def is_told(self, message: bytes, *, is_accepted: bool) -> PrincipalChanged | None:
        """The broker's answer to it. An error of OAUTHBEARER is an answer that is not empty."""
        said = self._said.popleft() if self._said else b""
        read = _REPEATED.get(self._mechanism)
        if read is None or not is_accepted or message:
            return None
        try:
            name, login = read(said)
        except MalformedFrame:
            return self._alone()  # the broker has understood it, and we have not
        self.is_known = True
        self._principal = self._principal or f"{self._mechanism}:{name}"
        return PrincipalChanged(self._principal, self._mechanism, login)

    def _alone(self) -> PrincipalChanged | None:
        if self.is_single:
            return None
        self._mechanism = self._mechanism or "GSSAPI"
        self.is_known = self.is_single = True
        return PrincipalChanged("", self._mechanism, None)
