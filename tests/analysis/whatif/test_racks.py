"""Bytes that would cross, by hand."""

from typing import Any

from pyspark.sql import SparkSession

from proxy.analysis.whatif.racks import RESULT, RackLayout, racks
from proxy.telemetry.ledger import Row
from tests.analysis.rows import columns, ledger_of, row

RACK_OF = {1: "a", 2: "b", 3: "c"}


def partition(topic: str, number: int, *nodes: int, out_of_sync: int = 0) -> Row:
    replicas = [{"node": node, "rack": RACK_OF[node], "in_sync": int(node != out_of_sync)} for node in nodes]
    return row("topology", topic=topic, partition=number, leader=nodes[0], replicas=replicas)


def read(reader: str | None, topic: str | None, leader: int, node: int, size: int, **fields: Any) -> Row:
    where = {"node": node, "rack": RACK_OF.get(node), "leader_node": leader, "leader_rack": RACK_OF.get(leader)}
    source = {"topic": topic, **where, "wanted": 1, "bytes": size, "request_share_bytes": 0}
    return row("exchange", reader_rack=reader, sources=[source], **fields)


def crossing(
    spark: SparkSession, layout: RackLayout | None, *rows: Row
) -> dict[str | None, tuple[int, int, int, int]]:
    frame = racks(ledger_of(spark, *rows), layout)
    assert columns(frame.schema) == columns(RESULT)
    return {
        each["reader_rack"]: (
            each["bytes"],
            each["crossing_bytes"],
            each["then_crossing_bytes"],
            each["unknown_bytes"],
        )
        for each in frame.collect()
    }


def test_bytes_cross_where_no_replica_is_in_the_readers_rack(spark: SparkSession) -> None:
    rows = [
        partition("two", 0, 1, 2),
        partition("two", 1, 1, 3),  # broker 1 leads it, and half of the reads come from rack c
        partition("three", 0, 1, 2, 3, out_of_sync=3),
        read("c", "two", 1, 1, 1000, weight=2.0),
        read("c", "three", 1, 1, 100),
        read("b", "three", 1, 2, 10),
        read(None, "three", 1, 1, 7),
    ]

    assert crossing(spark, None, *rows) == {
        "c": (2100, 2100, 1100, 0),
        "b": (10, 0, 0, 0),
        None: (7, 7, 7, 0),
    }


def test_brokers_and_readers_move_and_followers_are_read_or_not(spark: SparkSession) -> None:
    rows = [
        partition("two", 0, 1, 2),
        read("a", "two", 1, 1, 10),
        read("b", "two", 1, 2, 100),
        read("c", "two", 1, 1, 1000),
    ]

    assert crossing(spark, RackLayout(closest=False), *rows) == {
        "a": (10, 0, 0, 0),
        "b": (100, 0, 100, 0),
        "c": (1000, 1000, 1000, 0),
    }
    assert crossing(spark, RackLayout(brokers={1: "c"}, readers={"b": "a"}), *rows) == {
        "a": (110, 0, 110, 0),
        "c": (1000, 1000, 0, 0),
    }


def test_reads_missing_from_topology_are_counted_as_unknown(spark: SparkSession) -> None:
    rows = [read("a", None, -1, -1, 5), read("a", "gone", 1, 1, 3), partition("two", 0, 1, 2)]

    assert crossing(spark, None, *rows) == {"a": (8, 5, 5, 8)}
