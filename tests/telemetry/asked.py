"""Records of the proxy, made by hand, and the connections that they belong to."""

from typing import Any

import attrs

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.events import ConversionRecord, ExchangeRecord, FetchRecord, SourceShare

__all__ = ["CONVERTED", "TOPOLOGY", "Asker", "exchange", "fetch", "share", "wall_us"]

TOPOLOGY = Topology(
    "cluster", {BrokerId(n): Broker(BrokerId(n), "h", 9092, rack) for n, rack in ((1, "a"), (2, "b"), (3, None))}
)
CONVERTED = ConversionRecord(to_magic=1, records=10, in_bytes=700, out_bytes=900, padding_bytes=20, cpu_us=55)


@attrs.define
class Asker:
    """A client's connection."""

    number: int = 7
    client_id: str | None = "app"
    topology: Topology = TOPOLOGY
    trace_id: str | None = None
    is_shared_cache: bool = False

    @property
    def connection_id(self) -> int | None:
        return None if self.is_shared_cache else self.number


def wall_us(at_s: float) -> int:
    """The clock of these tests began with 2001."""
    return 978_307_200_000_000 + round(at_s * 1_000_000)


def share(topic: str = "t", node: int = 1, **other: Any) -> SourceShare:
    given = {"leader": 1, "wanted": 3, "record_bytes": 700, "request_bytes": 40, **other}
    return SourceShare(topic, node, **given)


def exchange(**other: Any) -> ExchangeRecord:
    """One with records, answered after half a second."""
    given: dict[str, Any] = {
        "node": 1,
        "client_id": "app",
        "version": 4,
        "session_id": 0,
        "session_epoch": -1,
        "wanted": 3,
        "named": 3,
        "answered": 3,
        "with_data": 1,
        "request_bytes": 100,
        "response_bytes": 900,
        "source_bytes": 700,
        "held_bytes": 200,
        "delivered_bytes": 700,
        "sources": (share(),),
        "errors": (),
        "started_s": 10.0,
        "ended_s": 10.5,
        "waited_us": (("poll", 400_000), ("broker", 90_000), ("write", 10_000)),
    }
    return ExchangeRecord(**(given | other))


def fetch(**other: Any) -> FetchRecord:
    """One within a session, that has brought records."""
    given: dict[str, Any] = {
        "node": 2,
        "fetcher": "long-poll",
        "fetcher_id": "2-long-poll",
        "version": 17,
        "kind": "incremental",
        "session_id": 99,
        "epoch": 5,
        "size": 30,
        "named": 1,
        "forgotten": 0,
        "answered": 1,
        "request_bytes": 90,
        "response_bytes": 800,
        "record_bytes": 700,
        "dropped_bytes": 0,
        "error": 0,
        "throttle_ms": 0,
        "route": "leader",
        "topics": (("t", 700),),
        "sent_s": 10.0,
        "answered_s": 10.25,
    }
    return FetchRecord(**(given | other))
