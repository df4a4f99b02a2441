"""Who is spoken to, and as whom: TLS and SASL on both sides. Secrets are in files; settings name the files only."""

from typing import Literal

import attrs

from proxy.config.kinds import FILE, SWITCH, WORDS, Kind, choice, https, option

__all__ = ["DownstreamSecurity", "UpstreamSecurity"]

Mechanism = Literal["none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def _file(name: str, meaning: str, reason: str, kind: Kind = FILE) -> str | None:
    found: str | None = attrs.field(default=None, metadata=option(name, kind, meaning, reason))
    return found


@attrs.frozen
class UpstreamSecurity:
    """Towards the brokers."""

    tls: bool = attrs.field(
        default=False,
        metadata=option(
            "upstream-tls",
            SWITCH,
            "Whether brokers are spoken to by TLS, 1.2 or newer (security.protocol SSL and SASL_SSL).",
            "As security.protocol of Kafka's own clients.",
        ),
    )
    tls_ca: str | None = _file(
        "upstream-tls-ca",
        "Certificates of the authorities that vouch for the brokers, in PEM (ssl.truststore).",
        "Not given: those of the system.",
    )
    tls_cert: str | None = _file(
        "upstream-tls-cert",
        "Our certificate with its chain, in PEM, for brokers that want one (ssl.keystore).",
        "Most brokers want none.",
    )
    tls_key: str | None = _file("upstream-tls-key", "The key of that certificate, in PEM.", "As upstream-tls-cert.")
    tls_key_password_file: str | None = _file(
        "upstream-tls-key-password-file",
        "Holds the password of that key (ssl.key.password).",
        "Keys in mounted secrets have none.",
    )
    tls_verify_host: bool = attrs.field(
        default=True,
        metadata=option(
            "upstream-tls-verify-host",
            SWITCH,
            "Whether a broker's certificate must be for the name that it is reached by"
            " (ssl.endpoint.identification.algorithm); the authority is checked always.",
            "Who holds any certificate of the authority could else pose as a broker.",
        ),
    )
    sasl: Mechanism = attrs.field(
        default="none",
        metadata=option(
            "upstream-sasl",
            choice("none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "How Sidefetch says to brokers who it is (sasl.mechanism); client has each client say it for itself.",
            "Sidefetch has no name of its own.",
        ),
    )
    username_file: str | None = _file(
        "upstream-sasl-username-file", "Holds the name for PLAIN and SCRAM.", "There is none to guess."
    )
    password_file: str | None = _file(
        "upstream-sasl-password-file", "Holds the password for PLAIN and SCRAM.", "There is none to guess."
    )
    token_file: str | None = _file(
        "upstream-sasl-token-file",
        "Holds the token for OAUTHBEARER, read again before each login.",
        "Or tokens are asked for at upstream-sasl-token-url.",
    )
    token_url: str | None = _file(
        "upstream-sasl-token-url",
        "Where tokens for OAUTHBEARER are asked for, by client credentials (sasl.oauthbearer.token.endpoint.url).",
        "Or the token is in upstream-sasl-token-file.",
        https("URL"),
    )
    client_id_file: str | None = _file(
        "upstream-sasl-client-id-file",
        "Holds the client id for upstream-sasl-token-url.",
        "There is none to guess.",
    )
    client_secret_file: str | None = _file(
        "upstream-sasl-client-secret-file",
        "Holds the client secret for upstream-sasl-token-url.",
        "There is none to guess.",
    )
    scope: str | None = _file(
        "upstream-sasl-scope", "The scope that tokens are asked for.", "Not given: the server's own.", WORDS
    )
    token_ca: str | None = _file(
        "upstream-sasl-token-ca",
        "Certificates of the authorities that vouch for upstream-sasl-token-url, in PEM.",
        "Not given: those of the system.",
    )


@attrs.frozen
class DownstreamSecurity:
    """Towards the clients."""

    tls_cert: str | None = _file(
        "listen-tls-cert",
        "The certificate that clients are shown, with its chain, in PEM; all listeners then speak TLS.",
        "Not given: plaintext, for clients on the same host.",
    )
    tls_key: str | None = _file("listen-tls-key", "The key of that certificate, in PEM.", "As listen-tls-cert.")
    tls_key_password_file: str | None = _file(
        "listen-tls-key-password-file", "Holds the password of that key.", "Keys in mounted secrets have none."
    )
    tls_client_ca: str | None = _file(
        "listen-tls-client-ca",
        "Certificates of the authorities that vouch for clients, in PEM; clients without a certificate of theirs"
        " are refused (ssl.client.auth).",
        "Not given: clients need no certificate.",
    )
    insecure: bool = attrs.field(
        default=False,
        metadata=option(
            "insecure-listen",
            SWITCH,
            "Whether clients on other hosts may be listened to without TLS.",
            "Whoever reaches Sidefetch reads what Sidefetch may read.",
        ),
    )
    sasl_file: str | None = _file(
        "listen-sasl-file",
        "Users that clients must be, a line each, for PLAIN and SCRAM.",
        "Not given: Sidefetch asks clients for nothing.",
    )
