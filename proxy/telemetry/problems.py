"""The problems of the last hour with their remedies, derived from log events.

The log has a line for each occurrence; this has one entry for each problem, with its count and times.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Self

import attrs

__all__ = ["ADVICE", "Level", "Problem", "Problems", "Remedy"]

Level = Literal["info", "warning", "error"]

_KEPT_US: Final = 3_600_000_000
_MOST: Final = 40
"""The most problems to keep; beyond that, the problem whose last occurrence is the oldest is dropped."""
_MOST_CHARS: Final = 300
"""The longest detail text of a problem, in characters."""
_APART: Final = ("limit", "what", "node", "rack")
"""Fields of log events: occurrences of one event with different values are different problems."""
_NOT_SHOWN: Final = ("remedy", "trace", "where")
"""Fields of log events that are not part of a problem's detail text."""


@attrs.frozen
class Remedy:
    """The title and the remedy of the problem that a log event indicates."""

    title: str
    remedy: str
    """The action for the operator, unless the event itself has a field ``remedy``."""


ADVICE: Final[Mapping[str, Remedy]] = {
    "unhandled-exception": Remedy(
        "A bug in Sidefetch ended a connection or a task", "Report the traceback that the log has."
    ),
    "event-loop-stalled": Remedy(
        "The event loop was blocked, and no client was served",
        "Give the process more CPU; if it happens again, report the stack that the log has.",
    ),
    "event-loop-recovered": Remedy("The event loop was blocked and has recovered", "Give the process more CPU."),
    "no-broker-reachable": Remedy(
        "No broker answers", "Check bootstrap-servers, the network to the brokers, TLS and the login."
    ),
    "broker-unavailable": Remedy(
        "A broker could not be reached",
        "Check that the broker runs, and that its advertised address can be reached from here.",
    ),
    "broker-protocol-error": Remedy(
        "A broker's response could not be decoded, and a client was disconnected",
        "Check that the address belongs to a Kafka broker; if it does, report the log line.",
    ),
    "response-stalled": Remedy(
        "A broker stopped in the middle of a response", "Check that broker's load, and the network to it."
    ),
    "broker-connection-timed-out": Remedy(
        "A broker's host did not answer on an open connection", "Check that host, and the network to it."
    ),
    "fetch-connection-closed": Remedy(
        "A broker answered a fetch late, or with a response that does not match it, or is older than Kafka 0.11",
        "Check that broker's load and the network; report a wrong response with the broker's version.",
    ),
    "client-protocol-error": Remedy(
        "A client does not speak Kafka's protocol, or does not log in",
        "Find the client: it may use TLS on a plaintext port, or not be a Kafka client.",
    ),
    "client-tls-failed": Remedy(
        "A TLS handshake with a client failed",
        "Check the reason, and the client's security.protocol and truststore.",
    ),
    "client-limited-to-one-connection": Remedy(
        "A client's login cannot be repeated, so its fetches are forwarded unchanged",
        "Give Sidefetch a login of its own (upstream-sasl), or let the client use PLAIN or OAUTHBEARER.",
    ),
    "ledger-write-failed": Remedy(
        "Rows of the ledger cannot be written",
        "Free disk space, or restore the folder; rows wait in memory up to ledger-memory.",
    ),
    "ledger-produce-failed": Remedy(
        "Rows of the ledger cannot be produced to its topic",
        "Check that the topic exists, and that Sidefetch may write to it.",
    ),
    "authentication-failed": Remedy(
        "A client's login was refused", "Check the client's user and password, or find out who is guessing."
    ),
    "reauthentication-failed": Remedy("A login at a broker could not be renewed", "Check Sidefetch's credentials."),
    "credentials-reload-failed": Remedy(
        "New credentials cannot be used; the former ones stay in use", "Correct the files that the log names."
    ),
    "token-refresh-failed": Remedy(
        "The OAUTHBEARER token could not be renewed; the former one is used until it expires",
        "Check that the token server responds, and the client id and secret.",
    ),
    "no-broker-in-rack": Remedy(
        "No broker is in Sidefetch's rack: all reads cross racks",
        "Set rack to a name that brokers have in broker.rack.",
    ),
    "rack-unknown": Remedy(
        "The rack of Sidefetch is unknown: reads go to the leaders",
        "Set rack, or correct the sources of rack-from.",
    ),
    "open-files-limit-low": Remedy(
        "The limit of open files is too low for max-connections", "Raise ulimit -n, or lower max-connections."
    ),
    "limit-reached": Remedy("A client reached a limit", "Raise the limit, or check the client."),
    "memory-exhausted": Remedy(
        "Fetches waited for memory",
        "Raise the option in limit (memory or request-memory), or configure clients to fetch fewer bytes at once.",
    ),
    "fetch-memory-exhausted": Remedy(
        "The partitions of clients' fetches took more memory than is allowed",
        "Raise request-memory, or have clients fetch fewer partitions on fewer connections.",
    ),
    "broker-port-missing": Remedy(
        "A broker has no local port, so clients cannot reach it", "Widen broker-ports, and restart."
    ),
    "broker-port-taken": Remedy(
        "A port of broker-ports cannot be opened, usually since another process listens on it",
        "Free the port, or choose another range.",
    ),
    "redirect-loop": Remedy(
        "Sidefetch's own connections are redirected to itself",
        "Name the user that it runs as in sidefetch redirect install --uid.",
    ),
    "broker-address-ambiguous": Remedy(
        "Several brokers have one address, so that the broker of a redirected client is unknown",
        "Give each broker an address and port of its own (advertised.listeners).",
    ),
    "connection-forwarded": Remedy(
        "Redirected connections that are not plaintext Kafka are forwarded unchanged",
        "To serve TLS clients, set listen-tls-cert, or let them use plaintext here and set upstream-tls.",
    ),
    "connection-forward-failed": Remedy(
        "A redirected connection could not be forwarded, and was closed",
        "Check that its destination can be reached from here.",
    ),
    "records-damaged": Remedy(
        "Damaged records could not be converted for a client, which gets CORRUPT_MESSAGE",
        "Check the disks of all brokers that have a replica of the partition.",
    ),
    "log-truncated": Remedy(
        "Records that a client has read are gone from the log",
        "Check why the leader changed: unclean elections lose records.",
    ),
    "fetch-stalled": Remedy(
        "A client's fetch was not answered in time",
        "Check that the brokers answer other clients; if unserved is above 0, report the log line as a bug.",
    ),
    "verify-mismatch": Remedy(
        "A delivered response differs from the broker's own",
        "Unless the topic is compacted, set bypass for it, and report the log line.",
    ),
    "telemetry-export-failed": Remedy(
        "Traces or metrics could not be exported",
        "Check that the Collector of OTEL_EXPORTER_OTLP_ENDPOINT runs and can be reached.",
    ),
    "spans-dropped-at-shutdown": Remedy(
        "Spans were lost, because they were not exported before Sidefetch stopped",
        "Check that the Collector answers within a second or two.",
    ),
    "settings-rejected": Remedy(
        "The changed settings are not valid; the former ones stay in use", "Correct them, and send SIGHUP again."
    ),
    "restart-required": Remedy("Changed settings need a restart", "Restart Sidefetch to apply them."),
    "shutdown-forced": Remedy(
        "A second signal ended Sidefetch before its clients had finished",
        "Let the supervisor wait for longer than grace before it signals again.",
    ),
}
"""The title and remedy by event name, for every warning and error of the log."""

