"""The upstream connections of one client connection: the pass link, and the lanes of its reader."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from proxy.cluster.topology import BrokerId
from proxy.config import Address
from proxy.errors import BrokerProtocolError, BrokerUnavailable, LoginRefused, MalformedFrame, ProxyError
from proxy.events import FetchRecord
from proxy.fetch.commands import Farewell, LaneId
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.net.upstream.access import Access
from proxy.net.upstream.brokers import BrokerConnection, connect, open_broker, reach
from proxy.net.upstream.reauthentication import Reauthenticator
from proxy.relay.commands import PASS, Event, Link, LinkAnswering, LinkFrame, LinkLost, LinkOpened

__all__ = ["FAREWELL_S", "ConnectOptions", "UpstreamConnections"]

FAREWELL_S: Final = 1.0
"""The time limit for closing a session at a broker, which may be unreachable."""


@attrs.frozen
class ConnectOptions:
    """Options of upstream connections."""

    address_of: Callable[[BrokerId], Address]
    """Raises: BrokerUnavailable: the address is unknown."""
    connect_timeout_s: float
    stall_s: float
    """The longest time without a byte in the middle of a broker's response."""
    budget: Budget
    log: Log
    opened: Callable[[], None]
    """Called for each opened connection."""


@attrs.define(eq=False)
class _OpenConnection:
    frames: FrameSocket
    outbox: Outbox
    scope: trio.CancelScope
    standing: Reauthenticator
    nursery: trio.Nursery | None = None


