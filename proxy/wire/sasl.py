"""SaslHandshake (17) and SaslAuthenticate (36), for exchanges that are followed while forwarded, or refused.

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

__all__ = ["answer", "authenticated", "handshake", "read_answer", "read_request", "refused"]


def read_request(header: RequestHeader, frame: memoryview) -> Any:
    """Decode a request as kio's entity. Raises: MalformedFrame."""
    request: Any = load_request_schema(header.api_key, header.api_version)
    _, cursor = read_request_header(frame)
    if request.__flexible__:
        cursor.skip_tags()
    body, _ = messages.read_entity(request, frame, cursor.at)
    return body


def read_answer(header: RequestHeader, frame: memoryview) -> Any:
    """Decode the broker's response as kio's entity. Raises: MalformedFrame."""
    return messages.read_response(messages.response_type(header.api_key, header.api_version), frame)[1]


def handshake(header: RequestHeader, mechanisms: tuple[str, ...], *, is_accepted: bool) -> bytes:
    """Encode a response to SaslHandshake, with size."""
    code = ErrorCode.none if is_accepted else ErrorCode.unsupported_sasl_mechanism
    return answer(header, error_code=code, mechanisms=mechanisms)


def authenticated(header: RequestHeader, message: bytes) -> bytes:
    """Encode a successful response to SaslAuthenticate, with size; more may follow, or it is the last."""
    return answer(header, error_code=ErrorCode.none, error_message=None, auth_bytes=message)


def refused(header: RequestHeader, code: ErrorCode, why: str) -> bytes:
    """Encode a response to either that ends the login with an error, with size."""
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        return answer(header, error_code=code, mechanisms=())
    return answer(header, error_code=code, error_message=why, auth_bytes=b"")


def answer(header: RequestHeader, **fields: Any) -> bytes:
    """Encode a response in the version of the request, with size; fields that are not given have their defaults."""
    response: Any = load_response_schema(i16(header.api_key), i16(header.api_version))
    return messages.response_frame(header.correlation_id, response(**fields))
