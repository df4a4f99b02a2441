"""Records of a proxy's work, made by hand, and their connection."""

from typing import Any

import attrs

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.events import ClientRecord, ConversionRecord, ExchangeRecord, FetchRecord, SessionRecord, UsedApi
from proxy.telemetry.snapshot import BudgetSnapshot, MetricsSnapshot
from proxy.telemetry.state import ReadingState

__all__ = ["NOW_US", "TOPOLOGY", "Link", "busy", "client", "conversion", "exchange", "facts_of", "fetch", "session"]

NOW_US = 1_700_000_000_000_000
TOPOLOGY = Topology(
    "cluster",
    {
        BrokerId(node): Broker(BrokerId(node), f"b{node}", 9092, rack)
        for node, rack in [(1, "a"), (2, "b"), (3, None)]
    },
)


@attrs.define
class Link:
    """A client's connection."""

    number: int = 1
    peer: str = "10.0.0.1:5000"
    topology: Topology = TOPOLOGY
    client_id: str | None = "reader"
    is_shared_cache: bool = False

    @property
    def connection_id(self) -> int | None:
        return None if self.is_shared_cache else self.number


def fetch(**changed: Any) -> FetchRecord:
    record = FetchRecord(
        node=1,
        fetcher="long-poll",
        fetcher_id="1-long-poll",
        version=13,
        kind="incremental",
        session_id=7,
        epoch=3,
        size=10,
        named=2,
        forgotten=0,
        answered=1,
        request_bytes=100,
        response_bytes=1500,
        record_bytes=1400,
        dropped_bytes=0,
        error=0,
        throttle_ms=0,
        route="leader",
        topics=(("t", 1400),),
        sent_s=1.0,
        answered_s=2.0,
    )
    return attrs.evolve(record, **changed)


def exchange(**changed: Any) -> ExchangeRecord:
    record = ExchangeRecord(
        node=1,
        client_id="reader",
        version=4,
        session_id=0,
        session_epoch=-1,
        wanted=10,
        named=10,
        answered=10,
        with_data=1,
        request_bytes=400,
        response_bytes=2000,
        source_bytes=1400,
        held_bytes=1400,
        delivered_bytes=1400,
        sources=(),
        errors=(),
        started_s=1.0,
        ended_s=2.0,
        waited_us=(("poll", 900_000), ("broker", 100_000)),
    )
    return attrs.evolve(record, **changed)


def session(event: Any, **changed: Any) -> SessionRecord:
    return attrs.evolve(SessionRecord(1, 7, event, 10, "upstream", "1-long-poll"), **changed)


def client(software: str = "librdkafka 0.11.6", *, requests: int = 5, client_id: str = "reader") -> ClientRecord:
    apis = (UsedApi(0, 2, 3, requests, 1000), UsedApi(3, 5, 5, 1, 50))
    return ClientRecord(client_id, software, False, apis)


def conversion(**changed: Any) -> ConversionRecord:
    return attrs.evolve(ConversionRecord(1, 50, 1400, 1600, 100, 2500), **changed)


def facts_of(state: ReadingState) -> MetricsSnapshot:
    return MetricsSnapshot(
        state=state,
        now_us=NOW_US + 5_000_000,
        version="1",
        status="ready",
        is_reached=True,
        topology=TOPOLOGY,
        connections=1,
        counts={"connections": 4, "limit_max_frame": 2, "limit_memory": 3},
        ledger_lost=7,
        budgets=(BudgetSnapshot("memory", 100, 10, 1),),
        client_sessions=5,
        client_session_partitions=50,
        client_session_evictions=6,
        client_session_limit=1000,
        topics=(("t", 1400, 0),),
        bypass="",
        share_reads_except="",
        problems=(),
        certificates=(("listen", 86_400.0),),
    )


def busy() -> ReadingState:
    """Somebody has read."""
    state = ReadingState("a", NOW_US)
    errors = ((6, 1),)
    for record in (session("created"), fetch(), conversion(), exchange(errors=errors), client()):
        state.observe(Link(), record, NOW_US)
    return state
