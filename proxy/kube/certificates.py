"""The TLS certificate of the admission webhook: read from a folder, or generated with an authority of its own.

A generated certificate has a certificate authority of its own, whose key is dropped after it has signed: nobody can
sign another certificate with it. So a new certificate has a new authority, which the API server must trust before
the webhook serves the certificate.
"""

import base64
import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Self

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.errors import ConfigError
from proxy.net.io.files import WatchedFiles
from proxy.net.io.logs import Log

__all__ = ["CertificatePair", "from_folder", "new_certificate"]

_CERT: Final = "tls.crt"
_KEY: Final = "tls.key"
_AUTHORITIES: Final = "ca.crt"
_SKEW: Final = timedelta(minutes=5)
"""The tolerated difference between clocks."""


@attrs.frozen
class CertificatePair:
    """The webhook's certificate, its key, and the CA certificates that the API server must trust; all in PEM."""

    cert: bytes
    key: bytes = attrs.field(repr=False)
    authorities: bytes
    """The CA certificate that signed ``cert``, then those of earlier certificates that have not expired."""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self | None:
        """Decode the pair from the ``data`` of a Secret: ``tls.crt``, ``tls.key`` and ``ca.crt`` in base64.

        Returns: None if one is missing or malformed, or if certificate and key do not match.
        """
        try:
            parts = [base64.b64decode(data[name], validate=True) for name in (_CERT, _KEY, _AUTHORITIES)]
            pair = cls(*parts)
            pair.context()
            x509.load_pem_x509_certificates(pair.authorities)
        except (LookupError, TypeError, ValueError, OSError):
            return None
        return pair

    def as_data(self) -> dict[str, str]:
        """Return the pair as the ``data`` of a Secret: ``tls.crt``, ``tls.key`` and ``ca.crt`` in base64."""
        parts = {_CERT: self.cert, _KEY: self.key, _AUTHORITIES: self.authorities}
        return {name: base64.b64encode(part).decode() for name, part in parts.items()}

    def is_due(self, now: datetime, names: Sequence[str]) -> bool:
        """Return whether the certificate must be replaced at *now*.

        It must be if two thirds of its lifetime are over, or if its host names are not *names*, in any order.
        """
        cert = x509.load_pem_x509_certificate(self.cert)
        begin, end = cert.not_valid_before_utc + _SKEW, cert.not_valid_after_utc
        alternatives = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        held = {str(each.value) for each in alternatives}
        return now >= begin + (end - begin) * 2 / 3 or held != set(names)

    def until(self) -> datetime:
        """Return the time at which the certificate expires, in UTC."""
        return x509.load_pem_x509_certificate(self.cert).not_valid_after_utc

    def context(self) -> ssl.SSLContext:
        """Return a TLS context for a server with this certificate.

        Raises: OSError, ValueError: a part is malformed, or certificate and key do not match.
        """
        # OpenSSL reads only files, and the container has no disk to write to.
        file = os.memfd_create("pair", os.MFD_CLOEXEC)
        try:
            os.write(file, self.key + self.cert)
            return _context(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


def new_certificate(
    names: Sequence[str], now: datetime, life: timedelta, before: CertificatePair | None = None
) -> CertificatePair:
    """Generate a certificate and its key for the hosts *names* (names or IP addresses), valid until *now* + *life*.

    A new authority (CA) signs it, and the authority's key is dropped. The authorities of *before*, the previous
    pair, stay among its authorities until they expire, so that API servers trust both certificates meanwhile.
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sidefetch webhook {now:%Y-%m-%dT%H:%M:%SZ}")])
    authority = (
        _draft(subject, subject, authority_key, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(authority_key, SHA256())
    )
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sidefetch webhook")])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    cert = (
        _draft(own, subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    older = x509.load_pem_x509_certificates(before.authorities) if before is not None else []
    believed = [authority, *(each for each in older if each.not_valid_after_utc > now)]
    authorities = b"".join(each.public_bytes(Encoding.PEM) for each in believed)
    return CertificatePair(cert.public_bytes(Encoding.PEM), pem, authorities)


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def from_folder(folder: Path, log: Log) -> WatchedFiles[ssl.SSLContext]:
    """Return a TLS context of ``tls.crt`` and ``tls.key`` in *folder* that is loaded again when the files change.

    The caller runs ``run`` of the result. If loading fails later, that is logged and the last context stays.

    Raises: ConfigError: the files cannot be loaded.
    """
    cert, key = str(folder / _CERT), str(folder / _KEY)

    def load() -> ssl.SSLContext:
        try:
            return _context(cert, key)
        except (OSError, ValueError) as wrong:
            raise ConfigError(f"certificate-dir: {cert} with {key}: {wrong}; accepted: a pair in PEM") from None

    return WatchedFiles("certificate-dir", [cert, key], load, log)


def _context(cert: str, key: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert, key, password="")  # without a password, OpenSSL would ask for one on the terminal
    return context
