"""Requests that were forwarded to the client's broker and are not answered yet, by kind."""

import struct
from typing import Final

import attrs

from proxy.convert.versions.upgrade import Pieces, Steps, Upgrade
from proxy.errors import BrokerProtocolError, MalformedFrame
from proxy.relay.pipeline import Slot
from proxy.wire.headers import RequestHeader, read_correlation_id, write_request_header

__all__ = [
    "ApiVersionsProbe",
    "FinishedUpgrade",
    "ForwardedRequest",
    "InFlightRequest",
    "SaslTokenRequest",
    "UpgradedRequest",
    "check_order",
    "malformed_response",
]

_SIZE: Final = struct.Struct(">i")


@attrs.define(eq=False)
class UpgradedRequest:
    """A client request in a removed version that is upgraded to a newer one, until its response is complete.

    Its *steps* may send several requests to brokers, one after another.
    """

    upgrade: Upgrade
    """The definition of the upgrade."""
    header: RequestHeader
    """The header of the client's request."""
    slot: Slot | None
    """The slot of the response to the client; None if the request has no response."""
    steps: Steps
    """The generator of the steps, at the step that is being carried out."""
    throttle_ms: int = 0
    """The largest throttle time in the brokers' responses: the response to the client is delayed by it."""

    def make_frame(self, body: Pieces) -> list[bytes | memoryview]:
        """Return a frame for the broker: size prefix, the client's header with the newer version, and *body*."""
        header = attrs.evolve(self.header, api_version=self.upgrade.to)
        head = write_request_header(header, flexible=False)
        return [_SIZE.pack(len(head) + sum(map(len, body))) + head, *body]


@attrs.frozen
class FinishedUpgrade:
    """The end of an upgrade's steps."""

    body: Pieces | None
    """The body of the client's response; None if the request has none."""


@attrs.frozen
class ForwardedRequest:
    """A client request that was forwarded unchanged; the broker's response goes into *slot*."""

    header: RequestHeader
    slot: Slot


@attrs.frozen
class SaslTokenRequest:
    """A SASL token of the client that was forwarded without a request header; *slot* gets the broker's token."""

    slot: Slot
    is_certain: bool
    """Whether the broker is certain to answer, or to close the connection; the last token may have no answer."""


@attrs.frozen
class ApiVersionsProbe:
    """An ApiVersions request that Sidefetch sent itself; the client does not get the broker's response."""


InFlightRequest = ForwardedRequest | SaslTokenRequest | ApiVersionsProbe | UpgradedRequest
"""A request whose response the broker has not sent yet."""


def check_order(header: RequestHeader, frame: memoryview) -> None:
    """Check that *frame*, a broker's response, has the correlation id of the request with *header*.

    Raises: BrokerProtocolError: the correlation ids differ. MalformedFrame: *frame* is too short to have one.
    """
    if read_correlation_id(frame) != header.correlation_id:
        raise BrokerProtocolError(f"an answer out of order to request {header.correlation_id}")


def malformed_response(header: RequestHeader, wrong: MalformedFrame) -> BrokerProtocolError:
    """Return the error to raise for a response that cannot be decoded; its message names the request's API.

    Args: header: the header of the request.
          wrong:  the error of the decoder.
    """
    return BrokerProtocolError(f"a malformed answer to API {header.api_key} v{header.api_version}: {wrong}")
