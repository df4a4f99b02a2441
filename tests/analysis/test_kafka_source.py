import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from proxy.analysis import ingest, streaming
from proxy.analysis.kafka_source import LedgerTopicSource, limit_offsets
from tests.analysis.rows import row
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.processes import Process

_NOW = streaming.TriggerSettings(every=None)
_JOB = Path(__file__).resolve().parents[2] / "deploy" / "spark" / "job.py"


class Topic:
    """A new topic for the ledger, in a real cluster."""

    def __init__(self, cluster: KafkaCluster, partitions: int) -> None:
        self.bootstrap = cluster.bootstrap
        self.admin = Admin(cluster)
        self.name = self.admin.create_topic(unique("ledger"), partitions)
        self._partitions = partitions

    def produce(self, seqs: Sequence[int], partition: int | None = None, **fields: Any) -> None:
        """A row a number, dealt to the partitions in turn or to one."""
        producer = self._producer()
        for seq in seqs:
            value = json.dumps(row("fetch", seq=seq, **fields)).encode()
            producer.produce(self.name, value, partition=seq % self._partitions if partition is None else partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    def produce_text(self, text: bytes) -> None:
        producer = self._producer()
        producer.produce(self.name, text, partition=0)
        assert producer.flush(30) == 0

    def _producer(self) -> Producer:
        """A new one, which knows of all partitions."""
        return Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name, **more}


@pytest.fixture
def topic(kafka4: KafkaCluster) -> Topic:
    return Topic(kafka4, partitions=3)


def _drain(spark: SparkSession, topic: Topic, out: Path, **options: str) -> None:
    query = streaming.start(streaming.from_topic(spark, topic.options(**options)), str(out), _NOW)
    assert query.awaitTermination(300)
    assert query.exception() is None


def _seqs(frame: DataFrame) -> list[int]:
    return sorted(each["seq"] for each in frame.select("seq").collect())


def _written(spark: SparkSession, out: Path) -> list[int]:
    """Return all rows of fetches as written, before duplicates are removed."""
    return _seqs(spark.read.parquet(str(out)).where("record = 'fetch'"))


def test_batch_limit_is_divided_by_backlog_and_never_exceeded() -> None:
    start, ends = {"0": 10, "1": 0}, {"0": 20, "1": 1_000, "2": 90}

    assert limit_offsets(start, ends, 1_100) == ends
    assert limit_offsets(start, ends, 11) == {"0": 10, "1": 11, "2": 0}
    some = limit_offsets(start, ends, 1)
    assert sum(some.values()) == 11


@pytest.mark.kafka
def test_batch_contains_all_records_except_aborted_ones(spark: SparkSession, topic: Topic) -> None:
    topic.produce(range(5))
    aborting = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name, "log_level": 0})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    aborting.produce(topic.name, b"aborted", partition=1)
    aborting.flush(30)
    aborting.abort_transaction(30)
    spark.dataSource.register(LedgerTopicSource)

    rows = spark.read.format("ledger-topic").options(**topic.options()).load().collect()

    assert sorted((json.loads(each["value"])["seq"], each["partition"], each["offset"]) for each in rows) == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (3, 0, 1),
        (4, 1, 1),
    ]
    assert {each["topic"] for each in rows} == {topic.name}


@pytest.mark.kafka
def test_stream_resumes_with_new_partitions_bad_rows_and_duplicate_rows(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    topic.produce(range(10))
    _drain(spark, topic, out, maxOffsetsPerTrigger="6")
    assert _written(spark, out) == list(range(10))

    client = AdminClient({"bootstrap.servers": topic.bootstrap})
    for done in client.create_partitions([NewPartitions(topic.name, 4)]).values():
        done.result()
    topic.admin.wait_until_known(topic.name, 4)
    topic.produce(range(8, 12))
    topic.produce([12], partition=3)
    topic.produce_text(b"torn")
    _drain(spark, topic, out)

    assert _written(spark, out) == list(range(13))
    (bad,) = ingest.read(spark, str(out)).bad.collect()
    assert bad.asDict() == {
        "row": "torn",
        "reason": "not a JSON object, or truncated",
        "file": f"{topic.name}/0@{bad['file'].rpartition('@')[2]}",
    }


@pytest.mark.long
@pytest.mark.kafka
def test_rows_deleted_before_read_end_stream_or_are_reported(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    topic.produce([0])
    _drain(spark, topic, out)
    topic.produce([3, 6, 9])
    topic.admin.delete_records(topic.name, 0, 3)

    with pytest.raises(StreamingQueryException, match=f"{topic.name}/0: offsets 1 to 2 were deleted"):
        _drain(spark, topic, out)
    _drain(spark, topic, out, failOnDataLoss="false")

    assert _written(spark, out) == [0, 9]
    (bad,) = ingest.read(spark, str(out)).bad.collect()
    assert (bad["row"], bad["file"]) == ("offsets 1 to 2 were deleted before they were read", f"{topic.name}/0@1")


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribe": "nowhere-at-all"}, "subscribe: nowhere-at-all: .*; accepted: a topic that may be read"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: missing"),
        ({"startingOffsets": "first"}, "startingoffsets: first; accepted: earliest, latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: 0; accepted: a whole number from 1"),
        ({"startingOffset": "latest"}, "startingoffset: unknown option"),
    ],
)
def test_invalid_options_are_refused(spark: SparkSession, topic: Topic, options: dict[str, str], why: str) -> None:
    spark.dataSource.register(LedgerTopicSource)

    with pytest.raises(Exception, match=why):
        spark.read.format("ledger-topic").options(**topic.options(**options)).load().collect()


def _job(topic: Topic, out: Path, log: Path) -> Process:
    """A stream in a process of its own: its driver and its executor."""
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), "--master", "local[2]", "--driver-memory", "1g"]
    for conf in ("spark.sql.shuffle.partitions=2", "spark.ui.enabled=false", "spark.driver.host=127.0.0.1"):
        command += ["--conf", conf]
    command += [str(_JOB), "stream", "--topic", topic.name, "--kafka", f"bootstrap.servers={topic.bootstrap}"]
    command += ["--rows", "2000", "--every", "0 seconds", "--out", str(out)]
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return Process(command, log=log, env=env)


def _batches(out: Path) -> int:
    return len(list(out.glob("_checkpoint/commits/[0-9]*")))


def _has_batches(out: Path, count: int) -> bool:
    return _batches(out) >= count


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 6])
def test_a_stream_that_is_killed_at_any_time_and_started_again_has_each_row_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, kills: int
) -> None:
    out = tmp_path / "out"
    total = 10_000 * (kills + 1)
    topic.produce(range(total))
    topic.produce(range(0, total, 10))
    for number in range(kills):
        with _job(topic, out, tmp_path / f"killed-{number}.log") as job:
            done = _batches(out)
            eventually(partial(_has_batches, out, done + 2), "two more batches", 300)
            time.sleep(0.15 * number)
            os.killpg(job.pid, signal.SIGKILL)

    assert 0 < len(set(_written(spark, out))) < total
    _drain(spark, topic, out)

    assert _written(spark, out) == list(range(total))
