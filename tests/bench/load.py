"""Consumers that stay, a trickle of records, and their cost for the broker: for the cases of long polls."""

import contextlib
import dataclasses
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from confluent_kafka import Producer

from tests.bench.frame import Figure, percentile
from tests.bench.machine import cpu_seconds
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts
from tests.processes import Process
from tests.sidefetch import Sidefetch

__all__ = [
    "BROKER_CPU",
    "BYTES",
    "FETCHES",
    "OWN_CPU",
    "P50",
    "P99",
    "Cost",
    "Crowd",
    "Heard",
    "Side",
    "Writer",
    "cost_of",
    "delivery",
    "followers",
    "idle_cpu",
    "idlers",
    "librdkafka",
    "sides",
]

FETCHES: Final = Figure("fetches at the broker", "/s")
BYTES: Final = Figure("bytes at the broker, both ways", "B/s")
BROKER_CPU: Final = Figure("CPU of the broker", "ms/s")
OWN_CPU: Final = Figure("CPU of Sidefetch", "ms/s")
P50: Final = Figure("delivery, p50", "ms")
P99: Final = Figure("delivery, p99", "ms")

_READY_S: Final = 180
_IDLE_WINDOWS: Final = 4
T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""


@attrs.frozen
class Side:
    """A way to the broker: where a client begins, where ``NODE`` is for it."""

    name: str
    bootstrap: str
    address: str
    sidefetch_pid: int | None = None


@contextlib.contextmanager
def sides(cluster: KafkaCluster, *, options: Sequence[str] = ()) -> Iterator[list[Side]]:
    """Direct, and through a Sidefetch, with default options but for these; a failure shows the Sidefetch's log."""
    with Sidefetch(cluster.bootstrap, options=options) as sidefetch:
        both = [
            Side("direct", cluster.bootstrap, cluster.brokers[NODE].address),
            Side("Sidefetch", sidefetch.bootstrap, address_of(NODE, sidefetch.bootstrap), sidefetch.process.pid),
        ]
        try:
            yield both
        except Exception as failure:
            failure.add_note(f"log of Sidefetch {' '.join(options)}:\n{sidefetch.process.tail()}")
            raise


@attrs.frozen
class Cost:
    """The cost of a workload for its brokers together, and for Sidefetch if it takes part."""

    seconds: float
    broker_cpu_s: float
    own_cpu_s: float | None
    counted_s: float
    """The time in which fetches and bytes were counted, a second or two longer."""
    fetches: int
    bytes: int
    bytes_sent: int
    """The part of ``bytes`` that brokers sent."""
    sessions: int
    """Fetch sessions at the end."""

    def own_share(self, idle: float) -> float:
        """Return the brokers' CPU seconds without their own: *idle* is that, in seconds per second."""
        return max(self.broker_cpu_s - idle * self.seconds, 0.0)

    def a_second(self, idle: float) -> dict[Figure, float]:
        """Return the cost per second, without the brokers' own."""
        own = {} if self.own_cpu_s is None else {OWN_CPU: 1000 * self.own_cpu_s / self.seconds}
        return {
            FETCHES: self.fetches / self.counted_s,
            BYTES: self.bytes / self.counted_s,
            BROKER_CPU: 1000 * self.own_share(idle) / self.seconds,
            **own,
        }


def cost_of(
    work: Callable[[], T], cluster: KafkaCluster, side: Side | None = None, *, nodes: Sequence[int] = (NODE,)
) -> tuple[T, Cost]:
    """Run *work*; return its result and its cost for *nodes* and for the Sidefetch of *side*.

    A query of the broker's counters takes a second, in which clients go on, so that the counts have their own time.
    """
    own_pid = side.sidefetch_pid if side else None
    pids = [*map(cluster.pid, nodes), *([own_pid] if own_pid else [])]
    before, counted_from = broker_counts(cluster, nodes), time.monotonic()
    cpu_before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    result = work()
    cpu, seconds = [cpu_seconds(pid) for pid in pids], time.monotonic() - began
    after, counted_s = broker_counts(cluster, nodes), time.monotonic() - counted_from
    used_s = [to - since for since, to in zip(cpu_before, cpu, strict=True)]
    return result, Cost(
        seconds=seconds,
        broker_cpu_s=sum(used_s[: len(nodes)]),
        own_cpu_s=used_s[-1] if own_pid else None,
        counted_s=counted_s,
        fetches=sum(after[node].consumer_fetches - before[node].consumer_fetches for node in nodes),
        bytes=sum(after[node].client_bytes - before[node].client_bytes for node in nodes),
        bytes_sent=sum(after[node].client_bytes_sent - before[node].client_bytes_sent for node in nodes),
        sessions=sum(after[node].sessions for node in nodes),
    )


