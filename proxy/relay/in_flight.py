"""What the broker owes an answer to, on the pass-through link."""

import struct
from typing import Final

import attrs

from proxy.convert.versions.upgrade import Pieces, Steps, Upgrade
from proxy.errors import BrokerProtocolError, MalformedFrame
from proxy.relay.pipeline import Slot
from proxy.wire.headers import RequestHeader, read_correlation_id, write_request_header

__all__ = [
    "ApiVersionsProbe",
    "ForwardedRequest",
    "Owed",
    "SaslTokenRequest",
    "UpgradedRequest",
    "check_order",
    "malformed_response",
]

_SIZE: Final = struct.Struct(">i")


@attrs.define(eq=False)
class UpgradedRequest:
    """A request on its way to its answer."""

    lift: Upgrade
    header: RequestHeader
    slot: Slot | None
    steps: Steps
    throttle_ms: int = 0

    def framed(self, body: Pieces) -> list[bytes | memoryview]:
        """The client's request in the version lifted to, with its size."""
        header = attrs.evolve(self.header, api_version=self.lift.to)
        head = write_request_header(header, flexible=False)
        return [_SIZE.pack(len(head) + sum(map(len, body))) + head, *body]


@attrs.frozen
class ForwardedRequest:
    """The broker owes an answer to a request that went as it came."""

    header: RequestHeader
    slot: Slot


@attrs.frozen
class SaslTokenRequest:
    """The broker owes a token, or may owe one."""

    slot: Slot
    is_sure: bool


@attrs.frozen
class ApiVersionsProbe:
    """The broker owes what it serves."""


Owed = ForwardedRequest | SaslTokenRequest | ApiVersionsProbe | UpgradedRequest


def check_order(header: RequestHeader, frame: memoryview) -> None:
    """Raises BrokerProtocolError: *frame* does not answer the request with *header*."""
    if read_correlation_id(frame) != header.correlation_id:
        raise BrokerProtocolError(f"an answer out of order to request {header.correlation_id}")


def malformed_response(header: RequestHeader, wrong: MalformedFrame) -> BrokerProtocolError:
    """*wrong*, of the answer to a request with *header*."""
    return BrokerProtocolError(f"a malformed answer to API {header.api_key} v{header.api_version}: {wrong}")
