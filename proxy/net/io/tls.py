"""TLS under the frames: a socket that encrypts, the contexts that say how, and what to do where it fails.

OpenSSL works on the socket itself, and decrypts into the frame's own buffer: nothing is kept in between but the
record under way, at most 16 KiB each way, and back-pressure is the socket's.
"""

import hashlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from proxy.config import DownstreamSecurity, UpstreamSecurity
from proxy.errors import ConfigError
from proxy.net.io.files import WatchedFiles, read_secret
from proxy.net.io.logs import Log

__all__ = [
    "TlsSocket",
    "broker_reason",
    "client_context",
    "client_reason",
    "context_trusting",
    "server_context",
    "start_tls",
]

_RECORD_BYTES: Final = 16 * 1024
"""The most that a record of TLS holds."""
_TURN_BYTES: Final = 256 * 1024
"""Encrypted or decrypted at once before others get their turn; a tenth of a millisecond."""
_WOULD_BLOCK: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NAME_MISMATCH: Final = (62, 64)
"""OpenSSL's codes for a host name and an IP address that the certificate is not for."""
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OUT_OF_DATE: Final = (9, 10)
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "HANDSHAKE_FAILURE")


class TlsSocket:
    """Does for ``FrameSocket`` what a socket that does not block does, after the handshake."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._socket = wrapped

    @property
    def principal(self) -> str | None:
        """Whom the peer's certificate is for, or its digest if it does not say; None if it has shown none."""
        shown = self._socket.getpeercert(binary_form=True)
        if shown is None or self._socket.context.verify_mode != ssl.CERT_REQUIRED:
            return None
        return _principal(self._socket.getpeercert()) or hashlib.sha256(shown).hexdigest()

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def recv_into(self, space: memoryview) -> int:
        """As a socket's. Raises: BlockingIOError: nothing is there; OSError: the connection broke."""
        size = 0
        try:
            while size < min(len(space), _TURN_BYTES):
                received = self._socket.recv_into(space[size:])
                if not received:
                    break
                size += received
        except _WOULD_BLOCK:
            # Also where it has to send first, as after a change of keys: the next sendmsg does that.
            if not size:
                raise BlockingIOError from None
        return size

    def sendmsg(self, pieces: Sequence[bytes | memoryview]) -> int:
        """As a socket's. Raises: BlockingIOError: nothing fits now; OSError: the connection broke.

        A record that did not fit was encrypted already: the bytes that come next time must begin with the same.
        """
        sent = 0
        try:
            for record in _records(pieces):
                sent += self._socket.send(record)
                if sent >= _TURN_BYTES:
                    break
        except _WOULD_BLOCK:
            if not sent:
                raise BlockingIOError from None
        return sent

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._socket.unwrap()  # says that this is the end, and does not wait for the same from the peer
        self._socket.close()


