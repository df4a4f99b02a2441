"""SASL tokens that a client sends as frames without a request header, after a SaslHandshake v0."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from proxy.wire.apis import KNOWN_KEYS

__all__ = ["Tokens"]

_ROUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
)
"""Number of the client's frames, by mechanism. GSSAPI sends any number, OAUTHBEARER one more after an error."""
_GSSAPI: Final = 0x60
"""The first byte of the first GSSAPI token (RFC 2743). Clients of Kafka 0.9 send it without a handshake."""
_FIXED: Final = struct.Struct(">hhi")


@attrs.define
class Tokens:
    """The state that distinguishes SASL tokens from requests among the frames of one client connection.

    After a SaslHandshake v0, as many frames as the mechanism needs are tokens, even if they look like requests: a
    PLAIN token begins with a zero byte and the user's name, which may be the key of an API. After those, a frame
    that cannot be a request is a token.
    """

    _expected: int = 0
    """The number of tokens that are certain to come."""
    _may_come: bool = False
    """Whether further tokens may come, until the first request."""
    is_answered: bool = False
    """Whether the broker is certain to answer the last token, or to close the connection."""

    def expect_tokens(self, mechanism: str) -> None:
        """Expect the tokens of *mechanism*: the client has sent a SaslHandshake v0 for it."""
        self._expected, self._may_come = _ROUNDS.get(mechanism, 0), True

    def expect_none(self) -> None:
        """Expect no tokens any more: the broker has answered the SaslHandshake with an error."""
        self._expected, self._may_come = 0, False

    def detect_token(self, frame: memoryview, *, is_first: bool) -> bool:
        """Return whether *frame*, the client's next frame, is a token; call this once for each frame, in order.

        Sets ``is_answered``.

        Args: is_first: whether it is the first frame on the connection: that may be a GSSAPI token without a
            handshake.
        """
        if is_first and frame[:1] == bytes((_GSSAPI,)):
            self.expect_tokens("GSSAPI")
        self.is_answered = self._expected > 0
        if self.is_answered:
            self._expected -= 1
            return True
        self._may_come = self._may_come and not _can_be_request(frame)
        return self._may_come


def _can_be_request(frame: memoryview) -> bool:
    return len(frame) >= _FIXED.size and _FIXED.unpack_from(frame)[0] in KNOWN_KEYS
