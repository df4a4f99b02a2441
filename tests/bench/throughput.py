"""The speed of reads by one client and by many, and their CPU time and memory."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.machine import cpu_seconds, resident_mib
from tests.bench.reader import Job
from tests.bench.rivals import rivals
from tests.bench.stage import NODE, address_of, create_topics, fill, read_at_once
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_TOPIC: Final = "throughput"
_PARTITIONS: Final = 4
_CLIENTS: Final = (1, 16)
_PASSES: Final = 8
"""Passes over all records by all clients, since records are read quickly from the page cache."""
_SPEED: Final = Figure("speed", "MB/s")
_PROXY_CPU: Final = Figure("CPU of the proxy", "s/GB")
_BROKER_CPU: Final = Figure("CPU of the broker", "s/GB")
_CLIENT_SHARE: Final = Figure("CPU of a client", "% of its time")
"""Near 100: the client itself can do no more."""
_LEAST_OF_DIRECT: Final = 0.5
_LEAST_OF_HAPROXY: Final = 1.5
_MOST_IDLE_MIB: Final = 50
_IDLE_STARTS: Final = 3


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Records of 1 KiB, not compressed; then Sidefetch's resident memory."""
    create_topics(cluster, {_TOPIC: _PARTITIONS})
    show_progress("writing records")
    megabytes = 64 if quick else 128
    fill(cluster, _TOPIC, _PARTITIONS, megabytes=megabytes)
    idle = [_idle_mib(cluster.bootstrap) for _ in range(_IDLE_STARTS)]
    with rivals(cluster) as others, Sidefetch(cluster.bootstrap) as sidefetch:
        places = [
            ("direct", cluster.brokers[NODE].address, None),
            *((rival.name, rival.address, rival.pid) for rival in others),
            ("Sidefetch", address_of(NODE, sidefetch.bootstrap), sidefetch.process.pid),
        ]
        tables: list[Table] = []
        for clients in _CLIENTS:
            ways = {
                name: _way(cluster, Job(address, {_TOPIC: _PARTITIONS}), clients, megabytes, pid)
                for name, address, pid in places
            }
            case = f"reading 1 KiB records, {clients} client{'s' * (clients > 1)}"
            show_progress("warming up")
            for way in ways.values():  # the brokers' JVMs compile their code
                way()
            measured = measure_all(case, ways, rounds=3 if quick else 5, show_progress=show_progress)
            measured[_SPEED] = measured[_SPEED].expecting(*_expected(measured[_SPEED]))
            tables += measured.values()
        after, peak = (resident_mib(sidefetch.process.pid, field) for field in ("VmRSS", "VmHWM"))
    memory = Table("memory of Sidefetch", "MiB", {"idle": idle, "after reading": [after], "peak": [peak]})
    text = f"memory: {max(idle):.0f} MiB idle, at most {_MOST_IDLE_MIB}"
    return [*tables, memory.expecting(Expectation(text, is_met=max(idle) <= _MOST_IDLE_MIB))]


def _way(
    cluster: KafkaCluster, job: Job, clients: int, megabytes: int, proxy_pid: int | None
) -> Callable[[], Mapping[Figure, float]]:
    passes = max(_PASSES // clients, 1)
    pids = [cluster.pid(NODE), *([proxy_pid] if proxy_pid else [])]

    def once() -> Mapping[Figure, float]:
        before = [cpu_seconds(pid) for pid in pids]
        counts = read_at_once(Job(job.address, job.topics, passes=passes), clients)
        broker_s, *proxy_s = (cpu_seconds(pid) - since for pid, since in zip(pids, before, strict=True))
        read_bytes = sum(count.record_bytes for count in counts)
        assert read_bytes >= megabytes * 1_000_000 * passes * clients, f"only {read_bytes} bytes of records"
        seconds = max(each.began_s + each.seconds for each in counts) - min(each.began_s for each in counts)
        gigabytes = read_bytes / 1e9
        proxy = {_PROXY_CPU: proxy_s[0] / gigabytes} if proxy_s else {}
        return {
            _SPEED: 1000 * gigabytes / seconds,
            **proxy,
            _BROKER_CPU: broker_s / gigabytes,
            _CLIENT_SHARE: 100 * sum(each.cpu_s for each in counts) / sum(each.seconds for each in counts),
        }

    return once


def _expected(speed: Table) -> Iterator[Expectation]:
    through = speed.median("Sidefetch")
    for other, least in (("direct", _LEAST_OF_DIRECT), ("HAProxy", _LEAST_OF_HAPROXY)):
        if other in speed.values:
            ratio = through / speed.median(other)
            yield Expectation(f"{speed.case}: {ratio:.2f} of {other}, at least {least}", is_met=ratio >= least)


def _idle_mib(bootstrap: str) -> float:
    with Sidefetch(bootstrap) as sidefetch:
        address_of(NODE, sidefetch.bootstrap)  # it knows the cluster by now
        time.sleep(1)
        return resident_mib(sidefetch.process.pid, "VmRSS")
