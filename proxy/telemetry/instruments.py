"""The declarations of every metric: name, unit, meaning, attributes, and its value.

Names and units follow OpenTelemetry; Prometheus' names are derived from these by OpenTelemetry's rule. Attributes
have few values: no client ids, no topics, no partitions. ``state`` bounds those that come from clients.

Source: KIP-227 and KIP-392 for the brokers' metrics of sessions and of preferred replicas. Units are UCUM's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

import attrs

from proxy.config.allowed_apis import API_NAMES
from proxy.convert.versions.table import TARGETS
from proxy.errors import ErrorCode
from proxy.telemetry.durations import Durations
from proxy.telemetry.snapshot import MetricsSnapshot
from proxy.telemetry.state import OTHER, by_rack

__all__ = [
    "DELAY",
    "INSTRUMENTS",
    "Histogram",
    "Instrument",
    "Point",
    "api_name",
    "error_name",
    "is_upgraded",
    "markdown_table",
]

Kind = Literal["counter", "gauge"]
Point = tuple[float, Mapping[str, str]]
"""A value and its attributes."""

_SUFFIXES: Final = {"By": "_bytes", "s": "_seconds"}


@attrs.frozen
class Instrument:
    """The declaration of one counter or gauge, with the function that reads its values."""

    name: str
    """The name in OpenTelemetry, such as ``sidefetch.client.fetches``."""
    kind: Kind
    """Counters only grow."""
    unit: str
    """``By`` for bytes, ``s`` for seconds, or the counted objects in braces; {boolean} is 1 for yes, 0 for no."""
    meaning: str
    """The description in ``METRICS.md`` and in the help text of Prometheus."""
    attributes: tuple[str, ...]
    """The names of the attributes of every value (labels in Prometheus)."""
    read: Callable[[MetricsSnapshot], Iterable[Point]]
    """Returns the present values with their attributes."""

    @property
    def prometheus(self) -> str:
        """The name of the metric in Prometheus, such as ``sidefetch_client_fetches_total``."""
        return _prometheus(self.name, self.unit) + ("_total" if self.kind == "counter" else "")


@attrs.frozen
class Histogram:
    """The declaration of one histogram of durations, with the function that reads its buckets."""

    name: str
    """The name in OpenTelemetry."""
    unit: str
    meaning: str
    """The description in ``METRICS.md`` and in the help text of Prometheus."""
    read: Callable[[MetricsSnapshot], Durations]

    @property
    def prometheus(self) -> str:
        """The name of the histogram in Prometheus, without the suffixes ``_bucket``, ``_sum`` and ``_count``."""
        return _prometheus(self.name, self.unit)


def _prometheus(name: str, unit: str) -> str:
    return name.replace(".", "_") + _SUFFIXES.get(unit, "")


def _one(read: Callable[[MetricsSnapshot], float]) -> Callable[[MetricsSnapshot], Iterable[Point]]:
    return lambda facts: ((read(facts), {}),)


def _counted(counts: Mapping[str, str], attribute: str) -> Callable[[MetricsSnapshot], Iterable[Point]]:
    """Return a reader of the counters of ``MetricsSnapshot.counts`` that are keys of *counts*.

    The values of *counts* become the values of *attribute*.
    """
    return lambda facts: [(facts.counts.get(name, 0), {attribute: value}) for name, value in counts.items()]


def api_name(key: int) -> str:
    """Return the name of the API with Kafka's API key *key*, such as ``ListOffsets``; ``(other)`` if unknown."""
    return API_NAMES.get(key, OTHER)


def is_upgraded(key: int, version: int, to: int) -> bool:
    """Return whether a client's request of API *key* was upgraded from a removed *version* to version *to*.

    False if current brokers still serve *version*, even if *to* is newer: Sidefetch's own fetches use the newest.
    """
    return to != version and (key, version) in TARGETS


