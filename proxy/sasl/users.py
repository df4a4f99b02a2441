"""The users that clients can log in as: the file with their keys, and the check of passwords.

Layout: a line for each user and mechanism, ``NAME:MECHANISM:salt=…,stored_key=…,server_key=…,iterations=…``, with
        values in base64 as Kafka writes them. Lines that begin with ``#`` and empty lines are ignored. The file has
        no passwords; an attacker can only guess them. A password of PLAIN is checked with the keys of either
        mechanism.
Source: Kafka's ``ScramCredentialUtils``.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final, Self

import attrs

from proxy.sasl.scram import HASHES, MIN_ITERATIONS, ScramKeys

__all__ = ["Users", "make_line"]

_MOST_ITERATIONS: Final = 1_000_000


def make_line(user: str, mechanism: str, password: str, salt: bytes, iterations: int) -> str:
    """Return a line for the file of users: *user* with the keys that are derived from *password*.

    *mechanism* is ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``. Cost: milliseconds for each 10,000 *iterations*.

    Raises: ValueError: *user* is empty, not printable, contains a colon, has blanks at its ends, or begins with #.
    """
    _check_name(user)
    keys = ScramKeys.derive(mechanism, password, salt, iterations)
    fields = {"salt": keys.salt, "stored_key": keys.stored_key, "server_key": keys.server_key}
    values = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items())
    return f"{user}:{mechanism}:{values},iterations={iterations}"


@attrs.frozen
class Users:
    """The users that clients can log in as, with the SCRAM keys of each."""

    keys: Mapping[tuple[str, str], ScramKeys] = attrs.field(repr=False)
    """Keys by user name and mechanism; at least one."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a file of users.

        Raises: ValueError: a line is invalid or repeats a user and mechanism, or there are no users. The message
            has the line's number and no part of its content.
        """
        keys: dict[tuple[str, str], ScramKeys] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, mechanism, one = _parse_line(line, number)
            if (user, mechanism) in keys:
                raise ValueError(f"line {number}: that user has this mechanism in an earlier line")
            keys[user, mechanism] = one
        if not keys:
            raise ValueError("there are no users")
        return cls(keys)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that clients can use: PLAIN, and those of SCRAM for which any user has keys."""
        return "PLAIN", *sorted({mechanism for _, mechanism in self.keys})

    def keys_of(self, user: str, mechanism: str) -> ScramKeys:
        """Return the user's keys for *mechanism*, one of SCRAM for which any user has keys.

        If this user has none, return keys that match no password, so that clients cannot learn which names exist.
        Like those of a known user, they are the same in each process that has the same file, and after a restart.
        Their iterations and the length of their salt are those of a known user, which the name selects.
        """
        found = self.keys.get((user, mechanism))
        if found is not None:
            return found
        secret = next(iter(self.keys.values())).server_key  # the first line rarely changes when users are added

        def derive(*parts: str) -> bytes:
            return hmac.digest(secret, "\0".join([mechanism, user, *parts]).encode(), "sha512")

        known = [name for name, each in self.keys if each == mechanism]
        model = self.keys[min(known, key=derive), mechanism]
        made, size = derive(), len(model.stored_key)
        return ScramKeys(made[: len(model.salt)], model.iterations, made[:size], made[-size:])

    def is_password_right(self, user: str, password: str) -> bool:
        """Return whether *user* exists and has this *password*, for logins by PLAIN.

        It blocks for milliseconds to derive the keys, for an unknown user as well, so that its duration does not
        reveal which users exist.
        """
        mechanism = next((each for each in HASHES if (user, each) in self.keys), self.mechanisms[1])
        keys = self.keys_of(user, mechanism)
        tried = ScramKeys.derive(mechanism, password, keys.salt, keys.iterations)
        is_right = hmac.compare_digest(tried.stored_key, keys.stored_key)
        return is_right and (user, mechanism) in self.keys


def _parse_line(line: str, number: int) -> tuple[str, str, ScramKeys]:
    user, _, rest = line.partition(":")
    mechanism, _, values = rest.partition(":")
    try:
        _check_name(user)
    except ValueError as wrong:
        raise ValueError(f"line {number}: {wrong}") from None
    if mechanism not in HASHES:
        raise ValueError(f"line {number}: its mechanism is none of {', '.join(HASHES)}")
    fields = dict(part.partition("=")[::2] for part in values.strip().split(","))
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise ValueError(f"line {number}: salt, stored_key, server_key or iterations cannot be read") from None
    if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS or not salt:
        raise ValueError(f"line {number}: accepted: {MIN_ITERATIONS} to {_MOST_ITERATIONS} iterations, and a salt")
    size = 64 if HASHES[mechanism] == "sha512" else 32
    if len(stored) != size or len(server) != size:
        raise ValueError(f"line {number}: keys of {mechanism} must have {size} bytes")
    return user, mechanism, ScramKeys(salt, iterations, stored, server)


def _check_name(user: str) -> None:
    if not user or ":" in user or not user.isprintable() or user != user.strip() or user.startswith("#"):
        raise ValueError("a name must be printable, without a colon, blanks at its ends or a # in front")
