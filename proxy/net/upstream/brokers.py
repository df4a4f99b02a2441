"""Connections to brokers, and their handshake: TLS, the broker's API versions, the SASL login."""

import math
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from kio.schema.api_versions.v0.request import ApiVersionsRequest as ApiVersionsRequestV0
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from proxy.config import Address
from proxy.errors import BrokerProtocolError, BrokerUnavailable, LoginRefused, MalformedFrame
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket
from proxy.net.io.tls import broker_reason, start_tls
from proxy.net.upstream.access import OPEN, Access, log_in
from proxy.net.upstream.outbound import connect_failure, register_outbound
from proxy.version import VERSION
from proxy.wire import api_versions, messages
from proxy.wire.apis import ApiRanges
from proxy.wire.frames import QUICK_BYTES

__all__ = ["BrokerConnection", "connect", "dial", "open_broker", "open_connection", "renewal_time"]

_MAX_ANSWER_BYTES: Final = 2**31 - 1
"""Brokers limit their own responses, but for one batch that may be larger than any requested limit (KIP-74)."""
_MAX_UNBUDGETED_BYTES: Final = 64 * 1024**2
"""The limit of responses without a memory budget. Metadata of a million partitions is smaller; a request for
more is divided."""
_MAX_HANDSHAKE_BYTES: Final = 1024**2
"""The first bytes of TLS or HTTP, read as a frame size, would claim hundreds of MB of memory."""
_SOFTWARE_NAME: Final = "sidefetch"
_MAX_VERSIONS_RESPONSES: Final = 2
"""The most responses to ApiVersions on one connection; brokers answer these requests even without a login."""
_RENEW_AT: Final = (0.85, 0.95)
"""The range of the share of a login's lifetime after which it is renewed, at random as in Kafka's own clients."""


