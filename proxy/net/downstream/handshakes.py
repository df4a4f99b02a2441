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
_CONTENDED_S: Final = 2.0
"""The time limit of a handshake while others wait: two round trips around the world, and a margin."""


class TlsHandshakes:
    """The TLS handshakes with all clients: a limited number runs at once, the others wait in order.

    A connection counts once its client has sent its first byte; before that, it takes no memory for TLS. A
    handshake may take 2 s while others wait; otherwise, until 10 s after the start of the connection.
    """

    def __init__(self, places: int, context: WatchedFiles[ssl.SSLContext], limit_log: LimitLog) -> None:
        """Create the state; at most *places* handshakes run at once; *limit_log* logs that a client waits."""
        self._places = trio.CapacityLimiter(places)
        self._context = context
        self._limit_log = limit_log
        self._running: set[trio.CancelScope] = set()

    async def run_handshake(self, stream: trio.SocketStream, peer: str) -> TlsSocket:
        """Wait until the handshake with a client may run, run it, and return the TLS socket that replaces *stream*.

        *peer* is the client's address, for the log.

        Raises: OSError: the handshake failed; trio.TooSlowError: it was not complete within 10 s, or within 2 s
            while others waited. The caller closes *stream*: its socket was taken over and closed, or is still open.
        """
        with trio.fail_after(_LONGEST_S):
            await trio.lowlevel.wait_readable(stream.socket)
            if not self._places.available_tokens:
                self._limit_log("max-handshakes", peer, f"{self._places.borrowed_tokens} are under way")
                self._shorten_deadlines()
            async with self._places:
                with self._limit_time():
                    return await start_tls(stream, self._context.value)

    @contextmanager
    def _limit_time(self) -> Iterator[None]:
        is_waited_for = self._places.statistics().tasks_waiting > 0
        with trio.fail_after(_CONTENDED_S if is_waited_for else math.inf) as scope:
            self._running.add(scope)
            try:
                yield
            finally:
                self._running.remove(scope)

    def _shorten_deadlines(self) -> None:
        soon_s = trio.current_time() + _CONTENDED_S
        for scope in self._running:
            scope.deadline = min(scope.deadline, soon_s)
