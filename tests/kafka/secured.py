"""A cluster that speaks TLS and asks who is there, in every way that Sidefetch knows."""

import base64
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does export them
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.kafka.cluster import KafkaCluster

__all__ = ["PASSWORD", "REAUTHENTICATES", "REAUTH_MS", "USER", "Secured", "secured_cluster", "unsecured_token"]

USER: Final = "alice"
PASSWORD: Final = "correct, horse=battery"
REAUTHENTICATES: Final = "SCRAM-SHA-512"
"""Whoever comes by this must log in again every ``REAUTH_MS``."""
REAUTH_MS: Final = 3_000

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULES: Final = "org.apache.kafka.common.security"


@attrs.frozen
class Secured:
    """A cluster with four more listeners: TLS, MUTUAL (client certificates), SASL (within TLS) and STRICT.

    STRICT requires both, and a new login every ``REAUTH_MS``.
    """

    kafka: KafkaCluster
    authority: Authority
    folder: Path


def unsecured_token(user: str = USER, *, lifetime_s: float = 3600.0) -> str:
    """A token for brokers that believe anybody: the default of Kafka's, for tests only."""
    now_s = time.time()
    parts = [{"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + lifetime_s}]
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."
    )


@contextlib.contextmanager
def secured_cluster(version: str = "4.3.1") -> Iterator[Secured]:
    """Their certificates are for 127.0.0.1 alone."""
    with tempfile.TemporaryDirectory(prefix="sidefetch-tls-") as name:
        folder = Path(name)
        authority = Authority(folder)
        settings = _settings(authority, authority.issue("127.0.0.1", file="broker").both)
        with KafkaCluster(version, settings=settings, listeners=("TLS", "MUTUAL", "SASL", "STRICT")) as kafka:
            _create_user(kafka)
            yield Secured(kafka, authority, folder)


def _settings(authority: Authority, keys: Path) -> dict[str, object]:
    protocols = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL", "STRICT": "SASL_SSL"}
    protocols |= dict.fromkeys(("PLAINTEXT", "TAPPED", "INTERNAL", "CONTROLLER"), "PLAINTEXT")
    jaas = {
        "plain": f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"',
        "scram-sha-256": "scram.ScramLoginModule required",
        "scram-sha-512": "scram.ScramLoginModule required",
        "oauthbearer": f'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}"',
    }
    sasl, strict = "listener.name.sasl", "listener.name.strict"
    return {
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.path,
        "listener.name.mutual.ssl.client.auth": "required",
        f"{sasl}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{sasl}.{REAUTHENTICATES.lower()}.connections.max.reauth.ms": REAUTH_MS,
        **{f"{sasl}.{name}.sasl.jaas.config": f"{_MODULES}.{module};" for name, module in jaas.items()},
        f"{strict}.ssl.client.auth": "required",
        f"{strict}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{strict}.oauthbearer.connections.max.reauth.ms": REAUTH_MS,
        f"{strict}.oauthbearer.sasl.jaas.config": f"{_MODULES}.{jaas['oauthbearer']};",
    }


def _create_user(kafka: KafkaCluster) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        credential = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for done in client.alter_user_scram_credentials([credential]).values():
            done.result()
