"""The sockets that clients connect to: the bootstrap listener, and a listener for each broker."""

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import trio

from proxy.cluster.topology import BrokerId
from proxy.config import Address, DownstreamConfig
from proxy.errors import ConfigError
from proxy.net.io.logs import Log
from proxy.relay.ports import NoPortLeft, PortAssignments

__all__ = ["Handler", "Listeners"]

Handler = Callable[[BrokerId | None, trio.SocketStream], Awaitable[None]]
"""Serves one connection; the node id is that of the listener's broker, None for the bootstrap listener."""

_BACKLOG: Final = 4096
"""The most connections that wait to be accepted. Thousands of clients may reconnect to a gateway at once; beyond
this, the kernel drops their packets, and they try again after one second, then three. The system limits it, too
(``net.core.somaxconn``)."""
_NO_SUCH_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors of an IPv6 address that this host does not have, such as ``::1`` on a host with IPv4 only."""


class Listeners:
    """The listening sockets for clients: for bootstrap, for each broker, and for transparent mode.

    A handler serves each accepted connection, in a task of its own. The listeners stay open until the nursery
    that was passed at creation is cancelled.
    """

    def __init__(self, config: DownstreamConfig, handler: Handler, nursery: trio.Nursery, log: Log) -> None:
        """Create it without a listener; *handler* serves the connections of bootstrap and broker listeners."""
        self._config = config
        self._handler = handler
        self._nursery = nursery
        self._log = log
        self._assignments = PortAssignments(config.broker_ports, config.share_ports)
        self._hosts: list[str] = []

    async def open_bootstrap(self) -> None:
        """Open the bootstrap listeners, on the addresses of the option ``listen``, and accept clients from now on.

        Listeners of brokers use the same hosts: open them afterwards.

        Raises: ConfigError: a host cannot be resolved or is not local, or a port is taken.
        """
        for address in self._config.listen:
            what = f"listen: {address}"
            hosts = await self._resolve(address, what)
            self._hosts += [host for host in hosts if host not in self._hosts]
            self._serve(None, self._listen(hosts, address.port, what))
            self._log.info("listening", address=address)

    async def open_transparent(self, handler: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
        """Open the listeners for redirected connections, on the addresses of the option ``transparent``.

        *handler* serves each connection. IPv6 addresses that this host does not have are skipped: the author of a
        Kubernetes manifest cannot know whether the host has IPv6.

        Raises: ConfigError: a host cannot be resolved or is not local, a port is taken, or all addresses were
            skipped.
        """
        opened: list[trio.SocketListener] = []
        skipped = ""
        for address in self._config.transparent:
            what = f"transparent: {address}"
            hosts = await self._resolve(address, what)
            try:
                opened += self._listen(hosts, address.port, what)
            except ConfigError as wrong:
                cause = wrong.__cause__
                if ":" not in address.host or not isinstance(cause, OSError) or cause.errno not in _NO_SUCH_ADDRESS:
                    raise
                has_no_ipv6 = cause.errno == errno.EAFNOSUPPORT or address.host == "::1"
                reason = "this host has no IPv6" if has_no_ipv6 else "this host does not have this address"
                skipped = f"{what}: {reason}"
                self._log.info("listen-address-skipped", address=address, reason=reason)
            else:
                self._log.info("listening", redirected=address)
        if not opened:
            raise ConfigError(f"{skipped}; accepted: 127.0.0.1:PORT, too")
        self._nursery.start_soon(partial(trio.serve_listeners, handler, opened, handler_nursery=self._nursery))

    def open_for(self, node_id: BrokerId) -> int | None:
        """Return the local port of the listener of broker *node_id*, opening the listener if needed.

        Returns: None, and logs an error, if the option ``broker-ports`` leaves no port for the broker.
        """
        try:
            return self._open(node_id)
        except NoPortLeft as none_left:
            self._log.error("broker-port-missing", every_s=60, per=node_id, node=node_id, reason=none_left)
            return None

    def open_for_all(self, node_ids: Sequence[BrokerId]) -> None:
        """Open a listener for each of *node_ids*, the brokers that are known at the start, if it has none yet.

        Call it before any client is served: ``open_for`` only logs that there is no port.

        Raises: ConfigError: there is no port for a broker.
        """
        for node_id in sorted(node_ids):
            try:
                self._open(node_id)
            except NoPortLeft as none_left:
                raise ConfigError(f"broker-ports: {none_left}") from none_left

    def _open(self, node_id: BrokerId) -> int:
        """Return the port of a broker's listener, which is opened if needed.

        If another program listens on a port, which is logged, the next one is tried. Raises: NoPortLeft.
        """
        if node_id in self._assignments.assigned:
            return self._assignments.assigned[node_id]
        taken: list[int] = []
        while True:
            port = self._assignments.assign(node_id, taken)
            try:
                self._serve(node_id, self._listen(self._hosts, port, f"broker-ports: {port}"))
            except ConfigError as wrong:
                self._log.warning(
                    "broker-port-taken", every_s=60, per=node_id, node=node_id, port=port, reason=wrong
                )
                del self._assignments.assigned[node_id]
                taken.append(port)
            else:
                self._log.info("listening", node=node_id, port=port)
                return port

    async def _resolve(self, address: Address, what: str) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as wrong:
            raise ConfigError(
                f"{what} cannot be resolved ({wrong}); accepted: a name or address of this host"
            ) from wrong
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    def _listen(self, hosts: Sequence[str], port: int, what: str) -> list[trio.SocketListener]:
        opened: list[socket.socket] = []
        try:
            for host in hosts:
                opened.append(_listening_socket(host, port, is_shared=self._config.share_ports))
        except OSError as wrong:
            for each in opened:
                each.close()
            taken = wrong.errno == errno.EADDRINUSE
            reason = "the port is taken" if taken else os.strerror(wrong.errno or 0)
            raise ConfigError(f"{what} on {host}: {reason}; accepted: a free port of this host") from wrong
        return [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in opened]

    def _serve(self, node_id: BrokerId | None, listeners: list[trio.SocketListener]) -> None:
        self._nursery.start_soon(self._accept, node_id, listeners)

    async def _accept(self, node_id: BrokerId | None, listeners: list[trio.SocketListener]) -> None:
        handler = partial(self._handler, node_id)
        await trio.serve_listeners(handler, listeners, handler_nursery=self._nursery)


def _listening_socket(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