class UpstreamConnections:
    """The upstream connections of one client connection.

    Use: ``nursery`` must be set while anything is opened; call ``close`` at the end.
    """

    def __init__(
        self,
        node_id: BrokerId,
        ways: ConnectOptions,
        access: Access,
        ready: BrokerConnection | None,
        *,
        handle: Callable[[Event], None],
        drained: Callable[[], Awaitable[None]],
        waited_for_memory: Callable[[float], None],
        observe: Callable[[FetchRecord], None],
    ) -> None:
        """Create the state for a client of the listener of broker *node_id*.

        Args:
            ready:   an open connection to that broker without a handshake, if there is one; it is taken over.
            handle:  gets the events of the links.
            drained: returns when all pending data was sent to the client: forwarded responses wait for that.
            waited_for_memory: gets the number of seconds for which a response was not read for lack of memory.
            observe: gets the events of the fetches that close sessions.
        """
        self.access = access
        """The access for the next connections."""
        self.nursery: trio.Nursery | None = None
        self._node_id = node_id
        self._ways = ways
        self._handle = handle
        self._drained = drained
        self._waited_for_memory = waited_for_memory
        self._observe = observe
        self._ready = ready
        self._links: dict[Link, _OpenConnection] = {}

    def node_of(self, link: Link) -> BrokerId:
        """Return the broker of a link."""
        return self._node_id if link is PASS else link.source.node_id

    @property
    def lanes(self) -> list[LaneId]:
        """The open lanes."""
        return [link for link in self._links if link is not PASS]

    def open(self, link: Link, client_id: str | None) -> None:
        """Connect; ``LinkOpened`` or ``LinkLost`` follows."""
        assert self.nursery is not None
        self.nursery.start_soon(self._run, link, client_id)

    def hang_up(self, link: Link) -> None:
        """Close the link; ``LinkLost`` does not follow."""
        opened = self._links.pop(link, None)
        if opened is not None:
            opened.scope.cancel()

    def leave_lanes(self, farewell: Sequence[Farewell]) -> None:
        """Close all links but the pass link, and send *farewell* on other connections."""
        for lane in self.lanes:
            self.hang_up(lane)
        if farewell:
            assert self.nursery is not None
            self.nursery.start_soon(self._close_left_sessions, farewell)

    def send(self, link: Link, pieces: Sequence[bytes | memoryview]) -> None:
        """Send *pieces*, whole frames; first renew the login if it is due."""
        opened = self._links.get(link)
        if opened is None:
            return  # the link was lost, and ``LinkLost`` follows
        standing = opened.standing
        if opened.nursery is not None and standing.is_due(trio.current_time()):
            standing.begin()
            opened.nursery.start_soon(self._renew, link, opened)
        if standing.is_renewing:
            standing.hold(pieces)
            return
        try:
            opened.outbox.put(pieces)
        except OSError:
            opened.scope.cancel()

    async def passed(self) -> None:
        """Wait until all forwarded requests have been sent to the broker."""
        passing = self._links.get(PASS)
        if passing is not None:
            await passing.standing.renewed()
            await passing.outbox.drained()

    def drop(self) -> None:
        """Drop data that is not sent yet, since it never will be."""
        for opened in self._links.values():
            opened.outbox.drop()

    def close(self) -> None:
        """Close all connections."""
        if self._ready is not None:
            self._ready.frames.close()
        for opened in self._links.values():
            opened.frames.close()

    # ------------------------------------------------------------------------------------------- one link

    async def _run(self, link: Link, client_id: str | None) -> None:
        try:
            connection = await self._connected(link, client_id)
        except (BrokerUnavailable, BrokerProtocolError, OSError) as wrong:
            node_id, log = self.node_of(link), self._ways.log
            tell = log.warning if isinstance(wrong, LoginRefused) else log.info
            tell("broker-unavailable", every_s=5, per=node_id, node=node_id, reason=wrong)
            self._handle(LinkLost(link))
            return
        self._ways.opened()
        # When the client's tasks are cancelled, the link stays open to close its session; ``close`` closes it.
        with trio.CancelScope() as scope:
            frames = connection.frames
            outbox = Outbox(frames)
            opened = _OpenConnection(frames, outbox, scope, Reauthenticator(connection, outbox.put))
            self._links[link] = opened
            frames.on_large_frame = partial(self._answering, link, opened)
            frames.on_room = self._waited_for_memory
            frames.stall_s = self._ways.stall_s
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

    async def _connected(self, link: Link, client_id: str | None) -> BrokerConnection:
        if link is PASS and self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        address = self._ways.address_of(self.node_of(link))
        timeout_s, budget, access = self._ways.connect_timeout_s, self._ways.budget, self.access
        if link is PASS:
            return await reach(address, connect_timeout_s=timeout_s, budget=budget, access=access)
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
                    if not opened.standing.takes(frame):
                        self._handle(LinkFrame(link, frame))
                # The buffers of these frames count as used until nobody holds them.
                frames.clear()
                del frame
                if link is PASS:
                    await self._drained()
        except TimeoutError as stalled:
            node_id = self.node_of(link)
            self._ways.log.warning("response-stalled", every_s=5, per=node_id, node=node_id, reason=stalled)
        except (OSError, MalformedFrame):
            pass  # the connection is lost, and the caller reports it

    def _answering(self, link: Link, opened: _OpenConnection) -> None:
        if self._links.get(link) is opened:
            self._handle(LinkAnswering(link))

    async def _renew(self, link: Link, opened: _OpenConnection) -> None:
        try:
            await opened.standing.renew()
        except (ProxyError, OSError) as wrong:
            node_id = self.node_of(link)
            self._ways.log.warning("reauthentication-failed", every_s=5, per=node_id, node=node_id, reason=wrong)
            opened.scope.cancel()

    # ------------------------------------------------------------------------------------------ the farewell

    async def say_farewell(self, farewell: Iterable[Farewell], busy: Collection[Link]) -> None:
        """Close sessions at brokers: otherwise each would hold one of their slots for minutes.

        Args: busy: links on which the broker would not read another frame yet.
        """
        async with trio.open_nursery() as nursery:
            for command in farewell:
                nursery.start_soon(self._close_session, command, command.lane in busy)

    async def _close_session(self, command: Farewell, busy: bool) -> None:
        lane, node_id = self._links.get(command.lane), command.lane.source.node_id
        try:
            if lane is not None and not busy:
                await self._close_on(lane.frames, command)
                return
            address = self._ways.address_of(node_id)
            with await connect(address, connect_timeout_s=FAREWELL_S, access=self.access) as frames:
                await self._close_on(frames, command)
        except (ProxyError, OSError) as wrong:
            self._ways.log.debug("session-not-closed", node=node_id, reason=wrong)

    async def _close_on(self, frames: FrameSocket, command: Farewell) -> None:
        await frames.send([command.frame])
        for answer in await frames.receive():
            self._observe(command.told(answer, trio.current_time()))

    async def _close_left_sessions(self, farewell: Sequence[Farewell]) -> None:
        with trio.move_on_after(FAREWELL_S, shield=True):
            await self.say_farewell(farewell, ())


async def _pump(opened: _OpenConnection) -> None:
    try:
        await opened.outbox.pump()
    except OSError:
        opened.scope.cancel()
