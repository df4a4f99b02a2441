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


class TlsHandshakes:
    """The TLS handshakes with all clients: a limited number computes at once, the others wait in order.

    A handshake has a place only while it computes, about 1 ms; it waits for bytes of its client without a place. So
    one that is begun and never ended keeps no other client waiting; it ends 10 s after the start of the connection.
    Before a client's first byte, its connection takes no memory for TLS.
    """

    def __init__(self, places: int, context: WatchedFiles[ssl.SSLContext], limit_log: LimitLog) -> None:
        """Create the state; at most *places* handshakes compute in one turn of the event loop.

        *limit_log* logs that a client waits for a place.
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
            if not self._places.available_tokens:
                self._limit_log("max-handshakes", peer, f"{self._places.borrowed_tokens} compute at present")
            return await start_tls(stream, self._context.value, places=self._places)
