"""Requests to the coordinators of consumer groups, on behalf of one client connection."""

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
"""The client id of FindCoordinator requests; a client's request keeps the client's own id."""
_TIMEOUT_S: Final = 5.0
"""The time limit of one request. It is well below clients' timeouts: a client request may need several."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 2.0
"""The longest pause before another lookup: an election, or creating the offsets topic, takes a moment."""
_LOG_EVERY_S: Final = 5.0


class CoordinatorClient:
    """The sender of a client connection's requests to group coordinators, one at a time.

    It looks the coordinator up by FindCoordinator, and keeps the connection for the next request of the group.
    """

    def __init__(
        self,
        node_id: BrokerId,
        address_of: Callable[[BrokerId], Address],
        connect_timeout_s: float,
        log: Log,
        access: Access = OPEN,
    ) -> None:
        """Create the client; broker *node_id* gets the first FindCoordinator request."""
        self._node_id = node_id
        self._address_of = address_of
        self._connect_timeout_s = connect_timeout_s
        self._log = log
        self.access = access
        self._connection: BrokerConnection | None = None
        self._address: Address | None = None
        self._group: str | None = None
        """The group whose coordinator ``_connection`` leads to; None if that must be looked up."""
        self._wait_s = _FIRST_WAIT_S

    async def send_request(
        self, group: str, pieces: Sequence[bytes | memoryview], *, is_retry: bool
    ) -> memoryview | None:
        """Send a request frame to the coordinator of consumer group *group*, and return the response frame.

        Args:
            pieces: the buffers of the frame, with its size prefix.
            is_retry: whether the last response showed that the coordinator has changed or is still loading. Then
                this call first pauses, for 0.25 to 2 s, and looks the coordinator up again.

        Returns: the response without its size prefix; None, with a log event, if there is no coordinator or no
            response within 5 s.
        """
        if is_retry:
            self._group = None
            await trio.sleep(self._wait_s)
            self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)
        else:
            self._wait_s = _FIRST_WAIT_S
        try:
            with trio.fail_after(_TIMEOUT_S):
                connection = await self._find_coordinator(group)
                return await connection.exchange(pieces)
        except (ProxyError, trio.TooSlowError) as wrong:
            self.close()
            # Not by group: it is the client's choice.
            self._log.info(
                "coordinator-not-found", every_s=_LOG_EVERY_S, per=self._node_id, group=group, reason=wrong
            )
            return None

    def close(self) -> None:
        """Close the connection to the coordinator, if there is one; ``send_request`` then looks it up again."""
        connection, self._connection = self._connection, None
        self._address = self._group = None
        if connection is not None:
            connection.frames.close()

    async def _find_coordinator(self, group: str) -> BrokerConnection:
        connection = self._connection
        if connection is None:
            connection = await self._connect(self._address_of(self._node_id))
        if group != self._group:
            found = await connection.send_request(FindCoordinatorRequest(key=group))
            if found.error_code != ErrorCode.none:
                raise BrokerUnavailable(f"no coordinator of {group} is known: {found.error_code!r}")
            address = Address(found.host, found.port)
            if address != self._address:
                connection = await self._connect(address)
            self._group = group
        return connection

    async def _connect(self, address: Address) -> BrokerConnection:
        """Open a connection to *address*, and keep it in place of the present one."""
        self.close()
        self._connection = await open_broker(
            address, client_id=_CLIENT_ID, connect_timeout_s=self._connect_timeout_s, access=self.access
        )
        self._address = address
        return self._connection
