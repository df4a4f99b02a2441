"""ApiVersions (API key 18): the APIs and versions that a broker serves.

The response's header is v0 in all versions, since the client cannot know yet which versions the broker
understands. A broker answers a version that it does not serve with a v0 body and UNSUPPORTED_VERSION (KIP-35,
KIP-511).
"""

import dataclasses
from collections.abc import Set
from typing import Any, Final

from kio.schema.api_versions.v0 import response as v0
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.wire import messages
from proxy.wire.apis import (
    KNOWN_KEYS,
    NO_UPGRADES,
    ApiKey,
    ApiRanges,
    VersionRange,
    VersionUpgrades,
    offered_ranges,
)
from proxy.wire.headers import read_request_header
from proxy.wire.primitives import Cursor

__all__ = [
    "MAX_VERSION",
    "ranges_of",
    "read_client_software",
    "read_response",
    "rewrite_response",
    "unsupported_version_response",
]

MAX_VERSION: Final = 4
_SOFTWARE_VERSION: Final = 3


def read_response(version: int, frame: bytes | memoryview) -> tuple[int, Any]:
    """Decode a broker's ApiVersions response; return its correlation id and its body, a kio entity.

    *version* is that of the request, and *frame* has no size prefix. If the response has the error
    UNSUPPORTED_VERSION, the body is always an entity of v0.

    Raises: MalformedFrame: the bytes are no such response.
    """
    cursor = Cursor(frame, 4)
    served = version if cursor.i16() != ErrorCode.unsupported_version else 0
    return messages.read_response(messages.response_type(ApiKey.API_VERSIONS, served), frame)


def ranges_of(body: Any) -> ApiRanges:
    return {int(each.api_key): VersionRange(each.min_version, each.max_version) for each in body.api_keys}


def rewrite_response(
    version: int,
    frame: bytes | memoryview,
    upgrades: VersionUpgrades = NO_UPGRADES,
    allowed: Set[int] = KNOWN_KEYS,
) -> bytes:
    """Reduce a broker's ApiVersions response to the APIs and versions in ``apis.offered_ranges``.

    Args:
        version: the version of the request.
        frame: the broker's response, without its size.
        upgrades: the versions that Sidefetch upgrades: they are added below the broker's lowest version.
        allowed: the keys of the APIs that clients may use.

    Returns: the new frame with its size, without the tagged fields that kio does not know.
    Raises:  MalformedFrame: *frame* is not an ApiVersions response.
    """
    correlation_id, body = read_response(version, frame)
    ranges = offered_ranges(ranges_of(body), upgrades, allowed)
    narrowed = tuple(
        dataclasses.replace(
            each,
            min_version=i16(ranges[each.api_key].first),
            max_version=i16(ranges[each.api_key].last),
        )
        for each in body.api_keys
        if each.api_key in ranges
    )
    return messages.response_frame(correlation_id, dataclasses.replace(body, api_keys=narrowed))


def read_client_software(frame: bytes | memoryview) -> str:
    """Return the name and the version of the client's software, joined by a space, from its ApiVersions request.

    Clients send them from v3 on (KIP-511); for a lower version, return an empty string. *frame* is the whole
    request without its size.

    Raises: MalformedFrame: the request cannot be decoded.
    """
    header, cursor = read_request_header(frame)
    if header.api_version < _SOFTWARE_VERSION:
        return ""
    cursor.skip_tags()
    return " ".join(cursor.nullable_string(flexible=True) or "" for _ in range(2)).strip()


def unsupported_version_response(correlation_id: int) -> bytes:
    """Encode the response, with its size, to an ApiVersions request of a version that Sidefetch does not know.

    The response has the error UNSUPPORTED_VERSION and names the versions 0 to 4 of ApiVersions, so that the client
    tries again with one of them.
    """
    served = v0.ApiVersion(api_key=i16(ApiKey.API_VERSIONS), min_version=i16(0), max_version=i16(MAX_VERSION))
    body = v0.ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=(served,))
    return messages.response_frame(correlation_id, body)
