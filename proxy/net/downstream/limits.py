"""Limits of client connections: their number, and the timeouts after which they are closed."""

import resource
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol

import attrs
import trio

from proxy.config import LimitsConfig
from proxy.errors import LimitReached
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import host_of

__all__ = [
    "ConnectionActivity",
    "ConnectionLimits",
    "Deadlines",
    "LimitLog",
    "TimedConnection",
    "enforce_timeouts",
    "raise_open_files_limit",
]

_FILES_A_CONNECTION: Final = 5
"""The sockets of one client connection: its own, and four to brokers."""
_OTHER_FILES: Final = 200
_EVERY_S: Final = 1.0
"""The longest interval between timeout checks, in seconds; connections may be closed so much later."""
_LOG_EVERY_S: Final = 10.0
_LEAST_SENT_BYTES: Final = 64 * 1024
"""The bytes of responses that a client must accept within ``send-timeout``: fewer keep the memory of a response for
as long as the client likes. Consumers request larger responses, and read one within that time."""
_LEAST_RECEIVED_BYTES: Final = 64 * 1024
"""The bytes of a large request that must arrive in ``_RECEIVED_IN_S`` while other requests wait for memory."""
_RECEIVED_IN_S: Final = 2.0
_IDLE: Final = "idle-timeout"
_REMEDIES: Final = {
    "max-connections": "raise it, with the open files that the system allows, or close what is not used",
    "max-connections-per-peer": "raise it, or see what that host connects so often for",
    "max-handshakes": "see what connects so often, or give Sidefetch more CPU; a higher limit delays other clients",
    "max-frame": "raise it, or see whether this client speaks Kafka's protocol in plaintext",
    "max-in-flight": "raise it, or have the client wait for its answers",
    "max-fetch-partitions": "raise it, or divide the partitions among more consumers",
    "handshake-timeout": "see what connects there: Kafka's clients send a request at once",
    "request-memory": "raise it, or see why this client sends its large requests slowly",
    "request-timeout": "raise it where the way to the client is slow",
    _IDLE: "raise it where clients do not connect again by themselves",
    "send-timeout": "raise it where consumers take that long between two polls",
}


