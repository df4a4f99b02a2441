"""Requests that only the coordinator of a group can answer, taken there."""

from collections.abc import Callable, Sequence
from typing import Final

import trio
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v0.request import FindCoordinatorRequest

from proxy.cluster.topology import BrokerId
from proxy.config import Address
from proxy.errors import BrokerUnavailable, ProxyError
from proxy.net.io.logs import Log
from proxy.net.upstream.access import OPEN, Access
from proxy.net.upstream.brokers import BrokerConnection, open_broker

__all__ = ["CoordinatorClient"]

_CLIENT_ID: Final = "sidefetch"
"""Of whoever looks for a coordinator; a client's request goes under its own."""
_TIMEOUT_S: Final = 5.0
"""For one errand. Well within the clients' request timeouts: there may be several for one request."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 2.0
"""Before a coordinator is looked for again: its election takes a moment, and making the topic of offsets some."""
_LOG_EVERY_S: Final = 5.0


class CoordinatorClient:
    """Runs errands of one client connection, one at a time; keeps the connection to the coordinator found last."""

    def __init__(
        self,
        node_id: BrokerId,
        address_of: Callable[[BrokerId], Address],
        connect_timeout_s: float,
        log: Log,
        access: Access = OPEN,
    ) -> None:
        """*node_id*: the broker that is asked for coordinators first."""
        self._node_id = node_id
        self._address_of = address_of
        self._connect_timeout_s = connect_timeout_s
        self._log = log
        self.access = access
        self._connection: BrokerConnection | None = None
        self._address: Address | None = None
        self._group: str | None = None
        """The one whose coordinator that is."""
        self._wait_s = _FIRST_WAIT_S

    async def run(self, group: str, pieces: Sequence[bytes | memoryview], *, afresh: bool) -> memoryview | None:
        """The answer of *group*'s coordinator to a frame, without size; None if there is none to be had."""
        if afresh:
            self._group = None
            await trio.sleep(self._wait_s)
            self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)
        else:
            self._wait_s = _FIRST_WAIT_S
        try:
            with trio.fail_after(_TIMEOUT_S):
                connection = await self._coordinator(group)
                return await connection.exchange(pieces)
        except (ProxyError, trio.TooSlowError) as wrong:
            self.close()
            self._log.info("coordinator-not-found", every_s=_LOG_EVERY_S, per=group, group=group, reason=wrong)
            return None

    def close(self) -> None:
        """Hang up on the coordinator, if there is one."""
        connection, self._connection = self._connection, None
        self._address = self._group = None
        if connection is not None:
            connection.frames.close()

    async def _coordinator(self, group: str) -> BrokerConnection:
        connection = self._connection
        if connection is None:
            connection = await self._connected(self._address_of(self._node_id))
        if group != self._group:
            found = await connection.ask(FindCoordinatorRequest(key=group))
            if found.error_code != ErrorCode.none:
                raise BrokerUnavailable(f"no coordinator of {group} is known: {found.error_code!r}")
            address = Address(found.host, found.port)
            if address != self._address:
                connection = await self._connected(address)
            self._group = group
        return connection

    async def _connected(self, address: Address) -> BrokerConnection:
        """The connection that is kept, from here on."""
        self.close()
        self._connection = await open_broker(
            address, client_id=_CLIENT_ID, connect_timeout_s=self._connect_timeout_s, access=self.access
        )
        self._address = address
        return self._connection
