"""Options of TLS and SASL on both sides. Secrets are in files; the settings contain only the paths."""

from typing import Literal

import attrs

from proxy.config.option_types import FILE, SWITCH, WORDS, OptionType, choice, https, option

__all__ = ["DownstreamSecurity", "UpstreamSecurity"]

Mechanism = Literal["none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def _file(name: str, meaning: str, reason: str, kind: OptionType = FILE) -> str | None:
    found: str | None = attrs.field(default=None, metadata=option(name, kind, meaning, reason))
    return found


@attrs.frozen
class UpstreamSecurity:
    """TLS and SASL options of connections to brokers."""

    tls: bool = attrs.field(
        default=False,
        metadata=option(
            "upstream-tls",
            SWITCH,
            "Whether connections to brokers use TLS 1.2 or 1.3 (security.protocol SSL and SASL_SSL).",
            "Default: as security.protocol of Kafka's clients.",
        ),
    )
    tls_ca: str | None = _file(
        "upstream-tls-ca",
        "CA certificates for the brokers, in PEM (ssl.truststore).",
        "Default: those of the system.",
    )
    tls_cert: str | None = _file(
        "upstream-tls-cert",
        "Client certificate with its chain, in PEM (ssl.keystore).",
        "Default: most brokers require none.",
    )
    tls_key: str | None = _file(
        "upstream-tls-key", "Private key of that certificate, in PEM.", "Default: as upstream-tls-cert."
    )
    tls_key_password_file: str | None = _file(
        "upstream-tls-key-password-file",
        "File with the password of that key (ssl.key.password).",
        "Default: keys in mounted secrets have none.",
    )
    tls_verify_host: bool = attrs.field(
        default=True,
        metadata=option(
            "upstream-tls-verify-host",
            SWITCH,
            "Whether a broker's certificate must match its host name (ssl.endpoint.identification.algorithm);"
            " the CA is always checked.",
            "Default: on, because any holder of a certificate of that CA could otherwise pose as a broker.",
        ),
    )
    sasl: Mechanism = attrs.field(
        default="none",
        metadata=option(
            "upstream-sasl",
            choice("none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "Login at the brokers (sasl.mechanism). client: each client logs in itself, and Sidefetch has no"
            " login.",
            "Default: no login.",
        ),
    )
    username_file: str | None = _file(
        "upstream-sasl-username-file", "File with the user name for PLAIN and SCRAM.", "Required for them."
    )
    password_file: str | None = _file(
        "upstream-sasl-password-file", "File with the password for PLAIN and SCRAM.", "Required for them."
    )
    token_file: str | None = _file(
        "upstream-sasl-token-file",
        "File with the token for OAUTHBEARER, read before each login.",
        "Alternative: upstream-sasl-token-url.",
    )
    token_url: str | None = _file(
        "upstream-sasl-token-url",
        "Endpoint for OAUTHBEARER tokens by client credentials (sasl.oauthbearer.token.endpoint.url).",
        "Alternative: upstream-sasl-token-file.",
        https("URL"),
    )
    client_id_file: str | None = _file(
        "upstream-sasl-client-id-file",
        "File with the client id for upstream-sasl-token-url.",
        "Required for it.",
    )
    client_secret_file: str | None = _file(
        "upstream-sasl-client-secret-file",
        "File with the client secret for upstream-sasl-token-url.",
        "Required for it.",
    )
    scope: str | None = _file(
        "upstream-sasl-scope", "Scope to request for tokens.", "Default: the token server's own.", WORDS
    )
    token_ca: str | None = _file(
        "upstream-sasl-token-ca",
        "CA certificates for upstream-sasl-token-url, in PEM.",
        "Default: those of the system.",
    )


@attrs.frozen
class DownstreamSecurity:
    """TLS and SASL options of connections from clients."""

    tls_cert: str | None = _file(
        "listen-tls-cert",
        "Server certificate with its chain, in PEM; all listeners then use TLS.",
        "Default: plaintext, for clients on the same host.",
    )
    tls_key: str | None = _file(
        "listen-tls-key", "Private key of that certificate, in PEM.", "Default: as listen-tls-cert."
    )
    tls_key_password_file: str | None = _file(
        "listen-tls-key-password-file",
        "File with the password of that key.",
        "Default: keys in mounted secrets have none.",
    )
    tls_client_ca: str | None = _file(
        "listen-tls-client-ca",
        "CA certificates for clients, in PEM; clients without a certificate from them are refused"
        " (ssl.client.auth).",
        "Default: clients need no certificate.",
    )
    insecure: bool = attrs.field(
        default=False,
        metadata=option(
            "insecure-listen",
            SWITCH,
            "Whether Sidefetch may listen on other addresses than loopback without TLS.",
            "Default: off, because anyone who can connect can read all that Sidefetch may read.",
        ),
    )
    sasl_file: str | None = _file(
        "listen-sasl-file",
        "File with the users that clients log in as by PLAIN or SCRAM, one per line.",
        "Default: clients need no login.",
    )
