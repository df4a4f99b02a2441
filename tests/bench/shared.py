"""Consumers that share reads (``--share-reads``), beside direct ones and a Sidefetch that does not share.

All consumers of a way run in one process. Its CPU time is a figure: if it nears a core, it delays deliveries.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import attrs

from tests.bench.frame import Expectation, Figure, Table, figure_text, measure_all
from tests.bench.load import (
    BROKER_CPU,
    FETCHES,
    OWN_CPU,
    P50,
    P99,
    Cost,
    Heard,
    Side,
    Writer,
    cost_of,
    followers,
    idle_cpu,
    sides,
)
from tests.bench.machine import connections, cpu_seconds
from tests.bench.reader import Count, Job
from tests.bench.stage import NODE, address_of, create_topics, fill, idle_topics, read_all
from tests.kafka.cluster import KafkaCluster

__all__ = [
    "CLIENT_ID",
    "DIRECT",
    "PRINCIPAL",
    "SHARE_READS",
    "UNSHARED",
    "backlogs",
    "expect_at_most",
    "run_behind",
    "run_consumers",
    "run_partitions",
    "shares",
]

DIRECT: Final = "direct"
UNSHARED: Final = "Sidefetch"
CLIENT_ID: Final = "shared by client id"
PRINCIPAL: Final = "shared by principal"
SHARE_READS: Final = {UNSHARED: "off", CLIENT_ID: "client-id", PRINCIPAL: "principal"}
"""The ways through Sidefetch and their values of ``--share-reads``."""

_SENT: Final = Figure("bytes that the brokers send", "B a record")
_CONNECTIONS: Final = Figure("connections to a broker, at most", "")
_CONSUMERS_CPU: Final = Figure("CPU of the consumers", "ms/s")
_MOST_SENT: Final = 1.1
"""Times the bytes for one consumer."""
_MOST_CONNECTIONS: Final = 3
"""The connection for metadata counts, too."""
_MOST_P99: Final = 1.2
"""Times direct's, beside the added time."""
_MOST_ADDED_MS: Final = 2.0
_SETTLE_S: Final = 1.0
_TAIL_S: Final = 1.0
"""For the last records to arrive."""
_WARM_UP_S: Final = 2.0

_PER_LEADER: Final = 2
"""Partitions of each broker."""
_RECORDS_PER_S: Final = 200
_RECORD_BYTES: Final = 5_000
_ONE: Final = "one consumer, direct"

_BACKLOG: Final = "shared-backlog"
_BACKLOG_PARTITIONS: Final = 6
_BACKLOG_PER_S: Final = 10
"""Records at the end of the backlog: each is delivered to all consumers that are not behind."""
_ALONE: Final = Figure("p50 of the others without those behind", "ms")
_BESIDE: Final = Figure("p50 of the others with those behind", "ms")
_SPEED_ALONE: Final = Figure("speed of those behind, alone", "MB/s")
_SPEED: Final = Figure("speed of those behind, with the others", "MB/s")
_PASSES: Final = 4
"""Passes of each reader over its part of the backlog, so that the reads take seconds."""
_LEAST_SPEED: Final = 0.5
"""The least speed of those behind, relative to their speed alone."""

_MOVING: Final = 20
_TOPICS_EACH, _PARTITIONS_EACH = 5, 5
"""A consumer's share: so many topics, and so many partitions of each."""


