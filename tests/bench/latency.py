"""The additional delay of a fetch with records through a proxy: one small record at a time, at a steady pace."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.bench.frame import Expectation, Figure, Table, measure_all, percentile
from tests.bench.old_reader import OldJob
from tests.bench.paced import Pace, Times
from tests.bench.rivals import rivals
from tests.bench.stage import NODE, address_of, create_topics, fill
from tests.kafka.cluster import KafkaCluster
from tests.processes import Process
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_TOPIC: Final = "latency"
_RECORD_BYTES: Final = 100
_PER_S: Final = 1_000
_STEP: Final = 7
"""The distance between the offsets of consecutive fetches, so that no proxy can read ahead."""
_CONVERTED: Final = "latency-converted"
_CONVERTED_PARTITIONS: Final = 4
_CONVERTED_MEGABYTES: Final = 64
_P50: Final = Figure("p50", "ms")
_P99: Final = Figure("p99", "ms")
_PACE: Final = Figure("pace", "fetches/s")
_MOST_ADDED_MS: Final = {_P50: 0.2, _P99: 1.0}


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure fetches in order and out of order, and while another client's records are converted."""
    fetches, rounds = (2_000, 3) if quick else (3_000, 5)
    create_topics(cluster, {_TOPIC: 1, _CONVERTED: _CONVERTED_PARTITIONS})
    show_progress("writing records")
    _write_apart(cluster, fetches)
    fill(cluster, _CONVERTED, _CONVERTED_PARTITIONS, megabytes=_CONVERTED_MEGABYTES)
    with rivals(cluster) as others, Sidefetch(cluster.bootstrap) as sidefetch:
        through = address_of(NODE, sidefetch.bootstrap)
        addresses = {
            "direct": cluster.brokers[NODE].address,
            **{rival.name: rival.address for rival in others},
            "Sidefetch": through,
        }
        both = {name: addresses[name] for name in ("direct", "Sidefetch")}

        def case(name: str, addresses: Mapping[str, str], step: int = 1) -> dict[Figure, Table]:
            ways = {way: _way(Pace(address, _TOPIC, fetches, _PER_S, step)) for way, address in addresses.items()}
            for way in ways.values():  # the brokers' JVMs compile their code
                way()
            return measure_all(f"one record a fetch, {name}", ways, rounds=rounds, show_progress=show_progress)

        tables = [*_judged(case("in order", addresses)), *_judged(case("out of order", both, _STEP))]
        with _converting(through):
            tables += case("beside a conversion", both).values()
    return tables


def _judged(tables: Mapping[Figure, Table]) -> list[Table]:
    return [
        table.expecting(_adds(table, _MOST_ADDED_MS[figure])) if figure in _MOST_ADDED_MS else table
        for figure, table in tables.items()
    ]


def _write_apart(cluster: KafkaCluster, records: int) -> None:
    """A batch for each record."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "1",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )
    for _ in range(records):
        producer.produce(_TOPIC, bytes(_RECORD_BYTES), partition=0)
    assert producer.flush(120) == 0


def _way(pace: Pace) -> Callable[[], Mapping[Figure, float]]:
    command = [sys.executable, "-m", "tests.bench.paced", json.dumps(dataclasses.asdict(pace))]

    def once() -> Mapping[Figure, float]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"the client failed:\n{done.stderr}"
        times = Times(**json.loads(done.stdout))
        return {
            _P50: percentile(times.waits_us, 50) / 1000,
            _P99: percentile(times.waits_us, 99) / 1000,
            _PACE: pace.fetches / times.seconds,
        }

    return once


def _adds(table: Table, most_ms: float) -> Expectation:
    added_ms = table.median("Sidefetch") - table.median("direct")
    text = f"{table.case}: {added_ms:.2f} ms added by Sidefetch, at most {most_ms:g}"
    return Expectation(text, is_met=added_ms <= most_ms)


@contextlib.contextmanager
def _converting(address: str) -> Iterator[None]:
    """Another client reads in an old format, as quickly as it can, while in context."""
    job = OldJob(address, _CONVERTED, _CONVERTED_PARTITIONS, version=1, passes=1_000_000)
    command = [sys.executable, "-m", "tests.bench.old_reader", json.dumps(dataclasses.asdict(job))]
    with (
        tempfile.TemporaryDirectory(prefix="sidefetch-bench-") as folder,
        Process(command, log=Path(folder) / "old_reader.log") as reader,
    ):
        yield
        assert reader.exit_code is None, f"the other client has ended:\n{reader.log_text()}"
