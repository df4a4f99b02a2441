"""The set-up of a client connection before its first request.

It makes the TLS handshake, finds a broker, and has the client log in if Sidefetch authenticates clients.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from proxy.cluster.topology import BrokerId
from proxy.config import Config
from proxy.convert.versions.table import TARGETS
from proxy.errors import (
    BrokerProtocolError,
    BrokerUnavailable,
    ClientProtocolError,
    FrameTooLarge,
    LimitReached,
    MalformedFrame,
)
from proxy.net.downstream.handshakes import TlsHandshakes
from proxy.net.downstream.limits import LimitLog
from proxy.net.downstream.sasl_server import authenticate, watch_users
from proxy.net.io.files import WatchedFiles
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket
from proxy.net.io.tls import TlsSocket, client_reason, server_context
from proxy.net.upstream.access import Access
from proxy.net.upstream.brokers import BrokerConnection, open_connection
from proxy.net.upstream.topology import TopologyService
from proxy.relay.limits import check_size
from proxy.wire import api_versions
from proxy.wire.headers import read_request_header

__all__ = ["AcceptedClient", "ConnectionAcceptor", "errors_of_client"]

_LOG_EVERY_S: Final = 1.0
_FIRST_PLACEHOLDER_ID: Final = -1000
"""The node id that stands for the first bootstrap server; further ones get the ids below. No broker has such an id,
and the special ids of the protocol are greater."""


@attrs.frozen
class AcceptedClient:
    """The result of a client connection's set-up: the broker for its requests, and the client's login, if any."""

    node_id: BrokerId
    """The broker that the client's requests go to."""
    ready: BrokerConnection | None = None
    """An open connection to that broker with no request in flight; None if the set-up opened none."""
    principal: str | None = None
    """The client's principal; None if Sidefetch does not authenticate clients."""
    early: list[memoryview] = attrs.field(factory=list)
    """The requests that have arrived and are not handled yet."""


