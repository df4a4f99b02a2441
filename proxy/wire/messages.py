"""Messages off the fetch path, as kio's entities: frames decoded and encoded whole."""

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
    """Return the entity type of a response; only for the keys and versions that ``apis`` lists as decoded."""
    return load_response_schema(api_key, version)


def read_entity(entity_type: type[E], frame: bytes | memoryview, at: int = 0) -> tuple[E, int]:
    """Return the entity that starts at *at*, and the position behind it.

    Unknown tagged fields are skipped (KIP-482); unknown error codes are read as UNKNOWN_SERVER_ERROR.

    Raises: MalformedFrame: the bytes are no such entity.
    """
    known = with_known_parts(entity_type, frame, at)
    try:
        entity, size = entity_reader(entity_type)(known, at)
    except (SerialError, ValueError, OverflowError, LookupError) as wrong:
        raise MalformedFrame(f"no {entity_type.__qualname__} v{entity_type.__version__}: {wrong!r}") from wrong
    return entity, at + size + len(frame) - len(known)


def read_response(response: type[ResponsePayload], frame: bytes | memoryview) -> tuple[int, Any]:
    """Return the correlation id and the body of a response: an instance of *response*.

    Raises: MalformedFrame: the bytes are no such response, or more than one.
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
    """Encode a response as a frame, with its size."""
    header = body.__header_schema__(correlation_id=i32(correlation_id))
    return with_size(entity_bytes(header) + entity_bytes(body))


def request_frame(correlation_id: int, client_id: str | None, body: RequestPayload) -> bytes:
    """Encode a request as a frame, with its size."""
    kind = type(body)
    header_type = RequestHeaderV2 if kind.__flexible__ else RequestHeaderV1
    header = header_type(
        request_api_key=i16(kind.__api_key__),
        request_api_version=i16(kind.__version__),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    return with_size(entity_bytes(header) + entity_bytes(body))