def raise_open_files_limit(config: LimitsConfig, log: Log) -> None:
    """Raise the process's soft limit of open files to its hard limit; by default it is a tenth of that or less.

    Logs a warning if the limit is then still too low for ``max-connections``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    needed = config.max_connections * _FILES_A_CONNECTION + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        log.warning(
            "open-files-limit-low", allowed=soft, needed=needed, remedy="raise ulimit -n, or lower max-connections"
        )


class LimitLog:
    """The counter and log of reached limits; call it with the limit, the client's address and the reason.

    Each call increments ``limit_NAME`` in the counters that were passed at creation. It also logs ``limit-reached``
    with a remedy, at most once in 10 s for each limit and host.
    """

    def __init__(self, counts: Counter[str], log: Log) -> None:
        self._counts = counts
        self._log = log

    def __call__(self, limit: str, peer: str, why: str) -> None:
        """Count and log that the client at *peer* (address and port) has reached *limit*, the name of an option."""
        self._counts[f"limit_{limit.replace('-', '_')}"] += 1
        log_event = self._log.info if limit == _IDLE else self._log.warning
        log_event(
            "limit-reached",
            every_s=_LOG_EVERY_S,
            per=(limit, host_of(peer)),
            limit=limit,
            client=peer or None,
            reason=why,
            remedy=_REMEDIES[limit],
        )


class ConnectionLimits:
    """The numbers of open client connections, in total and by host, and the limits on both.

    ``count`` is the total. The limits are ``max-connections`` and ``max-connections-per-peer``.
    """

    def __init__(self, config: LimitsConfig, limit_log: LimitLog) -> None:
        self._config = config
        self._limit_log = limit_log
        self._by_host: Counter[str] = Counter()
        self.count = 0

    def try_add(self, peer: str) -> bool:
        """Return whether a new connection of *peer*, an address and port, is within the limits, and count it if so.

        After True, ``remove`` must be called when the connection ends. False is logged; the caller closes the
        connection.
        """
        host, config = host_of(peer), self._config
        if self.count >= config.max_connections:
            self._limit_log("max-connections", peer, f"there are {self.count} connections")
            return False
        if self._by_host[host] >= config.max_connections_per_peer:
            self._limit_log("max-connections-per-peer", peer, f"there are {self._by_host[host]} from there")
            return False
        self.count += 1
        self._by_host[host] += 1
        return True

    def remove(self, peer: str) -> None:
        host = host_of(peer)
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


@attrs.frozen
class ConnectionActivity:
    """A snapshot of a client connection's activity, from which its timeouts are computed.

    It has the numbers of received requests and sent bytes, and whether requests or responses are incomplete.
    """

    frames: int
    """The number of requests received since the start of the connection."""
    is_at_boundary: bool
    """Whether no byte of a next request has arrived."""
    is_reading: bool
    """Whether Sidefetch waits for bytes of the client; not while it handles a request, or waits for memory."""
    received_bytes: int
    """The number of bytes received since the start of the connection."""
    is_in_claimed: bool
    """Whether a request is incomplete that has claimed memory."""
    sent_bytes: int
    """The number of bytes sent since the start of the connection."""
    has_unsent: bool
    """Whether bytes are waiting to be sent."""
    is_response_due: bool
    """Whether the client waits for a response."""


class Deadlines:
    """The handshake, request, idle and send timeouts of one client connection, computed from regular snapshots."""

    def __init__(self, config: LimitsConfig, now_s: float) -> None:
        """Start all timeouts at *now_s*, on trio's clock."""
        self._config = config
        self._began_s = self._changed_s = self._request_s = self._sent_s = self._received_s = now_s
        self._frames = self._sent_bytes = self._progress_bytes = self._received_bytes = 0

    def find_expired(
        self, activity: ConnectionActivity, now_s: float, *, is_memory_short: bool = False
    ) -> LimitReached | None:
        """Return the error with which the connection must be closed, or None if no timeout has expired.

        *activity* is that at *now_s*, on trio's clock. It is compared with that of the previous call, so that
        timeouts are as precise as the calls are frequent. *is_memory_short* says whether requests wait for memory.
        A timeout expires if, for its time,

        - send: bytes were waiting to be sent, and the client accepted less than 64 KiB;
        - handshake: the connection was open, and no request was complete;
        - request: a request was incomplete, although Sidefetch was reading;
        - memory (2 s): less than 64 KiB of an incomplete request arrived, which holds memory for which others wait;
        - idle: nothing was received or sent, and no response was due.
        """
        config = self._config
        if activity.frames != self._frames or activity.is_at_boundary or not activity.is_reading:
            self._request_s = now_s
        received_bytes = activity.received_bytes - self._received_bytes
        is_slow = is_memory_short and activity.is_in_claimed and activity.is_reading
        if received_bytes >= _LEAST_RECEIVED_BYTES or not is_slow:
            self._received_s, self._received_bytes = now_s, activity.received_bytes
        if activity.sent_bytes - self._progress_bytes >= _LEAST_SENT_BYTES or not activity.has_unsent:
            self._sent_s, self._progress_bytes = now_s, activity.sent_bytes
        if (
            activity.frames != self._frames
            or activity.sent_bytes != self._sent_bytes
            or activity.is_response_due
            or activity.has_unsent
        ):
            self._changed_s = now_s
        self._frames, self._sent_bytes = activity.frames, activity.sent_bytes
        if now_s - self._sent_s >= config.send_timeout_s:
            read_bytes = activity.sent_bytes - self._progress_bytes
            return LimitReached("send-timeout", f"it has read {read_bytes} bytes in {config.send_timeout_s:g} s")
        if not activity.frames and activity.is_reading and now_s - self._began_s >= config.handshake_timeout_s:
            return LimitReached("handshake-timeout", f"no request within {config.handshake_timeout_s:g} s")
        if now_s - self._request_s >= config.request_timeout_s:
            return LimitReached("request-timeout", f"a request incomplete after {config.request_timeout_s:g} s")
        if now_s - self._received_s >= _RECEIVED_IN_S:
            return LimitReached(
                "request-memory",
                f"{received_bytes} bytes of a large request in {_RECEIVED_IN_S:g} s, while others wait",
            )
        if now_s - self._changed_s >= config.idle_timeout_s:
            return LimitReached(_IDLE, f"silent for {config.idle_timeout_s:g} s")
        return None


class TimedConnection(Protocol):
    """A client connection that ``enforce_timeouts`` checks by ``get_activity``, and closes by ``end``."""

    def get_activity(self) -> ConnectionActivity: ...

    def end(self, why: LimitReached) -> None:
        """Close the connection; *why* is the timeout that has expired."""


async def enforce_timeouts(
    connections: Callable[[], Collection[TimedConnection]], config: LimitsConfig, budget: Budget
) -> None:
    """Check the timeouts of all open connections for ever, and end each connection of which one has expired.

    *connections* returns the open connections, *budget* is that of their requests. They are checked once a second,
    or four times within the shortest timeout if that is under 4 s. A check takes microseconds for each connection.
    """
    shortest_s = min(
        config.handshake_timeout_s, config.request_timeout_s, config.idle_timeout_s, config.send_timeout_s
    )
    every_s = min(_EVERY_S, shortest_s / 4)
    known: dict[TimedConnection, Deadlines] = {}
    while True:
        await trio.sleep(every_s)
        now_s = trio.current_time()
        current = list(connections())
        known = {each: known.get(each) or Deadlines(config, now_s - every_s) for each in current}
        for each, deadlines in known.items():
            expired = deadlines.find_expired(each.get_activity(), now_s, is_memory_short=bool(budget.waiting))
            if expired is not None:
                each.end(expired)
