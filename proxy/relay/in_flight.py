"""Requests on the pass-through link whose responses are due, by kind."""

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
    """A request that is sent in a newer version, from its first step to its response."""

    lift: Upgrade
    header: RequestHeader
    slot: Slot | None
    steps: Steps
    throttle_ms: int = 0

    def framed(self, body: Pieces) -> list[bytes | memoryview]:
        """Return the client's request in the version it is upgraded to, with its size."""
        header = attrs.evolve(self.header, api_version=self.lift.to)
        head = write_request_header(header, flexible=False)
        return [_SIZE.pack(len(head) + sum(map(len, body))) + head, *body]


@attrs.frozen
class ForwardedRequest:
    """A request that was forwarded unchanged; its response is due."""

    header: RequestHeader
    slot: Slot


@attrs.frozen
class SaslTokenRequest:
    """A forwarded SASL token; a token is, or may be, due in return."""

    slot: Slot
    is_sure: bool


@attrs.frozen
class ApiVersionsProbe:
    """A request of Sidefetch's own for the broker's API versions; its response is due."""


Owed = ForwardedRequest | SaslTokenRequest | ApiVersionsProbe | UpgradedRequest


def check_order(header: RequestHeader, frame: memoryview) -> None:
    """Check that *frame* answers the request with *header*.

    Raises: BrokerProtocolError: the correlation ids differ.
    """
    if read_correlation_id(frame) != header.correlation_id:
        raise BrokerProtocolError(f"an answer out of order to request {header.correlation_id}")


def malformed_response(header: RequestHeader, wrong: MalformedFrame) -> BrokerProtocolError:
    """Return the error for a response to the request with *header* that cannot be decoded because of *wrong*."""
    return BrokerProtocolError(f"a malformed answer to API {header.api_key} v{header.api_version}: {wrong}")
