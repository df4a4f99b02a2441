"""The ledger without sampling has the bytes that taps saw at the clients and at the brokers."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from proxy.telemetry.ledger import Row, problems
from tests.clients.conversation import Client
from tests.conformance.raw import tapped
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch

pytestmark = pytest.mark.kafka

PARTITIONS = 30
OLD, NEW = "java-0.10.2.2", "java"
"""One whose records are converted, and one that has sessions."""
WAIT_MS = 1000
ENDLESS = 1_000_000


def written(folder: Path) -> list[Row]:
    """The rows of all files, which are all finished, by number: none is missing or there twice."""
    assert not list(folder.glob(".*"))
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert not [problem for row in rows for problem in problems(row)]
    rows.sort(key=lambda row: row["seq"])
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    return rows


def sums(rows: Sequence[Row], *columns: str) -> tuple[int, ...]:
    return tuple(sum(row[column] for row in rows) for column in columns)


def seen(fetches: Sequence[SeenFetch]) -> tuple[int, int, int]:
    return (
        len(fetches),
        sum(fetch.request_bytes for fetch in fetches),
        sum(fetch.response_bytes for fetch in fetches),
    )


def of(rows: Sequence[Row], record: str) -> list[Row]:
    return [row for row in rows if row["record"] == record]


def test_ledger_rows_equal_traffic_seen_by_taps(kafka4: KafkaCluster, tmp_path: Path) -> None:
    admin = Admin(kafka4)
    topic, produced = admin.filled_topic("ledger-wire", PARTITIONS)
    how = {"partitions": list(range(PARTITIONS)), "count": ENDLESS, "wait_ms": WAIT_MS}
    options = ("--ledger", str(tmp_path), "--rack", "b", "--upstream-max-wait", "10s", "--grace", "0s")
    with kafka4.tap() as brokers:
        with tapped(brokers.bootstrap, *options) as (sidefetch, clients, bootstrap), ExitStack() as running:
            programs = [running.enter_context(Client(name)) for name in (OLD, NEW)]
            readings = [program.begin("read", bootstrap, topic, **how) for program in programs]
            for reading in readings:
                reading.wait_for(len(produced))
            produced += admin.produce_known(topic, 1, PARTITIONS, first=len(produced))
            for reading in readings:
                values = Counter(record.value for record in reading.wait_for(len(produced)))
                assert values == Counter(record.value for record in produced)
            read = len(clients.answered())
            eventually(lambda: len(clients.answered()) >= read + 6 * len(kafka4.brokers), "idle polls")
            sidefetch.process.stop(10)
        at_clients, at_brokers = clients.answered(), list(brokers.fetches)
    rows = written(tmp_path)
    exchanges, fetches = of(rows, "exchange"), of(rows, "fetch")

    assert sums(exchanges, "exchanges", "request_bytes", "response_bytes") == seen(at_clients)
    assert sums(fetches, "fetches", "request_bytes") == seen(at_brokers)[:2]
    # The last responses to a client that left are seen by the tap alone.
    unheard = seen(at_brokers)[2] - sums(fetches, "response_bytes")[0]
    asked = Counter(row["request_bytes"] for row in fetches if row["error"] == 13)
    last = [fetch for fetch in {fetch.connection: fetch for fetch in at_brokers}.values() if fetch.response_bytes]
    assert any(
        sum(fetch.response_bytes for fetch in few) == unheard
        for count in range(len(last) + 1)
        for few in combinations(last, count)
        if Counter(fetch.request_bytes for fetch in few) <= asked
    ), unheard
    assert sums(fetches, "record_bytes") >= sums(exchanges, "source_bytes") > (0,)
    assert len(exchanges) < len(at_clients)
    assert any(row["event"] == "created" for row in of(rows, "session"))
    assert {source["rack"] for row in exchanges for source in row["sources"]} == {"a", "b", "c"}
    by_version: dict[bool, list[Row]] = {False: [], True: []}
    for row in exchanges:
        by_version[row["fetch_version"] >= 7].append(row)
        assert row["total_us"] == sum(
            row[f"{cause}_us"] for cause in ("poll", "broker", "budget", "convert", "throttle", "write")
        )
    old, new = by_version.values()
    assert {row["converted_to"] for row in old if row["with_data"]} == {1}
    assert {row["converted_to"] for row in new} == {None}
    assert {bool(row["client_session_id"]) for row in old} == {False}
    assert any(row["client_session_id"] for row in new)


def consumed(cluster: KafkaCluster, topic: str, partitions: int) -> list[tuple[int, bytes, Row]]:
    """All records of a topic: partition, key, row."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": unique("ledger"), "check.crcs": True})
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        messages = consumer.consume(sum(ends.values()), timeout=20)
    finally:
        consumer.close()
    return [(m.partition() or 0, m.key() or b"", json.loads(m.value() or b"")) for m in messages]


def test_rows_are_in_the_topic_once_in_order_despite_leader_moves_and_small_batches(
    kafka4: KafkaCluster, tmp_path: Path
) -> None:
    admin = Admin(kafka4)
    ledger = admin.create_topic(unique("ledger"), 3, replication=3, config={"max.message.bytes": "2000"})
    topic, produced = admin.filled_topic("ledger-read", 3)
    options = ("--ledger-topic", ledger, "--ledger", str(tmp_path))
    with Sidefetch(kafka4.bootstrap, options=options) as sidefetch, Client("librdkafka") as client:
        client.read(sidefetch.bootstrap, topic, range(3), len(produced))
        eventually(lambda: bool(consumed(kafka4, ledger, 3)), "rows in the topic")
        (partition,) = {partition for partition, _, _ in consumed(kafka4, ledger, 3)}
        leader = admin.leaders(ledger)[partition]
        admin.move_leader(ledger, partition, leader % 3 + 1)
        client.read(sidefetch.bootstrap, topic, range(3), len(produced))
    reported = consumed(kafka4, ledger, 3)

    assert {partition for partition, _, _ in reported} == {partition}
    assert {key.decode() for _, key, _ in reported} == {row["proxy_id"] for _, _, row in reported}
    assert [row for _, _, row in reported] == written(tmp_path)
