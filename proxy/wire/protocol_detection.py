"""What a connection begins with: a request of Kafka's protocol, TLS, or neither."""

import struct
from typing import Final, Literal

__all__ = ["NEEDED_BYTES", "Beginning", "detect_protocol"]

Beginning = Literal["kafka", "tls", "other"]

_REQUEST: Final = struct.Struct(">ihh")
NEEDED_BYTES: Final = _REQUEST.size
"""As many tell."""
_SHORTEST_REQUEST: Final = 8
"""API key, version, correlation id; no header is shorter."""
_MAX_API_KEY: Final = 255
"""Twice as many as there are, and some."""
_MAX_API_VERSION: Final = 63
_TLS_HANDSHAKE: Final = b"\x16\x03"
_CLIENT_HELLO: Final = 1


def detect_protocol(first: bytes) -> Beginning:
    """What *first*, ``NEEDED_BYTES`` of a connection, or fewer if it has no more, is the beginning of.

    Layout: Kafka: ``size: i32 | api_key: i16 | api_version: i16``; TLS: ``22 | 3 | minor | length: u16 | 1``, a
            ClientHello. As a request that would be one of 369 MB, and none is that begins a connection.
    """
    if len(first) < NEEDED_BYTES:
        return "other"
    if first.startswith(_TLS_HANDSHAKE) and first[5] == _CLIENT_HELLO:
        return "tls"
    size, api_key, version = _REQUEST.unpack_from(first)
    is_request = size >= _SHORTEST_REQUEST and 0 <= api_key <= _MAX_API_KEY and 0 <= version <= _MAX_API_VERSION
    return "kafka" if is_request else "other"