class ConnectionAcceptor:
    """The set-up of client connections, in two steps: ``accept``, then ``set_up``.

    ``accept`` makes the TLS handshake. ``set_up`` finds a broker, and has the client log in if Sidefetch
    authenticates clients. One instance serves all connections of the process.
    """

    def __init__(
        self,
        config: Config,
        access: Access,
        topology: TopologyService,
        budget: Budget,
        request_budget: Budget,
        limit_log: LimitLog,
        log: Log,
        counts: Counter[str],
    ) -> None:
        """Load the certificates and the users of the settings.

        Args:
            budget:         the memory budget of frames from brokers.
            request_budget: the memory budget of frames from clients.
            limit_log:      counts and logs a reached limit of handshakes.
            counts:         counts failed handshakes, as ``handshakes_failed``.

        Raises: ConfigError: a file of the settings cannot be read or has the wrong format.
        """
        self._config = config
        self._access = access
        self._topology = topology
        self._budget = budget
        self._request_budget = request_budget
        self._log = log
        self._counts = counts
        self._tls = server_context(config.downstream_security, log)
        self._users = watch_users(config.downstream_security.sasl_file, log)
        self._handshakes: TlsHandshakes | None = None
        if self._tls is not None:
            self._handshakes = TlsHandshakes(config.limits.max_handshakes, self._tls, limit_log)

    @property
    def watched(self) -> list[WatchedFiles[Any]]:
        """The TLS context and the SASL users, as far as they are configured.

        The caller runs each of them, so that it is reloaded when its files change.
        """
        return [each for each in (self._tls, self._users) if each is not None]

    async def accept(self, stream: trio.SocketStream, peer: str) -> FrameSocket | None:
        """Take over the socket of *stream*, and make the TLS handshake with the client if TLS is configured.

        *peer* is the client's address, for the log.

        Returns: the client's connection; None if the client has disconnected, or if the handshake failed or took
            too long, which is counted and logged.
        """
        if self._handshakes is None:
            try:
                return self._make_socket(stream)
            except OSError:
                return None
        try:
            return self._make_socket(await self._handshakes.run_handshake(stream, peer))
        except (OSError, trio.TooSlowError) as wrong:
            self._counts["handshakes_failed"] += 1
            reason = client_reason(wrong)
            self._log.warning("client-tls-failed", every_s=_LOG_EVERY_S, per=reason, client=peer, reason=reason)
            return None

    def _make_socket(self, stream: trio.SocketStream | TlsSocket) -> FrameSocket:
        """Take over the socket of *stream*. Raises: OSError: the client has reset the connection."""
        config = self._config
        check = partial(check_size, config.limits.max_fetch_partitions)
        return FrameSocket(stream, config.downstream.max_frame_bytes, self._request_budget, check)

    async def set_up(self, node_id: BrokerId | None, client: FrameSocket) -> AcceptedClient | None:
        """Find the broker for the client's requests, and have the client log in if Sidefetch authenticates clients.

        A connection to a broker is opened only after the client's first complete request.

        Args: node_id: the broker whose listener the client uses; None for the bootstrap listener, whose clients
            get a random broker that accepts a connection.
        Returns: None if the client has left before its first request.
        Raises: AuthenticationFailed: the user name or the password is wrong; ClientProtocolError: another error of
            the login, or a malformed request; LimitReached: there was no request in time, or a too large one;
            BrokerUnavailable: no broker can be reached; BrokerProtocolError: a broker's response is malformed.
        """
        if self._users is not None:
            return await self._authenticate(node_id, client)
        if node_id is not None:
            return AcceptedClient(node_id)
        early = await self._receive_first(client)
        return AcceptedClient(*await self._connect_to_any(), early=early) if early else None

    async def _authenticate(self, node_id: BrokerId | None, client: FrameSocket) -> AcceptedClient:
        assert self._users is not None
        connect = self._connect_to_any if node_id is None else partial(self._connect, node_id)
        broker = _FirstBroker(node_id, connect, self._config.limits.allowed_apis.keys)
        try:
            limit = self._config.downstream.max_frame_bytes
            admitted = await authenticate(client, self._users.value, broker.request_versions, limit)
            if broker.node_id is None:
                await broker.open()
            assert broker.node_id is not None
        except BaseException:
            broker.close()
            raise
        return AcceptedClient(broker.node_id, broker.connection, admitted.principal, admitted.early)

    async def _receive_first(self, client: FrameSocket) -> list[memoryview]:
        """Return the client's first requests; none if it has left."""
        timeout_s = self._config.limits.handshake_timeout_s
        try:
            with trio.fail_after(timeout_s), errors_of_client():
                return await client.receive()
        except trio.TooSlowError:
            raise LimitReached("handshake-timeout", f"no request within {timeout_s:g} s") from None
        except OSError:
            return []  # the client has reset the connection

    async def _connect_to_any(self) -> tuple[BrokerId, BrokerConnection]:
        """Return the first broker, in random order, that accepts a connection, and this connection.

        Raises: BrokerUnavailable: no broker accepts one, or the brokers are not known in time.
        """
        timeout_s = self._config.upstream.connect_timeout_s
        if self._config.upstream_security.sasl == "client":
            return await self._connect_to_first(self._register_bootstrap_servers())
        await self._topology.wait_for_first_response(timeout_s)
        return await self._connect_to_first(self._topology.topology.brokers)

    def _register_bootstrap_servers(self) -> list[BrokerId]:
        """Register each bootstrap server in the topology under a placeholder node id, and return these ids.

        This is for brokers to which only clients can log in: Sidefetch cannot ask them for the real node ids.
        """
        node_ids = []
        for index, address in enumerate(self._config.upstream.bootstrap_servers):
            node_ids.append(BrokerId(_FIRST_PLACEHOLDER_ID - index))
            self._topology.record_address(node_ids[-1], address.host, address.port)
        return node_ids

    async def _connect(self, node_id: BrokerId) -> tuple[BrokerId, BrokerConnection]:
        """Open a connection to broker *node_id*, and log in if Sidefetch has credentials of its own."""
        address = self._topology.address_of(node_id)
        timeout_s = self._config.upstream.connect_timeout_s
        return node_id, await open_connection(
            address, connect_timeout_s=timeout_s, budget=self._budget, access=self._access
        )

    async def _connect_to_first(self, candidates: Iterable[BrokerId]) -> tuple[BrokerId, BrokerConnection]:
        node_ids = list(candidates)
        random.shuffle(node_ids)
        failures = []
        for node_id in node_ids:
            try:
                return await self._connect(node_id)
            except (BrokerUnavailable, BrokerProtocolError) as wrong:
                failures.append(str(wrong))
        raise BrokerUnavailable("; ".join(failures) or "the cluster names no brokers")


@contextmanager
def errors_of_client() -> Iterator[None]:
    """Raise errors of frames that a client sends as ClientProtocolError, or as LimitReached if one is too large."""
    try:
        yield
    except FrameTooLarge as wrong:
        raise LimitReached("max-frame", str(wrong)) from wrong
    except MalformedFrame as wrong:
        raise ClientProtocolError(str(wrong)) from wrong


@attrs.define
class _FirstBroker:
    """The broker of a client that logs in with Sidefetch; it answers ApiVersions requests before the login."""

    node_id: BrokerId | None
    """None until any broker has accepted a connection."""
    connect: Callable[[], Awaitable[tuple[BrokerId, BrokerConnection]]]
    """Opens the connection, at the first request."""
    allowed_apis: frozenset[int]
    """The keys of the APIs that clients may use."""
    connection: BrokerConnection | None = None

    async def open(self) -> BrokerConnection:
        if self.connection is None:
            self.node_id, self.connection = await self.connect()
        return self.connection

    async def request_versions(self, frame: memoryview) -> bytes:
        """Return the broker's response to *frame*, an ApiVersions request of the client without its size prefix.

        The response has its size prefix, and only the API versions that clients may use.
        """
        connection = await self.open()
        answer = await connection.exchange([len(frame).to_bytes(4), frame])
        header, _ = read_request_header(frame)
        try:
            return api_versions.rewrite_response(header.api_version, answer, TARGETS, self.allowed_apis)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to ApiVersions: {wrong}") from wrong

    def close(self) -> None:
        if self.connection is not None:
            self.connection.frames.close()
