"""The principal of a client, read from the SASL exchange that is forwarded between it and the broker.

A PLAIN or OAUTHBEARER login is a single message, which Sidefetch can repeat on further connections; it counts once
the broker has accepted it. A SCRAM login, like all others, proves something about one connection only: it cannot be
repeated, so such a client stays on its one connection.
"""

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import MalformedFrame
from proxy.relay.commands import PrincipalChanged
from proxy.sasl.logins import Login, decode_bearer, decode_plain

__all__ = ["ClientIdentity"]

_REPEATABLE: Final[Mapping[str, Callable[[bytes], tuple[str, Login]]]] = MappingProxyType(
    {"PLAIN": decode_plain, "OAUTHBEARER": decode_bearer}
)


_MOST_KEPT_BYTES: Final = 64 * 1024
"""The largest SASL message that is kept until it is answered; passwords and bearer tokens are shorter."""


class ClientIdentity:
    """The state of one client's SASL login and later re-authentications (KIP-368), which Sidefetch forwards.

    Use: pass each SASL request of the client and each response of the broker, in the order in which they arrive.
    """

    def __init__(self) -> None:
        self._handshakes: deque[str] = deque()
        """Mechanisms of the handshakes that are not answered yet."""
        self._unanswered_tokens: deque[bytes] = deque()
        """SASL messages that are not answered yet; empty for one of over 64 KiB, as if it could not be decoded."""
        self._mechanism = ""
        self._principal: str | None = None
        """The principal of the first login: a broker accepts no other on the same connection."""
        self.is_known = False
        """Whether the client has logged in, or is in the middle of a login that cannot be repeated."""
        self.is_single = False
        """Whether the login cannot be repeated, so that the client's requests need its one broker connection."""

    def add_handshake(self, mechanism: str) -> None:
        """Keep the client's SaslHandshake request for *mechanism*, until ``handle_handshake_response``."""
        self._handshakes.append(mechanism)

    def handle_handshake_response(self, *, is_accepted: bool) -> PrincipalChanged | None:
        """Take the broker's response to the oldest SaslHandshake request that has none yet.

        Return a notice without a login, once for the connection, if the broker accepts a mechanism whose logins
        cannot be repeated: one other than PLAIN and OAUTHBEARER. Otherwise return None.
        """
        mechanism = self._handshakes.popleft() if self._handshakes else ""
        if not is_accepted:
            return None
        self._mechanism = mechanism
        if mechanism in _REPEATABLE:
            return None
        return self._mark_single()

    def add_token(self, message: bytes) -> PrincipalChanged | None:
        """Take the client's next SASL message, a token; pass its response to ``handle_token_response``.

        A message without a SaslHandshake before is GSSAPI, from a client of Kafka 0.9: return a notice without a
        login, once for the connection. Otherwise return None.
        """
        self._unanswered_tokens.append(message if len(message) <= _MOST_KEPT_BYTES else b"")
        return None if self._mechanism or self._handshakes else self._mark_single()

    def handle_token_response(self, message: bytes, *, is_accepted: bool) -> PrincipalChanged | None:
        """Take *message*, the broker's response to the oldest SASL message of the client that has none yet.

        Return a notice with the client's principal and login if the broker has accepted a login with PLAIN or
        OAUTHBEARER; without a login if Sidefetch cannot decode the accepted message. Otherwise return None.

        Args: is_accepted: whether the response has no error code. In OAUTHBEARER, a *message* that is not empty is
            an error, too.
        """
        token = self._unanswered_tokens.popleft() if self._unanswered_tokens else b""
        read = _REPEATABLE.get(self._mechanism)
        if read is None or not is_accepted or message:
            return None
        try:
            name, login = read(token)
        except MalformedFrame:
            return self._mark_single()  # the broker has understood the message, but Sidefetch has not
        self.is_known = True
        self._principal = self._principal or f"{self._mechanism}:{name}"
        return PrincipalChanged(self._principal, self._mechanism, login)

    def _mark_single(self) -> PrincipalChanged | None:
        if self.is_single:
            return None
        self._mechanism = self._mechanism or "GSSAPI"
        self.is_known = self.is_single = True
        return PrincipalChanged("", self._mechanism, None)
