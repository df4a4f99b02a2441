"""Records of a conversation, as the core emits them."""

from typing import Any

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.events import ConversionRecord, ExchangeRecord, FetchRecord, SessionRecord, SourceShare
from proxy.telemetry.spans import SpanSubject

__all__ = ["ABOUT", "TOPOLOGY", "conversion", "exchange", "fetch", "reset"]

TOPOLOGY = Topology(
    "cluster",
    {
        BrokerId(1): Broker(BrokerId(1), "kafka-1", 9092, "a"),
        BrokerId(2): Broker(BrokerId(2), "kafka-2", 9093, "b"),
    },
)
ABOUT = SpanSubject(7, "127.0.0.1:40000", "app", TOPOLOGY, "a")


def fetch(sent_s: float, answered_s: float, **changes: Any) -> FetchRecord:
    """A read of 100 bytes of ``t`` from broker 1, within a session."""
    fields: dict[str, Any] = {
        "node": 1,
        "fetcher": "long-poll",
        "fetcher_id": "1-long-poll",
        "version": 17,
        "kind": "incremental",
        "session_id": 42,
        "epoch": 3,
        "size": 50,
        "named": 2,
        "forgotten": 1,
        "answered": 1,
        "request_bytes": 80,
        "response_bytes": 180,
        "record_bytes": 100,
        "dropped_bytes": 0,
        "error": 0,
        "throttle_ms": 0,
        "route": "leader",
        "topics": (("t", 100),),
    }
    return FetchRecord(**{**fields, **changes}, sent_s=sent_s, answered_s=answered_s)


def exchange(started_s: float, ended_s: float, **changes: Any) -> ExchangeRecord:
    """One that brought 100 bytes of ``t`` from broker 1, and waited for nothing but the broker."""
    fields: dict[str, Any] = {
        "node": 1,
        "client_id": "app",
        "version": 4,
        "session_id": 0,
        "session_epoch": -1,
        "wanted": 50,
        "named": 50,
        "answered": 50,
        "with_data": 1,
        "request_bytes": 900,
        "response_bytes": 1000,
        "source_bytes": 100,
        "held_bytes": 0,
        "delivered_bytes": 100,
        "sources": (SourceShare("t", 1, 1, 50, 100, 800),),
        "errors": (),
        "waited_us": (("broker", round((ended_s - started_s) * 1e6)),),
    }
    return ExchangeRecord(**{**fields, **changes}, started_s=started_s, ended_s=ended_s)


def reset(**changes: Any) -> SessionRecord:
    """A session of a minute that a broker did not find any more."""
    fields: dict[str, Any] = {
        "node": 1,
        "session_id": 42,
        "event": "evicted",
        "partitions": 50,
        "fetcher_id": "1-long-poll",
        "reason": "evicted",
        "created_s": 40.0,
        "used_s": 99.0,
    }
    return SessionRecord(**{**fields, **changes})


def conversion(**changes: Any) -> ConversionRecord:
    fields: dict[str, Any] = {
        "to_magic": 1,
        "records": 10,
        "in_bytes": 100,
        "out_bytes": 90,
        "padding_bytes": 5,
        "cpu_us": 2000,
    }
    return ConversionRecord(**{**fields, **changes})
