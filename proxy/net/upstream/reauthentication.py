"""SASL re-authentication (KIP-368) of a broker connection that is shared with a client's requests."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import trio
from kio.static.protocol import RequestPayload

from proxy.errors import BrokerProtocolError, LoginRefused, MalformedFrame
from proxy.net.upstream.access import log_in
from proxy.net.upstream.brokers import BrokerConnection, renewal_time
from proxy.wire import messages
from proxy.wire.frames import Piece
from proxy.wire.headers import read_correlation_id

__all__ = ["Reauthenticator"]

_OURS: Final = 2**31 - 4
"""The correlation id of Sidefetch's own requests, from the range that Kafka's clients reserve for this."""
_ANSWER_S: Final = 60.0
"""The broker answers earlier requests first, and a fetch may wait long there."""


class Reauthenticator:
    """The re-authentication of one connection, before its login expires.

    A broker handles requests in order: it answers earlier requests first, and later ones are held back meanwhile.
    """

    def __init__(self, connection: BrokerConnection, send: Callable[[Iterable[Piece]], None]) -> None:
        self._connection = connection
        self._send = send
        self._renew_at_s = connection.renew_at_s
        self._held: deque[Sequence[bytes | memoryview]] = deque()
        self._answer: memoryview | None = None
        self._is_asking = False
        self._answered = trio.Event()
        self._done = trio.Event()
        self.is_renewing = False

    def is_due(self, now_s: float) -> bool:
        """Return whether ``renew`` should run."""
        return not self.is_renewing and now_s >= self._renew_at_s

    def begin(self) -> None:
        """Hold back requests from here on; ``renew`` must follow."""
        self.is_renewing = True
        self._done = trio.Event()

    def hold(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Hold a request back until ``renew`` sends it."""
        self._held.append(pieces)

    def takes(self, frame: memoryview) -> bool:
        """Return whether the broker's frame is a response to a request of the re-authentication."""
        if not self._is_asking or len(frame) < 4 or read_correlation_id(frame) != _OURS:
            return False
        self._answer = frame
        self._answered.set()
        return True

    async def renew(self) -> None:
        """Authenticate again, then send the held requests.

        Raises: BrokerUnavailable, BrokerProtocolError, OSError.
        """
        try:
            with trio.fail_after(_ANSWER_S):
                lifetime_s = await log_in(self._connection.access, self._connection.versions, self._ask)
            self._renew_at_s = renewal_time(lifetime_s)
            self.is_renewing = False
            while self._held:
                self._send(self._held.popleft())
        except trio.TooSlowError:
            raise LoginRefused(f"{self._connection.frames.peer}: no answer to a login in {_ANSWER_S:g} s") from None
        finally:
            self._done.set()

    async def renewed(self) -> None:
        """Wait until no request is held back."""
        if self._held:
            await self._done.wait()

    async def _ask(self, request: RequestPayload) -> Any:
        self._answered = trio.Event()
        self._is_asking = True
        self._send([messages.request_frame(_OURS, None, request)])
        await self._answered.wait()
        self._is_asking = False
        assert self._answer is not None
        frame, self._answer = self._answer, None
        response = messages.response_type(request.__api_key__, request.__version__)
        try:
            return messages.read_response(response, frame)[1]
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"{self._connection.frames.peer}: {wrong}") from wrong
