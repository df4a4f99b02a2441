"""The speed of reads by clients that need conversion, next to brokers that convert and to no conversion."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import attrs

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.machine import cpu_seconds, resident_mib
from tests.bench.old_reader import OldCount, OldJob
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of, create_topics, produce, read
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run", "run_memory"]

CONVERTING: Final = "3.9.2"
"""The last Kafka that converts."""
_PARTITIONS: Final = 4
_SPEED: Final = Figure("speed", "MB/s")
_CPU: Final = Figure("CPU", "s/GB")
_WASTE: Final = Figure("waste", "%")
_CLIENT_SHARE: Final = Figure("CPU of the client", "% of its time")
"""Near 100: the client itself can do no more."""


@attrs.frozen
class _Shape:
    name: str
    size: int
    codec: str = "none"
    versions: Sequence[int] = (1,)
    """Versions of Fetch: v1 reads message format 0, and v3 format 1."""

    @property
    def topic(self) -> str:
        return f"conversion-{self.size}-{self.codec}"


_SHAPES: Final = (
    _Shape("1 KiB records", 1024, versions=(1, 3)),
    _Shape("100 B records", 100, versions=(1, 3)),
    _Shape("10 KiB records", 10 * 1024),
    *(_Shape(f"1 KiB records, {codec}", 1024, codec) for codec in ("gzip", "snappy", "lz4", "zstd")),
)
_CHUNKS: Final = ("16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB")


@attrs.frozen
class _Log:
    """A topic full of records of one shape, in every cluster."""

    topic: str
    megabytes: int
    """The size of the values."""


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """MB/s of values, and CPU seconds for each GB of them: broker and Sidefetch together.

    Of zstd, brokers give old clients nothing.
    """
    megabytes, rounds = (128, 3) if quick else (256, 5)
    tables: list[Table] = []
    with KafkaCluster(CONVERTING, quick=False, heap_mib=1024) as converting, contextlib.ExitStack() as stage:
        sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap))
        for shape in _SHAPES:
            log = _Log(shape.topic, megabytes if shape.size > 100 else megabytes // 4)
            show_progress(f"writing {shape.name}")
            for each in (cluster, converting):
                create_topics(each, {log.topic: _PARTITIONS})
                _fill(each, log, shape)
            brokers = {"Kafka 3.9 converts": (converting.brokers[NODE].address, [converting.pid(NODE)])}
            if shape.codec == "zstd":
                brokers.clear()
            through = (address_of(NODE, sidefetch.bootstrap), [cluster.pid(NODE), sidefetch.process.pid])
            for version in shape.versions:
                ways = {
                    name: _old_way(address, log, version, pids)
                    for name, (address, pids) in (*brokers.items(), ("Sidefetch", through))
                }
                ways["no conversion"] = _new_way(cluster, log)
                for way in ways.values():  # the brokers' JVMs compile their code
                    way()
                measured = measure_all(
                    f"{shape.name} by Fetch v{version}", ways, rounds=rounds, show_progress=show_progress
                )
                tables += _judged(measured)
        log = _Log(_SHAPES[0].topic, megabytes)
        tables += measure_all(
            "chunks, Fetch v1", dict(_chunks(cluster, log)), rounds=rounds, show_progress=show_progress
        ).values()
    return tables


def _judged(measured: Mapping[Figure, Table]) -> Iterator[Table]:
    """Return the tables with their expectations: as fast as brokers that convert, with no more CPU time."""
    for figure, table in measured.items():
        if figure in (_SPEED, _CPU) and next(iter(table.values)) != "Sidefetch":
            ratio = table.ratio("Sidefetch")
            bound = "at least" if figure is _SPEED else "at most"
            is_met = ratio >= 1 if figure is _SPEED else ratio <= 1
            yield table.expecting(Expectation(f"{table.case}: {ratio:.2f} of Kafka 3.9, {bound} 1", is_met=is_met))
        else:
            yield table


def _chunks(cluster: KafkaCluster, log: _Log) -> Iterator[tuple[str, Callable[[], Mapping[Figure, float]]]]:
    for chunk in _CHUNKS:

        def once(chunk: str = chunk) -> Mapping[Figure, float]:
            with Sidefetch(cluster.bootstrap, options=("--convert-chunk", chunk)) as sidefetch:
                address = address_of(NODE, sidefetch.bootstrap)
                return _old_way(address, log, 1, [cluster.pid(NODE), sidefetch.process.pid])()

        yield chunk, once


def _fill(cluster: KafkaCluster, log: _Log, shape: _Shape) -> None:
    pattern = bytes(range(256)) * (shape.size // 256 + 2)
    records = (
        (number % _PARTITIONS, pattern[number % 251 : number % 251 + shape.size])
        for number in range(log.megabytes * 1_000_000 // shape.size)
    )
    produce(cluster, log.topic, records, batch_bytes=64 * 1024, codec=shape.codec)


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
            _CLIENT_SHARE: 100 * count.cpu_s / count.seconds,
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


def run_memory(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """KIP-283's own test: 250 partitions, each asked for 1 MB at once, by a client of Fetch v1, and by eight."""
    partitions, megabytes = (50, 200) if quick else (250, 1000)
    topic = "conversion-memory"
    create_topics(cluster, {topic: partitions})
    show_progress("writing records")
    _fill_many(cluster, topic, partitions, megabytes)
    peaks: dict[str, list[float]] = {}
    for name, clients in (("one client", 1), ("eight clients", 8)):
        with Sidefetch(cluster.bootstrap) as sidefetch:
            job = OldJob(address_of(NODE, sidefetch.bootstrap), topic, partitions, 1, partition_bytes=1_000_000)
            with ThreadPoolExecutor(clients) as at_once:
                counts = list(at_once.map(old_read, [job] * clients))
            assert {count.records for count in counts} == {megabytes * 1000}
            peaks[name] = [resident_mib(sidefetch.process.pid, "VmHWM")]
            show_progress(f"{name}: {peaks[name][0]:.0f} MiB")
    table = Table("memory while converting: peak", "MiB", peaks)
    most = max(max(each) for each in peaks.values())
    return [table.expecting(Expectation(f"{table.case}: {most:.0f} MiB, at most 150", is_met=most <= 150))]


def _fill_many(cluster: KafkaCluster, topic: str, partitions: int, megabytes: int) -> None:
    value = bytes(range(250)) * 4
    records = ((number // 50 % partitions, value) for number in range(megabytes * 1000))
    produce(cluster, topic, records, batch_bytes=256 * 1024, linger_ms=200, timeout_s=240)
