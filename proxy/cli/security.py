"""Diagnostics of ``check`` about TLS and logins."""

from collections.abc import Iterator

from proxy.cli.cluster_info import Diagnostic
from proxy.config import Config

__all__ = ["diagnose_client_login", "diagnose_security"]

_PLAINTEXT_MECHANISMS = ("PLAIN", "OAUTHBEARER")


def diagnose_security(config: Config) -> Iterator[Diagnostic]:
    """Yield the diagnostics of ``check`` about TLS and logins in *config*, towards brokers and towards clients.

    Most are warnings about settings that let others read secrets or records.
    """
    up, down = config.upstream_security, config.downstream_security
    if up.tls and up.sasl != "client":
        login = "" if up.sasl == "none" else f", with a login by {up.sasl}"
        yield Diagnostic("ok", f"connections to brokers use TLS{login}")
    if up.tls and not up.tls_verify_host:
        yield Diagnostic(
            "warning",
            "upstream-tls-verify-host is off: any holder of a certificate of that CA can pose as a broker",
        )
    if not up.tls and up.sasl in _PLAINTEXT_MECHANISMS:
        yield Diagnostic("warning", f"{up.sasl} without upstream-tls: the secret can be read on the network")
    if up.sasl == "client":
        yield from diagnose_client_login(config)
    if down.tls_cert is None and down.insecure:
        yield Diagnostic("warning", "insecure-listen: anyone who can connect can read all that Sidefetch may read")
    if down.tls_cert is None and down.insecure and down.sasl_file is not None:
        yield Diagnostic(
            "warning", "listen-sasl-file without listen-tls-cert: passwords of PLAIN can be read on the network"
        )
    accepts_anybody = down.sasl_file is None and down.tls_client_ca is None
    if accepts_anybody and up.sasl not in ("none", "client"):
        yield Diagnostic(
            "note",
            f"every client has the rights of Sidefetch's own login ({up.sasl}), because clients need no login",
        )


def diagnose_client_login(config: Config) -> Iterator[Diagnostic]:
    """Yield the further diagnostics for ``--upstream-sasl client``: each client logs in to the brokers itself."""
    yield Diagnostic(
        "note",
        "each client logs in to the brokers itself, so this check cannot show which topics it may read. Sidefetch"
        " repeats logins by PLAIN and OAUTHBEARER on further connections, and fetches with these logins",
    )
    yield Diagnostic(
        "warning",
        "logins by SCRAM and GSSAPI cannot be repeated: such clients have one connection for each broker, their"
        " fetches are forwarded unchanged to the leaders, and requests in versions that Kafka 4 does not support"
        " (Fetch below v4) are not upgraded",
    )
    if not config.upstream_security.tls:
        yield Diagnostic("warning", "no upstream-tls: passwords of PLAIN and tokens can be read on the network")