def _records(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in records that are full, but for the last one. Only where pieces meet is anything copied."""
    gathered = bytearray()
    for piece in pieces:
        view, at = memoryview(piece), 0
        while at < len(view):
            part = view[at : at + _RECORD_BYTES - len(gathered)]
            at += len(part)
            if not gathered and len(part) == _RECORD_BYTES:
                yield part
                continue
            gathered += part
            if len(gathered) == _RECORD_BYTES:
                yield bytes(gathered)
                gathered.clear()
    if gathered:
        yield bytes(gathered)


async def start_tls(stream: trio.SocketStream, context: ssl.SSLContext, *, host: str | None = None) -> TlsSocket:
    """Take over *stream*'s socket and make it a TLS one: towards the server *host*, or as the server.

    Raises: OSError: it could not be; the socket is closed.
    """
    connected = socket.socket(fileno=stream.socket.detach())
    try:
        connected.setblocking(False)
        if host is not None:
            host.encode("idna")  # it would be found out too late to close the socket
        wrapped = context.wrap_socket(
            connected,
            server_side=host is None,
            server_hostname=host.removesuffix(".") if host is not None else None,
            do_handshake_on_connect=False,
        )
    except ValueError as wrong:
        connected.close()
        raise OSError(f"{host!r} is no name that a certificate could be for: {wrong}") from wrong
    except BaseException:
        connected.close()
        raise
    try:
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(wrapped)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(wrapped)
            else:
                return TlsSocket(wrapped)
    except BaseException:
        wrapped.close()
        raise


def context_trusting(option: str, ca: str | None) -> ssl.SSLContext:
    """Towards servers for which those in the file *ca* vouch, or the system's. Raises: ConfigError."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"{option}: {ca}: {_why(wrong)}; accepted: a file with certificates in PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # many companies' own authorities leave out what 3.13 asks for
    return context


def client_context(config: UpstreamSecurity) -> ssl.SSLContext:
    """How to speak to brokers. Raises: ConfigError."""
    context = context_trusting("upstream-tls-ca", config.tls_ca)
    context.check_hostname = config.tls_verify_host
    if config.tls_cert is not None and config.tls_key is not None:
        _load_pair(context, "upstream", config.tls_cert, config.tls_key, config.tls_key_password_file)
    return context


def _server_context(config: DownstreamSecurity) -> ssl.SSLContext:
    """How to speak to clients. Raises: ConfigError."""
    assert config.tls_cert is not None
    assert config.tls_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_pair(context, "listen", config.tls_cert, config.tls_key, config.tls_key_password_file)
    if config.tls_client_ca is not None:
        try:
            context.load_verify_locations(config.tls_client_ca)
        except (OSError, ValueError) as wrong:
            raise ConfigError(
                f"listen-tls-client-ca: {config.tls_client_ca}: {_why(wrong)}; accepted: certificates in PEM"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_pair(context: ssl.SSLContext, side: str, cert: str, key: str, password_file: str | None) -> None:
    # Without one, OpenSSL would ask for it on the terminal.
    password = read_secret(f"{side}-tls-key-password-file", password_file) if password_file is not None else ""
    try:
        context.load_cert_chain(cert, key, password)
    except (OSError, ValueError) as wrong:
        raise ConfigError(
            f"{side}-tls-cert: {cert} with {side}-tls-key: {key}: {_why(wrong)}; accepted: a certificate in PEM and"
            f" the key that it was made for, and {side}-tls-key-password-file if that has a password"
        ) from None


def _why(wrong: Exception) -> str:
    if isinstance(wrong, ssl.SSLError):
        named = (wrong.reason or str(wrong)).replace("_", " ").lower()
        return {"key values mismatch": "the key is another certificate's"}.get(named, named)
    return str(wrong.strerror if isinstance(wrong, OSError) else wrong)


def server_context(config: DownstreamSecurity, log: Log) -> WatchedFiles[ssl.SSLContext] | None:
    """How to speak to clients, as long as that is; None for plaintext. Raises: ConfigError."""
    if config.tls_cert is None:
        return None
    paths = [config.tls_cert, config.tls_key, config.tls_key_password_file, config.tls_client_ca]
    return WatchedFiles("listen-tls", paths, lambda: _server_context(config), log)


def client_reason(error: Exception) -> str:
    """Why TLS with a client failed."""
    if not isinstance(error, OSError):
        return "no handshake in time"
    named = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if named in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"):
        return "it speaks plaintext: have it use TLS (security.protocol SSL or SASL_SSL)"
    if named == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate, which listen-tls-client-ca asks for"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): see listen-tls-client-ca"
    if "UNKNOWN_CA" in named or "BAD_CERTIFICATE" in named or "CERTIFICATE_UNKNOWN" in named:
        return f"it does not trust our certificate ({named.lower().replace('_', ' ')}): see listen-tls-cert"
    return named.lower().replace("_", " ") or str(error)


def broker_reason(error: OSError) -> str:
    """Why TLS with a broker failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said, code = error.verify_message, error.verify_code
        if code in _NAME_MISMATCH:
            return (
                f"its certificate is for another host ({said}): use a name that is in it, or have it name this one"
            )
        if code in _UNKNOWN_AUTHORITY:
            return f"its certificate's authority is not known ({said}): name that by upstream-tls-ca"
        if code in _OUT_OF_DATE:
            return f"its certificate is out of date ({said}): renew it, or set the clock"
        return f"its certificate is not trusted ({said}): see upstream-tls-ca"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return "no TLS is spoken there: upstream-tls off, or another port"
        if any(each in error.reason for each in _WANTS_CERTIFICATE):
            named = error.reason.lower().replace("_", " ")
            return f"it does not accept our certificate, or wants one ({named}): see upstream-tls-cert"
        if "UNKNOWN_CA" in error.reason:
            return "it does not know our certificate's authority: see upstream-tls-cert"
        if "PROTOCOL_VERSION" in error.reason:
            return "it does not speak TLS 1.2 or newer: enable that there (ssl.enabled.protocols)"
    if isinstance(error, ssl.SSLEOFError):
        what = "if no TLS is spoken there, upstream-tls off, or another port"
        return f"it hung up in the midst of the TLS handshake: {what}"
    return str(error)


def _principal(certificate: Any) -> str:
    """The subject of a certificate as ``SSLSocket.getpeercert`` tells it, most specific first: ``CN=a,O=b``."""
    pairs = [pair for part in reversed(certificate.get("subject", ())) for pair in part]
    return ",".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in pairs)


_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=").replace("+", "\\+")
