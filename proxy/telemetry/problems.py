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
"""The most problems to keep; beyond, the one that has not occurred for longest is dropped."""
_MOST_CHARS: Final = 300
"""The longest detail text of a problem, in characters."""
_APART: Final = ("limit", "what", "node", "rack")
"""Fields of an event that distinguish problems, if it has them."""
_NOT_SHOWN: Final = ("remedy", "trace", "where")


@attrs.frozen
class Remedy:
    """The title and the remedy for an event of the log."""

    title: str
    remedy: str
    """The remedy, unless the event has one of its own."""


ADVICE: Final[Mapping[str, Remedy]] = {
    "unhandled-exception": Remedy("Sidefetch has a bug", "See the traceback in its log, and report it."),
    "event-loop-stalled": Remedy(
        "The event loop was blocked", "Give the process more CPU; report the code line that the log has."
    ),
    "event-loop-recovered": Remedy("The event loop was blocked and has recovered", "Give the process more CPU."),
    "no-broker-reachable": Remedy("No broker answers", "Check bootstrap-servers and the network to the brokers."),
    "broker-unavailable": Remedy(
        "A broker could not be reached",
        "Check that it runs, and that its address can be reached from here.",
    ),
    "broker-protocol-error": Remedy(
        "A broker's response could not be decoded",
        "Check that it is a Kafka broker; report the log line.",
    ),
    "response-stalled": Remedy(
        "A broker stopped in the middle of a response", "See that broker's load, and the network to it."
    ),
    "fetch-connection-closed": Remedy(
        "A broker's response did not match the request", "Report it, with its version."
    ),
    "client-protocol-error": Remedy(
        "A client does not speak Kafka's protocol",
        "Find the client: it may use TLS on a plaintext port, or not be a Kafka client.",
    ),
    "client-tls-failed": Remedy("TLS with a client failed", "See the reason, and the client's security.protocol."),
    "client-limited-to-one-connection": Remedy(
        "Sidefetch cannot read for a client",
        "Give Sidefetch a login of its own (upstream-sasl), or the client PLAIN or OAUTHBEARER.",
    ),
    "ledger-write-failed": Remedy(
        "Rows of the ledger cannot be written",
        "Free disk space, or restore the folder; rows wait while there is memory.",
    ),
    "ledger-produce-failed": Remedy(
        "Rows of the ledger cannot be produced", "Check that the topic exists, and that Sidefetch may write to it."
    ),
    "authentication-failed": Remedy(
        "A client's login was refused", "Check its user and password, or find who is guessing."
    ),
    "reauthentication-failed": Remedy("A login at a broker was not renewed", "Check the credentials."),
    "credentials-reload-failed": Remedy(
        "New credentials cannot be used; the former ones stay in use", "Correct the files that the log names."
    ),
    "token-refresh-failed": Remedy(
        "The token could not be renewed; the former one stays in use", "Check that the token's server responds."
    ),
    "no-broker-in-rack": Remedy(
        "No broker is in this rack: all reads cross racks", "Set rack to a name that brokers have in broker.rack."
    ),
    "rack-unknown": Remedy("The rack of Sidefetch is unknown", "Set rack, or correct the sources of rack-from."),
    "open-files-limit-low": Remedy("Too few open files are allowed", "Raise ulimit -n, or lower max-connections."),
    "limit-reached": Remedy("A client reached a limit", "Raise the limit, or check the client."),
    "memory-exhausted": Remedy(
        "Fetches waited for memory", "Raise the limit, or configure clients to fetch fewer bytes at once."
    ),
    "broker-port-missing": Remedy("A broker has no port here", "Widen broker-ports."),
    "broker-port-taken": Remedy("A port of broker-ports is taken", "Free the port, or move broker-ports."),
    "redirect-loop": Remedy(
        "Sidefetch's own connections are redirected to itself",
        "Name the user that it runs as in sidefetch redirect install --uid.",
    ),
    "broker-address-ambiguous": Remedy(
        "Several brokers have one address, so that the broker of a redirected client is unknown",
        "Give each broker an address and port of its own.",
    ),
    "connection-forwarded": Remedy(
        "Connections are forwarded unchanged",
        "To read for TLS clients, set listen-tls-cert, or let them use plaintext here and set upstream-tls.",
    ),
    "connection-forward-failed": Remedy(
        "A redirected connection could not be forwarded", "See whether its destination can be reached from here."
    ),
    "records-damaged": Remedy(
        "Records are damaged at the broker", "See that broker's disk; clients get them as they are."
    ),
    "log-truncated": Remedy(
        "Records that were read are gone from the log",
        "See why the leader changed: unclean elections lose records.",
    ),
    "fetch-stalled": Remedy(
        "A client fetch was not answered in time",
        "See whether its broker answers others; if unserved is above 0, report it with this line.",
    ),
    "verify-mismatch": Remedy(
        "A response differs from the broker's own", "Set bypass for that topic, and report it."
    ),
    "telemetry-export-failed": Remedy(
        "Telemetry could not be exported",
        "See that the Collector of OTEL_EXPORTER_OTLP_ENDPOINT runs and is reached.",
    ),
    "spans-dropped-at-shutdown": Remedy(
        "Spans were not exported before the end", "See that the Collector answers within a second or two."
    ),
    "settings-rejected": Remedy("The changed settings are not valid", "Correct them, and send SIGHUP again."),
    "restart-required": Remedy("Changed settings need a restart", "Restart Sidefetch to apply them."),
    "shutdown-forced": Remedy("A second signal ended Sidefetch", "Give it more time to stop."),
}
"""The title and remedy by event name, for every warning and error of the log."""

_ALSO_AT_INFO: Final = ("memory-exhausted", "connection-forwarded")


@attrs.frozen
class Problem:
    """A problem that exists, or existed."""

    level: Level
    event: str
    """The name of the log event."""
    title: str
    remedy: str
    detail: str
    """The fields of the last occurrence."""
    times: int
    first_us: int
    last_us: int

    @classmethod
    def now(cls, event: str, level: Level, detail: str, now_us: int) -> Self:
        """Return a problem that is observed at this moment."""
        advice = ADVICE[event]
        return cls(level, event, advice.title, advice.remedy, detail, 1, now_us, now_us)


class Problems:
    """The problems of the last hour."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Problem] = {}

    def tell(self, level: Level, event: str, fields: Mapping[str, object], now_us: int) -> None:
        """Count an event of the log as a problem; ignore unknown events and most events of level info."""
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
        """Return the problems of the last hour, the most severe and newest first."""
        return ordered(each for each in list(self._kept.values()) if each.last_us > now_us - _KEPT_US)


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda each: (_LEVELS[each.level], -each.last_us))


_LEVELS: Final = {"error": 0, "warning": 1, "info": 2}


def _detail(fields: Mapping[str, object]) -> str:
    told = ", ".join(
        f"{name} {value}" for name, value in fields.items() if value is not None and name not in _NOT_SHOWN
    )
    return told if len(told) <= _MOST_CHARS else told[:_MOST_CHARS] + "..."