class BrokerConnection:
    """A connection to one broker for one request at a time; it logs in again before its login expires (KIP-368).

    The caller closes it by closing ``frames``.
    """

    def __init__(self, frames: FrameSocket, client_id: str | None, access: Access = OPEN) -> None:
        self.frames = frames
        self.versions: ApiRanges = {}
        """The API versions that the broker serves; empty before ``request_versions``."""
        self.access = access
        self.renew_at_s = math.inf
        """The time of the next login, on trio's clock."""
        self._client_id = client_id
        self._correlation_id = 0
        self._answers = 0

    async def send_request(self, request: RequestPayload) -> Any:
        """Send *request*, wait for the broker's response, and return it as a kio entity of the request's version.

        A login that is about to expire is renewed first. A large response is decoded in a thread.

        Raises: BrokerUnavailable: the connection broke; LoginRefused: the renewal of the login failed;
            BrokerProtocolError: the response cannot be decoded, or belongs to another request.
        """
        frame = await self._exchange(request)
        response = messages.response_type(request.__api_key__, request.__version__)
        decode = partial(self._decode, lambda: messages.read_response(response, frame))
        if len(frame) > QUICK_BYTES:
            return await trio.to_thread.run_sync(decode, abandon_on_cancel=True)
        return decode()

    async def request_versions(self) -> None:
        """Request the API versions that the broker serves, and set ``versions`` to them.

        The request is ApiVersions v3, which names Sidefetch as the client software (KIP-511); to a broker before
        2.4, which rejects v3, a v0 request follows.

        Raises: BrokerUnavailable: as ``send_request``; BrokerProtocolError: as there, or the response has an error.
        """
        request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION)
        frame = await self._exchange(request)
        body = self._decode(lambda: api_versions.read_response(3, frame))
        if body.error_code == ErrorCode.unsupported_version:
            body = await self.send_request(ApiVersionsRequestV0())
        if body.error_code != ErrorCode.none:
            raise BrokerProtocolError(f"{self.frames.peer} answers ApiVersions with {body.error_code!r}")
        self.versions = api_versions.ranges_of(body)

    async def log_in(self) -> None:
        """Authenticate with the credentials of ``access``, and set ``renew_at_s``; without credentials, do nothing.

        Raises: LoginRefused: the broker refuses the login; or as ``send_request``.
        """
        if self.access.login is None:
            return
        self.renew_at_s = math.inf
        try:
            lifetime_s = await log_in(self.access, self.versions, self.send_request)
        except LoginRefused as refused:
            raise LoginRefused(f"{self.frames.peer}: {refused}") from None
        self.renew_at_s = renewal_time(lifetime_s)

    async def _exchange(self, request: RequestPayload) -> memoryview:
        self._correlation_id += 1
        return await self.exchange([messages.request_frame(self._correlation_id, self._client_id, request)])

    async def exchange(self, pieces: Sequence[bytes | memoryview]) -> memoryview:
        """Send one request frame, wait for the response frame, and return that without its size prefix.

        A login that is about to expire is renewed first. The response is not decoded.

        Args: pieces: the buffers of the frame, with its size prefix.
        Raises: BrokerUnavailable: the connection broke; LoginRefused: the renewal of the login failed;
            BrokerProtocolError: the response has an impossible size.
        """
        if trio.current_time() >= self.renew_at_s:
            await self.log_in()
        try:
            await self.frames.send(pieces)
            frames = await self.frames.receive()
        except OSError as broken:
            why = broker_reason(broken) if isinstance(broken, ssl.SSLError) else broken
            raise BrokerUnavailable(f"{self.frames.peer}: {why}") from broken
        except MalformedFrame as wrong:
            hint = "" if self._answers else self._hint
            raise BrokerProtocolError(f"{self.frames.peer}: {wrong}{hint}") from wrong
        if not frames:
            raise BrokerUnavailable(f"{self.frames.peer} closed the connection{self._hint}")
        self._answers += 1
        return frames[0]

    @property
    def _hint(self) -> str:
        """A hint for the error message about a broker's first responses: TLS or a login may be missing."""
        if not self._answers:
            return "; does it speak TLS there? Then upstream-tls on" if self.access.tls is None else ""
        is_nobody = self.access.login is None and self._answers <= _MAX_VERSIONS_RESPONSES
        return "; does it want a login there? Then upstream-sasl" if is_nobody else ""

    def _decode(self, read: Any) -> Any:
        try:
            correlation_id, body = read()
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"{self.frames.peer}: {wrong}") from wrong
        if correlation_id != self._correlation_id:
            raise BrokerProtocolError(f"{self.frames.peer} answers {correlation_id} to {self._correlation_id}")
        return body


async def connect(
    address: Address, *, connect_timeout_s: float, budget: Budget | None = None, access: Access = OPEN
) -> FrameSocket:
    """Open a connection to a broker, as ``open_connection`` does, and return only its frame socket."""
    timeout_s = connect_timeout_s
    return (await open_connection(address, connect_timeout_s=timeout_s, budget=budget, access=access)).frames


async def open_connection(
    address: Address, *, connect_timeout_s: float, budget: Budget | None = None, access: Access = OPEN
) -> BrokerConnection:
    """Open a connection to the broker at *address*, authenticate it if *access* has a login, and return it.

    Without a login no request is sent, so that a client's own handshake can be forwarded on the connection. The
    caller closes it. Large responses wait for memory from *budget*; with None, they have at most 64 MiB.

    Raises: BrokerUnavailable: the connection is not ready within *connect_timeout_s* seconds, login included;
        LoginRefused: the login failed; BrokerProtocolError: a response of the login is not valid.
    """
    try:
        with trio.fail_after(connect_timeout_s):
            connection = await _connect(address, connect_timeout_s, None, budget, access)
            if access.login is not None:
                await _authenticate(connection, budget)
            return connection
    except trio.TooSlowError as late:
        raise BrokerUnavailable(f"{address}: {connect_failure(late)}") from late


