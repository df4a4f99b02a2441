"""The environment of the cases: brokers with usual JVM flags, topics on one of them, and the client."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.metadata.v12 import MetadataRequest

from tests.bench import reader
from tests.bench.frame import Way
from tests.bench.reader import Count, Job
from tests.kafka.ask import ask
from tests.kafka.cluster import KafkaCluster

__all__ = [
    "KAFKA",
    "NODE",
    "address_of",
    "brokers",
    "create_missing_topics",
    "create_topics",
    "fill",
    "idle_topics",
    "produce",
    "read",
    "read_all",
    "read_at_once",
    "reading_way",
]

KAFKA: Final = "4.3.1"
_PASSES: Final = 4
"""Passes over all records in each measurement, since records are read quickly from the page cache."""
NODE: Final = 1
"""Leads every partition, so that a client has one connection to fetch by."""
_PER_TOPIC: Final = 100
_CLIENT_START_S: Final = 0.1
_TOPICS_AT_ONCE: Final = 20
"""A controller refuses to do more than 10,000 things for one request."""


@contextlib.contextmanager
def brokers() -> Iterator[KafkaCluster]:
    """A cluster as people run it: C2 and G1, which change a broker's figures by a factor of two."""
    settings = {
        "log.retention.check.interval.ms": 3_600_000,
        "log.segment.bytes": 1 << 29,
        # The broker's own limit of 55 MB would otherwise bound the client's fetches.
        "fetch.max.bytes": (1 << 31) - 1,
        # Of 50, most of a thousand clients that come at once would wait for TCP to try again.
        "socket.listen.backlog.size": 4096,
    }
    with KafkaCluster(KAFKA, quick=False, heap_mib=1024, settings=settings) as cluster:
        yield cluster


def create_topics(cluster: KafkaCluster, topics: Mapping[str, int], *, replicas: Sequence[int] = (NODE,)) -> None:
    """Topics and how many partitions each, led by the first of *replicas*; returns when that answers for all."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {
        # 10,000 partitions would otherwise map 200 GB.
        "segment.index.bytes": "65536",
        # Timestamps in microseconds are far in the future.
        "message.timestamp.after.max.ms": str((1 << 63) - 1),
    }
    new = [
        NewTopic(name, num_partitions=count, replica_assignment=[list(replicas)] * count, config=config)
        for name, count in topics.items()
    ]
    for first in range(0, len(new), _TOPICS_AT_ONCE):
        for done in client.create_topics(new[first : first + _TOPICS_AT_ONCE], request_timeout=60).values():
            done.result()
    # Metadata names a leader before it has created all of its logs, so each is asked.
    job = Job(cluster.brokers[replicas[0]].address, topics, max_wait_ms=0)
    deadline = time.monotonic() + 120
    while not _all_led(job):
        assert time.monotonic() < deadline, "topics are not led in time"
        time.sleep(0.5)


def idle_topics(cluster: KafkaCluster, partitions: int) -> dict[str, int]:
    """Topics of 100 partitions each, *partitions* in all, the same for every case: a broker has room for one set.

    They are empty until a case writes to them, so cases that read from the beginning come first.
    """
    wanted = dict.fromkeys((f"idle-{number:03}" for number in range(partitions // _PER_TOPIC)), _PER_TOPIC)
    create_missing_topics(cluster, wanted)
    return wanted


def create_missing_topics(
    cluster: KafkaCluster, topics: Mapping[str, int], *, replicas: Sequence[int] = (NODE,)
) -> None:
    """Call ``create_topics`` for the topics that do not exist yet."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    known = client.list_topics(timeout=30).topics
    if missing := {name: count for name, count in topics.items() if name not in known}:
        create_topics(cluster, missing, replicas=replicas)


def _all_led(job: Job) -> bool:
    with reader.Connection(job.address) as connection:
        parts = list(reader.Part.all_of(connection.ask(reader.Asking(job).frame(0))[4:]))
    return len(parts) == job.partitions and not any(part.error for part in parts)


def fill(
    cluster: KafkaCluster, topic: str, partitions: int, *, megabytes: int, batch_bytes: int = 256 * 1024
) -> None:
    """Produce records of 1 KiB, dealt to the partitions in turn, uncompressed."""
    value = bytes(range(256)) * 4
    count = megabytes * 1_000_000 // len(value)
    records = ((number % partitions, value) for number in range(count))
    produce(cluster, topic, records, batch_bytes=batch_bytes)


def produce(
    cluster: KafkaCluster,
    topic: str,
    records: Iterable[tuple[int, bytes]],
    *,
    batch_bytes: int,
    linger_ms: int = 50,
    codec: str = "none",
    timeout_s: float = 120,
) -> None:
    """Write values, each to the partition before it; returns when the leaders have all of them."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "1",
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "compression.type": codec,
            "queue.buffering.max.kbytes": 64 * 1024,
            "log_level": 0,
        }
    )
    for partition, value in records:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(timeout_s) == 0


def address_of(node: int, bootstrap: str) -> str:
    """Return the address of a broker in the Metadata from *bootstrap*."""
    answer = ask(bootstrap, MetadataRequest(topics=(), include_topic_authorized_operations=False))
    (found,) = (broker for broker in answer.brokers if broker.node_id == node)
    return f"{found.host}:{found.port}"


def read(job: Job) -> Count:
    """Run the client to its end."""
    command = [sys.executable, reader.__file__, json.dumps(dataclasses.asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"the client failed:\n{done.stderr}"
    return Count(**json.loads(done.stdout))


def read_at_once(job: Job, clients: int) -> list[Count]:
    """Run so many of the client, which all begin when the last of them is there."""
    return read_all([job] * clients)


def read_all(jobs: Sequence[Job]) -> list[Count]:
    """Run a client for each job; all begin when the last of them is there."""
    not_before_s = time.monotonic() + len(jobs) * _CLIENT_START_S
    with ThreadPoolExecutor(len(jobs)) as at_once:
        return list(at_once.map(read, [dataclasses.replace(job, not_before_s=not_before_s) for job in jobs]))


def reading_way(name: str, address: str, topic: str, partitions: int, megabytes: int) -> Way:
    """Reads all *megabytes* of *topic* at *address* a few times; in MB/s."""

    def once() -> float:
        count = read(Job(address, {topic: partitions}, passes=_PASSES))
        assert count.record_bytes >= megabytes * 1_000_000 * _PASSES, f"only {count.record_bytes} bytes of records"
        return count.record_bytes / count.seconds / 1e6

    return Way(name, once)
