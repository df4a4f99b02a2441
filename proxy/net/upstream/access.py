"""TLS and SASL towards brokers: the settings with their files, and the login on a new connection."""

import secrets
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

import attrs
import trio
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.static.protocol import RequestPayload

from proxy.config import UpstreamSecurity
from proxy.errors import LoginRefused
from proxy.net.io.files import WatchedFiles, read_secret
from proxy.net.io.logs import Log
from proxy.net.io.tls import client_context, context_trusting
from proxy.net.upstream.tokens import OauthClient, TokenFile, TokenGrants
from proxy.sasl.logins import Login, PlainLogin, ScramLogin
from proxy.wire.apis import ApiKey, ApiRanges

__all__ = ["OPEN", "Access", "LoginSource", "access_of", "log_in"]

LoginSource = Callable[[], Awaitable[Login]]
"""Returns the credentials for the next login. Raises: BrokerUnavailable: there are none at present."""

_NEWEST_AUTHENTICATE: Final = 2
_NONCE_BYTES: Final = 18


@attrs.frozen
class Access:
    """The TLS context and the SASL credentials for broker connections; each may be missing.

    Connections that are opened with the same ``Access`` are interchangeable.
    """

    tls: WatchedFiles[ssl.SSLContext] | None = None
    """The TLS context; None for plaintext."""
    login: LoginSource | None = None
    """The source of the credentials; None if Sidefetch does not authenticate itself."""
    remedy: str = "see upstream-sasl"
    """The advice at the end of the error message for a refused login."""
    watched: tuple[WatchedFiles[Any], ...] = ()
    """The files that ``run`` watches."""

    def as_client(self, login: LoginSource) -> Self:
        """Return a copy with the same TLS that logs in with a client's credentials, which *login* returns."""
        return attrs.evolve(self, login=login, remedy="that is what the client said", watched=())

    async def run(self) -> None:
        """Watch the TLS and credential files, and load each again when it changes; runs until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for each in self.watched:
                nursery.start_soon(each.run)


OPEN: Final = Access()
"""Plaintext without login."""


def access_of(config: UpstreamSecurity, log: Log | None = None) -> Access:
    """Return the TLS context and the login that *config* describes; load their files.

    Files that change later are loaded again by ``Access.run``, which reports that to *log*.

    Raises: ConfigError: a file cannot be read or has the wrong format.
    """
    watched: list[WatchedFiles[Any]] = []
    tls = None
    if config.tls:
        paths = [config.tls_ca, config.tls_cert, config.tls_key, config.tls_key_password_file]
        tls = WatchedFiles("upstream-tls", paths, lambda: client_context(config), log)
        watched.append(tls)
    login, remedy = _login_of(config, watched, log)
    return Access(tls, login, remedy, tuple(watched))


def _login_of(
    config: UpstreamSecurity, watched: list[WatchedFiles[Any]], log: Log | None
) -> tuple[LoginSource | None, str]:
    """Return the source of the credentials, and the advice for a refused login; None and "" without SASL.

    The files of the credentials are added to *watched*.
    """
    if config.token_file is not None:
        return TokenFile(config.token_file), "see upstream-sasl-token-file"
    if config.client_id_file is not None and config.client_secret_file is not None:
        client = WatchedFiles(
            "upstream-sasl-client",
            [config.client_id_file, config.client_secret_file],
            lambda: _read_client(config),
            log,
        )
        tls = WatchedFiles("upstream-sasl-token-ca", [config.token_ca], lambda: _token_tls(config), log)
        watched += [client, tls]
        return TokenGrants(config, client, tls, log), "see what upstream-sasl-token-url grants, and for whom"
    if config.username_file is not None and config.password_file is not None:
        files = [config.username_file, config.password_file]
        named = WatchedFiles("upstream-sasl", files, lambda: _read_login(config), log)
        watched.append(named)
        return _source_of(named), "see upstream-sasl-username-file and upstream-sasl-password-file"
    return None, ""


def _read_client(config: UpstreamSecurity) -> OauthClient:
    assert config.client_id_file is not None
    assert config.client_secret_file is not None
    return OauthClient(
        read_secret("upstream-sasl-client-id-file", config.client_id_file),
        read_secret("upstream-sasl-client-secret-file", config.client_secret_file),
    )


def _token_tls(config: UpstreamSecurity) -> ssl.SSLContext:
    return context_trusting("upstream-sasl-token-ca", config.token_ca)


def _read_login(config: UpstreamSecurity) -> Login:
    assert config.username_file is not None
    assert config.password_file is not None
    user = read_secret("upstream-sasl-username-file", config.username_file)
    password = read_secret("upstream-sasl-password-file", config.password_file)
    return PlainLogin(user, password) if config.sasl == "PLAIN" else ScramLogin(config.sasl, user, password)


def _source_of(watched: WatchedFiles[Login]) -> LoginSource:
    async def current() -> Login:
        return watched.value

    return current


async def log_in(
    access: Access, served: ApiRanges, send_request: Callable[[RequestPayload], Awaitable[Any]]
) -> float:
    """Authenticate one broker connection by SASL with the credentials of *access*, which must have some.

    Args:
        served: the API versions of the broker; they decide the version of SaslAuthenticate.
        send_request: sends a request on the connection and returns the broker's response.

    Returns: the lifetime of the login in seconds, after which the broker closes the connection (KIP-368); 0 for no
        limit.
    Raises: LoginRefused: the broker refuses the mechanism or the credentials, or cannot be verified;
        BrokerUnavailable: there are no credentials at present; both, and BrokerProtocolError: as *send_request*.
    """
    assert access.login is not None
    login = await access.login()
    offered = await send_request(SaslHandshakeRequest(mechanism=login.mechanism))
    if offered.error_code == ErrorCode.unsupported_sasl_mechanism:
        others = ", ".join(offered.mechanisms) or "none"
        raise LoginRefused(f"{login.mechanism} is not enabled there, but {others}: set upstream-sasl to what is")
    if offered.error_code != ErrorCode.none:
        raise LoginRefused(f"no login is taken there ({offered.error_code.name}): {access.remedy}")
    served_authenticate = served.get(ApiKey.SASL_AUTHENTICATE)
    newest = min(served_authenticate.last, _NEWEST_AUTHENTICATE) if served_authenticate is not None else 0
    request: Any = load_request_schema(ApiKey.SASL_AUTHENTICATE, newest)
    conversation = login.start_conversation(secrets.token_urlsafe(_NONCE_BYTES))
    message = next(conversation)
    while True:
        answer = await send_request(request(auth_bytes=message))
        if answer.error_code != ErrorCode.none:
            why = answer.error_message or answer.error_code.name
            raise LoginRefused(f"{login.mechanism} is refused ({why}): {access.remedy}")
        try:
            # Computing a SCRAM proof takes milliseconds.
            message = await trio.to_thread.run_sync(_send_message, conversation, answer.auth_bytes)
        except _Done:
            lifetime = getattr(answer, "session_lifetime", None)  # absent before v1
            return lifetime.total_seconds() if lifetime is not None else 0.0


class _Done(Exception):
    """The signal of ``_send_message`` that the SASL conversation has no further message."""


def _send_message(conversation: Any, message: bytes) -> bytes:
    try:
        following: bytes = conversation.send(message)
    except StopIteration:
        raise _Done from None
    return following