_ALSO_AT_INFO: Final = ("memory-exhausted", "fetch-memory-exhausted", "connection-forwarded")
"""Events that are problems although their level is info."""


@attrs.frozen
class Problem:
    """One problem that Sidefetch has had, with its remedy: all recent occurrences of one log event.

    Occurrences that concern different options, files, brokers or racks are different problems.
    """

    level: Level
    """The level of the last occurrence."""
    event: str
    """The name of the log event."""
    title: str
    remedy: str
    detail: str
    """The fields of the last occurrence, for people."""
    times: int
    """The number of occurrences."""
    first_us: int
    """The time of the first occurrence, in microseconds since 1970."""
    last_us: int

    @classmethod
    def now(cls, event: str, level: Level, detail: str, now_us: int) -> Self:
        """Return the problem that *event* indicates, with one occurrence at *now_us* and the remedy of ``ADVICE``.

        Used for conditions that still hold, although their log event is older than an hour.

        Raises: KeyError: ``ADVICE`` has no entry for *event*.
        """
        advice = ADVICE[event]
        return cls(level, event, advice.title, advice.remedy, detail, 1, now_us, now_us)


class Problems:
    """The problems of the last hour, collected from the log events; at most 40 are kept."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Problem] = {}

    def add(self, level: Level, event: str, fields: Mapping[str, object], now_us: int) -> None:
        """Add one occurrence of a log event: to the count of the same problem, or as a new problem.

        Occurrences of an event are the same problem if they agree in the fields ``limit``, ``what``, ``node`` and
        ``rack``; the problem gets the level, fields and time of the latest. Events without an entry in ``ADVICE``,
        and events of level info, with few exceptions, are ignored.

        Args: fields: the fields of the log line.
              now_us: the time of the event, in microseconds since 1970.
        """
        advice = ADVICE.get(event)
        if advice is None or (level == "info" and event not in _ALSO_AT_INFO):
            return
        key = (event, *(str(fields[name]) for name in _APART if name in fields))
        known = self._kept.pop(key, None)
        remedy = fields.get("remedy")
        self._kept[key] = Problem(
            level,
            event,
            advice.title,
            str(remedy) if remedy else advice.remedy,
            _detail(fields),
            known.times + 1 if known is not None else 1,
            known.first_us if known is not None else now_us,
            now_us,
        )
        if len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def last(self, now_us: int) -> list[Problem]:
        """Return the problems that occurred within the hour before *now_us*: errors first, and the newest first."""
        return ordered(each for each in list(self._kept.values()) if each.last_us > now_us - _KEPT_US)


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda each: (_LEVELS[each.level], -each.last_us))


_LEVELS: Final = {"error": 0, "warning": 1, "info": 2}


def _detail(fields: Mapping[str, object]) -> str:
    text = ", ".join(
        f"{name} {value}" for name, value in fields.items() if value is not None and name not in _NOT_SHOWN
    )
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "..."
