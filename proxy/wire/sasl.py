"""Decoding of SaslHandshake (API key 17) and SaslAuthenticate (36), and encoding of responses to them.

Sidefetch decodes them to follow a login that it forwards, and responds to them when it is the SASL server.
SaslHandshake v0 is followed by tokens in frames of their own, v1 by SaslAuthenticate (KIP-152), whose v1 has the
lifetime of the login (KIP-368). Source: Kafka's ``SaslServerAuthenticator``.
"""

from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.wire import messages
from proxy.wire.apis import ApiKey
from proxy.wire.headers import RequestHeader, read_request_header

__all__ = [
    "authenticate_response",
    "error_response",
    "handshake_response",
    "make_response",
    "read_request",
    "read_response",
]


def read_request(header: RequestHeader, frame: memoryview) -> Any:
    """Decode the body of a SaslHandshake or SaslAuthenticate request as a kio entity.

    *header* is the decoded header of the request, and *frame* the whole request without its size.

    Raises: MalformedFrame: the frame is no such request.
    """
    request: Any = load_request_schema(header.api_key, header.api_version)
    _, cursor = read_request_header(frame)
    if request.__flexible__:
        cursor.skip_tags()
    body, _ = messages.read_entity(request, frame, cursor.at)
    return body


def read_response(header: RequestHeader, frame: memoryview) -> Any:
    """Decode the body of a broker's response to a SaslHandshake or SaslAuthenticate request as a kio entity.

    *header* is that of the request, which has the API key and version; *frame* is the response without its size.

    Raises: MalformedFrame: the frame is no such response.
    """
    return messages.read_response(messages.response_type(header.api_key, header.api_version), frame)[1]


def handshake_response(header: RequestHeader, mechanisms: tuple[str, ...], *, is_accepted: bool) -> bytes:
    """Encode a response to SaslHandshake as a frame with its size; *mechanisms* are those that the server has.

    If not *is_accepted*, its error is UNSUPPORTED_SASL_MECHANISM. *header* is that of the request.
    """
    code = ErrorCode.none if is_accepted else ErrorCode.unsupported_sasl_mechanism
    return make_response(header, error_code=code, mechanisms=mechanisms)


def authenticate_response(header: RequestHeader, message: bytes) -> bytes:
    """Encode a response without error to SaslAuthenticate as a frame with its size.

    *header* is that of the request, and *message* the server's SASL message. The login may need further messages.
    """
    return make_response(header, error_code=ErrorCode.none, error_message=None, auth_bytes=message)


def error_response(header: RequestHeader, code: ErrorCode, why: str) -> bytes:
    """Encode a response to SaslHandshake or SaslAuthenticate with the error *code*, as a frame with its size.

    *header* is that of the request. *why* is the error message, which only SaslAuthenticate has.
    """
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        return make_response(header, error_code=code, mechanisms=())
    return make_response(header, error_code=code, error_message=why, auth_bytes=b"")


def make_response(header: RequestHeader, **fields: Any) -> bytes:
    """Encode a response to the request with *header*, in the same API and version, as a frame with its size.

    *fields* are those of kio's entity of the response; the others have their default values.
    """
    response: Any = load_response_schema(i16(header.api_key), i16(header.api_version))
    return messages.response_frame(header.correlation_id, response(**fields))
