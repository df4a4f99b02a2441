"""Detection of a connection's protocol from its first bytes: Kafka's, TLS, or neither."""

import struct
from typing import Final, Literal

__all__ = ["NEEDED_BYTES", "DetectedProtocol", "detect_protocol"]

DetectedProtocol = Literal["kafka", "tls", "other"]

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


def detect_protocol(first: bytes) -> DetectedProtocol:
    """Detect from a client's first bytes whether it speaks plaintext Kafka, TLS, or neither ("other").

    *first* are the first ``NEEDED_BYTES`` bytes. If the client has sent fewer, the result is "other".

    Layout: Kafka: ``size: i32 | api_key: i16 | api_version: i16``; TLS: ``22 | 3 | minor | length: u16 | 1``, a
            ClientHello. As a Kafka request it would have 369 MB, and no connection begins with such a request.
    """
    if len(first) < NEEDED_BYTES:
        return "other"
    if first.startswith(_TLS_HANDSHAKE) and first[5] == _CLIENT_HELLO:
        return "tls"
    size, api_key, version = _REQUEST.unpack_from(first)
    is_request = size >= _SHORTEST_REQUEST and 0 <= api_key <= _MAX_API_KEY and 0 <= version <= _MAX_API_VERSION
    return "kafka" if is_request else "other"
