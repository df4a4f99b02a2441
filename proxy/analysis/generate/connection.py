"""Simulated client connections: the ledger rows of their client fetches, upstream fetches, sessions and APIs."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from proxy.analysis.generate.cluster import GeneratedTopic
from proxy.analysis.generate.fetcher import VERSION, GeneratedFetcher
from proxy.analysis.generate.mix import FETCH, HEARTBEAT, METADATA, OFFSET_COMMIT, SERVED, ClientKind, FleetMix
from proxy.telemetry.ledger import Row

__all__ = ["REQUEST_BYTES", "RESPONSE_BYTES", "GeneratedConnection", "GeneratedReading", "GeneratedSource"]

REQUEST_BYTES: Final = (*[16] * 5, *[24] * 4, *[28] * 3, *[33] * 7)
"""Bytes of one partition in a Fetch request, by version."""
RESPONSE_BYTES: Final = (*[18] * 4, 30, *[38] * 6, 42, *[37] * 7)
"""Bytes of one partition in a Fetch response without records, by version."""
_HEAD_BYTES: Final = 60
"""Bytes of a request or response without its partitions."""
_RUN_US: Final = 60_000_000
"""Maximum duration of a folded run of client fetches without records."""
_HELD: Final = 0.2
"""Share of the fetches with records for which Sidefetch has buffered the records before the client asks."""
_REPORT_US: Final = 300_000_000
"""Interval between the client rows of a connection."""
_HOUR_US: Final = 3_600_000_000
_EVERY_US: Final = {METADATA: 300_000_000, OFFSET_COMMIT: 5_000_000, HEARTBEAT: 3_000_000}
"""Interval between requests of a client, by API key, from the defaults of Kafka's Java client."""
_CONVERTED_BYTES_S: Final = 150e6
"""Bytes that a core converts per second."""


@attrs.frozen
class GeneratedSource:
    """The partitions of one topic that a generated client reads from one broker and that have the same leader."""

    topic: GeneratedTopic
    node: int
    """The broker from which Sidefetch reads the partitions: a follower, or the leader."""
    rack: str | None
    """The rack of that broker."""
    leader_rack: str | None
    """The rack of the broker that leads the partitions."""
    wanted: int
    """The number of partitions."""


