"""TLS handshakes with clients: limited in number; slow ones are aborted if others wait."""

import math
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from proxy.net.downstream.limits import LimitLog
from proxy.net.io.files import WatchedFiles
from proxy.net.io.tls import TlsSocket, start_tls

__all__ = ["TlsHandshakes"]

_LONGEST_S: Final = 10.0
"""The time limit from the connection to the end of its handshake: as that of Kafka's own clients."""
_DAWDLING_S: Final = 2.0
"""The time limit of a handshake while others wait: two round trips around the world, and a margin."""


class TlsHandshakes:
    """The handshakes of all clients: a limited number runs at once, the others wait in order.

    A client that sends nothing does not count, and takes no memory for TLS.
    """

    def __init__(self, places: int, context: WatchedFiles[ssl.SSLContext], tell: LimitLog) -> None:
        self._places = trio.CapacityLimiter(places)
        self._context = context
        self._tell = tell
        self._under_way: set[trio.CancelScope] = set()

    async def shake(self, stream: trio.SocketStream, peer: str) -> TlsSocket:
        """Take over *stream*'s socket and make it a TLS one.

        Raises: OSError: the handshake failed; trio.TooSlowError: it took too long. The socket is closed, or still
            *stream*'s.
        """
        with trio.fail_after(_LONGEST_S):
            await trio.lowlevel.wait_readable(stream.socket)
            if not self._places.available_tokens:
                self._tell("max-handshakes", peer, f"{self._places.borrowed_tokens} are under way")
                self._hurry()
            async with self._places:
                with self._in_time():
                    return await start_tls(stream, self._context.value)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        is_waited_for = self._places.statistics().tasks_waiting > 0
        with trio.fail_after(_DAWDLING_S if is_waited_for else math.inf) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.remove(scope)

    def _hurry(self) -> None:
        soon_s = trio.current_time() + _DAWDLING_S
        for scope in self._under_way:
            scope.deadline = min(scope.deadline, soon_s)
