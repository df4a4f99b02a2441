"""Connections whose requests are upgraded."""

from collections.abc import Mapping
from typing import Any

from proxy.demo.messages import encode_response
from proxy.relay.commands import (
    PASS,
    LinkFrame,
)
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from tests.convert.versions.old import encoded, offset
from tests.wire.broker_versions import BROKERS

__all__ = [
    "API_VERSIONS",
    "CREATE_ACLS",
    "HEARTBEAT",
    "KAFKA_4",
    "KAFKA_39",
    "LIST_OFFSETS",
    "OFFSET_COMMIT",
    "PRODUCE",
    "answered",
    "list_offsets",
    "old",
    "serving",
]

KAFKA_4, KAFKA_39 = BROKERS["4.3"], BROKERS["3.9"]


API_VERSIONS, LIST_OFFSETS, OFFSET_COMMIT, HEARTBEAT, CREATE_ACLS, PRODUCE = 18, 2, 8, 12, 30, 0


def old(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A request of an old version, with its size."""
    header = RequestHeader(key, version, correlation_id, "the-client")
    return with_size(write_request_header(header, flexible=False) + body)


def list_offsets(correlation_id: int, timestamp: int = -1, offsets: int = 1) -> bytes:
    body = encoded(offset.OffsetRequest_v0, -1, [("t", [(0, timestamp, offsets)])])
    return old(LIST_OFFSETS, 0, correlation_id, body)


def answered(key: int, version: int, correlation_id: int, said: Mapping[str, Any]) -> LinkFrame:
    return LinkFrame(PASS, memoryview(encode_response(key, version, correlation_id, said))[4:])


def serving(ranges: Mapping[int, tuple[int, int]], *, version: int = 0, correlation_id: int = 0) -> LinkFrame:
    """The broker's answer to ApiVersions."""
    keys = [{"api_key": k, "min_version": a, "max_version": b} for k, (a, b) in ranges.items()]
    return answered(API_VERSIONS, version, correlation_id, {"api_keys": keys})
