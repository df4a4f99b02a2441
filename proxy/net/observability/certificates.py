"""Expiry times of Sidefetch's own certificates: the one for clients and the one for brokers."""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import trio

from proxy.config import Config

__all__ = ["Certificates", "expiry_time_s"]

_EVERY_S: Final = 60.0
_MOST_BYTES: Final = 1024**2
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class Certificates:
    """The expiry times of Sidefetch's TLS certificates, read from the files once a minute, as files may change."""

    def __init__(self, config: Config) -> None:
        named = {"listen": config.downstream_security.tls_cert, "upstream": config.upstream_security.tls_cert}
        self._paths = {name: path for name, path in named.items() if path is not None}
        self._until_s: dict[str, float] = {}

    def until_s(self) -> Mapping[str, float]:
        """Return the expiry times of the certificates, in seconds since 1970 UTC, as ``run`` has read them last.

        The keys are ``listen`` (the certificate for clients) and ``upstream`` (the one for brokers). A certificate
        that is not configured, or could not be read, has no entry.
        """
        return self._until_s

    async def run(self) -> None:
        """Read the certificates once a minute until cancelled; return at once if none is configured."""
        while self._paths:
            self._until_s = await trio.to_thread.run_sync(self._read_all)
            await trio.sleep(_EVERY_S)

    def _read_all(self) -> dict[str, float]:
        found = {}
        for name, path in self._paths.items():
            with suppress(OSError, ValueError), Path(path).open(encoding="ascii", errors="replace") as file:
                found[name] = expiry_time_s(file.read(_MOST_BYTES))
        return found


def expiry_time_s(pem: str) -> float:
    """Return the expiry time (notAfter) of the first certificate in *pem*, in seconds since 1970 UTC.

    Source: RFC 5280, section 4.1.

    Raises: ValueError: *pem* has no certificate in PEM format, or a malformed one.
    """
    _, begin, rest = pem.partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if not begin or not end:
        raise ValueError("the text has no certificate in PEM")
    try:
        certificate = _element(ssl.PEM_cert_to_DER_cert(begin + body + end), 0)
        fields = _element(certificate.body, 0).body
        offset = 0
        if fields[0] == _VERSION:
            offset = _element(fields, 0).end
        for _ in ("serial number", "signature", "issuer"):
            offset = _element(fields, offset).end
        validity = _element(fields, offset).body
        not_after = _element(validity, _element(validity, 0).end)
    except IndexError as wrong:
        raise ValueError("the certificate is truncated") from wrong
    form = "%y%m%d%H%M%SZ" if not_after.tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(not_after.body.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


class _Element(NamedTuple):
    """A DER element: tag, body, and the offset of its end."""

    tag: int
    body: bytes
    end: int


def _element(data: bytes, offset: int) -> _Element:
    """Return the DER element at *offset*. Raises: IndexError: *data* is too short."""
    length, at = data[offset + 1], offset + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size]), at + size
    if at + length > len(data):
        raise IndexError(offset)
    return _Element(data[offset], data[at : at + length], at + length)