async def _connect(
    address: Address, connect_timeout_s: float, client_id: str | None, budget: Budget | None, access: Access
) -> BrokerConnection:
    try:
        with trio.fail_after(connect_timeout_s):
            stream = await trio.open_tcp_stream(address.host, address.port)
            register_outbound(stream)
            tls = access.tls
            connected = stream if tls is None else await start_tls(stream, tls.value, host=address.host)
        try:
            frames = FrameSocket(connected, _frame_limit(budget), budget)
        except OSError:
            stream.socket.close()  # the peer has reset it already
            raise
    except ssl.SSLError as wrong:
        raise BrokerUnavailable(f"{address}: {broker_reason(wrong)}") from wrong
    except (OSError, trio.TooSlowError, ValueError) as wrong:
        # ValueError: brokers may advertise an invalid host name, such as a single dot.
        raise BrokerUnavailable(f"{address}: {connect_failure(wrong)}") from wrong
    return BrokerConnection(frames, client_id, access)


def _frame_limit(budget: Budget | None) -> int:
    """Return the maximum size in bytes of responses on a connection with this memory budget."""
    return _MAX_UNBUDGETED_BYTES if budget is None else _MAX_ANSWER_BYTES


async def _authenticate(connection: BrokerConnection, budget: Budget | None) -> None:
    """Request the broker's API versions, and authenticate if a login is set; close the connection if that fails."""
    connection.frames.set_limit(_MAX_HANDSHAKE_BYTES)
    try:
        await connection.request_versions()
        await connection.log_in()
    except BaseException:
        connection.frames.close()
        raise
    connection.frames.set_limit(_frame_limit(budget))


@asynccontextmanager
async def dial(
    address: Address,
    *,
    client_id: str | None,
    connect_timeout_s: float = math.inf,
    budget: Budget | None = None,
    access: Access = OPEN,
) -> AsyncIterator[BrokerConnection]:
    """Open a connection to the broker at *address* for an ``async with`` block, and close it at the block's end.

    In the block, the broker's API versions are known, and the connection is authenticated if *access* has a login.
    *client_id* is the client id of the requests. Large responses wait for memory from *budget*; with None, they
    have at most 64 MiB.

    Raises: BrokerUnavailable: the connection is not ready within *connect_timeout_s* seconds, login included;
        LoginRefused: the login failed; BrokerProtocolError: a response is not valid.
    """
    timeout_s = connect_timeout_s
    try:
        with trio.fail_after(timeout_s):
            connection = await open_broker(
                address, client_id=client_id, connect_timeout_s=timeout_s, budget=budget, access=access
            )
    except trio.TooSlowError as late:
        raise BrokerUnavailable(f"{address}: no handshake within {connect_timeout_s:g} s") from late
    with connection.frames:
        yield connection


async def open_broker(
    address: Address,
    *,
    client_id: str | None,
    connect_timeout_s: float,
    budget: Budget | None = None,
    access: Access = OPEN,
) -> BrokerConnection:
    """Open a connection to the broker at *address*, request its API versions, and log in if *access* has a login.

    Return the connection; the caller closes it. *connect_timeout_s* limits only TCP and TLS: the caller must limit
    the time of the requests that follow. *client_id* is the client id of the requests. Large responses wait for
    memory from *budget*; with None, they have at most 64 MiB.

    Raises: BrokerUnavailable: the broker cannot be reached, or closed the connection; LoginRefused: the login
        failed; BrokerProtocolError: a response is not valid.
    """
    connection = await _connect(address, connect_timeout_s, client_id, budget, access)
    await _authenticate(connection, budget)
    return connection


def renewal_time(lifetime_s: float) -> float:
    """Return the time, on trio's clock, at which to renew a login that expires *lifetime_s* seconds from now.

    It is a random time after 85 to 95 percent of the lifetime; infinity if *lifetime_s* is 0, which means no limit.
    """
    return trio.current_time() + lifetime_s * random.uniform(*_RENEW_AT) if lifetime_s > 0 else math.inf
