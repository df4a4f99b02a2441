"""Broker connections: a client's pass-through connection, and those of the fetchers of a log cache.

A link (``Link``) names one of these connections: ``PASS`` or the ``FetcherId`` of a fetcher.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from proxy.cluster.topology import BrokerId
from proxy.config import Address
from proxy.errors import BrokerProtocolError, BrokerUnavailable, LoginRefused, MalformedFrame, ProxyError
from proxy.events import FetchRecord
from proxy.fetch.commands import CloseSession
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.net.upstream.access import Access
from proxy.net.upstream.brokers import BrokerConnection, connect, open_broker, open_connection
from proxy.net.upstream.reauthentication import Reauthenticator
from proxy.relay.commands import PASS, Event, Link, LinkAnswering, LinkFrame, LinkLost, LinkOpened

__all__ = ["CLOSE_SESSION_S", "ConnectOptions", "UpstreamConnections"]

CLOSE_SESSION_S: Final = 1.0
"""The time limit for closing a session at a broker, which may be unreachable."""


@attrs.frozen
class ConnectOptions:
    """The options for opening broker connections: address lookup, timeouts, memory budget, log, and a callback."""

    address_of: Callable[[BrokerId], Address]
    """Returns the address of a broker. Raises: BrokerUnavailable: the address is unknown."""
    connect_timeout_s: float
    """The time limit in seconds for connecting, handshake included."""
    stall_s: float
    """The longest time in seconds without a byte in the middle of a broker's response."""
    budget: Budget
    """The memory for large responses."""
    log: Log
    on_opened: Callable[[], None]
    """Called once for each connection that was opened, so that the caller can count them."""


@attrs.define(eq=False)
class _OpenConnection:
    """An open connection with its queue of unsent buffers, its re-authentication and its tasks."""

    frames: FrameSocket
    outbox: Outbox
    scope: trio.CancelScope
    """Cancelling it ends the tasks of the connection."""
    reauthenticator: Reauthenticator
    nursery: trio.Nursery | None = None


