"""TLS and login settings of aiokafka, so that its consumer reaches brokers with the same access as Sidefetch."""

import asyncio
from typing import Any

import trio
from aiokafka.abc import AbstractTokenProvider

from proxy.config import UpstreamSecurity
from proxy.net.upstream.access import LoginSource, access_of
from proxy.sasl.logins import BearerLogin, PlainLogin, ScramLogin

__all__ = ["aiokafka_settings"]


def aiokafka_settings(security: UpstreamSecurity) -> dict[str, Any]:
    """Return the keyword arguments of ``AIOKafkaConsumer`` for the TLS and login settings *security* of Sidefetch.

    It reads credentials with an event loop of its own, so it must not be called within trio or asyncio.

    Raises: ConfigError: a file cannot be read or has the wrong format; BrokerUnavailable: there is no token.
    """
    access = access_of(security)
    transport = "PLAINTEXT" if access.tls is None else "SSL"
    settings: dict[str, Any] = {"security_protocol": transport}
    if access.tls is not None:
        settings["ssl_context"] = access.tls.value
    if access.login is not None:
        login = trio.run(access.login)
        settings |= {"security_protocol": f"SASL_{transport}", "sasl_mechanism": login.mechanism}
        if isinstance(login, PlainLogin | ScramLogin):
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        else:
            settings["sasl_oauth_token_provider"] = _Tokens(access.login)
    return settings


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """A source of OAuth tokens for aiokafka, which gets them as Sidefetch does."""

    def __init__(self, source: LoginSource) -> None:
        self._source = source

    async def token(self) -> str:
        login = await asyncio.to_thread(trio.run, self._source)
        assert isinstance(login, BearerLogin)
        return login.token
