"""SASL re-authentication (KIP-368) of a broker connection that is shared with a client's requests."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import trio
from kio.static.protocol import RequestPayload

from proxy.errors import BrokerProtocolError, LoginRefused, MalformedFrame
from proxy.net.upstream.access import Access, log_in
from proxy.net.upstream.brokers import BrokerConnection, renewal_time
from proxy.wire import messages
from proxy.wire.frames import Piece
from proxy.wire.headers import read_correlation_id

__all__ = ["Reauthenticator"]

_CORRELATION_ID: Final = 2**31 - 4
"""The correlation id of Sidefetch's own requests, from the range that Kafka's clients reserve for SASL."""
_ANSWER_S: Final = 60.0
"""The time limit of a re-authentication: the broker answers earlier requests first, and a fetch may wait long."""


class Reauthenticator:
    """The SASL re-authentication of one broker connection, shortly before its login expires.

    The broker answers earlier requests first; requests that come meanwhile are held back, and sent after it.

    Use: when ``is_due``, call ``begin`` and run ``renew`` in a task. While ``is_renewing``, pass each request to
        ``hold`` instead of sending it. Pass each received frame to ``take_response``.
    """

    def __init__(self, connection: BrokerConnection, send: Callable[[Iterable[Piece]], None]) -> None:
        self._connection = connection
        self._send = send
        self._renew_at_s = connection.renew_at_s
        self._held: deque[Sequence[bytes | memoryview]] = deque()
        self._answer: memoryview | None = None
        self._awaits_response = False
        self._answered = trio.Event()
        self._done = trio.Event()
        self.is_renewing = False
        """Whether requests must be passed to ``hold`` instead of being sent."""

    def is_due(self, now_s: float) -> bool:
        """Return whether the login is about to expire at *now_s*, on trio's clock, and no renewal is running."""
        return not self.is_renewing and now_s >= self._renew_at_s

    def begin(self) -> None:
        """Set ``is_renewing``, so that the caller passes requests to ``hold``; ``renew`` must follow."""
        self.is_renewing = True
        self._done = trio.Event()

    def hold(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep a request, given as the buffers of its frame, until ``renew`` has logged in and sends it."""
        self._held.append(pieces)

    def take_response(self, frame: memoryview) -> bool:
        """Return whether *frame*, received from the broker, answers a request of the re-authentication.

        If so, ``renew`` gets it, and the caller must not handle it.
        """
        if not self._awaits_response or len(frame) < 4 or read_correlation_id(frame) != _CORRELATION_ID:
            return False
        self._answer = frame
        self._answered.set()
        return True

    async def renew(self, access: Access) -> None:
        """Authenticate again with *access*, set the time of the next renewal, and send the held requests in order.

        The broker accepts only the principal of the first login (KIP-368).

        Then ``is_renewing`` is False. After an error it stays True, and the held requests are not sent; the caller
        must close the connection.

        Raises: LoginRefused: the broker refuses the login, or has not finished it within 60 s; BrokerUnavailable:
            there are no credentials at present; BrokerProtocolError: a response cannot be decoded; OSError: the
            connection broke.
        """
        try:
            with trio.fail_after(_ANSWER_S):
                lifetime_s = await log_in(access, self._connection.versions, self._send_request)
            self._renew_at_s = renewal_time(lifetime_s)
            self.is_renewing = False
            while self._held:
                self._send(self._held.popleft())
        except trio.TooSlowError:
            raise LoginRefused(f"{self._connection.frames.peer}: no answer to a login in {_ANSWER_S:g} s") from None
        finally:
            self._done.set()

    async def wait_until_renewed(self) -> None:
        """Wait until ``renew`` has sent the held requests, or has failed; return at once if there are none."""
        if self._held:
            await self._done.wait()

    async def _send_request(self, request: RequestPayload) -> Any:
        self._answered = trio.Event()
        self._awaits_response = True
        self._send([messages.request_frame(_CORRELATION_ID, None, request)])
        await self._answered.wait()
        self._awaits_response = False
        assert self._answer is not None
        frame, self._answer = self._answer, None
        response = messages.response_type(request.__api_key__, request.__version__)
        try:
            return messages.read_response(response, frame)[1]
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"{self._connection.frames.peer}: {wrong}") from wrong
