"""Connections to brokers, and the handshake that tells what a broker serves."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import trio
from kio.schema.api_versions.v0.request import ApiVersionsRequest as ApiVersionsRequestV0
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from proxy.config import Address
from proxy.errors import BrokerProtocolError, BrokerUnavailable, MalformedFrame
from proxy.net.memory import Budget
from proxy.net.sockets import FrameSocket
from proxy.wire import api_versions, messages
from proxy.wire.apis import ApiRanges

__all__ = ["BrokerConnection", "connect", "dial", "open_broker"]

_MAX_ANSWER_BYTES: Final = 2**31 - 1
"""Brokers bound their own answers, but for one batch that may be larger than any limit asked for (KIP-74)."""
_MAX_HANDSHAKE_BYTES: Final = 1024**2
"""A server that speaks TLS or HTTP says what would be a size of hundreds of MB, and that memory would be taken."""
_SOFTWARE_NAME: Final = "sidefetch"


class BrokerConnection:
    """A connection to a broker of which it is known what it serves; one request at a time."""

    def __init__(self, frames: FrameSocket, client_id: str | None) -> None:
        self.frames = frames
        self.versions: ApiRanges = {}
        self._client_id = client_id
        self._correlation_id = 0

    async def ask(self, request: RequestPayload) -> Any:
        """Send *request* and return the broker's answer, a kio entity of the same version.

        Raises: BrokerUnavailable: the broker closed the connection; BrokerProtocolError: it answered nonsense.
        """
        frame = await self._exchange(request)
        response = messages.response_type(request.__api_key__, request.__version__)
        return self._checked(lambda: messages.read_response(response, frame))

    async def learn_versions(self) -> None:
        """Ask the broker what it serves (KIP-511: v3 tells our name; brokers before 2.4 know v0 only)."""
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME, client_software_version=_software_version()
        )
        frame = await self._exchange(request)
        body = self._checked(lambda: api_versions.read(3, frame))
        if body.error_code == ErrorCode.unsupported_version:
            body = await self.ask(ApiVersionsRequestV0())
        if body.error_code != ErrorCode.none:
            raise BrokerProtocolError(f"{self.frames.peer} answers ApiVersions with {body.error_code!r}")
        self.versions = api_versions.ranges_of(body)

    async def _exchange(self, request: RequestPayload) -> memoryview:
        self._correlation_id += 1
        return await self.exchange([messages.request_frame(self._correlation_id, self._client_id, request)])

    async def exchange(self, pieces: Sequence[bytes | memoryview]) -> memoryview:
        """Send one frame and return the answer to it, without its size.

        Raises: BrokerUnavailable: the broker closed the connection; BrokerProtocolError: that was no frame.
        """
        try:
            await self.frames.send(pieces)
            frames = await self.frames.receive()
        except OSError as broken:
            raise BrokerUnavailable(f"{self.frames.peer}: {broken}") from broken
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"{self.frames.peer}: {wrong}") from wrong
        if not frames:
            raise BrokerUnavailable(f"{self.frames.peer} closed the connection")
        return frames[0]

    def _checked(self, read: Any) -> Any:
        try:
            correlation_id, body = read()
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"{self.frames.peer}: {wrong}") from wrong
        if correlation_id != self._correlation_id:
            raise BrokerProtocolError(f"{self.frames.peer} answers {correlation_id} to {self._correlation_id}")
        return body


async def connect(address: Address, *, connect_timeout_s: float, budget: Budget | None = None) -> FrameSocket:
    """A bare connection, to be closed by the caller. Its large frames claim their memory from *budget*.

    Raises: BrokerUnavailable: there is none within *connect_timeout_s*.
    """
    try:
        with trio.fail_after(connect_timeout_s):
            stream = await trio.open_tcp_stream(address.host, address.port)
        try:
            return FrameSocket(stream, _MAX_ANSWER_BYTES, budget)
        except OSError:
            stream.socket.close()  # it was reset before anybody looked
            raise
    except (OSError, trio.TooSlowError, ValueError) as wrong:
        # ValueError: brokers may tell a host that no name can be, such as one of a single dot.
        raise BrokerUnavailable(f"{address}: {_reason(wrong)}") from wrong


@asynccontextmanager
async def dial(
    address: Address, *, client_id: str | None, connect_timeout_s: float = math.inf
) -> AsyncIterator[BrokerConnection]:
    """A connection on which the handshake is made; closed when the ``with`` ends.

    Raises: BrokerUnavailable: there is none within *connect_timeout_s*; BrokerProtocolError: that is no broker.
    """
    try:
        with trio.fail_after(connect_timeout_s):
            connection = await open_broker(address, client_id=client_id, connect_timeout_s=connect_timeout_s)
    except trio.TooSlowError as late:
        raise BrokerUnavailable(f"{address}: no handshake within {connect_timeout_s:g} s") from late
    with connection.frames:
        yield connection


async def open_broker(
    address: Address, *, client_id: str | None, connect_timeout_s: float, budget: Budget | None = None
) -> BrokerConnection:
    """A connection on which the handshake is made, to be closed by the caller. It has no time limit.

    Raises: BrokerUnavailable: there is none within *connect_timeout_s*; BrokerProtocolError: that is no broker.
    """
    frames = await connect(address, connect_timeout_s=connect_timeout_s, budget=budget)
    connection = BrokerConnection(frames, client_id)
    frames.limit(_MAX_HANDSHAKE_BYTES)
    try:
        await connection.learn_versions()
    except BaseException:
        frames.close()
        raise
    frames.limit(_MAX_ANSWER_BYTES)
    return connection


def _reason(error: BaseException) -> str:
    """What went wrong, without trio's list of every address tried."""
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(str(each) for each in cause.exceptions))
    return str(cause or error)


@cache
def _software_version() -> str:
    try:
        return version("sidefetch")
    except PackageNotFoundError:
        return "unknown"
