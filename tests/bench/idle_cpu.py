"""The CPU time of an idle full fetch in Sidefetch, next to a C program that only forwards its bytes.

The client names every partition in every fetch, and fetches again at once. Real brokers support some 10,000
partitions each, so that the cluster is the embedded one. With 1 % busy partitions, the cost should follow those.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle, product
from typing import Final, Self

from proxy.session.epochs import FINAL_EPOCH, NO_SESSION
from proxy.wire.fetch import FETCH, FetchOptions, FetchPartition, PartitionKey, write_request
from proxy.wire.headers import RequestHeader
from tests.bench.c_programs import c_program
from tests.bench.embedded import NODE, Embedded, embedded, topic_name
from tests.bench.frame import Expectation, Figure, Table, Way, measure, measure_all
from tests.bench.machine import cpu_seconds
from tests.bench.stage import address_of
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_VERSIONS: Final = (4, 11)
_PER_TOPIC: Final = 100
_MOST_PARTITIONS: Final = 100_000
"""The number of partitions to which the limits apply; with fewer, the cost of any fetch dominates."""
_MOST_RATIO: Final = 3.0
_MOST_US: Final = 8_000
_MOST_FETCHES: Final = 0.3
_MOST_BYTES: Final = 60
_MOST_OF_BUSY: Final = 2.0
"""The largest cost of busy partitions among idle ones, relative to their cost alone."""
_ROUNDS: Final = 3
_WARM_UP_S: Final = 0.5
_MAX_WAIT_MS: Final = 10
"""The least max wait with which Sidefetch answers from its long poll; with less, each fetch reaches the broker."""
_CPU: Final = Figure("CPU", "us a fetch")
_BYTES: Final = Figure("bytes at the broker", "B a fetch")
_SESSION_S: Final = 120.0
_OPTIONS: Final = (
    *("--max-fetch-partitions", "200000", "--request-memory", "256MiB"),
    *("--response-timeout", "30"),  # the embedded cluster takes its time to answer about so many for the first time
)


def run(*, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure the CPU time of Sidefetch and the C program per fetch, and the requests that reach the broker."""
    sizes = (100, _MOST_PARTITIONS) if quick else (100, 1_000, 10_000, _MOST_PARTITIONS)
    cases = product(sizes, _VERSIONS)
    tables = [
        table for size, version in cases for table in _at(size, version, quick=quick, show_progress=show_progress)
    ]
    return [*tables, *_busy(_MOST_PARTITIONS, _VERSIONS[-1], quick=quick, show_progress=show_progress)]


def _at(size: int, version: int, *, quick: bool, show_progress: Callable[[str], None]) -> Iterator[Table]:
    case = f"idle CPU, {size:,} partitions, Fetch v{version}"
    with contextlib.ExitStack() as stage:
        cluster = stage.enter_context(embedded(size // _PER_TOPIC, _PER_TOPIC))
        sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap, options=_OPTIONS))
        client = stage.enter_context(_Client(address_of(NODE, sidefetch.bootstrap), size, version))
        _wait_until_parked(cluster, client)
        echo, port = stage.enter_context(c_program("echo", client.request_bytes, client.fetch()))
        plain = stage.enter_context(_Client(f"127.0.0.1:{port}", size, version))
        seconds = 1.0 if quick else 3.0
        ways = [
            Way("C, bytes alone", partial(_cpu_us, plain, echo.pid, seconds)),
            Way("Sidefetch", partial(_cpu_us, client, sidefetch.process.pid, seconds)),
        ]
        before, began_s = cluster.counts(), time.monotonic()
        table = measure(case, "us a fetch", ways, rounds=_ROUNDS, show_progress=show_progress)
        after, took_s = cluster.counts(), time.monotonic() - began_s
    yield table.expecting(*_expected(table)) if size == _MOST_PARTITIONS else table
    yield _at_most(f"{case}: fetches at the broker", "/s", (after.fetches - before.fetches) / took_s, _MOST_FETCHES)
    yield _at_most(f"{case}: bytes at the broker", "B/s", (after.bytes - before.bytes) / took_s, _MOST_BYTES)


