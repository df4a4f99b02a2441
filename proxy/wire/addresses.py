"""Replacement of the broker addresses in forwarded responses, so that clients connect to Sidefetch.

Metadata, FindCoordinator and DescribeCluster contain addresses in every version; Produce from v10 on, Fetch from
v16 on and both share-group APIs contain the new leaders' endpoints (KIP-951). Responses to fetches that Sidefetch
answers itself do not pass through this module: ``wire.fetch`` encodes them.
"""

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from proxy.wire import messages
from proxy.wire.apis import ApiKey
from proxy.wire.endpoints import Endpoint, replace_listed_endpoints, replace_tagged_endpoints
from proxy.wire.fetch import replace_endpoints
from proxy.wire.primitives import Cursor, write_string, write_uvarint
from proxy.wire.shapes import cursor_at

__all__ = ["AddressMap", "replace_addresses"]

AddressMap = Callable[[int, str, int], tuple[str, int] | None]
"""Maps a broker's (node id, host, port) to the host and port that clients use for it; None if there are none."""

_I32: Final = struct.Struct(">i")
_PORT_AND_ERROR: Final = struct.Struct(">ih")
_LISTED_COORDINATORS: Final = 4
"""First FindCoordinator version whose response has any number of coordinators (KIP-699)."""


def replace_addresses(
    api_key: int, version: int, frame: memoryview, map_address: AddressMap
) -> list[bytes | memoryview]:
    """Replace every broker address in a response by the one that *map_address* returns for it.

    If *map_address* returns None, the broker or the new leader's endpoint is left out of the response.
    A coordinator then gets the error COORDINATOR_NOT_AVAILABLE and node id -1; one with a node id below 0 is kept.

    Args:
        api_key: that of the request; the API and its *version* must be in ``apis.CARRIES_ADDRESSES``.
        frame: the broker's response, without its size.
        map_address: maps a broker's (node id, host, port) to the host and port that the client must use, or None.

    Returns: the new frame with its size, in pieces to be sent one after the other. Unknown tagged fields are
        dropped from FindCoordinator v3 and DescribeCluster, and from the structs of endpoints; elsewhere they stay.
    Cost:    Metadata: O(brokers); FindCoordinator: O(coordinators); endpoints: O(partitions), no copy of records;
        DescribeCluster decodes the whole response.
    Raises:  MalformedFrame: *frame* is not a response of this API and version.
    """
    if api_key == ApiKey.METADATA:
        return _replace_metadata_brokers(version, frame, map_address)
    if api_key == ApiKey.FETCH:
        return replace_endpoints(version, frame, lambda each: _replace_endpoint(each, map_address))
    if api_key == ApiKey.FIND_COORDINATOR and version >= _LISTED_COORDINATORS:
        return _replace_listed_coordinators(frame, map_address)
    kind = messages.response_type(api_key, version)
    if "node_endpoints" in kind.__dataclass_fields__:
        return _replace_node_endpoints(kind, frame, map_address)
    correlation_id, body = messages.read_response(kind, frame)
    if api_key == ApiKey.FIND_COORDINATOR:
        replaced = _replace_coordinator(body, map_address)
    else:
        brokers = [(each, map_address(each.broker_id, each.host, each.port)) for each in body.brokers]
        replaced = dataclasses.replace(body, brokers=tuple(_with_address(each, at) for each, at in brokers if at))
    return [messages.response_frame(correlation_id, replaced)]


def _replace_node_endpoints(kind: Any, frame: memoryview, map_address: AddressMap) -> list[bytes | memoryview]:
    """Replace only the endpoints, which stand last or in the tagged fields; all other bytes stay as they are."""
    _, at = messages.read_entity(kind.__header_schema__, frame)
    cursor = cursor_at(kind, "node_endpoints", frame, at)
    front = frame[: cursor.at]
    if "tag" in kind.__dataclass_fields__["node_endpoints"].metadata:
        endpoints = replace_tagged_endpoints(cursor, lambda each: _replace_endpoint(each, map_address))
    else:
        endpoints = replace_listed_endpoints(cursor, lambda each: _replace_endpoint(each, map_address))
    rest = frame[cursor.at :]
    return [_I32.pack(len(front) + len(endpoints) + len(rest)), front, endpoints, rest]


