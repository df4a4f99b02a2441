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
            "Whether all connections to brokers use TLS, 1.2 or 1.3 (security.protocol SSL or SASL_SSL). It is"
            " independent of TLS with clients (listen-tls-cert). The other upstream-tls options need it.",
            "Default: as Kafka's clients, which use plaintext.",
        ),
    )
    tls_ca: str | None = _file(
        "upstream-tls-ca",
        "File with the CA certificates, in PEM, by which Sidefetch verifies the brokers' certificates"
        " (ssl.truststore.location); only these are trusted then. Needs upstream-tls on.",
        "Default: those of the system.",
    )
    tls_cert: str | None = _file(
        "upstream-tls-cert",
        "File with Sidefetch's client certificate and its chain, in PEM, for brokers that require one"
        " (ssl.keystore.location). Needs upstream-tls on and upstream-tls-key.",
        "Default: most brokers require none.",
    )
    tls_key: str | None = _file(
        "upstream-tls-key",
        "File with the private key, in PEM, of the certificate in upstream-tls-cert; give both or neither.",
        "Default: none, as upstream-tls-cert.",
    )
    tls_key_password_file: str | None = _file(
        "upstream-tls-key-password-file",
        "File with the password, in one line, of the private key in upstream-tls-key, if the key is encrypted"
        " (ssl.key.password).",
        "Default: the key is not encrypted, as is usual in mounted Secrets.",
    )
    tls_verify_host: bool = attrs.field(
        default=True,
        metadata=option(
            "upstream-tls-verify-host",
            SWITCH,
            "Whether a broker's certificate must be for the host that Sidefetch connects to: the name or IP address"
            " in bootstrap-servers, or the one that the broker advertises (ssl.endpoint.identification.algorithm)."
            " off: the certificate must still be valid and of a trusted CA.",
            "Default: on, because any holder of a certificate of that CA could otherwise pose as a broker.",
        ),
    )
    sasl: Mechanism = attrs.field(
        default="none",
        metadata=option(
            "upstream-sasl",
            choice("none", "client", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "SASL mechanism with which Sidefetch logs in to the brokers (sasl.mechanism): brokers then see all"
            " clients as Sidefetch, and clients must use no login, or that of listen-sasl-file. none: Sidefetch"
            " has no login, so the brokers must serve it without one; clients may log in as with client, unless"
            " listen-sasl-file is set. client: Sidefetch has no login; each client must log in to the brokers"
            " itself, and Sidefetch repeats its login on the connections that it opens for this client. It can"
            " repeat PLAIN and OAUTHBEARER only: fetches of clients with SCRAM or GSSAPI are forwarded unchanged,"
            " without Sidefetch's sessions, closer replicas and conversion.",
            "Default: none, for brokers that require no login.",
        ),
    )
    username_file: str | None = _file(
        "upstream-sasl-username-file",
        "File with the user name, in one line, of Sidefetch's login at the brokers by PLAIN or SCRAM. Needs"
        " upstream-sasl with one of these mechanisms.",
        "Required for these mechanisms.",
    )
    password_file: str | None = _file(
        "upstream-sasl-password-file",
        "File with the password, in one line, of Sidefetch's login at the brokers by PLAIN or SCRAM. PLAIN sends it"
        " unencrypted unless upstream-tls is on.",
        "Required for these mechanisms.",
    )
    token_file: str | None = _file(
        "upstream-sasl-token-file",
        "File with the token, in one line, of Sidefetch's login at the brokers by OAUTHBEARER. Another program"
        " renews it; Sidefetch reads it before each login.",
        "Required for OAUTHBEARER, or alternatively upstream-sasl-token-url.",
    )
    token_url: str | None = _file(
        "upstream-sasl-token-url",
        "Token endpoint of an OAuth server, from which Sidefetch gets tokens for its login at the brokers by"
        " OAUTHBEARER (sasl.oauthbearer.token.endpoint.url; grant: client credentials). The first login after 80 %"
        " of a token's lifetime gets a new one. Needs upstream-sasl-client-id-file and"
        " upstream-sasl-client-secret-file.",
        "Required for OAUTHBEARER, or alternatively upstream-sasl-token-file.",
        https("URL"),
    )
    client_id_file: str | None = _file(
        "upstream-sasl-client-id-file",
        "File with the OAuth client id, in one line, that Sidefetch sends to upstream-sasl-token-url.",
        "Required with that option.",
    )
    client_secret_file: str | None = _file(
        "upstream-sasl-client-secret-file",
        "File with the OAuth client secret, in one line, that Sidefetch sends to upstream-sasl-token-url.",
        "Required with that option.",
    )
    scope: str | None = _file(
        "upstream-sasl-scope",
        "OAuth scope of the tokens that Sidefetch requests from upstream-sasl-token-url; several with blanks"
        " between them.",
        "Default: the scope that the token server chooses.",
        WORDS,
    )
    token_ca: str | None = _file(
        "upstream-sasl-token-ca",
        "File with the CA certificates, in PEM, by which Sidefetch verifies the certificate of"
        " upstream-sasl-token-url; only these are trusted then.",
        "Default: those of the system.",
    )


@attrs.frozen
class DownstreamSecurity:
    """The section ``downstream_security`` of the settings: TLS and SASL of the connections from clients."""

    tls_cert: str | None = _file(
        "listen-tls-cert",
        "File with Sidefetch's server certificate and its chain, in PEM; clients must then use TLS on all listeners"
        " but admin-listen. It must be for the name by which clients connect (advertise). Needs listen-tls-key.",
        "Default: plaintext, for clients on the same host.",
    )
    tls_key: str | None = _file(
        "listen-tls-key",
        "File with the private key, in PEM, of the certificate in listen-tls-cert; give both or neither.",
        "Default: none, as listen-tls-cert.",
    )
    tls_key_password_file: str | None = _file(
        "listen-tls-key-password-file",
        "File with the password, in one line, of the private key in listen-tls-key, if the key is encrypted.",
        "Default: the key is not encrypted, as is usual in mounted Secrets.",
    )
    tls_client_ca: str | None = _file(
        "listen-tls-client-ca",
        "File with CA certificates, in PEM. If it is given, Sidefetch refuses clients without a certificate that"
        " one of them has signed (ssl.client.auth); brokers do not see the client's certificate. Needs"
        " listen-tls-cert.",
        "Default: clients need no certificate.",
    )
    insecure: bool = attrs.field(
        default=False,
        metadata=option(
            "insecure-listen",
            SWITCH,
            "Whether Sidefetch may listen for clients on other addresses than loopback without TLS. off: it does"
            " not start with such an address in listen, even with listen-sasl-file. admin-listen, which never has"
            " TLS, is not checked.",
            "Default: off, because anyone who can connect can do all that Sidefetch may do at the brokers.",
        ),
    )
    sasl_file: str | None = _file(
        "listen-sasl-file",
        "File with users, one per line, as sidefetch user prints them. If it is given, clients must log in to"
        " Sidefetch as one of them, by PLAIN or SCRAM; PLAIN sends passwords unencrypted without listen-tls-cert."
        " All users may do what Sidefetch may do at the brokers, which do not see which user it is. It cannot be"
        " used with upstream-sasl client.",
        "Default: clients need no login.",
    )