def _busy(size: int, version: int, *, quick: bool, show_progress: Callable[[str], None]) -> Iterator[Table]:
    """One partition of each topic has something new in every fetch."""
    topics, case = size // _PER_TOPIC, f"1 % busy, Fetch v{version}"
    with contextlib.ExitStack() as stage:
        ways = {}
        for name, partitions, busy in (
            (f"{topics:,} partitions, all busy", 1, 1),
            (f"{size:,} idle", _PER_TOPIC, 0),
            (f"{size:,}, 1 % busy", _PER_TOPIC, 1),
        ):
            cluster = stage.enter_context(embedded(topics, partitions, busy))
            sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap, options=_OPTIONS))
            client = _Client(address_of(NODE, sidefetch.bootstrap), topics * partitions, version, partitions, busy)
            stage.enter_context(client)
            _wait_until_parked(cluster, client, is_quiet=not busy)
            ways[name] = partial(_cost, client, cluster, sidefetch.process.pid, 1.0 if quick else 3.0)
        measured = measure_all(case, ways, rounds=_ROUNDS, show_progress=show_progress)
    alone, idle, among = (measured[_CPU].median(name) for name in ways)
    ratio = (among - idle) / alone
    text = f"{case}: the busy partitions cost {ratio:.2f} of their cost alone, at most {_MOST_OF_BUSY:g}"
    measured[_CPU] = measured[_CPU].expecting(Expectation(text, is_met=ratio <= _MOST_OF_BUSY))
    yield from measured.values()


def _cost(client: "_Client", cluster: Embedded, pid: int, seconds: float) -> Mapping[Figure, float]:
    before, fetches = cluster.counts(), client.fetches
    cpu_us = _cpu_us(client, pid, seconds)
    return {_CPU: cpu_us, _BYTES: (cluster.counts().bytes - before.bytes) / (client.fetches - fetches)}


def _at_most(case: str, unit: str, found: float, most: float) -> Table:
    expected = Expectation(f"{case}: {found:.3g} {unit}, at most {most:g}", is_met=found <= most)
    return Table(case, unit, {"Sidefetch": [found]}, [expected])


def _expected(table: Table) -> Iterator[Expectation]:
    ratio, cpu_us = table.ratio("Sidefetch"), table.median("Sidefetch")
    yield Expectation(f"{table.case}: {ratio:.2g} of C, at most {_MOST_RATIO:g}", is_met=ratio <= _MOST_RATIO)
    yield Expectation(f"{table.case}: {cpu_us:,.0f} us, at most {_MOST_US:,}", is_met=cpu_us <= _MOST_US)


def _cpu_us(client: "_Client", pid: int, seconds: float) -> float:
    client.fetch_for(_WARM_UP_S)
    before_s = cpu_seconds(pid)
    fetches = client.fetch_for(seconds)
    return (cpu_seconds(pid) - before_s) / fetches * 1e6


class _Client:
    """Fetches *partitions* at their end, one fetch after another, and looks at no answer.

    Of the first *busy* of each topic, it reads the first batch and the second, in turns.
    """

    def __init__(
        self, address: str, partitions: int, version: int, per_topic: int = _PER_TOPIC, busy: int = 0
    ) -> None:
        keys = [PartitionKey(topic_name(number // per_topic), number % per_topic) for number in range(partitions)]
        options = FetchOptions(_MAX_WAIT_MS, 1, 50 << 20)
        header = RequestHeader(FETCH, version, 0, "bench")
        self._frames = cycle(
            bytearray(write_request(header, options, NO_SESSION, FINAL_EPOCH, asks, ()))
            for offset in range(2 if busy else 1)
            for asks in [
                {key: FetchPartition(offset if key.partition < busy else 0, 1 if busy else 1 << 20) for key in keys}
            ]
        )
        self.fetches = 0
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def request_bytes(self) -> int:
        return len(next(self._frames))

    def fetch(self) -> int:
        """Returns how many bytes the answer has."""
        size: int
        frame = next(self._frames)
        self.fetches += 1
        struct.pack_into(">i", frame, 8, self.fetches)
        self._socket.sendall(frame)
        got = self._socket.recv_into(self._buffer)
        while got < 4:
            got += self._some(self._buffer[got:])
        (size,) = struct.unpack_from(">i", self._buffer)
        size += 4
        while got < size:
            got += self._some(self._buffer)
        return size

    def fetch_for(self, seconds: float) -> int:
        """Returns how often."""
        until_s, before = time.monotonic() + seconds, self.fetches
        while time.monotonic() < until_s:
            self.fetch()
        return self.fetches - before

    def _some(self, into: memoryview) -> int:
        some = self._socket.recv_into(into)
        if not some:
            raise ConnectionError("closed in the middle of an answer")
        return some


def _wait_until_parked(cluster: Embedded, client: _Client, *, is_quiet: bool = True) -> None:
    """Return once there is a session, in which a fetch waits at the broker if all *is_quiet*, so that it hears of
    no other.
    """
    until_s, seen = time.monotonic() + _SESSION_S, cluster.counts()
    while True:
        client.fetch_for(_WARM_UP_S)
        now = cluster.counts()
        if now.incremental_fetches and (now == seen or not is_quiet):
            return
        assert time.monotonic() < until_s, "no session in time"
        seen = now
