"""The ledger in a topic: all rows of a process in one partition, in order, whoever leads it."""

import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from zlib import crc32

import attrs
import trio

from proxy.config import LedgerConfig
from proxy.demo.batches import DemoRecord, decode_records, encode_batch, split_batches
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.net.observability.ledger import LedgerWriter
from proxy.net.observability.observers import ConnectionInfo
from proxy.telemetry.ledger import Row, problems
from tests.net.proxied import Proxied, configured, running
from tests.telemetry.asked import TOPOLOGY, exchange

TOPIC = "ledger"
PARTITIONS = 3


def partition_of(ledger: LedgerWriter) -> int:
    return crc32(ledger.proxy_id.encode()) % PARTITIONS


def produced(cluster: EmbeddedCluster, ledger: LedgerWriter) -> list[Row]:
    """The rows of the process, each as it should be, in the order of the log."""
    log = cluster.partition(TOPIC, partition_of(ledger)).log
    rows = [json.loads(record.value or b"") for record in _unpacked(log.read(0, 1 << 30, at_least_one=True))]
    assert not [problem for row in rows for problem in problems(row)]
    return rows


def _unpacked(data: bytes) -> list[DemoRecord]:
    """The records of batches that are compressed by gzip."""
    records = []
    for batch in split_batches(data):
        plain = encode_batch([DemoRecord(b"")])[:61] + zlib.decompress(batch.data[61:], 31)
        records += list(decode_records([attrs.evolve(batch, data=plain)]))
    return records


@attrs.define
class Produced:
    """A proxy that produces its ledger."""

    it: Proxied
    ledger: LedgerWriter
    who: ConnectionInfo = attrs.field(factory=lambda: ConnectionInfo(1, "127.0.0.1:5000", TOPOLOGY))

    def observe(self, count: int) -> None:
        for _ in range(count):
            self.ledger.observe(self.who, exchange())

    async def until(self, holds: Callable[[], object]) -> None:
        with trio.fail_after(10):
            while not holds():
                await trio.sleep(0.02)


@asynccontextmanager
async def producing(cluster: EmbeddedCluster, **options: Any) -> AsyncIterator[Produced]:
    config = attrs.evolve(configured(cluster.bootstrap), ledger=LedgerConfig(topic=TOPIC, **options))
    async with running(cluster, config, rack="b") as it:
        assert it.proxy.outputs.ledger is not None
        yield Produced(it, it.proxy.outputs.ledger)


def create(cluster: EmbeddedCluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, assignment=[[1, 2, 3]] * PARTITIONS)


async def test_rows_are_in_the_topic_within_a_second_or_so_by_the_processs_key() -> None:
    async with embedded_cluster() as cluster:
        create(cluster)
        async with producing(cluster) as at:
            at.observe(5)
            with trio.fail_after(2):
                await at.until(lambda: len(produced(cluster, at.ledger)) == 5)
        log = cluster.partition(TOPIC, partition_of(at.ledger)).log

    assert [row["seq"] for row in produced(cluster, at.ledger)] == list(range(5))
    keys = {record.key for record in _unpacked(log.read(0, 1 << 30, at_least_one=True))}
    assert keys == {at.ledger.proxy_id.encode()}


async def test_remaining_rows_are_produced_at_shutdown() -> None:
    async with embedded_cluster() as cluster:
        create(cluster)
        async with producing(cluster) as at:
            at.observe(2000)

        assert [row["seq"] for row in produced(cluster, at.ledger)] == list(range(2000))


async def test_the_leader_is_followed() -> None:
    async with embedded_cluster() as cluster:
        create(cluster)
        async with producing(cluster) as at:
            for node in (2, 3):
                at.observe(10)
                reported = at.ledger.rows
                await at.until(lambda reported=reported: len(produced(cluster, at.ledger)) >= reported)  # type: ignore[misc]
                cluster.move_leader(TOPIC, partition_of(at.ledger), node)
            at.observe(10)
            await at.until(lambda: len(produced(cluster, at.ledger)) == 30)

        assert [row["seq"] for row in produced(cluster, at.ledger)] == list(range(30))


async def test_a_broker_that_goes_takes_no_row_with_it() -> None:
    async with embedded_cluster() as cluster:
        create(cluster)
        async with producing(cluster) as at:
            at.observe(10)
            await at.until(lambda: len(produced(cluster, at.ledger)) == 10)
            cluster.stop(1)
            at.observe(10)
            await at.until(lambda: {row["seq"] for row in produced(cluster, at.ledger)} == set(range(20)))


async def test_rows_wait_for_missing_ledger_topic_and_dropped_rows_are_recorded() -> None:
    async with embedded_cluster() as cluster:
        async with producing(cluster, memory_bytes=64 * 1024) as at:
            at.observe(300)
            await at.until(lambda: at.it.logged("ledger-produce-failed"))
            create(cluster)
            await at.until(lambda: produced(cluster, at.ledger))

        lost, *rows = produced(cluster, at.ledger)

    assert (lost["record"], lost["reason"], lost["seq_first"]) == ("lost", "full", 0)
    assert lost["count"] == at.ledger.lost_rows == lost["seq_last"] + 1
    assert [row["seq"] for row in rows] == list(range(lost["seq_last"] + 1, 300))
    assert "unknown_topic_or_partition" in at.it.logged("ledger-produce-failed")[0]


async def test_a_topic_and_a_folder_each_have_all_rows(tmp_path: Any) -> None:
    async with embedded_cluster() as cluster:
        create(cluster)
        async with producing(cluster, folder=str(tmp_path)) as at:
            at.observe(5)

        (file,) = tmp_path.glob("*.jsonl")
        assert [json.loads(line) for line in file.read_text().splitlines()] == produced(cluster, at.ledger)
