"""Tokens for OAUTHBEARER: from a file that somebody keeps fresh, or asked for by client credentials (RFC 6749)."""

import base64
import http.client
import json
import ssl
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import attrs
import trio

from proxy.config import UpstreamSecurity
from proxy.errors import BrokerUnavailable, ConfigError
from proxy.net.files import Watched, secret
from proxy.net.logs import Log
from proxy.sasl.logins import BearerLogin, Login

__all__ = ["TokenFile", "TokenGrants"]

_TIMEOUT_S: Final = 5.0
"""For each step of the conversation; within the time that a connection may take."""
_MOST_BYTES: Final = 1024**2
_FRESH: Final = 0.8
"""The share of its life for which a token is used: as sasl.login.refresh.window.factor, and before it is time to
renew a login, so that each renewal gets a new one."""
_UNTOLD_S: Final = 300.0
"""The life of a token whose server does not tell it."""


@attrs.frozen
class TokenFile:
    """The token in a file, read anew each time."""

    path: str

    async def __call__(self) -> Login:
        """Raises: BrokerUnavailable: there is none."""
        try:
            token = await trio.to_thread.run_sync(secret, "upstream-sasl-token-file", self.path)
        except ConfigError as wrong:
            raise BrokerUnavailable(str(wrong)) from None
        return BearerLogin(_checked(token, "upstream-sasl-token-file"))


@attrs.frozen
class Client:
    """Who asks for tokens."""

    name: str
    password: str = attrs.field(repr=False)


class TokenGrants:
    """The token that a server has granted last, and a new one in good time; one question at a time."""

    def __init__(
        self,
        config: UpstreamSecurity,
        client: Watched[Client],
        tls: Watched[ssl.SSLContext],
        log: Log | None = None,
    ) -> None:
        assert config.token_url is not None
        self._url = config.token_url
        self._scope = config.scope
        self._client = client
        self._tls = tls
        self._log = log
        self._asking = trio.Lock()
        self._token = ""
        self._refresh_at_s = self._expires_at_s = float("-inf")

    async def __call__(self) -> Login:
        """Raises: BrokerUnavailable: there is none to be had, and the last one has expired."""
        async with self._asking:
            if trio.current_time() >= self._refresh_at_s:
                await self._refresh()
            return BearerLogin(self._token)

    async def _refresh(self) -> None:
        asked_at_s = trio.current_time()
        client, tls = self._client.value, self._tls.value
        try:
            token, life_s = await trio.to_thread.run_sync(
                _granted, self._url, client, self._scope, tls, abandon_on_cancel=True
            )
        except BrokerUnavailable as wrong:
            if trio.current_time() >= self._expires_at_s:
                raise
            if self._log is not None:
                self._log.warning("token-kept", every_s=30, reason=wrong)
            return
        self._token = token
        self._refresh_at_s = asked_at_s + life_s * _FRESH
        self._expires_at_s = asked_at_s + life_s


class _NoRedirects(HTTPRedirectHandler):
    """A secret goes nowhere but to the server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _granted(url: str, client: Client, scope: str | None, tls: ssl.SSLContext) -> tuple[str, float]:
    """A token, and how long it lives, in seconds. Blocking."""
    form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
    pair = f"{quote_plus(client.name)}:{quote_plus(client.password)}".encode()
    request = Request(url, urlencode(form).encode(), {"Accept": "application/json"})  # noqa: S310  # checked before
    request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    where = "upstream-sasl-token-url"
    try:
        with build_opener(HTTPSHandler(context=tls), _NoRedirects).open(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_MOST_BYTES)
    except HTTPError as refused:
        with refused:
            why = _error(refused.read(_MOST_BYTES))
        remedy = "see upstream-sasl-client-id-file and upstream-sasl-client-secret-file, and upstream-sasl-scope"
        raise BrokerUnavailable(f"{where} answers {refused.code}{why}: {remedy}") from None
    except URLError as unreached:
        trust = isinstance(unreached.reason, ssl.SSLCertVerificationError)
        remedy = "name its authority by upstream-sasl-token-ca" if trust else "is it right, and reached from here?"
        raise BrokerUnavailable(f"{where} was not reached ({unreached.reason}): {remedy}") from None
    except (OSError, http.client.HTTPException) as broken:
        raise BrokerUnavailable(f"{where} broke off: {type(broken).__name__}") from None
    try:
        told = json.loads(body)
        token, life_s = told["access_token"], float(told.get("expires_in", _UNTOLD_S))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BrokerUnavailable(f"{where} answers something else than a token") from None
    return _checked(token, where), life_s


def _checked(token: object, where: str) -> str:
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BrokerUnavailable(f"{where} holds no token")
    return token


def _error(body: bytes) -> str:
    """The code that RFC 6749 has for what is wrong."""
    try:
        return f" ({str(json.loads(body)['error'])[:60]})"
    except (ValueError, LookupError, TypeError):
        return ""
