"""Authorities and certificates for tests of TLS, as files in PEM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

__all__ = ["Authority", "Files"]


@attrs.frozen
class Files:
    """A certificate with its chain, its key, and both in one file as Kafka's brokers want them."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Issues certificates into *folder*."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA(organization_name=f"tests {name}")
        self._folder = folder
        self.path = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.path))

    def issue(
        self,
        *names: str,
        file: str = "peer",
        common_name: str | None = None,
        password: bytes | None = None,
        lifetime_s: float | None = None,
    ) -> Files:
        """Issue a certificate for host names and IP addresses, and overwrite *file* with it."""
        end = None if lifetime_s is None else datetime.now(UTC) + timedelta(seconds=lifetime_s)
        issued = self._ca.issue_cert(*names, common_name=common_name, not_after=end)
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        encryption: KeySerializationEncryption = (
            BestAvailableEncryption(password) if password is not None else NoEncryption()
        )
        loaded = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        files = Files(*(self._folder / f"{file}{suffix}" for suffix in (".crt", ".key", ".pem")))
        files.cert.write_bytes(chain)
        files.key.write_bytes(key)
        files.both.write_bytes(key + chain)
        return files