def _replace_endpoint(each: Endpoint, map_address: AddressMap) -> Endpoint | None:
    at = map_address(each.node_id, each.host, each.port)
    return None if at is None else each._replace(host=at[0], port=at[1])


def _with_address(node: Any, at: tuple[str, int]) -> Any:
    return dataclasses.replace(node, host=at[0], port=i32(at[1]))


def _replace_coordinator(coordinator: Any, map_address: AddressMap) -> Any:
    if coordinator.node_id >= 0:
        at = map_address(coordinator.node_id, coordinator.host, coordinator.port)
        if at is not None:
            return _with_address(coordinator, at)
        unavailable = ErrorCode.coordinator_not_available
        nowhere = dataclasses.replace(coordinator, node_id=BrokerId(-1), error_code=unavailable)
        return _with_address(nowhere, ("", -1))
    return coordinator


def _replace_listed_coordinators(frame: memoryview, map_address: AddressMap) -> list[bytes | memoryview]:
    """Replace the addresses of FindCoordinator v4+, without an object for each of up to 1,000,000 coordinators.

    Layout: ``correlation_id tags throttle: i32 coordinators: array tags``; a coordinator: ``key: string |
            node: i32 | host: string | port: i32 | error: i16 | message: nullable string | tags``.
    """
    cursor = Cursor(frame)
    cursor.i32()
    cursor.skip_tags()
    cursor.i32()
    count = cursor.count(flexible=True, item_bytes=14)
    front = frame[: cursor.at]
    coordinators = bytearray()
    for _ in range(count):
        start = cursor.at
        cursor.string(flexible=True)
        node_at = cursor.at
        node_id, host, port, error = cursor.i32(), cursor.string(flexible=True), cursor.i32(), cursor.i16()
        tail = cursor.at
        cursor.nullable_string(flexible=True)
        cursor.skip_tags()
        if node_id < 0:
            coordinators += frame[start : cursor.at]
            continue
        at = map_address(node_id, host, port)
        if at is None:
            node_id, at, error = -1, ("", -1), ErrorCode.coordinator_not_available
        address = _I32.pack(node_id) + write_string(at[0], flexible=True) + _PORT_AND_ERROR.pack(at[1], error)
        coordinators += b"".join((frame[start:node_at], address, frame[tail : cursor.at]))
    rest = frame[cursor.at :]
    cursor.skip_tags()
    cursor.check_end()
    return [_I32.pack(len(front) + len(coordinators) + len(rest)), front, bytes(coordinators), rest]


def _replace_metadata_brokers(version: int, frame: memoryview, map_address: AddressMap) -> list[bytes | memoryview]:
    """Replace the addresses of Metadata, reading only the brokers: 100,000 partitions may follow them.

    Layout: ``correlation_id [tags v9+] [throttle: i32 v3+] brokers: array | rest``;
            a broker: ``node: i32 | host: string | port: i32 | [rack: nullable string v1+] [tags v9+]``.
    """
    flexible = version >= 9
    cursor = Cursor(frame)
    cursor.i32()
    if flexible:
        cursor.skip_tags()
    if version >= 3:
        cursor.i32()
    front = frame[: cursor.at]
    kept = []
    for _ in range(cursor.count(flexible=flexible, item_bytes=10)):
        node_id, host, port = cursor.i32(), cursor.string(flexible=flexible), cursor.i32()
        tail = cursor.at
        if version >= 1:
            cursor.nullable_string(flexible=flexible)
        if flexible:
            cursor.skip_tags()
        at = map_address(node_id, host, port)
        if at is not None:
            fixed = _I32.pack(node_id) + write_string(at[0], flexible=flexible) + _I32.pack(at[1])
            kept.append(fixed + bytes(frame[tail : cursor.at]))
    count = write_uvarint(len(kept) + 1) if flexible else _I32.pack(len(kept))
    brokers = count + b"".join(kept)
    rest = frame[cursor.at :]
    return [_I32.pack(len(front) + len(brokers) + len(rest)), front, brokers, rest]
