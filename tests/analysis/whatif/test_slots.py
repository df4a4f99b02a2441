"""The slots that Spark computes for all brokers equal those of a loop over brokers."""

from collections import defaultdict

from pyspark.sql import SparkSession

from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.analysis.whatif.replay import Others, Outcome, Replay
from proxy.analysis.whatif.slots import RESULT, slots
from proxy.telemetry.ledger import Row
from tests.analysis.rows import columns, ledger_of, row

SECOND_US = 1_000_000


def fetch(at_s: float, session_id: int, **fields: object) -> Row:
    at_us = int(at_s * SECOND_US)
    defaults = {
        "at_us": at_us,
        "first_at_us": at_us,
        "node": 1,
        "fetcher_id": "1-long-poll",
        "kind": "incremental",
        "size": 10,
    }
    return row("fetch", **{**defaults, "session_id": session_id, **fields})


def test_each_broker_is_played_with_each_number_of_slots(spark: SparkSession) -> None:
    first, second = {"connection_id": 1}, {"connection_id": 2}
    ledger = ledger_of(
        spark,
        fetch(0, 5, kind="full", **first),
        fetch(1, 6, kind="full", **second),
        # a run of three fetches: its columns are sums
        fetch(4, 6, first_at_us=2 * SECOND_US, fetches=3, size=30, **second),
        row("session", at_us=5 * SECOND_US, node=1, side="upstream", event="closed", session_id=5),
        fetch(20, 6, **second),
        fetch(0, 9, kind="full", node=2, fetcher_id="2-long-poll", **first),
    )

    frame = slots(ledger, [1, 8], shards=1)

    assert columns(frame.schema) == columns(RESULT)
    rows = {(each["node"], each["slots"]): each for each in frame.collect()}
    assert rows.keys() == {(1, 1), (1, 8), (2, 1), (2, 8)}
    tight, wide, other = rows[1, 1], rows[1, 8], rows[2, 1]
    assert (wide["granted"], wide["refused"], wide["fetches"], wide["named_anew"]) == (2, 0, 6, 20)
    assert wide["hit_ratio"] == 4 / 6
    # The second fetcher is refused, names all in its run, and gets the slot once the first has gone.
    assert (tight["granted"], tight["refused"], tight["named_anew"]) == (2, 1, 10 + 10 + 30 + 10)
    assert (other["granted"], other["peak_partitions"]) == (1, 10)


def test_fetchers_of_shared_caches_have_sessions_of_their_own(spark: SparkSession) -> None:
    shared = {"connection_id": None, "kind": "full"}
    ledger = ledger_of(
        spark,
        fetch(0, 5, fetcher_id="cache-1/1-long-poll", **shared),
        fetch(1, 6, fetcher_id="cache-2/1-long-poll", **shared),
    )

    (result,) = slots(ledger, [8], shards=1).collect()

    assert (result["granted"], result["fetches"], result["peak_partitions"]) == (2, 2, 20)


def test_a_generated_fleet_is_played_as_without_spark(spark: SparkSession) -> None:
    mix = FleetMix(losses=0, duplicates=0, brokers=2, topics=3, restart_h=1)
    rows = [each for index in range(6) for each in sidecar_rows(mix, 1, index, 0.5) if each["record"] != "exchange"]
    others = Others(followers=1, clients=3)

    frame = slots(ledger_of(spark, *rows), [8], others=others)

    result = {each["node"]: each["evicted"] + each["refused"] for each in frame.collect()}
    assert result == {node: outcome.evicted + outcome.refused for node, outcome in played(rows, others).items()}
    assert sum(result.values())


def played(rows: list[Row], others: Others) -> dict[int, Outcome]:
    """Return the same by a loop over brokers."""
    events = []
    for each in rows:
        if each["record"] == "fetch":
            parts = [(each["first_at_us"], 1), (each["at_us"], each["fetches"] - 1)]
            events += [(at_us, fetches, each) for at_us, fetches in parts if fetches]
        elif each["record"] == "session" and (each["side"], each["event"]) == ("upstream", "closed"):
            events.append((each["at_us"], 0, each))
    replays: dict[int, Replay] = defaultdict(lambda: Replay(8, others=others))
    for at_us, fetches, each in sorted(events, key=lambda event: event[0]):
        replay = replays[each["node"]]
        if each["record"] == "session":
            replay.apply_end(each["proxy_id"], each["session_id"], at_us / 1e6)
            continue
        fetcher = f"{each['connection_id']}/{each['fetcher_id']}"
        size = each["size"] // each["fetches"]
        replay.apply_fetches(
            each["proxy_id"], fetcher, each["session_id"], size, fetches, at_us / 1e6, full=each["kind"] == "full"
        )
    return {node: replay.outcome for node, replay in replays.items()}
