"""Decoding and encoding of request headers, and decoding of the correlation id of response headers."""

import struct
from typing import Final

import attrs

from proxy.wire.primitives import Cursor, write_string

__all__ = ["RequestHeader", "read_correlation_id", "read_request_header", "write_request_header"]

_FIXED: Final = struct.Struct(">hhi")


@attrs.frozen
class RequestHeader:
    """The header that every request begins with.

    Layout: ``api_key: i16 | api_version: i16 | correlation_id: i32 | client_id: nullable string`` (header v1);
            flexible requests add tagged fields (header v2), but *client_id* keeps its two-byte length.
    Source: Kafka's ``RequestHeader.json``; KIP-482.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, Cursor]:
    """Decode the header of a request; return it and a cursor for decoding the rest of *frame*.

    *frame* is the request without its size. The cursor stands behind *client_id*: in flexible versions, at the
    tagged fields of header v2.

    Raises: MalformedFrame: the frame ends within the header, or the client id is not a string.
    """
    cursor = Cursor(frame)
    api_key, api_version, correlation_id = cursor.i16(), cursor.i16(), cursor.i32()
    return RequestHeader(api_key, api_version, correlation_id, cursor.nullable_string(flexible=False)), cursor


def write_request_header(header: RequestHeader, *, flexible: bool) -> bytes:
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    return fixed + write_string(header.client_id, flexible=False) + (b"\0" if flexible else b"")


def read_correlation_id(frame: bytes | memoryview) -> int:
    """Return the correlation id of a response, the first field of either header version, v0 or v1.

    *frame* is the response without its size.

    Raises: MalformedFrame: it has fewer than four bytes.
    """
    return Cursor(frame).i32()
