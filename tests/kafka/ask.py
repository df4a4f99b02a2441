"""A single request to one broker on its own connection, through kio, for APIs that no client library offers."""

import io
import socket
import struct
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32
from kio.static.protocol import RequestPayload

__all__ = ["ask"]

_CORRELATION_ID = 1


def ask(address: str, request: RequestPayload, *, timeout_s: float = 10.0) -> Any:
    """Send *request* to ``host:port`` and return the answer, of the same API and version.

    Raises: OSError: nobody listens there, or the broker closed the connection instead of answering.
    """
    key, version = request.__api_key__, request.__version__
    header_schema: Any = request.__header_schema__
    header = header_schema(
        request_api_key=key, request_api_version=version, correlation_id=i32(_CORRELATION_ID), client_id="tests"
    )
    buffer = io.BytesIO()
    entity_writer(header_schema)(buffer, header)
    entity_writer(type(request))(buffer, request)
    frame = buffer.getvalue()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
            answer = _exactly(stream.read(size), size)
    response_schema: Any = load_response_schema(key, i16(version))
    answer_header, at = entity_reader(response_schema.__header_schema__)(answer, 0)
    assert answer_header.correlation_id == _CORRELATION_ID
    response, _ = entity_reader(response_schema)(answer, at)
    return response


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError("the broker closed the connection instead of answering")
    return data
