"""The SASL mechanism SCRAM (RFC 5802, RFC 7677), client and server side, without channel binding, as in Kafka.

::

    client                                server
    n,,n=USER,r=NONCE              -->
                                   <--    r=NONCE+THEIRS,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+THEIRS,p=PROOF  -->
                                   <--    v=SIGNATURE

Names and passwords are encoded in UTF-8 without SASLprep, as in Kafka.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

import attrs

from proxy.errors import LoginRefused, MalformedFrame

__all__ = ["HASHES", "MIN_ITERATIONS", "ScramClient", "ScramKeys", "ScramServer"]

HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""The hash function of each mechanism."""
MIN_ITERATIONS: Final = 4096
"""Kafka's minimum: with fewer iterations, a password could be guessed from intercepted messages."""
_MOST_ITERATIONS: Final = 100_000
"""Six times Kafka's maximum: a server that demands more could only want to occupy the processor."""
_NO_BINDING: Final = "biws"
"""The header ``n,,`` (no channel binding) in base64."""


@attrs.frozen
class ScramKeys:
    """The values that a SCRAM server stores for a user in place of the password. Source: RFC 5802, 3."""

    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def derive(cls, mechanism: str, password: str, salt: bytes, iterations: int) -> Self:
        """Derive the keys that a server stores for a user with *password*.

        *mechanism* is a key of ``HASHES``, such as ``SCRAM-SHA-256``. Cost: milliseconds for each 10,000
        *iterations*, to make guessing slow.
        """
        name = HASHES[mechanism]
        client_key, server_key = _derive_keys(name, _salt_password(name, password, salt, iterations))
        return cls(salt, iterations, hashlib.new(name, client_key).digest(), server_key)


class ScramClient:
    """The client side of one SCRAM login: call ``first_message``, ``final_message``, then ``verify_server``.

    The *nonce* must be random, printable and without commas.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escape_name(user)},r={nonce}"
        self._signature = b""

    def first_message(self) -> bytes:
        """Return the client's first message, which contains the user name and the client's nonce."""
        return f"n,,{self._bare}".encode()

    def final_message(self, challenge: bytes) -> bytes:
        """Return the client's final message: the proof, for the server's *challenge*, that it knows the password.

        *challenge* is the server's first message, with its nonce, the salt and the number of iterations.

        Cost:   milliseconds for each 10,000 iterations.
        Raises: LoginRefused: *challenge* is an error, is malformed, does not continue the client's nonce, or has
            too few or too many iterations.
        """
        fields = _parse_fields(challenge)
        if "e" in fields:
            raise LoginRefused(f"the broker reports {fields['e']}")
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError, binascii.Error):
            raise LoginRefused("the broker's SCRAM challenge cannot be read") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise LoginRefused("the broker's SCRAM challenge is for another login")
        if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise LoginRefused(
                f"the broker demands an unsafe number of SCRAM iterations ({iterations}; minimum {MIN_ITERATIONS})"
            )
        client_key, server_key = _derive_keys(
            self._hash, _salt_password(self._hash, self._password, salt, iterations)
        )
        unproven = f"c={_NO_BINDING},r={nonce}"
        signed = b",".join([self._bare.encode(), challenge, unproven.encode()])
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{unproven},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def verify_server(self, final: bytes) -> None:
        """Verify *final*, the server's final message: it must prove that the server has the user's keys.

        Call it after ``final_message``.

        Raises: LoginRefused: the message is an error, or proves nothing.
        """
        fields = _parse_fields(final)
        if "e" in fields:
            raise LoginRefused(f"the broker reports {fields['e']}")
        proven = fields.get("v", "").encode()
        if not self._signature or not hmac.compare_digest(proven, base64.b64encode(self._signature)):
            raise LoginRefused(
                "the broker did not prove that it knows the password: another server may pose as the broker"
            )


class ScramServer:
    """The server side of one SCRAM login: call ``read_user``, ``make_challenge``, then ``verify_proof``.

    The *nonce* must be random, printable and without commas.
    """

    def __init__(self, mechanism: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._own_nonce = nonce
        self._nonce = self._bare = self._first = ""
        self._keys: ScramKeys | None = None

    def read_user(self, message: bytes) -> str:
        """Decode *message*, the client's first one, and return its user name, which is not authenticated yet.

        Raises: MalformedFrame: the message is malformed, requires channel binding, or has an authorization id that
            is not the user name.
        """
        binding, _, rest = _decode_text(message).partition(",")
        authorized, _, bare = rest.partition(",")
        fields = _parse_fields(bare.encode())
        if binding not in ("n", "y") or "n" not in fields or not fields.get("r"):
            raise MalformedFrame("not a first message of SCRAM")
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if authorized and authorized != f"a={fields['n']}":
            raise MalformedFrame("SCRAM for another user")
        self._bare, self._nonce = bare, fields["r"] + self._own_nonce
        return user

    def make_challenge(self, keys: ScramKeys) -> bytes:
        """Return the server's first message: the nonces of both sides, and the salt and iterations of *keys*.

        *keys* are those of the user that ``read_user`` has returned; ``verify_proof`` uses them.
        """
        self._keys = keys
        self._first = f"r={self._nonce},s={_to_base64(keys.salt)},i={keys.iterations}"
        return self._first.encode()

    def verify_proof(self, message: bytes) -> bytes | None:
        """Verify *message*, the client's final one, and return the server's final message, which ends the login.

        Return None if the client's proof is wrong, because the client does not know the password.

        Raises: MalformedFrame: *message* is malformed, or of another login.
        """
        assert self._keys is not None, "there was no challenge"
        unproven, comma, proof_text = _decode_text(message).rpartition(",p=")
        fields = _parse_fields(unproven.encode())
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except ValueError:  # binascii.Error is one; a text that is not ASCII raises no binascii.Error
            raise MalformedFrame("not a proof of SCRAM") from None
        size = hashlib.new(self._hash).digest_size
        if (
            not comma
            or len(proof) != size
            or fields.get("r") != self._nonce
            or fields.get("c") not in ("biws", "eSws")
        ):
            raise MalformedFrame("not a final message of SCRAM")
        signed = ",".join([self._bare, self._first, unproven]).encode()
        signature = hmac.digest(self._keys.stored_key, signed, self._hash)
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._keys.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._keys.server_key, signed, self._hash))


def _salt_password(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)


def _derive_keys(name: str, salted: bytes) -> tuple[bytes, bytes]:
    """Return the client key and the server key."""
    return hmac.digest(salted, b"Client Key", name), hmac.digest(salted, b"Server Key", name)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _escape_name(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode_text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("SCRAM that is not UTF-8") from None


def _parse_fields(message: bytes) -> dict[str, str]:
    """Return the values of a message ``r=…,s=…`` by letter; parts of another form are skipped."""
    text = message.decode(errors="replace")
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}
