"""What is said to a broker to be somebody: a login for each mechanism, and the conversation that it leads.

A conversation is a generator: it yields what to say, is sent what the broker says to that, and returns once the
broker has nothing to add.
"""

import hashlib
import json
from collections.abc import Generator
from typing import Final, Protocol

import attrs

from proxy.errors import LoginRefused, MalformedFrame
from proxy.sasl.scram import ScramClient

__all__ = [
    "BearerLogin",
    "Conversation",
    "Login",
    "PlainLogin",
    "ScramLogin",
    "bearer_token",
    "plain_user",
]

Conversation = Generator[bytes, bytes, None]
"""Raises LoginRefused."""

_ABORT: Final = b"\1"
"""What a client of OAUTHBEARER says to an error (RFC 7628, 3.2.3)."""


class Login(Protocol):
    """Who we are, and what proves it."""

    @property
    def mechanism(self) -> str:
        """As brokers call it."""

    def converse(self, nonce: str) -> Conversation:
        """*nonce*: random, printable, never used before."""


@attrs.frozen
class PlainLogin:
    """A name and a password, as they are (RFC 4616)."""

    user: str
    password: str = attrs.field(repr=False)

    @property
    def mechanism(self) -> str:
        return "PLAIN"

    def converse(self, nonce: str) -> Conversation:  # noqa: ARG002
        yield b"\0".join([b"", self.user.encode(), self.password.encode()])


@attrs.frozen
class ScramLogin:
    """A name and a password, which is proven and not told."""

    mechanism: str
    user: str
    password: str = attrs.field(repr=False)

    def converse(self, nonce: str) -> Conversation:
        scram = ScramClient(self.mechanism, self.user, self.password, nonce)
        challenge = yield scram.first()
        scram.check((yield scram.proof(challenge)))


@attrs.frozen
class BearerLogin:
    """A token that somebody else has issued (RFC 7628)."""

    token: str = attrs.field(repr=False)

    @property
    def mechanism(self) -> str:
        return "OAUTHBEARER"

    def converse(self, nonce: str) -> Conversation:  # noqa: ARG002
        said = yield f"n,,\1auth=Bearer {self.token}\1\1".encode()
        if said:
            yield _ABORT
            raise LoginRefused(f"the broker refuses the token: {_status(said)}")


def _status(said: bytes) -> str:
    try:
        status = json.loads(said)["status"]
    except (ValueError, LookupError, TypeError):
        return "it does not say why"
    return str(status)[:100]


def plain_user(message: bytes) -> tuple[str, PlainLogin]:
    """The user that a client of PLAIN says it is, and its login. Raises: MalformedFrame."""
    parts = message.split(b"\0")
    try:
        authorized, user, password = (part.decode() for part in parts)
    except ValueError:  # of decoding, too
        raise MalformedFrame("no message of PLAIN") from None
    if not user or not password or authorized not in ("", user):
        raise MalformedFrame("PLAIN without a name or password, or for another user")
    return user, PlainLogin(user, password)


def bearer_token(message: bytes) -> tuple[str, BearerLogin]:
    """A name for whoever has the token that a client of OAUTHBEARER tells, and its login. Raises: MalformedFrame.

    The name is the token's digest: what a token says of its holder, its broker may read otherwise than we.
    """
    header, *pairs = message.split(b"\1")
    tokens = [pair.removeprefix(b"auth=") for pair in pairs if pair.startswith(b"auth=")]
    if not header.startswith(b"n,") or len(tokens) != 1 or not tokens[0].lower().startswith(b"bearer "):
        raise MalformedFrame("no message of OAUTHBEARER")
    try:
        token = tokens[0][len(b"bearer ") :].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedFrame("a token that is not ASCII") from None
    return hashlib.sha256(token.encode()).hexdigest(), BearerLogin(token)
