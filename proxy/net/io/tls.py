"""TLS for frames: a non-blocking encrypting socket, TLS contexts, and reasons of failures with their remedies.

OpenSSL works on the socket itself, and decrypts into the frame's own buffer. It buffers only the current TLS
record, at most 16 KiB each way, and back-pressure is the socket's.
"""

import hashlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
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
"""The maximum size of a TLS record."""
_TURN_BYTES: Final = 256 * 1024
"""The bytes to encrypt or decrypt before other tasks run; they take a tenth of a millisecond."""
_WOULD_BLOCK: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NAME_MISMATCH: Final = (62, 64)
"""OpenSSL's codes for a certificate that does not match the host name or the IP address."""
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OUT_OF_DATE: Final = (9, 10)
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "HANDSHAKE_FAILURE")


class TlsSocket:
    """A TLS connection after its handshake, with the methods of a non-blocking socket that ``FrameSocket`` uses."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._socket = wrapped

    @property
    def principal(self) -> str | None:
        """The identity in the peer's certificate; None if the peer sent none, or it was not verified.

        It is the subject, such as ``CN=app,O=shop``, or the certificate's SHA-256 digest in hexadecimal digits if
        the subject is empty.
        """
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
        """Receive and decrypt bytes into *space*, and return their number; 0 if the peer has ended the connection.

        Raises: BlockingIOError: no bytes have arrived; OSError: the connection broke.
        """
        size = 0
        try:
            while size < min(len(space), _TURN_BYTES):
                received = self._socket.recv_into(space[size:])
                if not received:
                    break
                size += received
        except _WOULD_BLOCK:
            # OpenSSL may also have to send first, as after a change of keys: the next sendmsg does that.
            if not size:
                raise BlockingIOError from None
        return size

    def sendmsg(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Encrypt and send bytes of *pieces*, in order, and return the number of bytes that the socket accepted.

        The next call must begin with the rest of *pieces*, since a TLS record of it may be encrypted already.

        Raises: BlockingIOError: the socket accepts nothing now; OSError: the connection broke.
        """
        sent = 0
        try:
            for record in _split_records(pieces):
                sent += self._socket.send(record)
                if sent >= _TURN_BYTES:
                    break
        except _WOULD_BLOCK:
            if not sent:
                raise BlockingIOError from None
        return sent

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._socket.unwrap()  # sends close_notify, and does not wait for the peer's
        self._socket.close()


def _split_records(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of *pieces* in parts of 16 KiB, each a full TLS record; the last part may be smaller.

    Only parts that span several pieces are copied.
    """
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


async def start_tls(
    stream: trio.SocketStream,
    context: ssl.SSLContext,
    *,
    host: str | None = None,
    turn: AbstractAsyncContextManager[object] | None = None,
) -> TlsSocket:
    """Take over the socket of *stream*, make the TLS handshake on it, and return the TLS connection.

    With *host*, Sidefetch is the client, and *host* is the name of the server; without it, Sidefetch is the server.
    The handshake enters *turn* whenever it computes, and leaves it while it waits for bytes of the peer. There is
    no time limit. After an error or a cancellation, the socket is closed.

    Raises: OSError: the handshake failed, or *host* is no valid host name.
    """
    connected = socket.socket(fileno=stream.socket.detach())
    try:
        connected.setblocking(False)
        if host is not None:
            host.encode("idna")  # later errors come too late to close the socket
        wrapped = context.wrap_socket(
            connected,
            server_side=host is None,
            server_hostname=host.removesuffix(".") if host is not None else None,
            do_handshake_on_connect=False,
        )
    except ValueError as wrong:
        connected.close()
        raise OSError(f"{host!r} is not a valid host name for TLS: {wrong}") from wrong
    except BaseException:
        connected.close()
        raise
    try:
        while True:
            try:
                async with turn or nullcontext():
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
    """Return a TLS context for a client that trusts the certificate authorities in the PEM file *ca*.

    Without *ca*, it trusts the authorities of the system. It verifies host names, and requires TLS 1.2 or newer.
    *option* is the option that names the file, for error messages.

    Raises: ConfigError: the file cannot be read, or has no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"{option}: {ca}: {_reason_of(wrong)}; accepted: a PEM file with certificates") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # many private CAs lack extensions that Python 3.13 requires
    return context


def client_context(config: UpstreamSecurity) -> ssl.SSLContext:
    """Return a TLS context for connections to brokers, with the authorities and certificate of the settings.

    Raises: ConfigError: a file cannot be read, or has the wrong content.
    """
    context = context_trusting("upstream-tls-ca", config.tls_ca)
    context.check_hostname = config.tls_verify_host
    if config.tls_cert is not None and config.tls_key is not None:
        _load_pair(context, "upstream", config.tls_cert, config.tls_key, config.tls_key_password_file)
    return context


