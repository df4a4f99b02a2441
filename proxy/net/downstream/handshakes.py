"""TLS handshakes with clients: limited in the computing that they do before other clients have their turn."""

import ssl
from typing import Final

import trio

from proxy.net.downstream.limits import LimitLog
from proxy.net.io.files import WatchedFiles
from proxy.net.io.tls import TlsSocket, start_tls

__all__ = ["TlsHandshakes"]

_LONGEST_S: Final = 10.0
"""The time limit from the connection to the end of its handshake: as that of Kafka's own clients."""
_LONG_WAIT_S: Final = 1.0
"""The shortest wait of a handshake for others that is logged. Short ones are usual when many clients connect at
once, and harm nobody."""


class TlsHandshakes:
    """The TLS handshakes with all clients: a limited number computes at once, the others wait in order.

    A handshake has a place only while it computes, about 1 ms; it waits for bytes of its client without a place. So
    one that is begun and never ended keeps no other client waiting; it ends 10 s after the start of the connection.
    Before a client's first byte, its connection takes no memory for TLS.
    """

    def __init__(self, places: int, context: WatchedFiles[ssl.SSLContext], limit_log: LimitLog) -> None:
        """Create the state; at most *places* handshakes compute in one turn of the event loop.

        *limit_log* logs that a client has waited for a place for a second or longer.
        """
        self._places = trio.CapacityLimiter(places)
        self._context = context
        self._limit_log = limit_log

    async def run_handshake(self, stream: trio.SocketStream, peer: str) -> TlsSocket:
        """Run the handshake with a client, and return the TLS socket that replaces *stream*.

        *peer* is the client's address, for the log.

        Raises: OSError: the handshake failed; trio.TooSlowError: it was not complete within 10 s. The caller closes
            *stream*: its socket was taken over and closed, or is still open.
        """
        with trio.fail_after(_LONGEST_S):
            await trio.lowlevel.wait_readable(stream.socket)
            turn = _Turn(self._places)
            try:
                return await start_tls(stream, self._context.value, turn=turn)
            finally:
                if turn.waited_s >= _LONG_WAIT_S:
                    self._limit_log("max-handshakes", peer, f"it has waited {turn.waited_s:.1f} s for others")


class _Turn:
    """The turns of one handshake to compute: each takes a place while it lasts."""

    def __init__(self, places: trio.CapacityLimiter) -> None:
        self._places = places
        self.waited_s = 0.0
        """The seconds that the handshake has waited for places, in total."""

    async def __aenter__(self) -> None:
        began_s = trio.current_time()
        try:
            await self._places.acquire()
        finally:
            self.waited_s += trio.current_time() - began_s

    async def __aexit__(self, *error: object) -> None:
        self._places.release()
