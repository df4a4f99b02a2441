from typing import Any

from pyspark.sql import SparkSession

from proxy.analysis.answers.sessions import sessions
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

S = 1_000_000


def event(name: str, session_id: int, at_s: int, **fields: Any) -> Row:
    return row(
        "session", event=name, session_id=session_id, at_us=at_s * S, **{"side": "upstream", "node": 1} | fields
    )


def fetch(kind: str, **fields: Any) -> Row:
    return row("fetch", kind=kind, **{"node": 1, "connection_id": 1, "session_id": 7} | fields)


def test_lives_ends_and_hits_of_sessions(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        event("created", 7, 100, partitions=10, created_us=100 * S),
        event("evicted", 7, 400, partitions=30, created_us=100 * S, reason="unknown"),
        event("created", 8, 400, partitions=30, created_us=400 * S),
        event("reset", 8, 401, created_us=400 * S, reason="epoch"),
        event("reset", 9, 700, created_us=500 * S, reason="epoch"),
        event("refused", 0, 800, partitions=99, reason="none granted"),
        event("closed", 4, 900),  # since when is not known
        event("created", 7, 100, side="client"),
        event("closed", 7, 160, side="client"),
        fetch("full"),
        fetch("incremental", fetches=4, weight=2.0),
        fetch("incremental", error=13, weight=2.0),  # it was under way when its client left
        fetch("incremental", error=70),
        fetch("sessionless", size=0),  # which closes the session
        row("exchange", node_id=1, exchanges=9, client_session_id=7, client_session_epoch=9),
        row("exchange", node_id=1, client_session_id=0, client_session_epoch=-1),
        row("exchange", node_id=1, client_session_id=0, client_session_epoch=10),  # refused
        row("exchange", node_id=2, client_session_id=0, client_session_epoch=-1),
    )

    rows = {(each["side"], each["node"]): each for each in sessions(ledger).collect()}

    assert rows["upstream", 1].asDict(recursive=True) == {
        "day": None,
        "cluster_id": "cluster",
        "side": "upstream",
        "node": 1,
        "client_id": None,
        "created": 2,
        "refused": 1,
        "evicted": 1,
        "reset": 2,
        "closed": 1,
        "reasons": [
            {"event": "evicted", "reason": "unknown", "sessions": 1},
            {"event": "refused", "reason": "none granted", "sessions": 1},
            {"event": "reset", "reason": "epoch", "sessions": 2},
        ],
        "mean_partitions": 20.0,
        "median_life_s": 200.0,
        "short_lives": 1,
        "fetches": 12,
        "incremental_fetches": 10,
        "hit_ratio": 10 / 12,
        "is_thrashing": False,
    }
    client = rows["client", 1]
    assert (client["median_life_s"], client["fetches"], client["incremental_fetches"]) == (60.0, 11, 9)
    assert (rows["client", 2]["hit_ratio"], rows["client", 2]["created"]) == (0.0, 0)


def lives(proxy_id: str, first_id: int, life_s: int) -> list[Row]:
    """Return rows of ten sessions, one created each second."""
    events = []
    for number in range(10):
        known = {"proxy_id": proxy_id, "created_us": number * S}
        events.append(event("created", first_id + number, number, **known))
        events.append(event("reset", first_id + number, number + life_s, **known))
    return events


def test_client_with_short_lived_sessions_is_thrashing(spark: SparkSession) -> None:
    ledger = ledger_of(
        spark,
        *lives("one", 10, life_s=119),
        row("exchange", proxy_id="one", connection_id=1, client_id="thrasher"),
        *lives("two", 100, life_s=120),
        *(fetch("incremental", proxy_id="two", session_id=100 + each) for each in range(10)),
        *(row("client", proxy_id="two", connection_id=each, client_id=f"c{each}") for each in (1, 2)),
        event("refused", 0, 500, proxy_id="two"),  # of which of the two is not known
    )

    rows = {
        each["client_id"]: each
        for each in sessions(ledger, by=["client_id"]).collect()
        if each["side"] == "upstream"
    }

    assert {client: (each["created"], each["is_thrashing"]) for client, each in rows.items()} == {
        "thrasher": (10, True),
        "c1": (10, False),
        None: (0, False),
    }
    assert rows[None]["refused"] == 1
    assert rows["c1"]["incremental_fetches"] == 10
