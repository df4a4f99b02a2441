"""Decoding and encoding of whole messages by kio, the codec generated from Kafka's schemas; not used for Fetch."""

import io
from functools import cache
from typing import Any, TypeVar

from kio.index import load_response_schema
from kio.schema.request_header.v1 import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2 import RequestHeader as RequestHeaderV2
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i16, i32
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from proxy.errors import MalformedFrame
from proxy.wire.frames import with_size
from proxy.wire.shapes import with_known_parts

__all__ = ["entity_bytes", "read_entity", "read_response", "request_frame", "response_frame", "response_type"]

E = TypeVar("E", bound=Entity)


@cache
def response_type(api_key: int, version: int) -> type[ResponsePayload]:
    """Return kio's entity class of the responses of an API in a version.

    Raises: KioIndexError (kio's): kio does not know the API or the version. Callers rule this out.
    """
    return load_response_schema(api_key, version)


def read_entity(entity_type: type[E], frame: bytes | memoryview, at: int = 0) -> tuple[E, int]:
    """Decode the kio entity of *entity_type* that starts at position *at* of *frame*.

    Return the entity and the position behind it. Unknown tagged fields are skipped (KIP-482); unknown error codes
    are read as UNKNOWN_SERVER_ERROR.

    Raises: MalformedFrame: the bytes are no such entity.
    """
    known = with_known_parts(entity_type, frame, at)
    try:
        entity, size = entity_reader(entity_type)(known, at)
    except (SerialError, ValueError, OverflowError, LookupError) as wrong:
        raise MalformedFrame(f"no {entity_type.__qualname__} v{entity_type.__version__}: {wrong!r}") from wrong
    return entity, at + size + len(frame) - len(known)


def read_response(response: type[ResponsePayload], frame: bytes | memoryview) -> tuple[int, Any]:
    """Decode a whole response; return its correlation id and its body, an instance of *response*.

    *frame* is the response without its size.

    Raises: MalformedFrame: the bytes are no such response, or more bytes follow it.
    """
    header, at = read_entity(response.__header_schema__, frame)
    body, end = read_entity(response, frame, at)
    if end != len(frame):
        raise MalformedFrame(f"{len(frame) - end} bytes behind {response.__qualname__}")
    return header.correlation_id, body


def entity_bytes(entity: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def response_frame(correlation_id: int, body: ResponsePayload) -> bytes:
    """Encode a response with *correlation_id* and *body* as a frame with its size, in the version of *body*."""
    header = body.__header_schema__(correlation_id=i32(correlation_id))
    return with_size(entity_bytes(header) + entity_bytes(body))


def request_frame(correlation_id: int, client_id: str | None, body: RequestPayload) -> bytes:
    """Encode a request with *body* as a frame with its size; the class of *body* has API key and version."""
    kind = type(body)
    header_type = RequestHeaderV2 if kind.__flexible__ else RequestHeaderV1
    header = header_type(
        request_api_key=i16(kind.__api_key__),
        request_api_version=i16(kind.__version__),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    return with_size(entity_bytes(header) + entity_bytes(body))
