"""What ``check`` says of TLS and logins."""

from collections.abc import Iterator

from proxy.cli.cluster_info import Diagnostic
from proxy.config import Config

__all__ = ["as_client", "findings"]

_TOLD_IN_THE_OPEN = ("PLAIN", "OAUTHBEARER")


def findings(config: Config) -> Iterator[Diagnostic]:
    """On both sides."""
    up, down = config.upstream_security, config.downstream_security
    if up.tls and up.sasl != "client":
        login = "" if up.sasl == "none" else f", as {up.sasl} has it"
        yield Diagnostic("ok", f"brokers are spoken to by TLS{login}")
    if up.tls and not up.tls_verify_host:
        yield Diagnostic(
            "warning",
            "upstream-tls-verify-host is off: whoever holds any certificate of that authority can pose as a broker",
        )
    if not up.tls and up.sasl in _TOLD_IN_THE_OPEN:
        yield Diagnostic("warning", f"{up.sasl} without upstream-tls: whoever is on the way can read the secret")
    if up.sasl == "client":
        yield from as_client(config)
    if down.tls_cert is None and down.insecure:
        yield Diagnostic("warning", "insecure-listen: whoever reaches Sidefetch reads what it may read")
    if down.tls_cert is None and down.insecure and down.sasl_file is not None:
        yield Diagnostic(
            "warning", "listen-sasl-file without listen-tls-cert: passwords of PLAIN can be read on the way"
        )
    asks_nobody = down.sasl_file is None and down.tls_client_ca is None
    if asks_nobody and up.sasl not in ("none", "client"):
        yield Diagnostic(
            "note", f"every client is what Sidefetch is to the brokers ({up.sasl}): it asks clients for nothing"
        )


def as_client(config: Config) -> Iterator[Diagnostic]:
    """Where each client logs in for itself."""
    yield Diagnostic(
        "note",
        "each client logs in to the brokers itself: what it may read, only it can find out. PLAIN and OAUTHBEARER"
        " are said again on further connections, and read for",
    )
    yield Diagnostic(
        "warning",
        "SCRAM and GSSAPI cannot be repeated: such clients keep to one connection a broker, their fetches pass to"
        " leaders as they came, and what Kafka 4 does not serve (Fetch below v4) is not lifted for them",
    )
    if not config.upstream_security.tls:
        yield Diagnostic("warning", "no upstream-tls: passwords of PLAIN and tokens can be read on the way")
