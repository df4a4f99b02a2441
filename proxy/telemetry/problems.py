"""What went wrong within the last hour, and what to do about it: made from what is told to the log.

The log has a line for each time; this has one entry for each thing, with how often and since when.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Self

import attrs

__all__ = ["ADVICE", "Level", "Problem", "Problems", "Remedy"]

Level = Literal["info", "warning", "error"]

_KEPT_US: Final = 3_600_000_000
_MOST: Final = 40
"""Of a kind or another; the one that was not told for longest goes for one more."""
_MOST_CHARS: Final = 300
"""Of what is told of a problem's last time."""
_APART: Final = ("limit", "what", "node", "rack")
"""Fields of an event that make problems of one kind differ, where it has them."""
_NOT_SHOWN: Final = ("remedy", "trace", "where")


@attrs.frozen
class Remedy:
    """On an event of the log."""

    title: str
    remedy: str
    """What to do, where the event does not tell itself."""


ADVICE: Final[Mapping[str, Remedy]] = {
    "unhandled-exception": Remedy("Sidefetch has a bug", "See the traceback in its log, and report it."),
    "event-loop-stalled": Remedy(
        "The event loop stood still", "Give the process more CPU; the log tells where it stood, to be reported."
    ),
    "event-loop-recovered": Remedy("The event loop stood still, and turns again", "Give the process more CPU."),
    "no-broker-reachable": Remedy(
        "No broker answers", "See that bootstrap-servers are right, and that the way to the brokers is open."
    ),
    "broker-unavailable": Remedy(
        "A broker could not be reached",
        "See whether it is up, and whether its address is reached from here.",
    ),
    "broker-protocol-error": Remedy(
        "A broker's answer was not understood",
        "See that it is a Kafka broker; report what was said.",
    ),
    "response-stalled": Remedy(
        "A broker stopped in the middle of a response", "See that broker's load, and the network to it."
    ),
    "fetch-connection-closed": Remedy(
        "A broker's answer was not what was asked for", "Report it, with its version."
    ),
    "client-protocol-error": Remedy(
        "A client does not speak Kafka's protocol", "See what connects there: TLS to a port without, or no client."
    ),
    "client-tls-failed": Remedy("TLS with a client failed", "See the reason, and the client's security.protocol."),
    "client-limited-to-one-connection": Remedy(
        "A client cannot be read for",
        "Give Sidefetch a login of its own (upstream-sasl), or the client PLAIN or OAUTHBEARER.",
    ),
    "ledger-write-failed": Remedy(
        "Rows of the ledger cannot be written",
        "Make room, or bring the folder back; rows wait while there is memory.",
    ),
    "ledger-produce-failed": Remedy(
        "Rows of the ledger cannot be produced", "See that the topic is there, and that it may be written to."
    ),
    "authentication-failed": Remedy(
        "A client's login was refused", "See its user and password, or what tries to guess."
    ),
    "reauthentication-failed": Remedy(
        "A login at a broker was not renewed", "See the credentials that it is made with."
    ),
    "credentials-reload-failed": Remedy(
        "New credentials cannot be used; the former ones are", "Put right the files that are named."
    ),
    "token-refresh-failed": Remedy("No new token; the former one is used", "See that the token's server answers."),
    "no-broker-in-rack": Remedy(
        "No broker is in our rack, so that all reads cross", "Set rack to a name that brokers have in broker.rack."
    ),
    "rack-unknown": Remedy("It is not known which rack this is", "Set rack, or put right the places of rack-from."),
    "open-files-limit-low": Remedy("Too few open files are allowed", "Raise ulimit -n, or lower max-connections."),
    "limit-reached": Remedy("A client reached a limit", "Raise it, or see what the client does."),
    "memory-exhausted": Remedy(
        "Reading waited for memory", "Raise the limit, or have clients ask for less at once."
    ),
    "broker-port-missing": Remedy("A broker has no port here", "Widen broker-ports."),
    "broker-port-taken": Remedy("A port of broker-ports is taken", "Free it, or move broker-ports."),
    "redirect-loop": Remedy(
        "Sidefetch's own connections are redirected to itself",
        "Name the user that it runs as in sidefetch redirect install --uid.",
    ),
    "broker-address-ambiguous": Remedy(
        "Several brokers have one address, so that redirected clients cannot be told apart",
        "Give each broker an address and port of its own.",
    ),
    "connection-forwarded": Remedy(
        "Connections pass by untouched",
        "To have TLS read for, have clients speak plaintext here and set upstream-tls, or set listen-tls-cert.",
    ),
    "connection-forward-failed": Remedy(
        "A redirected connection could not be passed on", "See whether its destination can be reached from here."
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
        "An answer differs from what the broker says", "Set bypass for that topic, and report it."
    ),
    "telemetry-export-failed": Remedy(
        "Telemetry could not be exported",
        "See that the Collector of OTEL_EXPORTER_OTLP_ENDPOINT runs and is reached.",
    ),
    "spans-dropped-at-shutdown": Remedy(
        "Spans were not exported before the end", "See that the Collector answers within a second or two."
    ),
    "settings-rejected": Remedy(
        "Settings were read again, and are wrong", "Put them right, and send SIGHUP again."
    ),
    "restart-required": Remedy("Settings have changed that need a restart", "Restart Sidefetch to have them."),
    "shutdown-forced": Remedy("A second signal ended Sidefetch", "Give it more time to stop."),
}
"""By event; every warning and error of the log is in here."""

_ALSO_AT_INFO: Final = ("memory-exhausted", "connection-forwarded")


@attrs.frozen
class Problem:
    """One thing that is, or was, wrong."""

    level: Level
    event: str
    """As in the log."""
    title: str
    remedy: str
    detail: str
    """Of the last time."""
    times: int
    first_us: int
    last_us: int

    @classmethod
    def now(cls, event: str, level: Level, detail: str, now_us: int) -> Self:
        """One that is seen at this moment."""
        advice = ADVICE[event]
        return cls(level, event, advice.title, advice.remedy, detail, 1, now_us, now_us)


class Problems:
    """Those of the last hour."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Problem] = {}

    def tell(self, level: Level, event: str, fields: Mapping[str, object], now_us: int) -> None:
        """*event* was told to the log."""
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
        """Those of the last hour, the worst and newest first."""
        return ordered(each for each in list(self._kept.values()) if each.last_us > now_us - _KEPT_US)


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda each: (_LEVELS[each.level], -each.last_us))


_LEVELS: Final = {"error": 0, "warning": 1, "info": 2}


def _detail(fields: Mapping[str, object]) -> str:
    told = ", ".join(
        f"{name} {value}" for name, value in fields.items() if value is not None and name not in _NOT_SHOWN
    )
    return told if len(told) <= _MOST_CHARS else told[:_MOST_CHARS] + "..."
