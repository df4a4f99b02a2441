"""Clients that connect to brokers and arrive here: the packet filter has redirected them (transparent mode)."""

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
from proxy.wire.protocol_detection import NEEDED_BYTES, Beginning, detect_protocol

__all__ = ["RedirectedConnections", "Serve"]

Serve = Callable[[BrokerId | None, trio.SocketStream], Awaitable[None]]
"""Serves a client as one that came to a broker's listener, or to the bootstrap listener: None."""

_EVERY_S: Final = 1.0
"""How often it is seen to whether brokers have come or moved."""
_LOG_EVERY_S: Final = 10.0
_PASSED_EVERY_S: Final = 600.0


@attrs.define(eq=False)
class _RedirectedClient:
    """A client that is served, as if its destination were *node_id*'s."""

    destination: Address
    node_id: BrokerId | None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class RedirectedConnections:
    """Decides what becomes of each: served as by the broker that it meant, as by any, or passed on untouched."""

    def __init__(self, config: Config, topology: TopologyService, counts: Counter[str], log: Log) -> None:
        self._timeout_s = config.upstream.connect_timeout_s
        self._wait_s = config.limits.handshake_timeout_s
        self._secures = config.downstream_security.tls_cert is not None
        self._asks = config.upstream_security.sasl != "client"
        self._topology = topology
        self._counts = counts
        self._log = log
        look_s = self._timeout_s if self._asks else 0.0
        self._destinations = Destinations(topology, look_s=look_s, log=log, resolved=self._see_off)
        self._guests: set[_RedirectedClient] = set()
        self._passing = 0

    @property
    def passing(self) -> int:
        """How many connections are being passed on."""
        return self._passing

    async def run(self) -> None:
        """Keep up with the cluster, for ever."""
        while True:
            await trio.sleep(_EVERY_S)
            if self._guests:
                await self._destinations.keep_up(any_unknown=any(each.node_id is None for each in self._guests))

    async def take(self, stream: trio.SocketStream, serve: Serve) -> None:
        """Have one connection served, passed on or closed; returns when that is over.

        Raises: LimitReached: it has said nothing in time.
        """
        try:
            destination = original_destination(stream.socket)
        except OSError as wrong:
            self._not_passed(None, f"the kernel does not tell where it was going: {wrong}")
            return
        try:
            beginning = await self._beginning(stream.socket)
            client = Address(*stream.socket.getpeername()[:2])
        except OSError:
            return  # it has gone already
        if beginning is None:
            return
        if destination is not None and is_outbound(client, destination):
            self._refuse_loop(destination)
        elif self._secures or beginning == "kafka":
            await self._serve(destination, stream, serve)
        elif destination is not None:
            await self._pass_on(beginning, destination, stream)
        else:
            self._not_passed(None, "it has connected to Sidefetch itself, and speaks no Kafka in plaintext")

    async def _beginning(self, connected: trio.socket.SocketType) -> Beginning | None:
        """What its first bytes are, which stay where they are; None if it has gone."""
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
            remedy="name the user id that it runs as in sidefetch redirect install --uid",
        )

    # --------------------------------------------------------------------------------------------- served

    async def _serve(self, destination: Address | None, stream: trio.SocketStream, serve: Serve) -> None:
        node_id = await self._meant(destination)
        self._log.debug("connection-redirected", destination=destination, node=node_id)
        if destination is None:
            await serve(None, stream)
            return
        guest = _RedirectedClient(destination, node_id)
        self._guests.add(guest)
        try:
            with guest.scope:
                await serve(node_id, stream)
        finally:
            self._guests.discard(guest)

    async def _meant(self, destination: Address | None) -> BrokerId | None:
        """The broker that a client was going to; None if that was none of those that are known.

        Raises: BrokerUnavailable: none has answered yet.
        """
        if destination is None:
            return None
        if self._asks:
            await self._topology.first_answer(self._timeout_s)
        return await self._destinations.node_at(destination)

    def _see_off(self) -> None:
        """End those that take us for a broker that we are not for them; they come again, and are served rightly.

        They were taken for somebody else's before that broker, or its address, was known.
        """
        for guest in self._guests:
            node_id = self._destinations.known(guest.destination)
            if node_id not in (None, guest.node_id):
                self._log.info(
                    "redirect-target-replaced", every_s=_LOG_EVERY_S, destination=guest.destination, node=node_id
                )
                guest.scope.cancel()

    # ------------------------------------------------------------------------------------------ passed on

    async def _pass_on(self, what: Beginning, destination: Address, stream: trio.SocketStream) -> None:
        try:
            with trio.fail_after(self._timeout_s):
                onward = await trio.open_tcp_stream(destination.host, destination.port)
                register_outbound(onward)
        except (OSError, trio.TooSlowError) as wrong:
            self._not_passed(destination, connect_failure(wrong))
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

    def _not_passed(self, destination: Address | None, why: str) -> None:
        self._counts["not_passed"] += 1
        self._log.warning(
            "connection-forward-failed", every_s=_LOG_EVERY_S, per=destination, destination=destination, reason=why
        )