def run_consumers(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Consumers of the same six partitions, two on each broker: with one client id, and with an id each."""
    consumers, seconds, rounds = (10, 3.0, 1) if quick else (20, 10.0, 3)
    nodes = list(cluster.brokers)
    for node in nodes:
        create_topics(cluster, {_topic(node): _PER_LEADER}, replicas=(node,))
    writer = Writer(cluster)
    writer.warm_up({_topic(node): _PER_LEADER for node in nodes})
    with _sides(cluster, *SHARE_READS) as by_way:
        workload = _Workload(
            cluster,
            writer,
            places=[(_topic(node), each) for each in range(_PER_LEADER) for node in nodes],
            size=_RECORD_BYTES,
            seconds=seconds,
            nodes=nodes,
            readers_of_each=consumers,
        )

        def way(name: str, count: int = consumers) -> Callable[[], Mapping[Figure, float]]:
            load = attrs.evolve(workload, readers_of_each=count)
            jobs = _same_jobs(cluster, by_way[name], count, own_ids=name == PRINCIPAL)
            return lambda: load.measure(by_way[name], jobs)

        workload = workload.warmed_up(_same_jobs(cluster, by_way[DIRECT], consumers), show_progress)
        ways = {_ONE: way(DIRECT, 1), **{name: way(name) for name in (DIRECT, *SHARE_READS)}}
        case = f"{consumers} consumers of the same partitions"
        tables = measure_all(case, ways, rounds=rounds, show_progress=show_progress)
    direct = {figure: tables[figure].median(DIRECT) for figure in (P50, P99)}
    limits = {
        _SENT: _MOST_SENT * tables[_SENT].median(_ONE),
        _CONNECTIONS: _MOST_CONNECTIONS,
        P50: direct[P50] + _MOST_ADDED_MS,
        P99: direct[P99] * _MOST_P99 + _MOST_ADDED_MS,
    }
    return _judged(tables, limits, (CLIENT_ID, PRINCIPAL))


def run_behind(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Consumers at the end of partitions, with and without others that read a backlog, each at other offsets."""
    at_end, behind, megabytes, seconds, rounds = (40, 4, 60, 2.0, 1) if quick else (190, 10, 300, 10.0, 2)
    topics = {_BACKLOG: _BACKLOG_PARTITIONS}
    create_topics(cluster, topics)
    show_progress("writing records")
    fill(cluster, _BACKLOG, _BACKLOG_PARTITIONS, megabytes=megabytes)
    writer = Writer(cluster)
    writer.warm_up(topics)
    case = f"{at_end + behind} consumers, {behind} of them behind"
    with _sides(cluster, UNSHARED, CLIENT_ID) as by_way:

        def way(side: Side) -> Callable[[], Mapping[Figure, float]]:
            job = Job(side.address, topics, leader=by_way[DIRECT].address)
            return lambda: _beside_a_backlog(writer, [job] * at_end, backlogs(job, behind, megabytes), seconds)

        show_progress("warming up")  # the broker's JVM compiles its code
        read_all(backlogs(Job(by_way[DIRECT].address, topics), behind, megabytes))
        tables = measure_all(
            case, {name: way(side) for name, side in by_way.items()}, rounds=rounds, show_progress=show_progress
        )
    found, least = tables[_SPEED].median(CLIENT_ID), _LEAST_SPEED * tables[_SPEED_ALONE].median(CLIENT_ID)
    text = f"{tables[_SPEED].case}: {CLIENT_ID} {figure_text(found)} MB/s, at least {figure_text(least)}"
    tables[_SPEED] = tables[_SPEED].expecting(Expectation(text, is_met=found >= least))
    return list(tables.values())


def run_partitions(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Consumers with a share of many partitions each, few of which get records: no consumer reads another's."""
    partitions, seconds, rounds = (1_000, 4.0, 1) if quick else (5_000, 10.0, 2)
    topics = idle_topics(cluster, partitions)
    writer = Writer(cluster)
    writer.warm_up(topics)
    everywhere = [(topic, each) for each in range(partitions // len(topics)) for topic in topics]
    with _sides(cluster, UNSHARED, CLIENT_ID) as by_way:
        jobs = {
            name: shares(Job(side.address, topics, leader=by_way[DIRECT].address)) for name, side in by_way.items()
        }
        workload = _Workload(
            cluster,
            writer,
            places=everywhere[:: partitions // _MOVING + 1],  # a divisor would be the same topic each time
            size=1_024,
            seconds=seconds,
        ).warmed_up(jobs[DIRECT], show_progress)

        def way(name: str) -> Callable[[], Mapping[Figure, float]]:
            return lambda: workload.measure(by_way[name], jobs[name])

        case = f"{len(jobs[DIRECT])} consumers of {partitions:,} partitions, {_MOVING} of them moving"
        tables = measure_all(case, {name: way(name) for name in by_way}, rounds=rounds, show_progress=show_progress)
    direct = {figure: tables[figure].median(DIRECT) for figure in (P50, BROKER_CPU)}
    limits = {P50: direct[P50] + _MOST_ADDED_MS, BROKER_CPU: direct[BROKER_CPU]}
    return _judged(tables, limits, (CLIENT_ID,))


def backlogs(job: Job, readers: int, megabytes: int) -> list[Job]:
    """Return jobs that begin at different offsets within the first half of a topic of 1 KiB records."""
    records = megabytes * 1_000_000 // 1024 // job.partitions
    return [
        dataclasses.replace(job, first_offset=records * number // (2 * readers), passes=_PASSES, leader="")
        for number in range(readers)
    ]


def shares(job: Job) -> list[Job]:
    """Divide the partitions of *job* among consumers of a few partitions of a few topics each."""
    names = list(job.topics)
    return [
        dataclasses.replace(job, topics=dict.fromkeys(group, _PARTITIONS_EACH), first_partition=first)
        for group in (names[at : at + _TOPICS_EACH] for at in range(0, len(names), _TOPICS_EACH))
        for first in range(0, job.topics[group[0]], _PARTITIONS_EACH)
    ]


def expect_at_most(table: Table, way: str, most: float) -> Expectation:
    found = table.median(way)
    text = f"{table.case}: {way} {figure_text(found)} {table.unit}".rstrip()
    return Expectation(f"{text}, at most {figure_text(most)}", is_met=found <= most)


@contextlib.contextmanager
def _sides(cluster: KafkaCluster, *ways: str) -> Iterator[dict[str, Side]]:
    """Direct, and through a Sidefetch for each of *ways*, by the way's name."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Side] = {}
        for way in ways:
            direct, side = stack.enter_context(sides(cluster, options=("--share-reads", SHARE_READS[way])))
            found |= {DIRECT: direct, way: side}
        yield found


def _topic(node: int) -> str:
    """Return the topic of which this broker leads all partitions."""
    return f"shared-{node}"


def _same_jobs(cluster: KafkaCluster, side: Side, consumers: int, *, own_ids: bool = False) -> list[Job]:
    """Consumers with a connection to each broker, by which they fetch and do nothing else."""
    addresses = {node: address_of(node, side.address) for node in cluster.brokers}
    return [
        Job(
            addresses[node],
            {_topic(node): _PER_LEADER},
            client_id=f"bench-{number}" if own_ids else "bench",
            leader=cluster.brokers[node].address,
        )
        for number in range(consumers)
        for node in addresses
    ]


@attrs.frozen
class _Workload:
    """A steady pace of records, and consumers that read them at the end of their partitions."""

    cluster: KafkaCluster
    writer: Writer
    places: Sequence[tuple[str, int]]
    size: int
    seconds: float
    nodes: Sequence[int] = (NODE,)
    """The leaders of the partitions."""
    readers_of_each: int = 1
    """The number of consumers that read each record."""
    alone: float = 0.0
    """CPU of *nodes* without consumers, in seconds a second."""

    def warmed_up(self, jobs: Sequence[Job], show_progress: Callable[[str], None]) -> "_Workload":
        """Let the brokers' JVMs compile their code; then measure the brokers' own CPU."""
        show_progress("warming up")
        with followers(jobs) as crowd:
            self._write(_WARM_UP_S)
            crowd.finish()
        time.sleep(_SETTLE_S)
        return attrs.evolve(self, alone=idle_cpu(self.cluster, self.seconds, nodes=self.nodes))

    def measure(self, side: Side, jobs: Sequence[Job]) -> Mapping[Figure, float]:
        with followers(jobs) as crowd:
            time.sleep(_SETTLE_S)
            began_us = time.time_ns() // 1000

            def work() -> tuple[int, float]:
                before_s, began_s = cpu_seconds(crowd.pid), time.monotonic()
                written = self._write(self.seconds)
                return written, 1000 * (cpu_seconds(crowd.pid) - before_s) / (time.monotonic() - began_s)

            (written, consumers_cpu), cost = cost_of(work, self.cluster, side, nodes=self.nodes)
            time.sleep(_TAIL_S)
            opened = connections(side.sidefetch_pid or crowd.pid)
            heard = crowd.finish().since(began_us)
        expected = written * self.readers_of_each
        assert heard.records == expected, f"{heard.records} of {expected} records have arrived by {side.name}"
        return {
            _SENT: cost.bytes_sent / written,
            _CONNECTIONS: max(opened[self.cluster.brokers[node].port] for node in self.nodes),
            **heard.delivery(),
            **self._rates(cost),
            _CONSUMERS_CPU: consumers_cpu,
        }

    def _write(self, seconds: float) -> int:
        return self.writer.write_evenly(self.places, per_s=_RECORDS_PER_S, seconds=seconds, size=self.size)

    def _rates(self, cost: Cost) -> dict[Figure, float]:
        rates = cost.a_second(self.alone)
        return {figure: rates[figure] for figure in (FETCHES, BROKER_CPU, OWN_CPU) if figure in rates}


def _beside_a_backlog(
    writer: Writer, at_end: Sequence[Job], behind: Sequence[Job], seconds: float
) -> Mapping[Figure, float]:
    """Measure consumers at the end alone, with those behind, and those behind alone."""
    places = [(_BACKLOG, each) for each in range(_BACKLOG_PARTITIONS)]

    def write(seconds: float) -> int:
        return writer.write_evenly(places, per_s=_BACKLOG_PER_S, seconds=seconds, size=1_024)

    with followers(at_end) as crowd, ThreadPoolExecutor(1) as beside:
        time.sleep(_SETTLE_S)
        began_us = time.time_ns() // 1000
        written = write(seconds)
        reading_us = time.time_ns() // 1000
        reading = beside.submit(read_all, behind)
        while not reading.done():
            written += write(0.5)
        with_others = reading.result()
        time.sleep(_TAIL_S)
        heard = crowd.finish().since(began_us)
    expected = written * len(at_end)
    assert heard.records == expected, f"{heard.records} of {expected} records have arrived"
    time.sleep(_SETTLE_S)
    return {
        _ALONE: heard.between(began_us, reading_us).delivery()[P50],
        _BESIDE: _while_read(heard, with_others).delivery()[P50],
        _SPEED_ALONE: _speed(read_all(behind)),
        _SPEED: _speed(with_others),
    }


def _while_read(heard: Heard, counts: Sequence[Count]) -> Heard:
    """Return the records created while readers of a backlog were reading."""
    epoch_us = 1e6 * (time.time() - time.monotonic())
    began_s, ended_s = _period(counts)
    return heard.between(epoch_us + 1e6 * began_s, epoch_us + 1e6 * ended_s)


def _speed(counts: Sequence[Count]) -> float:
    """Return the speed of all of them together, until the last one ends."""
    began_s, ended_s = _period(counts)
    return sum(count.record_bytes for count in counts) / (ended_s - began_s) / 1e6


def _period(counts: Sequence[Count]) -> tuple[float, float]:
    return min(count.began_s for count in counts), max(count.began_s + count.seconds for count in counts)


def _judged(tables: Mapping[Figure, Table], limits: Mapping[Figure, float], ways: Sequence[str]) -> list[Table]:
    """Return the tables with their limits for *ways*."""
    return [
        table.expecting(*(expect_at_most(table, way, limits[figure]) for way in ways if figure in limits))
        for figure, table in tables.items()
    ]