class UpstreamConnections:
    """Broker connections, each named by a link: ``PASS``, or the id of a fetcher.

    A client connection has ``PASS``, on which its requests other than fetches are forwarded; a log cache has the
    connections of its fetchers. Events of the connections go to the callback *handle*.

    Use: ``nursery``, which runs the tasks, must be set before ``open``; call ``close`` at the end.
    """

    def __init__(
        self,
        options: ConnectOptions,
        access: Access,
        *,
        handle: Callable[[Event], None],
        add_memory_wait: Callable[[float], None],
        observe: Callable[[FetchRecord], None],
        node_id: BrokerId | None = None,
        ready: BrokerConnection | None = None,
        wait_until_drained: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Create the state, without connections.

        Args:
            options: the options for opening connections.
            access:  TLS and login of the connections.
            handle:  called with each ``LinkOpened``, ``LinkFrame``, ``LinkAnswering`` and ``LinkLost``.
            add_memory_wait: called with the seconds for which a response was not read for lack of memory.
            observe: called with the records of the fetches that close sessions.
            node_id: the broker of ``PASS``.
            ready:   an open connection to that broker, if there is one; ``PASS`` takes it over.
            wait_until_drained: returns when all pending data was sent to the client; responses wait for that.
        """
        self.access = access
        """TLS and login for connections that are opened from now on, and for logins that are renewed."""
        self.nursery: trio.Nursery | None = None
        """The nursery for the tasks of the connections; None before they may be opened."""
        self._node_id = node_id
        self._options = options
        self._handle = handle
        self._wait_until_drained = wait_until_drained
        self._add_memory_wait = add_memory_wait
        self._observe = observe
        self._ready = ready
        self._links: dict[Link, _OpenConnection] = {}

    def node_of(self, link: Link) -> BrokerId:
        """Return the id of the broker at *link*; for ``PASS``, that is the one whose listener the client uses."""
        if link is not PASS:
            return link.source.node_id
        assert self._node_id is not None
        return self._node_id

    def open(self, link: Link, client_id: str | None) -> None:
        """Start a task that opens the connection of *link* and receives from it.

        The event ``LinkOpened`` follows, then ``LinkFrame`` for each response; ``LinkLost`` follows if the broker
        cannot be reached or the connection breaks. *client_id* is the client id of the handshake's requests
        of a fetcher; ``PASS`` ignores it.
        """
        assert self.nursery is not None
        self.nursery.start_soon(self._run, link, client_id)

    def disconnect(self, link: Link) -> None:
        """Close the connection of *link* if it is open; the event ``LinkLost`` does not follow."""
        opened = self._links.pop(link, None)
        if opened is not None:
            opened.scope.cancel()

    def send(self, link: Link, pieces: Sequence[bytes | memoryview]) -> None:
        """Send *pieces*, the buffers of one or more whole frames, on *link* without waiting; queue the unsent rest.

        If the login is about to expire, a task renews it, and sends the frames of this and later calls after that.
        Frames for a link that is not open are dropped.
        """
        opened = self._links.get(link)
        if opened is None:
            return  # the link was lost, and ``LinkLost`` follows
        reauthenticator = opened.reauthenticator
        if opened.nursery is not None and reauthenticator.is_due(trio.current_time()):
            reauthenticator.begin()
            opened.nursery.start_soon(self._renew, link, opened)
        if reauthenticator.is_renewing:
            reauthenticator.hold(pieces)
            return
        try:
            opened.outbox.put(pieces)
        except OSError:
            opened.scope.cancel()

    async def wait_until_forwarded(self) -> None:
        """Wait until all requests that the client sent for ``PASS`` have been passed to the socket.

        Return at once if ``PASS`` is not open. The caller reads no further request of the client meanwhile.
        """
        passing = self._links.get(PASS)
        if passing is not None:
            await passing.reauthenticator.wait_until_renewed()
            await passing.outbox.wait_until_empty()

    def drop_unsent(self) -> None:
        """Discard the unsent buffers of all open connections, to free their memory after the client has left."""
        for opened in self._links.values():
            opened.outbox.drop()

    def close(self) -> None:
        """Close all connections at once, also the connection *ready* of the constructor if it was not used."""
        if self._ready is not None:
            self._ready.frames.close()
        for opened in self._links.values():
            opened.frames.close()

    # ------------------------------------------------------------------------------------------- one link

    async def _run(self, link: Link, client_id: str | None) -> None:
        try:
            connection = await self._connect(link, client_id)
        except (BrokerUnavailable, BrokerProtocolError, OSError) as wrong:
            node_id, log = self.node_of(link), self._options.log
            log_event = log.warning if isinstance(wrong, LoginRefused) else log.info
            log_event("broker-unavailable", every_s=5, per=node_id, node=node_id, reason=wrong)
            self._handle(LinkLost(link))
            return
        self._options.on_opened()
        # When the client's tasks are cancelled, the link stays open to close its session; ``close`` closes it.
        with trio.CancelScope() as scope:
            frames = connection.frames
            outbox = Outbox(frames)
            opened = _OpenConnection(frames, outbox, scope, Reauthenticator(connection, outbox.put))
            self._links[link] = opened
            frames.on_large_frame = partial(self._handle_large_response, link, opened)
            frames.on_memory_claimed = self._add_memory_wait
            frames.stall_s = self._options.stall_s
            try:
                async with trio.open_nursery() as nursery:
                    opened.nursery = nursery
                    self._handle(LinkOpened(link, {} if link is PASS else connection.versions))
                    nursery.start_soon(_pump, opened)
                    await self._receive(link, opened)
                    nursery.cancel_scope.cancel()
            finally:
                if self._links.get(link) is not opened:
                    frames.close()  # ``close`` does not have it any more
        frames.close()
        if self._links.get(link) is opened:
            del self._links[link]
            self._handle(LinkLost(link))

    async def _connect(self, link: Link, client_id: str | None) -> BrokerConnection:
        if link is PASS and self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        address = self._options.address_of(self.node_of(link))
        timeout_s, budget, access = self._options.connect_timeout_s, self._options.budget, self.access
        if link is PASS:
            return await open_connection(address, connect_timeout_s=timeout_s, budget=budget, access=access)
        with trio.move_on_after(timeout_s):
            return await open_broker(
                address, client_id=client_id, connect_timeout_s=timeout_s, budget=budget, access=access
            )
        raise BrokerUnavailable(f"{address}: no handshake within {timeout_s:g} s")

    async def _receive(self, link: Link, opened: _OpenConnection) -> None:
        try:
            while frames := await opened.frames.receive():
                for frame in frames:
                    if self._links.get(link) is not opened:
                        # Closed because of an earlier frame, or while this one was on its way: a cancelled task
                        # that was already scheduled runs on to its next checkpoint. The frame is not for the link
                        # that follows.
                        return
                    if not opened.reauthenticator.take_response(frame):
                        self._handle(LinkFrame(link, frame))
                # The buffers of these frames count as used until nobody holds them.
                frames.clear()
                del frame
                if self._wait_until_drained is not None:
                    await self._wait_until_drained()
        except TimeoutError as wrong:
            node_id, log = self.node_of(link), self._options.log
            if wrong.errno is None:
                log.warning("response-stalled", every_s=5, per=node_id, node=node_id, reason=wrong)
            else:  # the kernel's error, such as ETIMEDOUT
                log.warning("broker-connection-timed-out", every_s=5, per=node_id, node=node_id, reason=wrong)
        except (OSError, MalformedFrame):
            pass  # the connection is lost, and the caller reports it

    def _handle_large_response(self, link: Link, opened: _OpenConnection) -> None:
        if self._links.get(link) is opened:
            self._handle(LinkAnswering(link))

    async def _renew(self, link: Link, opened: _OpenConnection) -> None:
        try:
            await opened.reauthenticator.renew(self.access)
        except (ProxyError, OSError) as wrong:
            node_id = self.node_of(link)
            self._options.log.warning("reauthentication-failed", every_s=5, per=node_id, node=node_id, reason=wrong)
            opened.scope.cancel()

    # ------------------------------------------------------------------------------------------ sessions

    async def close_sessions(self, commands: Iterable[CloseSession], busy: Collection[Link]) -> None:
        """Close fetch sessions at brokers: send each request, and wait for the response.

        Without that, a session would take up one of the broker's session slots for minutes. A request goes out on
        its own link or, if that is closed or in *busy*, on a new connection. Failures are logged only. There is no
        time limit here: the caller sets one.

        Args: busy: the links on which the broker does not read another request yet, because a fetch waits there.
        """
        async with trio.open_nursery() as nursery:
            for command in commands:
                nursery.start_soon(self._close_session, command, command.fetcher in busy)

    async def _close_session(self, command: CloseSession, busy: bool) -> None:
        opened, node_id = self._links.get(command.fetcher), command.fetcher.source.node_id
        try:
            if opened is not None and not busy:
                await self._close_on(opened.frames, command)
                return
            address = self._options.address_of(node_id)
            with await connect(address, connect_timeout_s=CLOSE_SESSION_S, access=self.access) as frames:
                await self._close_on(frames, command)
        except (ProxyError, OSError) as wrong:
            self._options.log.debug("session-not-closed", node=node_id, reason=wrong)

    async def _close_on(self, frames: FrameSocket, command: CloseSession) -> None:
        await frames.send([command.frame])
        for answer in await frames.receive():
            self._observe(command.record(answer, trio.current_time()))


async def _pump(opened: _OpenConnection) -> None:
    try:
        await opened.outbox.pump()
    except OSError:
        opened.scope.cancel()
