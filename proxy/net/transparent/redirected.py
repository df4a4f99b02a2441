"""Connections of clients to brokers that the packet filter redirects to Sidefetch (transparent mode)."""

import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from proxy.cluster.topology import BrokerId
from proxy.config import Address, Config
from proxy.errors import LimitReached
from proxy.net.io.logs import Log
from proxy.net.transparent.destinations import Destinations
from proxy.net.transparent.original import original_destination
from proxy.net.transparent.splice import splice
from proxy.net.upstream.outbound import connect_failure, is_outbound, register_outbound
from proxy.net.upstream.topology import TopologyService
from proxy.wire.protocol_detection import NEEDED_BYTES, DetectedProtocol, detect_protocol

__all__ = ["RedirectedConnections", "Serve"]

Serve = Callable[[BrokerId | None, trio.SocketStream], Awaitable[None]]
"""Serves a client as if it had connected to a broker's listener; None stands for the bootstrap listener."""

_EVERY_S: Final = 1.0
"""The interval in seconds between checks for new or moved brokers."""
_LOG_EVERY_S: Final = 10.0
_PASSED_EVERY_S: Final = 600.0


@attrs.define(eq=False)
class _RedirectedClient:
    """A redirected connection that is served as one to broker ``node_id``, or to the bootstrap listener if None."""

    destination: Address
    node_id: BrokerId | None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class RedirectedConnections:
    """The handler of connections that clients opened to brokers and the packet filter redirected to Sidefetch.

    A Kafka connection is served in place of the broker at its original destination or, if no broker is known there,
    like one of the bootstrap listener. TLS, and every protocol but Kafka's, is forwarded unchanged to the original
    destination. If TLS for clients is configured (``listen-tls-cert``), nothing is forwarded: each connection must
    begin with a TLS handshake, and is closed otherwise. Connections that Sidefetch itself has opened are closed.
    """

    def __init__(self, config: Config, topology: TopologyService, counts: Counter[str], log: Log) -> None:
        self._timeout_s = config.upstream.connect_timeout_s
        self._wait_s = config.limits.handshake_timeout_s
        self._secures = config.downstream_security.tls_cert is not None
        self._reads_metadata = config.upstream_security.sasl != "client"
        self._topology = topology
        self._counts = counts
        self._log = log
        look_s = self._timeout_s if self._reads_metadata else 0.0
        self._destinations = Destinations(topology, refresh_s=look_s, log=log, on_resolved=self._close_misdirected)
        self._clients: set[_RedirectedClient] = set()
        self._passing = 0

    @property
    def passing(self) -> int:
        """The number of open connections that are forwarded unchanged to their original destination."""
        return self._passing

    @property
    def has_forwarded(self) -> bool:
        """Whether any connection was forwarded so far; that needs no broker's response."""
        return self._counts["passed_tls"] > 0 or self._counts["passed_other"] > 0

    async def run(self) -> None:
        """Check every second, for ever, whether brokers were added or have moved.

        A connection that is served in place of the wrong broker is then closed, and the client connects again.
        """
        while True:
            await trio.sleep(_EVERY_S)
            if self._clients:
                await self._destinations.refresh(any_unknown=any(each.node_id is None for each in self._clients))

    async def handle(self, stream: trio.SocketStream, serve: Serve) -> None:
        """Serve, forward or close one redirected connection, by its first bytes; return when it has ended.

        With TLS for clients configured, every connection is passed to *serve*; otherwise, those that begin with a
        Kafka request in plaintext are. All others are forwarded to their original destination. A connection that
        Sidefetch itself has opened, or that cannot be forwarded, is only logged. The caller closes *stream*.

        Raises: LimitReached: the first bytes did not arrive within ``handshake-timeout``; BrokerUnavailable: no
            broker has answered yet, so that the broker is unknown; and the errors of *serve*.
        """
        try:
            destination = original_destination(stream.socket)
        except OSError as wrong:
            self._log_not_forwarded(None, f"the kernel does not report the original destination: {wrong}")
            return
        try:
            protocol = await self._detect_protocol(stream.socket)
            client = Address(*stream.socket.getpeername()[:2])
        except OSError:
            return  # the client has disconnected already
        if protocol is None:
            return
        if destination is not None and is_outbound(client, destination):
            self._refuse_loop(destination)
        elif self._secures or protocol == "kafka":
            await self._serve(destination, stream, serve)
        elif destination is not None:
            await self._forward(protocol, destination, stream)
        else:
            self._log_not_forwarded(
                None, "the client connected to Sidefetch itself, but does not speak plaintext Kafka"
            )

    async def _detect_protocol(self, connected: trio.socket.SocketType) -> DetectedProtocol | None:
        """Return the protocol of the first 8 bytes, which stay in the socket; None if the client has disconnected.

        Raises: LimitReached: they did not arrive in time.
        """
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, NEEDED_BYTES)
        with trio.move_on_after(self._wait_s):
            await trio.lowlevel.wait_readable(connected)
            first = await connected.recv(NEEDED_BYTES, socket.MSG_PEEK)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return detect_protocol(first) if first else None
        raise LimitReached("handshake-timeout", f"no request within {self._wait_s:g} s")

    def _refuse_loop(self, destination: Address) -> None:
        self._counts["loops_refused"] += 1
        self._log.error(
            "redirect-loop",
            every_s=_LOG_EVERY_S,
            destination=destination,
            reason="Sidefetch's own connection to a broker was redirected to Sidefetch",
            remedy="pass the user id of Sidefetch to sidefetch redirect install --uid",
        )

    # --------------------------------------------------------------------------------------------- served

    async def _serve(self, destination: Address | None, stream: trio.SocketStream, serve: Serve) -> None:
        node_id = await self._find_broker(destination)
        self._log.debug("connection-redirected", destination=destination, node=node_id)
        if destination is None:
            await serve(None, stream)
            return
        client = _RedirectedClient(destination, node_id)
        self._clients.add(client)
        try:
            with client.scope:
                await serve(node_id, stream)
        finally:
            self._clients.discard(client)

    async def _find_broker(self, destination: Address | None) -> BrokerId | None:
        """Return the broker at the client's destination; None if it is no known broker.

        Raises: BrokerUnavailable: no broker has responded yet.
        """
        if destination is None:
            return None
        if self._reads_metadata:
            await self._topology.wait_for_first_response(self._timeout_s)
        return await self._destinations.node_at(destination)

    def _close_misdirected(self) -> None:
        """Close the connections that are served in place of the wrong broker; their clients connect again.

        They were accepted before the right broker, or its address, was known.
        """
        for client in self._clients:
            node_id = self._destinations.find_known(client.destination)
            if node_id not in (None, client.node_id):
                self._log.info(
                    "redirect-target-replaced", every_s=_LOG_EVERY_S, destination=client.destination, node=node_id
                )
                client.scope.cancel()

    # ------------------------------------------------------------------------------------------ forwarded

    async def _forward(self, what: DetectedProtocol, destination: Address, stream: trio.SocketStream) -> None:
        try:
            with trio.fail_after(self._timeout_s):
                onward = await trio.open_tcp_stream(destination.host, destination.port)
                register_outbound(onward)
        except (OSError, trio.TooSlowError) as wrong:
            self._log_not_forwarded(destination, connect_failure(wrong))
            return
        self._counts[f"passed_{what}"] += 1
        self._log.info(
            "connection-forwarded",
            every_s=_PASSED_EVERY_S,
            per=(what, destination),
            destination=destination,
            speaks=what,
        )
        self._passing += 1
        try:
            await splice(stream, onward)
        finally:
            self._passing -= 1

    def _log_not_forwarded(self, destination: Address | None, why: str) -> None:
        self._counts["not_passed"] += 1
        self._log.warning(
            "connection-forward-failed", every_s=_LOG_EVERY_S, per=destination, destination=destination, reason=why
        )
