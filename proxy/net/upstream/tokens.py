"""Tokens for OAUTHBEARER: from a file that another program renews, or from an OAuth server (RFC 6749)."""

import ssl
from typing import Final

import attrs
import trio

from proxy.config import UpstreamSecurity
from proxy.errors import BrokerUnavailable, ConfigError
from proxy.net.io.files import WatchedFiles, read_secret
from proxy.net.io.logs import Log
from proxy.sasl.logins import BearerLogin, Login

__all__ = ["TokenFile", "TokenGrants"]

_FRESH: Final = 0.8
"""The share of a token's lifetime after which it is renewed: as sasl.login.refresh.window.factor, and before logins
are renewed, so that each renewal gets a new token."""
_URL: Final = "upstream-sasl-token-url"


@attrs.frozen
class TokenFile:
    """A source of OAUTHBEARER credentials that reads the token from a file, again at each login."""

    path: str

    async def __call__(self) -> Login:
        """Return credentials with the token in the file. Raises: BrokerUnavailable: the file has no token."""
        try:
            token = await trio.to_thread.run_sync(read_secret, "upstream-sasl-token-file", self.path)
        except ConfigError as wrong:
            raise BrokerUnavailable(str(wrong)) from None
        return BearerLogin(_check_token(token, "upstream-sasl-token-file"))


@attrs.frozen
class OauthClient:
    """The client id and the client secret with which Sidefetch requests tokens from an OAuth server."""

    name: str
    password: str = attrs.field(repr=False)


class TokenGrants:
    """A source of OAUTHBEARER credentials that requests tokens from an OAuth server, by client credentials.

    It returns the last token until 80 percent of its lifetime have passed, then requests a new one. If that fails,
    the last token is used until it expires. At most one request is in flight.
    """

    def __init__(
        self,
        config: UpstreamSecurity,
        client: WatchedFiles[OauthClient],
        tls: WatchedFiles[ssl.SSLContext],
        log: Log | None = None,
    ) -> None:
        assert config.token_url is not None
        self._url = config.token_url
        self._scope = config.scope
        self._client = client
        self._tls = tls
        self._log = log
        self._lock = trio.Lock()
        self._token = ""
        self._refresh_at_s = self._expires_at_s = float("-inf")

    async def __call__(self) -> Login:
        """Return credentials with a token that has not expired; request one if needed.

        Raises: BrokerUnavailable: the server grants no token, and the last one has expired.
        """
        async with self._lock:
            if trio.current_time() >= self._refresh_at_s:
                await self._refresh()
            return BearerLogin(self._token)

    async def _refresh(self) -> None:
        from proxy.net.upstream.token_endpoint import request_token  # megabytes of libraries, which few users need

        requested_at_s = trio.current_time()
        client, tls = self._client.value, self._tls.value
        try:
            response, life_s = await trio.to_thread.run_sync(
                request_token,
                _URL,
                self._url,
                client.name,
                client.password,
                self._scope,
                tls,
                abandon_on_cancel=True,
            )
            token = _check_token(response, _URL)
        except BrokerUnavailable as wrong:
            if trio.current_time() >= self._expires_at_s:
                raise
            if self._log is not None:
                self._log.warning("token-refresh-failed", every_s=30, reason=wrong)
            return
        self._token = token
        self._refresh_at_s = requested_at_s + life_s * _FRESH
        self._expires_at_s = requested_at_s + life_s


def _check_token(token: object, where: str) -> str:
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BrokerUnavailable(f"{where} holds no token")
    return token
