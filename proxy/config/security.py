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
    """The section ``upstream_security`` of the settings: TLS and SASL of the connections to brokers."""

    tls: bool = attrs.field(
        default=False,
        metadata=option(
            "upstream-tls",
            SWITCH,
            "Whether connections to brokers use TLS, 1.2 or 1.3 (security.protocol SSL or SASL_SSL).",
            "Default: as Kafka's clients, which use plaintext.",
        ),
    )
    tls_ca: str | None = _file(
        "upstream-tls-ca",
        "File with the CA certificates, in PEM, by which Sidefetch verifies the brokers' certificates"
        " (ssl.truststore.location).",
        "Default: those of the system.",
    )
    tls_cert: str | None = _file(
        "upstream-tls-cert",
        "File with Sidefetch's client certificate and its chain, in PEM, for brokers that require one"
        " (ssl.keystore.location). Needs upstream-tls-key.",
        "Default: most brokers require none.",
    )
    tls_key: str | None = _file(
        "upstream-tls-key",
        "File with the private key, in PEM, of the certificate in upstream-tls-cert.",
        "Default: most brokers require no certificate.",
    )
    tls_key_password_file: str | None = _file(
        "upstream-tls-key-password-file",
        "File with the password of the private key in upstream-tls-key, if the key is encrypted"
        " (ssl.key.password).",
        "Default: keys in mounted Secrets have none.",
    )
    tls_verify_host: bool = attrs.field(
        default=True,
        metadata=option(
            "upstream-tls-verify-host",
            SWITCH,
            "Whether a broker's certificate must be for the host name that Sidefetch connects to"
            " (ssl.endpoint.identification.algorithm); the CA is always checked.",
            "Default: on, because any holder of a certificate of that CA could otherwise pose as a broker.",
        ),
    )
    sasl: Mechanism = attrs.field(
        default="none",
        metadata=option(
            "upstream-sasl",
            choice("none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "SASL mechanism with which Sidefetch logs in to the brokers (sasl.mechanism). client: Sidefetch has no"
            " login; each client logs in to the brokers itself, and Sidefetch repeats its login on the connections"
            " that it opens for this client.",
            "Default: no login.",
        ),
    )
    username_file: str | None = _file(
        "upstream-sasl-username-file",
        "File with the user name of Sidefetch's login at the brokers by PLAIN or SCRAM.",
        "Required for these mechanisms.",
    )
    password_file: str | None = _file(
        "upstream-sasl-password-file",
        "File with the password of Sidefetch's login at the brokers by PLAIN or SCRAM.",
        "Required for these mechanisms.",
    )
    token_file: str | None = _file(
        "upstream-sasl-token-file",
        "File with the token of Sidefetch's login at the brokers by OAUTHBEARER. Another program renews it;"
        " Sidefetch reads it before each login.",
        "Alternative: upstream-sasl-token-url.",
    )
    token_url: str | None = _file(
        "upstream-sasl-token-url",
        "Token endpoint of an OAuth server, from which Sidefetch gets tokens for its login at the brokers by"
        " OAUTHBEARER (sasl.oauthbearer.token.endpoint.url; grant: client credentials).",
        "Alternative: upstream-sasl-token-file.",
        https("URL"),
    )
    client_id_file: str | None = _file(
        "upstream-sasl-client-id-file",
        "File with the OAuth client id that Sidefetch sends to upstream-sasl-token-url.",
        "Required with that option.",
    )
    client_secret_file: str | None = _file(
        "upstream-sasl-client-secret-file",
        "File with the OAuth client secret that Sidefetch sends to upstream-sasl-token-url.",
        "Required with that option.",
    )
    scope: str | None = _file(
        "upstream-sasl-scope",
        "OAuth scope of the tokens that Sidefetch requests from upstream-sasl-token-url.",
        "Default: the scope that the token server chooses.",
        WORDS,
    )
    token_ca: str | None = _file(
        "upstream-sasl-token-ca",
        "File with the CA certificates, in PEM, by which Sidefetch verifies the certificate of"
        " upstream-sasl-token-url.",
        "Default: those of the system.",
    )


@attrs.frozen
class DownstreamSecurity:
    """The section ``downstream_security`` of the settings: TLS and SASL of the connections from clients."""

    tls_cert: str | None = _file(
        "listen-tls-cert",
        "File with Sidefetch's server certificate and its chain, in PEM; clients must then use TLS on all"
        " listeners. Needs listen-tls-key.",
        "Default: plaintext, for clients on the same host.",
    )
    tls_key: str | None = _file(
        "listen-tls-key",
        "File with the private key, in PEM, of the certificate in listen-tls-cert.",
        "Default: plaintext, for clients on the same host.",
    )
    tls_key_password_file: str | None = _file(
        "listen-tls-key-password-file",
        "File with the password of the private key in listen-tls-key, if the key is encrypted.",
        "Default: keys in mounted Secrets have none.",
    )
    tls_client_ca: str | None = _file(
        "listen-tls-client-ca",
        "File with CA certificates, in PEM. If it is given, Sidefetch refuses clients without a certificate"
        " that one of them has signed (ssl.client.auth).",
        "Default: clients need no certificate.",
    )
    insecure: bool = attrs.field(
        default=False,
        metadata=option(
            "insecure-listen",
            SWITCH,
            "Whether Sidefetch may listen on other addresses than loopback without TLS. off: it does not start"
            " with such an address in listen.",
            "Default: off, because anyone who can connect can read all that Sidefetch may read.",
        ),
    )
    sasl_file: str | None = _file(
        "listen-sasl-file",
        "File with users, one per line, as sidefetch user prints them. If it is given, clients must log in to"
        " Sidefetch as one of them, by PLAIN or SCRAM.",
        "Default: clients need no login.",
    )
