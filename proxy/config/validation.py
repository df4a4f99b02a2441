"""Checks for option values that are valid alone, but contradict each other."""

import ipaddress
from collections.abc import Iterator

from proxy.config.model import Config
from proxy.config.option_types import Address, format_bytes
from proxy.config.security import DownstreamSecurity, UpstreamSecurity

__all__ = ["find_contradictions"]


def find_contradictions(config: Config) -> list[str]:
    """Return a message for each contradiction between options of *config*: the option, its value, accepted values.

    Examples are an admin port that is also a port for clients, and a TLS certificate without a key.
    """
    down = config.downstream
    problems = [
        f"listen: port {address.port} is one of broker-ports ({down.broker_ports}), which represent"
        " brokers; accepted: a port outside of that range"
        for address in down.listen
        if address.port in down.broker_ports
    ]
    problems += [
        f"listen: {address} is given twice; accepted: each address once"
        for address in sorted({a for a in down.listen if down.listen.count(a) > 1}, key=str)
    ]
    problems += [
        f"advertise: not given, and listen is {address}, to which no client can connect; accepted:"
        " the host name or address by which clients reach Sidefetch"
        for address in down.listen
        if address.is_wildcard and down.advertise is None
    ]
    problems += [
        f"bootstrap-servers: {address} is an address of listen, Sidefetch itself; accepted: addresses of brokers"
        for address in config.upstream.bootstrap_servers
        if any(_is_same_address(address, ours) for ours in down.listen)
    ]
    admin = config.admin.listen
    ports = [address.port for address in (*down.listen, *down.transparent)]
    if admin is not None and (admin.port in down.broker_ports or admin.port in ports):
        problems.append(
            f"admin-listen: port {admin.port} is one that clients connect to; accepted: a port other than those"
            " of listen, broker-ports and transparent"
        )
    if config.admin.ready_requires_broker and config.upstream_security.sasl == "client":
        problems.append(
            "ready-requires-broker: on, but upstream-sasl is client: Sidefetch has no login to query a broker with;"
            " accepted: off, or a login of Sidefetch's own"
        )
    up = config.upstream
    if up.fetch_buffer_bytes > up.memory_bytes / 2:
        most = format_bytes(up.memory_bytes // 2)
        problems.append(
            f"fetch-buffer: {format_bytes(up.fetch_buffer_bytes)} is more than half of memory"
            f" ({format_bytes(up.memory_bytes)}); accepted: at most {most}"
        )
    problems += _transparent(config)
    problems += _ledger(config)
    problems += _upstream_tls(config.upstream_security)
    problems += _upstream_sasl(config.upstream_security)
    problems += _downstream(config.downstream_security, config)
    return problems


def _transparent(config: Config) -> Iterator[str]:
    down = config.downstream
    for address in down.transparent:
        if not _is_loopback(address.host):
            yield (
                f"transparent: {address} is no address of loopback, to which the packet filter redirects"
                " connections from this host; accepted: 127.0.0.1:PORT and [::1]:PORT"
            )
        if address.port in down.broker_ports:
            yield (
                f"transparent: port {address.port} is one of broker-ports ({down.broker_ports}), which represent"
                " brokers; accepted: a port outside of that range"
            )
        if any(_is_same_address(address, ours) for ours in down.listen):
            yield f"transparent: {address} is one of listen, too; accepted: a port of its own"
    yield from (
        f"transparent: {address} is given twice; accepted: each address once"
        for address in sorted({a for a in down.transparent if down.transparent.count(a) > 1}, key=str)
    )


def _ledger(config: Config) -> Iterator[str]:
    ledger = config.ledger
    if ledger.folder is not None and ledger.max_bytes < 2 * ledger.file_bytes:
        yield (
            f"ledger-max-size: {format_bytes(ledger.max_bytes)} has no room for two files of ledger-file"
            f" ({format_bytes(ledger.file_bytes)}); accepted: at least {format_bytes(2 * ledger.file_bytes)}"
        )
    if ledger.topic is not None and config.upstream_security.sasl == "client":
        yield (
            f"ledger-topic: {ledger.topic}, and upstream-sasl is client: Sidefetch has no login to produce with;"
            " accepted: ledger, or a login of Sidefetch's own"
        )


def _upstream_tls(up: UpstreamSecurity) -> Iterator[str]:
    files = {
        "upstream-tls-ca": up.tls_ca,
        "upstream-tls-cert": up.tls_cert,
        "upstream-tls-key": up.tls_key,
        "upstream-tls-key-password-file": up.tls_key_password_file,
    }
    if not up.tls:
        yield from (
            f"{name}: {path} is of no use without TLS; accepted: only with upstream-tls on"
            for name, path in files.items()
            if path is not None
        )
    yield from _pair("upstream", up.tls_cert, up.tls_key, up.tls_key_password_file)


def _pair(side: str, cert: str | None, key: str | None, password: str | None) -> Iterator[str]:
    if (cert is None) != (key is None):
        missing = "key" if key is None else "cert"
        yield f"{side}-tls-{missing}: not given; accepted: {side}-tls-cert and {side}-tls-key together, or neither"
    if password is not None and key is None:
        yield f"{side}-tls-key-password-file: {password} has no key; accepted: only with {side}-tls-key"


def _upstream_sasl(up: UpstreamSecurity) -> Iterator[str]:
    password = {"username-file": up.username_file, "password-file": up.password_file}
    grant = {"client-id-file": up.client_id_file, "client-secret-file": up.client_secret_file}
    token_options = {**grant, "scope": up.scope, "token-ca": up.token_ca}
    needed: dict[str, str | None] = {}
    unused = {**password, **token_options, "token-file": up.token_file, "token-url": up.token_url}
    if up.sasl == "PLAIN" or up.sasl.startswith("SCRAM"):
        needed = password
    elif up.sasl == "OAUTHBEARER":
        if (up.token_file is None) == (up.token_url is None):
            yield (
                "upstream-sasl: OAUTHBEARER needs exactly one source of tokens; accepted: either"
                " upstream-sasl-token-file or upstream-sasl-token-url"
            )
            return
        needed = (
            {"token-file": up.token_file} if up.token_url is None else {**token_options, "token-url": up.token_url}
        )
        yield from (
            f"upstream-sasl-{name}: not given; accepted: a file, because upstream-sasl-token-url needs it"
            for name, value in grant.items()
            if up.token_url is not None and value is None
        )
    yield from (
        f"upstream-sasl-{name}: not given; accepted: a file, because {up.sasl} needs it"
        for name, value in needed.items()
        if value is None and name in password
    )
    yield from (
        f"upstream-sasl-{name}: {value} is of no use with upstream-sasl {up.sasl}; accepted: only if it is used"
        for name, value in unused.items()
        if value is not None and name not in needed
    )


def _downstream(down: DownstreamSecurity, config: Config) -> Iterator[str]:
    yield from _pair("listen", down.tls_cert, down.tls_key, down.tls_key_password_file)
    if down.tls_client_ca is not None and down.tls_cert is None:
        yield f"listen-tls-client-ca: {down.tls_client_ca} needs TLS; accepted: only with listen-tls-cert"
    if down.tls_cert is None and not down.insecure:
        yield from (
            f"listen: {address} can be reached from other hosts without TLS; accepted: an address of loopback,"
            " listen-tls-cert and listen-tls-key, or insecure-listen on"
            for address in config.downstream.listen
            if not _is_loopback(address.host)
        )
    if down.sasl_file is not None and config.upstream_security.sasl == "client":
        yield (
            f"listen-sasl-file: {down.sasl_file} makes clients log in to Sidefetch, but with upstream-sasl client"
            " they log in to the brokers; accepted: one of the two"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "localhost.")


def _is_same_address(one: Address, other: Address) -> bool:
    def plain(host: str) -> str:
        return "127.0.0.1" if host == "localhost" else host.lower()

    return (plain(one.host), one.port) == (plain(other.host), other.port)