@attrs.frozen
class GeneratedReading:
    """The parameters of a generated client's reading from the partitions that one broker leads.

    They stay the same over successive connections of the client to that broker.
    """

    mix: FleetMix
    """The parameters of the fleet."""
    kind: ClientKind
    node: int
    """The broker that leads all these partitions."""
    sources: Sequence[GeneratedSource]
    """The partitions, by topic and by the broker from which Sidefetch reads them."""
    client: Mapping[str, Any]
    """The ledger columns client_id and software."""
    reader_rack: str | None
    """The rack of the sidecar; None if the sidecar does not know it."""
    hourly_news: float
    """Client fetches with records per hour, at the daily peak on a weekday."""
    odd_from_us: float
    """The time (microseconds since 1970) from which the traffic is ten times as high; infinite for never."""

    @property
    def wanted(self) -> int:
        """The number of partitions that each client fetch requests."""
        return sum(source.wanted for source in self.sources)

    def hourly(self, at_us: int) -> float:
        """Return the rate of client fetches with records, per hour, at the time *at_us* (microseconds since 1970).

        It follows a daily curve with its peak at 14:00 UTC, is lower on weekends, and ten times as high from
        ``odd_from_us``.
        """
        hours = at_us / _HOUR_US
        shape = 0.55 + 0.45 * math.cos((hours % 24 - 14) / 24 * 2 * math.pi)
        is_weekend = (int(hours // 24) + 3) % 7 >= 5  # 1 January 1970 was a Thursday
        return self.hourly_news * shape * (0.6 if is_weekend else 1.0) * (10 if at_us >= self.odd_from_us else 1)


@attrs.define
class GeneratedConnection:
    """A generator of the ledger rows of one simulated client connection, which begins at ``start_us``."""

    reading: GeneratedReading
    """The partitions that the client reads, and its traffic."""
    rng: Random
    common: Mapping[str, Any]
    """The columns that all rows of the sidecar have, and ``connection_id``."""
    start_us: int
    """Start of the connection, in microseconds since 1970."""
    _polls: int = 0
    _session_id: int = 0
    _reported_us: int = attrs.field(default=attrs.Factory(lambda self: self.start_us, takes_self=True))
    """The time of the last client row."""
    _requests: dict[int, list[int]] = attrs.field(factory=lambda: defaultdict(lambda: [0, 0]))
    """Numbers of requests and bytes since the connection began, by API key."""

    def rows(self, end_us: int, *, is_closed: bool) -> Iterator[Row]:
        """Yield the connection's ledger rows from ``start_us`` to *end_us*, roughly in order of time; call it once.

        They are rows about client fetches, upstream fetches, fetch sessions and used APIs. The caller sets their
        ``seq``.

        Args: end_us: the time at which the rows end, in microseconds since 1970.
              is_closed: whether the client disconnects at *end_us*, which ends its sessions and adds a last client
              row; otherwise the connection stays open.
        """
        fetchers = self._fetchers()
        now_us = self.start_us
        yield from (row for fetcher in fetchers.values() for row in fetcher.begin())
        yield from self._begin()
        while now_us < end_us:
            # At least 15 ms, so that fetchers complete their fetches; at most 15 minutes, because the rate changes.
            gap_us = 15_000 + int(self.rng.expovariate(max(self.reading.hourly(now_us), 1e-3)) * _HOUR_US)
            next_us = min(now_us + gap_us, now_us + _HOUR_US // 4, self._reported_us + _REPORT_US, end_us)
            rows = [row for fetcher in fetchers.values() for row in fetcher.wait(next_us)]
            rows += self._idle(now_us, next_us)
            if next_us == now_us + gap_us:
                rows += self._news(fetchers, next_us)
            if next_us >= self._reported_us + _REPORT_US or (next_us == end_us and is_closed):
                rows.append(self._client(next_us))
            now_us = next_us
            rows.sort(key=lambda row: int(row["at_us"]))
            yield from rows
        if is_closed:
            yield from (row for fetcher in fetchers.values() for row in fetcher.close(end_us))
            yield from self._client_session("closed", end_us)

    def _fetchers(self) -> dict[int, GeneratedFetcher]:
        sizes: dict[int, int] = defaultdict(int)
        racks = {source.node: source.rack for source in self.reading.sources}
        for source in self.reading.sources:
            sizes[source.node] += source.wanted
        return {
            node: GeneratedFetcher(
                self.reading.mix, self.rng, dict(self.common), node, racks[node], size, self.start_us
            )
            for node, size in sizes.items()
        }

    def _begin(self) -> Iterator[Row]:
        for key in self.reading.kind.apis:
            self._count_requests(key, 1, _HEAD_BYTES)
        if self.reading.kind.has_sessions:
            self._session_id = self.rng.randint(1, 2**31 - 8)
            yield from self._client_session("created", self.start_us)

    def _idle(self, now_us: int, until_us: int) -> Iterator[Row]:
        """Yield folded rows of long polls without records."""
        poll_us = int(self.reading.kind.poll_s * 1e6)
        while now_us + poll_us <= until_us:
            polls = max(min(until_us - now_us, _RUN_US) // poll_us, 1)
            waits = {"poll": polls * (poll_us - 300), "write": polls * 300}
            first_us = now_us + poll_us
            now_us += polls * poll_us
            row = self._exchange(now_us, polls, dict.fromkeys(self.reading.sources, 0), 0, waits)
            yield row | {"first_at_us": first_us}

    def _news(self, fetchers: Mapping[int, GeneratedFetcher], at_us: int) -> Iterator[Row]:
        """Yield rows of an upstream fetch that brings one topic's records, and of the client's fetch for them."""
        busy = [source for source in self.reading.sources if source.topic.is_busy] or self.reading.sources
        source = self.rng.choices(busy, [each.wanted for each in busy])[0]
        record_bytes = max(int(self.rng.lognormvariate(math.log(source.topic.news_bytes), 0.8)), 80)
        partitions = min(source.wanted, 1 + int(self.rng.expovariate(0.7)))
        yield from fetchers[source.node].bring(at_us, record_bytes, partitions)
        brought = dict.fromkeys(self.reading.sources, 0) | {source: record_bytes}
        is_held = self.rng.random() < _HELD
        waits = {
            "poll": 0 if is_held else self.rng.randrange(1, int(self.reading.kind.poll_s * 1e6)),
            "broker": 0 if is_held else self.rng.randrange(4000),
            "budget": self.rng.randrange(50_000) if self.rng.random() < 0.002 else 0,
            "throttle": self.rng.randrange(1_000_000) if self.rng.random() < 0.001 else 0,
            "write": 100 + record_bytes // 1000,
        }
        yield self._exchange(at_us + self.rng.randint(50, 900), 1, brought, partitions, waits)

    def _exchange(
        self,
        at_us: int,
        exchanges: int,
        brought: Mapping[GeneratedSource, int],
        with_data: int,
        waits: Mapping[str, int],
    ) -> Row:
        version, wanted, source_bytes = self.reading.kind.fetch_version, self.reading.wanted, sum(brought.values())
        stride = REQUEST_BYTES[version]
        # Each full fetch names all partitions, and so does its response; in a session only the first one is full.
        full = int(not self._polls) if self._session_id else exchanges
        named = answered = full * wanted or with_data
        converted = self._converted(source_bytes)
        delivered = converted["converted_out_bytes"] + converted["padding_bytes"] if converted else source_bytes
        request_bytes = exchanges * _HEAD_BYTES + named * stride
        response_bytes = exchanges * _HEAD_BYTES + answered * RESPONSE_BYTES[version] + delivered
        self._polls += exchanges
        self._count_requests(FETCH, exchanges, request_bytes)
        return {
            **self.common,
            **self.reading.client,
            "record": "exchange",
            "at_us": at_us,
            "first_at_us": at_us,
            "exchanges": exchanges,
            "fetch_version": version,
            "client_session_id": self._session_id,
            "client_session_epoch": self._polls - 1 if self._session_id else -1,
            "node_id": self.reading.node,
            "reader_rack": self.reading.reader_rack,
            "wanted": exchanges * wanted,
            "named": named,
            "answered": answered,
            "with_data": with_data,
            "request_bytes": request_bytes,
            "response_bytes": response_bytes,
            "direct_request_bytes": request_bytes,
            "direct_response_bytes": response_bytes + source_bytes - delivered,
            "direct_partition_looks": exchanges * wanted,
            "source_bytes": source_bytes,
            "delivered_bytes": delivered,
            "held_bytes": 0 if waits["poll"] else source_bytes,
            **(converted or _UNCONVERTED),
            "sources": [
                _source(self.reading.node, each, exchanges, stride, size) for each, size in brought.items()
            ],
            **_waits({**waits, "convert": converted.get("conversion_cpu_us", 0)}),
            "errors": [{"code": 6, "n": 1}] if with_data and self.rng.random() < 0.001 else [],
            "trace_id": None,
        }

    def _converted(self, source_bytes: int) -> dict[str, Any]:
        to = self.reading.kind.converted_to
        if to is None or not source_bytes:
            return {}
        out = int(source_bytes * self.rng.uniform(0.95, 1.3))
        of_topic = self.reading.sources[0].topic
        return {
            "converted_in_bytes": source_bytes,
            "converted_out_bytes": out,
            "converted_records": max(source_bytes // of_topic.record_bytes, 1),
            "padding_bytes": self.rng.randrange(out // 30 + 1) if self.rng.random() < 0.4 else 0,
            "conversion_cpu_us": int(source_bytes / _CONVERTED_BYTES_S * 1e6) + 40,
            "converted_to": to,
        }

    def _count_requests(self, key: int, requests: int, request_bytes: int) -> None:
        counts = self._requests[key]
        counts[0] += requests
        counts[1] += request_bytes

    def _client(self, at_us: int) -> Row:
        """Return a client row, after adding the client's other requests at their usual rates."""
        since_us, self._reported_us = at_us - self._reported_us, at_us
        for key, every_us in _EVERY_US.items():
            if key in self.reading.kind.apis:
                self._count_requests(key, since_us // every_us, since_us // every_us * 2 * _HEAD_BYTES)
        return {
            **self.common,
            **self.reading.client,
            "record": "client",
            "at_us": at_us,
            "first_at_us": at_us,
            "apis": [
                {
                    "key": key,
                    "version": self.reading.kind.apis[key],
                    "upgraded_to": VERSION if key == FETCH else max(self.reading.kind.apis[key], SERVED[key][0]),
                    "requests": requests,
                    "bytes": request_bytes,
                }
                for key, (requests, request_bytes) in sorted(self._requests.items())
            ],
        }

    def _client_session(self, event: str, at_us: int) -> Iterator[Row]:
        if self._session_id:
            row = {name: value for name, value in self.common.items() if name != "connection_id"}
            yield row | {
                "record": "session",
                "at_us": at_us,
                "first_at_us": at_us,
                "side": "client",
                "node": self.reading.node,
                "fetcher_id": None,
                "session_id": self._session_id,
                "event": event,
                "reason": None,
                "partitions": self.reading.wanted,
                "created_us": self.start_us,
                "last_used_us": at_us,
            }


_UNCONVERTED: Final = {
    "converted_in_bytes": 0,
    "converted_out_bytes": 0,
    "converted_records": 0,
    "padding_bytes": 0,
    "conversion_cpu_us": 0,
    "converted_to": None,
}


def _waits(waits: Mapping[str, int]) -> Row:
    causes = ("poll", "broker", "budget", "convert", "throttle", "write")
    return {"total_us": sum(waits.values()), **{f"{cause}_us": waits.get(cause, 0) for cause in causes}}


def _source(leader: int, source: GeneratedSource, exchanges: int, stride: int, record_bytes: int) -> Row:
    return {
        "topic": source.topic.name,
        "node": source.node,
        "rack": source.rack,
        "leader_node": leader,
        "leader_rack": source.leader_rack,
        "wanted": exchanges * source.wanted,
        "bytes": record_bytes,
        "request_share_bytes": exchanges * source.wanted * stride,
    }
