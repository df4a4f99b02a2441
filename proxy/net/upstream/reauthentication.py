"""Whom a broker takes us for on a connection that others' requests run on, and for how long (KIP-368)."""

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
"""The correlation id of our own requests among a client's, out of those that Kafka's clients keep for this."""
_ANSWER_S: Final = 60.0
"""The broker answers first what it was sent before: a fetch may wait for long there."""


class Reauthenticator:
    """Renews the login of one connection between two of its requests, before the one that would come too late.

    A broker takes requests one after another: what was sent is answered first, and what comes meanwhile is held.
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
        """Whether ``renew`` should run."""
        return not self.is_renewing and now_s >= self._renew_at_s

    def begin(self) -> None:
        """From here on requests are held; ``renew`` must follow."""
        self.is_renewing = True
        self._done = trio.Event()

    def hold(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep a request until ``renew`` sends it."""
        self._held.append(pieces)

    def takes(self, frame: memoryview) -> bool:
        """Whether the broker's frame is an answer to us."""
        if not self._is_asking or len(frame) < 4 or read_correlation_id(frame) != _OURS:
            return False
        self._answer = frame
        self._answered.set()
        return True

    async def renew(self) -> None:
        """Log in again, then send what was held. Raises: BrokerUnavailable, BrokerProtocolError, OSError."""
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
        """Wait until nothing is held."""
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
