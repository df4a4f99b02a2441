"""How fast records come to clients that need them converted, next to brokers that convert and to no conversion."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import attrs
from confluent_kafka import Producer

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.machine import cpu_seconds, resident_mib
from tests.bench.old_reader import OldCount, OldJob
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of, create_topics, read
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run", "run_memory"]

CONVERTING: Final = "3.9.2"
"""The last Kafka that converts."""
_PARTITIONS: Final = 4
_SPEED: Final = Figure("speed", "MB/s")
_CPU: Final = Figure("CPU", "s/GB")
_WASTE: Final = Figure("waste", "%")
_SHAPES: Final = (
    ("1 KiB records", 1024, "none"),
    ("100 B records", 100, "none"),
    ("1 KiB records, gzip", 1024, "gzip"),
)
_CHUNKS: Final = ("16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB")


@attrs.frozen
class _Log:
    """A topic full of records of one shape, in every cluster."""

    topic: str
    megabytes: int
    """Of values."""


def run(cluster: KafkaCluster, *, quick: bool, tell: Callable[[str], None]) -> list[Table]:
    """MB/s of values, and CPU seconds for each GB of them: broker and Sidefetch together."""
    megabytes, rounds = (64, 1) if quick else (256, 3)
    tables: list[Table] = []
    with KafkaCluster(CONVERTING, quick=False, heap_mib=1024) as converting, contextlib.ExitStack() as stage:
        sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap))
        for name, size, codec in _SHAPES:
            log = _Log(f"conversion-{size}-{codec}", megabytes if size > 100 else megabytes // 4)
            tell(f"writing {name}")
            for each in (cluster, converting):
                create_topics(each, {log.topic: _PARTITIONS})
                _fill(each, log, size, codec)
            for version in (1, 3):
                ways = {
                    "Kafka 3.9 converts": _old_way(
                        converting.brokers[NODE].address, log, version, [converting.pid(NODE)]
                    ),
                    "Sidefetch": _old_way(
                        address_of(NODE, sidefetch.bootstrap),
                        log,
                        version,
                        [cluster.pid(NODE), sidefetch.process.pid],
                    ),
                    "no conversion": _new_way(cluster, log),
                }
                for way in ways.values():  # the brokers' JVMs compile what they use
                    way()
                tables += measure_all(f"{name} by Fetch v{version}", ways, rounds=rounds, tell=tell).values()
        log = _Log("conversion-1024-none", megabytes)
        tables += measure_all("chunks, Fetch v1", dict(_chunks(cluster, log)), rounds=rounds, tell=tell).values()
    return tables


def _chunks(cluster: KafkaCluster, log: _Log) -> Iterator[tuple[str, Callable[[], Mapping[Figure, float]]]]:
    for chunk in _CHUNKS:

        def once(chunk: str = chunk) -> Mapping[Figure, float]:
            with Sidefetch(cluster.bootstrap, options=("--convert-chunk", chunk)) as sidefetch:
                address = address_of(NODE, sidefetch.bootstrap)
                return _old_way(address, log, 1, [cluster.pid(NODE), sidefetch.process.pid])()

        yield chunk, once


def _fill(cluster: KafkaCluster, log: _Log, size: int, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "1",
            "linger.ms": 50,
            "batch.size": 64 * 1024,
            "compression.type": codec,
            "queue.buffering.max.kbytes": 64 * 1024,
            "log_level": 0,
        }
    )
    pattern = bytes(range(256)) * 5
    for number in range(log.megabytes * 1_000_000 // size):
        value = pattern[number % 251 : number % 251 + size]
        while True:
            try:
                producer.produce(log.topic, value, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _old_way(address: str, log: _Log, version: int, pids: list[int]) -> Callable[[], Mapping[Figure, float]]:
    job = OldJob(address, log.topic, _PARTITIONS, version)

    def once() -> Mapping[Figure, float]:
        before = sum(map(cpu_seconds, pids))
        count = old_read(job)
        cpu_s = sum(map(cpu_seconds, pids)) - before
        sent = count.entry_bytes + count.other_bytes
        return {
            _SPEED: log.megabytes / count.seconds,
            _CPU: cpu_s * 1000 / log.megabytes,
            _WASTE: 100 * count.other_bytes / sent,
        }

    return once


def _new_way(cluster: KafkaCluster, log: _Log) -> Callable[[], Mapping[Figure, float]]:
    def once() -> Mapping[Figure, float]:
        before = cpu_seconds(cluster.pid(NODE))
        count = read(Job(cluster.brokers[NODE].address, {log.topic: _PARTITIONS}))
        cpu_s = cpu_seconds(cluster.pid(NODE)) - before
        return {_SPEED: log.megabytes / count.seconds, _CPU: cpu_s * 1000 / log.megabytes}

    return once


def old_read(job: OldJob) -> OldCount:
    """Run the client to its end."""
    command = [sys.executable, "-m", "tests.bench.old_reader", json.dumps(dataclasses.asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"the client failed:\n{done.stderr}"
    return OldCount(**json.loads(done.stdout))


def run_memory(cluster: KafkaCluster, *, quick: bool, tell: Callable[[str], None]) -> list[Table]:
    """KIP-283's own test: 250 partitions, each asked for 1 MB at once, by a client of Fetch v1, and by eight."""
    partitions, megabytes = (50, 200) if quick else (250, 1000)
    topic = "conversion-memory"
    create_topics(cluster, {topic: partitions})
    tell("writing records")
    _fill_many(cluster, topic, partitions, megabytes)
    peaks: dict[str, list[float]] = {}
    for name, clients in (("one client", 1), ("eight clients", 8)):
        with Sidefetch(cluster.bootstrap) as sidefetch:
            job = OldJob(address_of(NODE, sidefetch.bootstrap), topic, partitions, 1, partition_bytes=1_000_000)
            with ThreadPoolExecutor(clients) as at_once:
                counts = list(at_once.map(old_read, [job] * clients))
            assert {count.entries for count in counts} == {megabytes * 1000}
            peaks[name] = [resident_mib(sidefetch.process.pid, "VmHWM")]
            tell(f"{name}: {peaks[name][0]:.0f} MiB")
    table = Table("memory while converting: peak", "MiB", peaks)
    most = max(max(each) for each in peaks.values())
    return [table.expecting(Expectation(f"{table.case}: {most:.0f} MiB, at most 150", is_met=most <= 150))]


def _fill_many(cluster: KafkaCluster, topic: str, partitions: int, megabytes: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "1",
            "linger.ms": 200,
            "batch.size": 256 * 1024,
            "log_level": 0,
        }
    )
    value = bytes(range(250)) * 4
    for number in range(megabytes * 1000):
        while True:
            try:
                producer.produce(topic, value, partition=number // 50 % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(240) == 0