def _server_context(config: DownstreamSecurity) -> ssl.SSLContext:
    """Return a TLS context for connections of clients.

    If the settings name an authority for clients, it requires a certificate of this authority.

    Raises: ConfigError: a file cannot be read, or has the wrong content.
    """
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
                f"listen-tls-client-ca: {config.tls_client_ca}: {_reason_of(wrong)};"
                " accepted: a PEM file with certificates"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_pair(context: ssl.SSLContext, side: str, cert: str, key: str, password_file: str | None) -> None:
    # Without a password, OpenSSL would ask for one on the terminal; hence an empty one.
    password = read_secret(f"{side}-tls-key-password-file", password_file) if password_file is not None else ""
    try:
        context.load_cert_chain(cert, key, password)
    except (OSError, ValueError) as wrong:
        raise ConfigError(
            f"{side}-tls-cert: {cert} with {side}-tls-key: {key}: {_reason_of(wrong)}; accepted: a certificate in"
            f" PEM, a file with its key, and {side}-tls-key-password-file if the key has a password"
        ) from None


def _reason_of(wrong: Exception) -> str:
    if isinstance(wrong, ssl.SSLError):
        named = (wrong.reason or str(wrong)).replace("_", " ").lower()
        return {"key values mismatch": "the key belongs to another certificate"}.get(named, named)
    return str(wrong.strerror if isinstance(wrong, OSError) else wrong)


def server_context(config: DownstreamSecurity, log: Log) -> WatchedFiles[ssl.SSLContext] | None:
    """Return the TLS context for connections of clients, to be loaded again when the certificate files change.

    The caller runs the result, so that changes are noticed.

    Returns: None if no certificate is configured, so that clients connect in plaintext.
    Raises: ConfigError: a file cannot be read, or has the wrong content.
    """
    if config.tls_cert is None:
        return None
    paths = [config.tls_cert, config.tls_key, config.tls_key_password_file, config.tls_client_ca]
    return WatchedFiles("listen-tls", paths, lambda: _server_context(config), log)


def client_reason(error: Exception) -> str:
    """Return the reason why the TLS handshake with a client failed, for the log, with a remedy if one is known.

    *error* is an OSError of the handshake or, after a timeout, a trio.TooSlowError.
    """
    if not isinstance(error, OSError):
        return "the TLS handshake timed out"
    named = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if named in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"):
        return "the client speaks plaintext: configure it to use TLS (security.protocol SSL or SASL_SSL)"
    if named == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client sends no certificate, which listen-tls-client-ca requires"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not trusted ({error.verify_message}): see listen-tls-client-ca"
    if "UNKNOWN_CA" in named or "BAD_CERTIFICATE" in named or "CERTIFICATE_UNKNOWN" in named:
        return f"the client does not trust our certificate ({named.lower().replace('_', ' ')}): see listen-tls-cert"
    return named.lower().replace("_", " ") or str(error)


def broker_reason(error: OSError) -> str:
    """Return the reason why the TLS connection to a broker failed, with a remedy if one is known.

    *error* is the error of the handshake, or of a later read or write: TLS 1.3 reports a rejected client
    certificate only then.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason, code = error.verify_message, error.verify_code
        if code in _NAME_MISMATCH:
            return (
                f"the broker's certificate is for another host ({reason}): use a host name of the certificate,"
                " or add this one"
            )
        if code in _UNKNOWN_AUTHORITY:
            return f"the broker's certificate authority is not known ({reason}): set upstream-tls-ca to its file"
        if code in _OUT_OF_DATE:
            return f"the broker's certificate is not valid at this time ({reason}): renew it, or set the clock"
        return f"the broker's certificate is not trusted ({reason}): see upstream-tls-ca"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return "the broker speaks plaintext on this port: set upstream-tls off, or use another port"
        if any(each in error.reason for each in _WANTS_CERTIFICATE):
            named = error.reason.lower().replace("_", " ")
            return f"the broker rejects our certificate, or requires one ({named}): see upstream-tls-cert"
        if "UNKNOWN_CA" in error.reason:
            return "the broker does not know the authority of our certificate: see upstream-tls-cert"
        if "PROTOCOL_VERSION" in error.reason:
            return "the broker does not speak TLS 1.2 or newer: enable it on the broker (ssl.enabled.protocols)"
    if isinstance(error, ssl.SSLEOFError):
        what = "if it speaks plaintext on this port, set upstream-tls off, or use another port"
        return f"the broker closed the connection during the TLS handshake: {what}"
    return str(error)


def _principal(certificate: Any) -> str:
    """Return the subject of a certificate of ``getpeercert``, most specific part first: ``CN=a,O=b``."""
    pairs = [pair for part in reversed(certificate.get("subject", ())) for pair in part]
    return ",".join(f"{_SHORT.get(name, name)}={_escape(value)}" for name, value in pairs)


_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=").replace("+", "\\+")
