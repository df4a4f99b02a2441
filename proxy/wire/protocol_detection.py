"""Detection of a connection's protocol from its first bytes: Kafka's, TLS, or neither."""

import struct
from typing import Final, Literal

__all__ = ["NEEDED_BYTES", "Beginning", "detect_protocol"]

Beginning = Literal["kafka", "tls", "other"]

_REQUEST: Final = struct.Struct(">ihh")
NEEDED_BYTES: Final = _REQUEST.size
"""The number of bytes needed for the decision."""
_SHORTEST_REQUEST: Final = 8
"""The size of API key, version and correlation id; no header is shorter."""
_MAX_API_KEY: Final = 255
"""About twice the number of Kafka's APIs."""
_MAX_API_VERSION: Final = 63
_TLS_HANDSHAKE: Final = b"\x16\x03"
_CLIENT_HELLO: Final = 1


def detect_protocol(first: bytes) -> Beginning:
    """Return the protocol of a connection by *first*, its first ``NEEDED_BYTES``, or fewer if it has no more.

    Layout: Kafka: ``size: i32 | api_key: i16 | api_version: i16``; TLS: ``22 | 3 | minor | length: u16 | 1``, a
            ClientHello. Read as a Kafka request, that would be one of 369 MB, and no connection begins with one.
    """
    if len(first) < NEEDED_BYTES:
        return "other"
    if first.startswith(_TLS_HANDSHAKE) and first[5] == _CLIENT_HELLO:
        return "tls"
    size, api_key, version = _REQUEST.unpack_from(first)
    is_request = size >= _SHORTEST_REQUEST and 0 <= api_key <= _MAX_API_KEY and 0 <= version <= _MAX_API_VERSION
    return "kafka" if is_request else "other"
