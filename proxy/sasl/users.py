"""The users that clients may be: a file, and what proves that one is one of them.

Layout: a line each, ``NAME:MECHANISM:salt=…,stored_key=…,server_key=…,iterations=…``, the last part in base64 as
        Kafka writes it. Lines that begin with ``#``, and empty ones, are let be. No password is in it, and none can
        be had from it but by trying. A client of PLAIN is checked against its user's line of either mechanism.
Source: Kafka's ``ScramCredentialUtils``.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final, Self

import attrs

from proxy.sasl.scram import HASHES, MIN_ITERATIONS, ScramKeys

__all__ = ["Users", "line_of"]

_MOST_ITERATIONS: Final = 1_000_000
_SALT_BYTES: Final = 16


def line_of(user: str, mechanism: str, password: str, salt: bytes, iterations: int) -> str:
    """The line for a user, to be put in the file. Raises: ValueError: a line could not hold that name."""
    _check_name(user)
    keys = ScramKeys.of(mechanism, password, salt, iterations)
    fields = {"salt": keys.salt, "stored_key": keys.stored_key, "server_key": keys.server_key}
    said = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items())
    return f"{user}:{mechanism}:{said},iterations={iterations}"


@attrs.frozen
class Users:
    """Who there is; *secret* is random, and hides who there is not."""

    keys: Mapping[tuple[str, str], ScramKeys] = attrs.field(repr=False)
    """By name and mechanism."""
    secret: bytes = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str, secret: bytes) -> Self:
        """Raises: ValueError: which line is wrong, without what is in it."""
        keys: dict[tuple[str, str], ScramKeys] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, mechanism, one = _parsed(line, number)
            if (user, mechanism) in keys:
                raise ValueError(f"line {number}: that user has this mechanism in a line before")
            keys[user, mechanism] = one
        if not keys:
            raise ValueError("there are no users")
        return cls(keys, secret)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What clients may use."""
        return "PLAIN", *sorted({mechanism for _, mechanism in self.keys})

    def of(self, user: str, mechanism: str) -> ScramKeys:
        """The user's keys; of nobody's password, and the same each time, where there is no such user."""
        found = self.keys.get((user, mechanism))
        if found is not None:
            return found
        made = hmac.digest(self.secret, f"{mechanism}:{user}".encode(), "sha512")
        size = len(made) if HASHES[mechanism] == "sha512" else len(made) // 2
        return ScramKeys(made[:_SALT_BYTES], self._usual_iterations(mechanism), made[:size], made[-size:])

    def knows(self, user: str, password: str) -> bool:
        """Whether that is the user's password. Takes milliseconds, and as long where there is no such user."""
        mechanism = next((each for each in HASHES if (user, each) in self.keys), self.mechanisms[1])
        keys = self.of(user, mechanism)
        tried = ScramKeys.of(mechanism, password, keys.salt, keys.iterations)
        is_right = hmac.compare_digest(tried.stored_key, keys.stored_key)
        return is_right and (user, mechanism) in self.keys

    def _usual_iterations(self, mechanism: str) -> int:
        return next((keys.iterations for (_, each), keys in self.keys.items() if each == mechanism), MIN_ITERATIONS)


def _parsed(line: str, number: int) -> tuple[str, str, ScramKeys]:
    user, _, rest = line.partition(":")
    mechanism, _, said = rest.partition(":")
    try:
        _check_name(user)
    except ValueError as wrong:
        raise ValueError(f"line {number}: {wrong}") from None
    if mechanism not in HASHES:
        raise ValueError(f"line {number}: its mechanism is none of {', '.join(HASHES)}")
    fields = dict(part.partition("=")[::2] for part in said.strip().split(","))
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise ValueError(f"line {number}: salt, stored_key, server_key or iterations cannot be read") from None
    if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS or not salt:
        raise ValueError(
            f"line {number}: {MIN_ITERATIONS} to {_MOST_ITERATIONS} iterations, and a salt, are wanted"
        )
    size = 64 if HASHES[mechanism] == "sha512" else 32
    if len(stored) != size or len(server) != size:
        raise ValueError(f"line {number}: keys of {mechanism} have {size} bytes")
    return user, mechanism, ScramKeys(salt, iterations, stored, server)


def _check_name(user: str) -> None:
    if not user or ":" in user or not user.isprintable() or user != user.strip() or user.startswith("#"):
        raise ValueError("a name must be printable, without a colon, blanks at its ends or a # in front")
