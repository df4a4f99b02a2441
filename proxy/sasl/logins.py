"""SASL client mechanisms: the credentials for each mechanism, and the exchange of messages of a login.

A ``Conversation`` is a generator: it yields the client's messages, receives the broker's response to each by
``send``, and returns after the broker's last response.
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
    "decode_bearer",
    "decode_plain",
]

Conversation = Generator[bytes, bytes, None]
"""The exchange of messages of one login, as a generator of the client's messages; ``send`` takes the broker's.

Raises: LoginRefused: the broker refuses the login, or does not prove its identity."""

_ABORT: Final = b"\1"
"""The client's message after an error of OAUTHBEARER (RFC 7628, 3.2.3)."""


class Login(Protocol):
    """A SASL client's credentials for one mechanism; they can be used for any number of logins."""

    @property
    def mechanism(self) -> str:
        """The SASL mechanism as Kafka names it, such as ``PLAIN``."""

    def start_conversation(self, nonce: str) -> Conversation:
        """Return the exchange of messages of a new login at a broker, as a generator.

        The generator yields the client's messages, receives the broker's response to each by ``send``, and ends
        after the last one, or raises LoginRefused. *nonce* must be random, printable, without commas, and never
        used before; only SCRAM uses it.
        """


@attrs.frozen
class PlainLogin:
    """Credentials for SASL PLAIN: a user name and a password, which is sent in clear text (RFC 4616)."""

    user: str
    password: str = attrs.field(repr=False)

    @property
    def mechanism(self) -> str:
        return "PLAIN"

    def start_conversation(self, nonce: str) -> Conversation:  # noqa: ARG002
        yield b"\0".join([b"", self.user.encode(), self.password.encode()])


@attrs.frozen
class ScramLogin:
    """Credentials for SASL SCRAM: a user name and a password, which the client proves to know but does not send."""

    mechanism: str
    user: str
    password: str = attrs.field(repr=False)

    def start_conversation(self, nonce: str) -> Conversation:
        scram = ScramClient(self.mechanism, self.user, self.password, nonce)
        challenge = yield scram.first_message()
        scram.verify_server((yield scram.final_message(challenge)))


@attrs.frozen
class BearerLogin:
    """Credentials for SASL OAUTHBEARER: a token from an authorization server (RFC 7628)."""

    token: str = attrs.field(repr=False)

    @property
    def mechanism(self) -> str:
        return "OAUTHBEARER"

    def start_conversation(self, nonce: str) -> Conversation:  # noqa: ARG002
        response = yield f"n,,\1auth=Bearer {self.token}\1\1".encode()
        if response:
            yield _ABORT
            raise LoginRefused(f"the broker refuses the token: {_refusal_reason(response)}")


def _refusal_reason(response: bytes) -> str:
    try:
        status = json.loads(response)["status"]
    except (ValueError, LookupError, TypeError):
        return "it gives no reason"
    return str(status)[:100]


def decode_plain(message: bytes) -> tuple[str, PlainLogin]:
    """Decode a client's PLAIN message; return the user name, and credentials with the same name and password.

    Raises: MalformedFrame: the message is malformed, lacks the name or the password, or has an authorization id
        other than the name.
    """
    parts = message.split(b"\0")
    try:
        authorized, user, password = (part.decode() for part in parts)
    except ValueError:  # also raised by decode
        raise MalformedFrame("not a PLAIN message") from None
    if not user or not password or authorized not in ("", user):
        raise MalformedFrame("PLAIN without a name or password, or for another user")
    return user, PlainLogin(user, password)


def decode_bearer(message: bytes) -> tuple[str, BearerLogin]:
    """Decode a client's OAUTHBEARER message; return the token's SHA-256 digest, and credentials with the token.

    The hexadecimal digest serves as the user name: Sidefetch does not read the name in the token's claims, because
    brokers may derive another one from them.

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
