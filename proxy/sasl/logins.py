"""SASL client mechanisms: a login for each mechanism, and the conversation in which it logs in.

A conversation is a generator: it yields the client's messages, receives the broker's response to each by ``send``,
and returns after the broker's last response.
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
"""The messages of one login. Raises: LoginRefused."""

_ABORT: Final = b"\1"
"""The client's message after an error of OAUTHBEARER (RFC 7628, 3.2.3)."""


class Login(Protocol):
    """The identity of a SASL client, and the secret that proves it."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism in Kafka."""

    def converse(self, nonce: str) -> Conversation:
        """Return a new conversation. *nonce* is random, printable, and never used before."""


@attrs.frozen
class PlainLogin:
    """A login with a user name and a password in clear text (RFC 4616)."""

    user: str
    password: str = attrs.field(repr=False)

    @property
    def mechanism(self) -> str:
        return "PLAIN"

    def converse(self, nonce: str) -> Conversation:  # noqa: ARG002
        yield b"\0".join([b"", self.user.encode(), self.password.encode()])


@attrs.frozen
class ScramLogin:
    """A login with a user name and a password, which is proven but not sent."""

    mechanism: str
    user: str
    password: str = attrs.field(repr=False)

    def converse(self, nonce: str) -> Conversation:
        scram = ScramClient(self.mechanism, self.user, self.password, nonce)
        challenge = yield scram.first()
        scram.check((yield scram.proof(challenge)))


@attrs.frozen
class BearerLogin:
    """A login with a token from an authorization server (RFC 7628)."""

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
        return "it gives no reason"
    return str(status)[:100]


def plain_user(message: bytes) -> tuple[str, PlainLogin]:
    """Return the user name in a client's PLAIN message, and a login with the same name and password.

    Raises: MalformedFrame: the message is malformed, lacks the name or password, or is for another user.
    """
    parts = message.split(b"\0")
    try:
        authorized, user, password = (part.decode() for part in parts)
    except ValueError:  # also raised by decode
        raise MalformedFrame("not a PLAIN message") from None
    if not user or not password or authorized not in ("", user):
        raise MalformedFrame("PLAIN without a name or password, or for another user")
    return user, PlainLogin(user, password)


def bearer_token(message: bytes) -> tuple[str, BearerLogin]:
    """Return a name for the holder of the token in a client's OAUTHBEARER message, and a login with the token.

    The name is the token's digest, because brokers may derive another name from the token's claims than Sidefetch.

    Raises: MalformedFrame: the message is malformed, or the token is not ASCII.
    """
    header, *pairs = message.split(b"\1")
    tokens = [pair.removeprefix(b"auth=") for pair in pairs if pair.startswith(b"auth=")]
    if not header.startswith(b"n,") or len(tokens) != 1 or not tokens[0].lower().startswith(b"bearer "):
        raise MalformedFrame("not an OAUTHBEARER message")
    try:
        token = tokens[0][len(b"bearer ") :].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedFrame("a token that is not ASCII") from None
    return hashlib.sha256(token.encode()).hexdigest(), BearerLogin(token)