def idle_cpu(cluster: KafkaCluster, seconds: float, *, nodes: Sequence[int] = (NODE,)) -> float:
    """CPU that *nodes* use while nobody is there, in seconds a second: the least of several windows."""

    def cpu_s() -> float:
        return sum(cpu_seconds(cluster.pid(node)) for node in nodes)

    found = []
    for _ in range(_IDLE_WINDOWS):
        before, began = cpu_s(), time.monotonic()
        time.sleep(seconds / _IDLE_WINDOWS)
        found.append((cpu_s() - before) / (time.monotonic() - began))
    return min(found)


@attrs.frozen
class Heard:
    """The records that consumers have read since they were ready."""

    records: int
    arrivals: Sequence[tuple[int, int]]
    """The creation of a record, or of the first of its batch, and its arrival, in microseconds since 1970."""

    def since(self, made_us: int) -> "Heard":
        """Return the same without records created before a time."""
        return self.between(made_us, math.inf)

    def between(self, from_us: float, to_us: float) -> "Heard":
        """Return the same with only the records created in a period."""
        made_then = [(made, came) for made, came in self.arrivals if from_us <= made < to_us]
        return Heard(self.records - (len(self.arrivals) - len(made_then)), made_then)

    def delivery(self) -> dict[Figure, float]:
        return delivery([(came - made) / 1000 for made, came in self.arrivals])


def delivery(delays_ms: Sequence[float]) -> dict[Figure, float]:
    return {P50: percentile(delays_ms, 50), P99: percentile(delays_ms, 99)}


class Crowd:
    """Consumers in a process of their own, while in context, which begins when all are served."""

    def __init__(self, program: str, spec: Mapping[str, Any]) -> None:
        self._program, self._spec = program, spec
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Crowd":
        with self._stack as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sidefetch-crowd-"))
            command = [sys.executable, "-m", f"tests.bench.{self._program}"]
            log = Path(folder) / f"{self._program}.log"
            self._process = stack.enter_context(Process(command, log=log, piped=True))
            self._say(json.dumps(self._spec))
            self._hear("ready")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def finish(self) -> Heard:
        """Call ``leave`` for consumers that note their reads."""
        heard = self.leave()
        return Heard(heard["records"], [(made, came) for made, came in heard["arrivals"]])

    def leave(self) -> Any:
        """Stop the consumers and return their reports. May be called once."""
        self._say("")
        return json.loads(self._hear("{"))

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # its reader reports why it has ended
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _hear(self, beginning: str) -> str:
        alarm = threading.Timer(_READY_S, self._process.send, [9])
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        assert line.startswith(beginning), f"the {self._program} said {line[:80]!r}\n{self._process.log_text()}"
        return line


def followers(jobs: Sequence[Job]) -> Crowd:
    return Crowd("follower", {"jobs": [dataclasses.asdict(job) for job in jobs]})


def idlers(job: Job, clients: int, *, own_ids: bool = False) -> Crowd:
    """Start clients of idle partitions that begin and end at 0; with *own_ids*, each has a client id of its own."""
    return Crowd("idlers", {"job": dataclasses.asdict(job), "clients": clients, "own_ids": own_ids})


def librdkafka(side: Side, topics: Mapping[str, int], **more: object) -> Crowd:
    """One consumer of all partitions, in a ``rack``.

    With ``group``, ``stable`` and ``leaves_every_s`` a group that rebalances.
    """
    return Crowd("librdkafka", {"bootstrap": side.bootstrap, "topics": topics, **more})


class Writer:
    """A producer that sends each record at once, with timestamps in microseconds: milliseconds are too coarse."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "1", "linger.ms": 0, "log_level": 0}
        )

    def warm_up(self, topics: Mapping[str, int]) -> None:
        """Learn where they are by a record in each: the first would be late otherwise."""
        for topic in topics:
            self.write(topic, 0)
        self.flush()

    def write(self, topic: str, partition: int, *, size: int = 100) -> None:
        self._producer.produce(topic, bytes(size), partition=partition, timestamp=time.time_ns() // 1000)
        self._producer.poll(0)

    def write_evenly(self, places: Sequence[Place], *, per_s: float, seconds: float, size: int) -> int:
        """Write to *places* in turn; return the number of records."""
        count = round(per_s * seconds)
        began = time.monotonic()
        for number in range(count):
            if (wait_s := began + number / per_s - time.monotonic()) > 0:
                time.sleep(wait_s)
            self.write(*places[number % len(places)], size=size)
        self.flush()
        return count

    def flush(self) -> None:
        assert self._producer.flush(30) == 0, "records not acknowledged in 30 s"