def error_name(code: int) -> str:
    """Return Kafka's name of an error code in lower case: ``not_leader_or_follower``; ``(other)`` if unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return OTHER


def _io(side: str) -> Callable[[MetricsSnapshot], Iterable[Point]]:
    def read(facts: MetricsSnapshot) -> Iterator[Point]:
        for direction in ("request", "response"):
            yield getattr(facts.state.total, f"{side}_{direction}_bytes"), {"direction": direction}

    return read


def _limits(facts: MetricsSnapshot) -> Iterator[Point]:
    for name, times in sorted(facts.counts.items()):
        if name.startswith("limit_"):
            yield times, {"limit": name.removeprefix("limit_").replace("_", "-")}


def _fetches(facts: MetricsSnapshot) -> Iterator[Point]:
    for shape, times in facts.state.fetches.items():
        yield times, attrs.asdict(shape)


def _routes(facts: MetricsSnapshot) -> Iterator[Point]:
    for route in ("leader", "preferred", "selected", "rackless"):
        requested = sum(broker.partitions[route] for broker in facts.state.brokers.values())
        yield requested, {"route": route}


def _racks(facts: MetricsSnapshot) -> Iterator[Point]:
    ours = facts.state.rack
    for rack, record_bytes in sorted(by_rack(facts.state.brokers).items(), key=lambda each: each[0] or ""):
        crossed = "unknown" if rack is None or ours is None else str(rack != ours).lower()
        yield record_bytes, {"rack": rack or "", "crossed": crossed}


def _events(side: str) -> Callable[[MetricsSnapshot], Iterable[Point]]:
    def read(facts: MetricsSnapshot) -> Iterator[Point]:
        for (of, event, reason), times in facts.state.session_events.items():
            if of == side:
                yield times, {"event": event, "reason": reason}

    return read


def _requests(facts: MetricsSnapshot) -> Iterator[Point]:
    for (key, version, to), requests in facts.state.requests.items():
        yield (
            requests,
            {"api": api_name(key), "version": str(version), "upgraded": str(is_upgraded(key, version, to)).lower()},
        )


def _software(facts: MetricsSnapshot) -> Iterator[Point]:
    for (software, is_guess), connections in facts.state.software().items():
        yield connections, {"software": software or "unknown", "guess": str(is_guess).lower()}


_FAILED: Final = {
    "logins_refused": "login",
    "handshakes_failed": "tls",
    "client_protocol_errors": "client_protocol",
    "broker_protocol_errors": "broker_protocol",
    "brokers_unavailable": "broker_unavailable",
}
_PASSED: Final = {"passed_tls": "tls", "passed_other": "other"}
_VERIFIED: Final = {"verified": "compared", "verify_differences": "different", "verify_failed": "failed"}

INSTRUMENTS: Final = (
    Instrument(
        "sidefetch.client.connections", "gauge", "{connection}",
        "Open client connections.", (), _one(lambda f: f.connections),
    ),
    Instrument(
        "sidefetch.client.connections.opened", "counter", "{connection}",
        "Accepted client connections.", (), _one(lambda f: f.counts.get("connections", 0)),
    ),
    Instrument(
        "sidefetch.client.connections.failed", "counter", "{connection}",
        "Client connections that ended with an error, by its origin.", ("reason",), _counted(_FAILED, "reason"),
    ),
    Instrument(
        "sidefetch.client.connections.passed", "counter", "{connection}",
        "Redirected connections that were forwarded unchanged, by protocol: TLS, or another that is not"
        " Kafka's.", ("protocol",), _counted(_PASSED, "protocol"),
    ),
    Instrument(
        "sidefetch.client.software", "gauge", "{connection}",
        "Client connections by client library and version, from ApiVersions (KIP-511) or guessed.",
        ("software", "guess"), _software,
    ),
    Instrument(
        "sidefetch.client.requests", "counter", "{request}",
        "Client requests by API and version, counted every few minutes; upgraded: the version was removed"
        " from the brokers, and the request was sent in a newer one.", ("api", "version", "upgraded"), _requests,
    ),
    Instrument(
        "sidefetch.client.fetches", "counter", "{fetch}",
        "Client fetches that were answered.", (), _one(lambda f: f.state.total.client_fetches),
    ),
    Instrument(
        "sidefetch.client.fetch.io", "counter", "By",
        "Bytes of client fetches and their responses, records included.", ("direction",), _io("client"),
    ),
    Instrument(
        "sidefetch.client.fetch.records.io", "counter", "By",
        "Bytes of records in responses to clients.", (), _one(lambda f: f.state.total.delivered_bytes),
    ),
    Instrument(
        "sidefetch.client.fetch.held.io", "counter", "By",
        "Bytes of records that were buffered before the client asked.", (),
        _one(lambda f: f.state.total.held_bytes),
    ),
    Instrument(
        "sidefetch.client.fetch.partitions", "counter", "{partition}",
        "Partitions that client fetches asked for, named or remembered by a session.", (),
        _one(lambda f: f.state.total.client_partitions),
    ),
    Instrument(
        "sidefetch.client.fetch.wait", "counter", "s",
        "Time that client fetches waited, by cause: new records (poll), the broker, memory (budget),"
        " conversion (convert), throttling (throttle), the client itself (write).", ("cause",),
        lambda f: [(us / 1e6, {"cause": cause}) for cause, us in f.state.waited_us.items()],
    ),
    Instrument(
        "sidefetch.client.fetch.errors", "counter", "{error}",
        "Error codes in responses to clients, of partitions and of whole responses.", ("error",),
        lambda f: [(times, {"error": error_name(code)}) for code, times in f.state.errors.items()],
    ),
    Instrument(
        "sidefetch.client.sessions", "gauge", "{session}",
        "Fetch sessions of clients with Sidefetch: NumIncrementalFetchSessions of KIP-227.", (),
        _one(lambda f: f.client_sessions),
    ),
    Instrument(
        "sidefetch.client.sessions.limit", "gauge", "{session}",
        "Largest number of these sessions.", (), _one(lambda f: f.client_session_limit),
    ),
    Instrument(
        "sidefetch.client.session.partitions", "gauge", "{partition}",
        "Partitions in these sessions: NumIncrementalFetchPartitionsCached of KIP-227.", (),
        _one(lambda f: f.client_session_partitions),
    ),
    Instrument(
        "sidefetch.client.session.evictions", "counter", "{session}",
        "Sessions of clients that were evicted for others: IncrementalFetchSessionEvictionsPerSec of"
        " KIP-227.", (),
        _one(lambda f: f.client_session_evictions),
    ),
    Instrument(
        "sidefetch.client.session.events", "counter", "{event}",
        "Events of these sessions.", ("event", "reason"), _events("client"),
    ),
    Instrument(
        "sidefetch.broker.sessions", "gauge", "{session}",
        "Fetch sessions of Sidefetch at brokers; each takes a slot there.", (),
        _one(lambda f: len(f.state.sessions())),
    ),
    Instrument(
        "sidefetch.broker.session.partitions", "gauge", "{partition}",
        "Partitions in these sessions.", (), _one(lambda f: sum(each.partitions for each in f.state.sessions())),
    ),
    Instrument(
        "sidefetch.broker.session.events", "counter", "{event}",
        "Events of these sessions: created, closed; refused, reset and evicted, with the broker's"
        " reason.",
        ("event", "reason"), _events("upstream"),
    ),
    Instrument(
        "sidefetch.broker.fetches", "counter", "{fetch}",
        "Sidefetch's own fetches that brokers answered.", ("kind", "fetcher", "route"), _fetches,
    ),
    Instrument(
        "sidefetch.broker.fetch.io", "counter", "By",
        "Bytes of these fetches and their responses, records included.", ("direction",), _io("broker"),
    ),
    Instrument(
        "sidefetch.broker.fetch.records.io", "counter", "By",
        "Bytes of records from brokers, by the broker's rack, and whether that is another rack than"
        " Sidefetch's.",
        ("rack", "crossed"), _racks,
    ),
    Instrument(
        "sidefetch.broker.fetch.partitions", "counter", "{partition}",
        "Partitions in these fetches, named or remembered, by the reason for the replica: preferred by"
        " the leader (KIP-392), selected by Sidefetch, or the leader.", ("route",), _routes,
    ),
    Instrument(
        "sidefetch.broker.fetch.named", "counter", "{partition}",
        "Partitions that these fetches named.", (), _one(lambda f: f.state.total.broker_named),
    ),
    Instrument(
        "sidefetch.broker.fetch.throttle", "counter", "s",
        "Throttle time in brokers' responses.", (), _one(lambda f: f.state.throttled_ms / 1000),
    ),
    Instrument(
        "sidefetch.broker.connections.opened", "counter", "{connection}",
        "Connections to brokers that were opened for clients.", (),
        _one(lambda f: f.counts.get("upstream_connections", 0)),
    ),
    Instrument(
        "sidefetch.broker.reachable", "gauge", "{boolean}",
        "Whether the last metadata request was answered; absent with upstream-sasl client.", (),
        lambda f: [] if f.is_reached is None else [(int(f.is_reached), {})],
    ),
    Instrument(
        "sidefetch.broker.in_rack", "gauge", "{boolean}",
        "Whether a broker is in the rack of this process; absent where either is unknown.", (),
        lambda f: [] if f.has_broker_in_rack is None else [(int(f.has_broker_in_rack), {})],
    ),
    Instrument(
        "sidefetch.saved.fetches", "gauge", "{fetch}",
        "Client fetches less Sidefetch's own fetches, since the start.", (),
        _one(lambda f: f.state.total.saved_fetches),
    ),
    Instrument(
        "sidefetch.saved.io", "gauge", "By",
        "Bytes of client fetches less those of Sidefetch's own, since the start: without records, but with the"
        " records of shared reads.", (),
        _one(lambda f: f.state.total.saved_bytes),
    ),
    Instrument(
        "sidefetch.shared.records.io", "counter", "By",
        "Bytes of records of shared reads (share-reads), in the brokers' size: from brokers (fetched), and in"
        " responses to clients (delivered).", ("direction",),
        lambda f: [
            (f.state.total.shared_fetched_bytes, {"direction": "fetched"}),
            (f.state.total.shared_delivered_bytes, {"direction": "delivered"}),
        ],
    ),
    Instrument(
        "sidefetch.conversion.records", "counter", "{record}",
        "Converted records, by their new format.", ("magic",),
        lambda f: [(records, {"magic": str(magic)}) for magic, records in f.state.converted.items()],
    ),
    Instrument(
        "sidefetch.conversion.io", "counter", "By",
        "Bytes of records before (in) and after (out) conversion, and of padding.",
        ("direction",),
        lambda f: [
            (f.state.total.converted_in_bytes, {"direction": "in"}),
            (f.state.total.converted_out_bytes, {"direction": "out"}),
            (f.state.total.padding_bytes, {"direction": "padding"}),
        ],
    ),
    Instrument(
        "sidefetch.conversion.cpu", "counter", "s",
        "CPU time of the conversion threads.", (), _one(lambda f: f.state.total.conversion_cpu_us / 1e6),
    ),
    Instrument(
        "sidefetch.records.damaged", "counter", "{batch}",
        "Batches with a wrong checksum, which were not converted.", (), _one(lambda f: f.state.damaged),
    ),
    Instrument(
        "sidefetch.records.truncated", "counter", "{event}",
        "Times that records which a client had read were gone from the log.", (), _one(lambda f: f.state.truncated),
    ),
    Instrument(
        "sidefetch.client.fetch.stalled", "counter", "{fetch}",
        "Client fetches that outlived their wait by response-timeout, and were answered with a retriable"
        " error.",
        (), _one(lambda f: f.state.stalled),
    ),
    Instrument(
        "sidefetch.verify.answers", "counter", "{answer}",
        "Partitions that were compared with the broker's own response.", ("result",), _counted(_VERIFIED, "result"),
    ),
    Instrument(
        "sidefetch.memory.limit", "gauge", "By",
        "Size of a memory budget, by the option that sets it; fetches is that for the partitions of fetches.",
        ("budget",),
        lambda f: [(each.limit_bytes, {"budget": each.name}) for each in f.budgets],
    ),
    Instrument(
        "sidefetch.memory.usage", "gauge", "By",
        "Used part of the budget.", ("budget",),
        lambda f: [(each.claimed_bytes, {"budget": each.name}) for each in f.budgets],
    ),
    Instrument(
        "sidefetch.memory.waiting", "gauge", "{frame}",
        "Frames that wait for memory; for fetches, connections that were asked to free some.", ("budget",),
        lambda f: [(each.waiting, {"budget": each.name}) for each in f.budgets],
    ),
    Instrument(
        "sidefetch.event_loop.longest_turn", "gauge", "s",
        "Longest turn of the event loop in the last one to two minutes: so long, all clients waited.", (),
        _one(lambda f: f.longest_turn_s),
    ),
    Instrument(
        "sidefetch.limit.reached", "counter", "{event}",
        "Times that a limit was reached, by the option that sets it; for memory, times that a frame"
        " waited.",
        ("limit",), _limits,
    ),
    Instrument(
        "sidefetch.ledger.lost", "counter", "{row}",
        "Rows of the ledger that were lost.", (), _one(lambda f: f.ledger_lost),
    ),
    Instrument(
        "sidefetch.certificate.life", "gauge", "s",
        "Time until the certificate expires; negative afterwards.", ("certificate",),
        lambda f: [(life_s, {"certificate": name}) for name, life_s in f.certificates],
    ),
    Instrument(
        "sidefetch.problems", "gauge", "{problem}",
        "Problems of the last hour, as the status page shows them.", ("level",),
        lambda f: [
            (sum(each.level == level for each in f.problems), {"level": level})
            for level in ("error", "warning", "info")
        ],
    ),
    Instrument(
        "sidefetch.bugs", "counter", "{bug}",
        "Unexpected exceptions.", (), _one(lambda f: f.counts.get("bugs", 0)),
    ),
    Instrument(
        "sidefetch.ready", "gauge", "{boolean}",
        "Whether clients can connect and no shutdown has begun.", (),
        _one(lambda f: int(f.status == "ready")),
    ),
    Instrument(
        "sidefetch.uptime", "gauge", "s",
        "Time since the start.", (), _one(lambda f: (f.now_us - f.state.started_us) / 1e6),
    ),
    Instrument(
        "sidefetch.info", "gauge", "{boolean}",
        "1, with the version and the rack of this process.", ("version", "rack"),
        lambda f: [(1, {"version": f.version, "rack": f.state.rack or ""})],
    ),
)  # fmt: skip


DELAY: Final = Histogram(
    "sidefetch.client.fetch.delay",
    "s",
    "Histogram of the time from a client fetch's last byte to the last byte of its response, without"
    " the wait for new records.",
    lambda f: f.state.delays,
)


def markdown_table() -> str:
    """Return the Markdown table of all metrics in ``proxy/telemetry/METRICS.md``."""
    rows = ["| OpenTelemetry | Prometheus | unit | by | meaning |", "|---|---|---|---|---|"]
    rows.append(f"| `{DELAY.name}` | `{DELAY.prometheus}` | {DELAY.unit} |  | {DELAY.meaning} |")
    rows += [
        f"| `{each.name}` | `{each.prometheus}` | {each.unit} | {', '.join(each.attributes)} | {each.meaning} |"
        for each in INSTRUMENTS
    ]
    return "\n".join(rows) + "\n"
