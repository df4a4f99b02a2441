"""``python -m tests.bench.against PYTHON [--rounds N] [--case NAME]``: one consumer, by two versions in turns.

PYTHON is a script that executes the interpreter of another checkout, in its folder. Each case prints, for the other
version and for this one, the median, and the median of the ratios of the rounds with its 98 % interval.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.bench.conversion import old_read
from tests.bench.deployed import deployed_python
from tests.bench.frame import in_turns, percentile
from tests.bench.load import P50, Writer, followers
from tests.bench.machine import cpu_model
from tests.bench.noise import observed
from tests.bench.old_reader import OldJob
from tests.bench.paced import Pace, Times
from tests.bench.reader import Job
from tests.bench.stage import KAFKA, NODE, address_of, brokers, create_topics, fill, idle_topics, produce, read
from tests.checkout import commit
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.tap import Tap

__all__ = ["Comparison"]

_FULL: Final = "against"
_CONVERTED: Final = "against-converted"
_SINGLE: Final = "against-single"
_TRICKLE: Final = "against-trickle"
_PARTITIONS: Final = 4
_MEGABYTES: Final = 64
_PASSES: Final = 12
"""Passes over all records, which are in the page cache."""
_IDLE: Final = 1_000
_IDLE_FETCHES: Final = 300
_FETCHES: Final = 1_500
_ONE_WAY_S: Final = 0.0025
_SLOW_BYTES: Final = 16 * 1024
_WORSE: Final = 0.03
"""The most that a median may be worse."""
_NARROW: Final = 0.1
"""The width of an interval that shows enough."""


@attrs.frozen
class Comparison:
    """A figure of both versions, each value of one beside that of the other in the same round."""

    case: str
    unit: str
    before: Sequence[float]
    now: Sequence[float]
    is_rate: bool
    """Whether more is better."""

    @property
    def ratios(self) -> list[float]:
        """The ratios of the rounds, now to before, in ascending order."""
        return sorted(now / before for before, now in zip(self.before, self.now, strict=True))

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the median: with ten rounds, the second and the ninth ratio (98 %, by the sign test)."""
        ratios = self.ratios
        return (ratios[1], ratios[-2]) if len(ratios) > 3 else (ratios[0], ratios[-1])

    @property
    def verdict(self) -> str:
        """``as before``, ``better``, ``worse``, or ``unclear`` if the interval is too wide to say."""
        low, high = self.interval
        gain = self.median - 1 if self.is_rate else 1 - self.median
        if gain < -_WORSE and not low <= 1 <= high:
            return "worse"
        if low <= 1 <= high and high - low > _NARROW:
            return "unclear"
        return "better" if gain > _WORSE and not low <= 1 <= high else "as before"

    def as_row(self) -> str:
        before, now = statistics.median(self.before), statistics.median(self.now)
        low, high = self.interval
        figures = f"{before:.4g} | {now:.4g} | {self.median:.3f} ({low:.3f} to {high:.3f})"
        return f"| {self.case}, {self.unit} | {figures} | {self.verdict} |"


@attrs.frozen
class _Case:
    name: str
    unit: str
    is_rate: bool
    prepare: Callable[[KafkaCluster], object]
    measure: Callable[[KafkaCluster, Sidefetch], float]


def main(argv: Sequence[str] | None = None) -> int:
    """0: no case is worse."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__)
    parser.add_argument("python", type=Path, help="a script that starts the interpreter of the other checkout")
    parser.add_argument("--rounds", type=int, default=10)
    names = [each.name for each in _CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this; may be repeated")
    arguments = parser.parse_args(argv)
    chosen = [each for each in _CASES if each.name in (arguments.case or names)]
    with observed() as noise, brokers() as cluster:
        comparisons = list(_compared(cluster, chosen, str(arguments.python), arguments.rounds))
    print(f"\n{cpu_model()}: {noise()}\nKafka {KAFKA}, commit {commit()}, {arguments.rounds} rounds\n")
    print("| case | before | now | ratio, now to before | verdict |\n|---|---|---|---|---|")
    print("\n".join(each.as_row() for each in comparisons))
    return int(any(each.verdict == "worse" for each in comparisons))


def _compared(cluster: KafkaCluster, cases: Sequence[_Case], other: str, rounds: int) -> Iterator[Comparison]:
    with ExitStack() as stage:
        tap = stage.enter_context(Tap(cluster.tapped, delay_s=_ONE_WAY_S))
        for case in cases:
            case.prepare(cluster)
            upstream = tap.bootstrap if case.name == "slow-link" else cluster.bootstrap
            with _started(upstream, other) as before, _started(upstream, deployed_python()) as now:
                ways = {
                    "before": partial(case.measure, cluster, before),
                    "now": partial(case.measure, cluster, now),
                }
                for way in ways.values():  # the brokers' JVMs compile their code
                    way()
                values: dict[str, list[float]] = {name: [] for name in ways}
                for number, name, value in in_turns(ways, rounds=rounds):
                    print(f"{case.name}, round {number + 1}: {name} {value:.4g}", file=sys.stderr, flush=True)
                    values[name].append(value)
            yield Comparison(case.name, case.unit, values["before"], values["now"], case.is_rate)


def _started(upstream: str, python: str) -> Sidefetch:
    Sidefetch.python = python
    return Sidefetch(upstream)


def _fill(topic: str, cluster: KafkaCluster) -> None:
    create_topics(cluster, {topic: _PARTITIONS})
    fill(cluster, topic, _PARTITIONS, megabytes=_MEGABYTES)


def _fill_slow(cluster: KafkaCluster) -> None:
    create_topics(cluster, {f"{_FULL}-slow": 1})
    fill(cluster, f"{_FULL}-slow", 1, megabytes=4, batch_bytes=_SLOW_BYTES // 2)


def _fill_single(cluster: KafkaCluster) -> None:
    """A batch for each record."""
    create_topics(cluster, {_SINGLE: 1})
    produce(cluster, _SINGLE, ((0, bytes(100)) for _ in range(_FETCHES)), batch_bytes=128, linger_ms=0)


def _throughput(_: KafkaCluster, sidefetch: Sidefetch) -> float:
    count = read(Job(address_of(NODE, sidefetch.bootstrap), {_FULL: _PARTITIONS}, passes=_PASSES))
    return count.record_bytes / count.seconds / 1e6


def _slow_link(_: KafkaCluster, sidefetch: Sidefetch) -> float:
    address, topics = address_of(NODE, sidefetch.bootstrap), {f"{_FULL}-slow": 1}
    count = read(Job(address, topics, max_bytes=_SLOW_BYTES, partition_bytes=_SLOW_BYTES))
    return count.record_bytes / count.seconds / 1e6


def _idle_cpu(_: KafkaCluster, sidefetch: Sidefetch) -> float:
    topics = {f"idle-{number:03}": 100 for number in range(_IDLE // 100)}
    job = Job(address_of(NODE, sidefetch.bootstrap), topics, fetches=_IDLE_FETCHES, max_wait_ms=10)
    before_ns = _loop_ns(sidefetch.process.pid)
    read(job)
    return (_loop_ns(sidefetch.process.pid) - before_ns) / 1_000 / _IDLE_FETCHES


def _loop_ns(pid: int) -> int:
    """Return the CPU time of a process's first thread, which runs the event loop, exactly."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def _trickle(cluster: KafkaCluster, sidefetch: Sidefetch) -> float:
    """A record every 50 ms."""
    return _delivery_ms(cluster, sidefetch, {_TRICKLE: 1}, [(_TRICKLE, 0)] * 100, 0.05)


def _wake(cluster: KafkaCluster, sidefetch: Sidefetch) -> float:
    """Records to 1,000 partitions that are all idle."""
    topics = {f"idle-{number:03}": 100 for number in range(_IDLE // 100)}
    places = [(topic, number) for number, topic in enumerate(topics)] * 3
    return _delivery_ms(cluster, sidefetch, topics, places, 0.13)


def _delivery_ms(
    cluster: KafkaCluster,
    sidefetch: Sidefetch,
    topics: Mapping[str, int],
    places: Sequence[tuple[str, int]],
    gap_s: float,
) -> float:
    """Write a record to each of *places*, *gap_s* apart; return the 50th percentile of the times to its arrival."""
    writer = Writer(cluster)
    with followers([Job(address_of(NODE, sidefetch.bootstrap), topics)]) as consumer:
        time.sleep(1)
        for place in places:
            writer.write(*place)
            time.sleep(gap_s)
        writer.flush()
        time.sleep(0.5)
        heard = consumer.finish()
    return heard.delivery()[P50]


def _single(_: KafkaCluster, sidefetch: Sidefetch) -> float:
    pace = Pace(address_of(NODE, sidefetch.bootstrap), _SINGLE, _FETCHES, 1_000)
    command = [sys.executable, "-m", "tests.bench.paced", json.dumps(dataclasses.asdict(pace))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return percentile(Times(**json.loads(done.stdout)).waits_us, 50) / 1000


def _converted(_: KafkaCluster, sidefetch: Sidefetch) -> float:
    job = OldJob(address_of(NODE, sidefetch.bootstrap), _CONVERTED, _PARTITIONS, 1, passes=_PASSES)
    return _PASSES * _MEGABYTES / old_read(job).seconds


def _prepare_idle(cluster: KafkaCluster) -> None:
    Writer(cluster).warm_up(idle_topics(cluster, _IDLE))


def _prepare_trickle(cluster: KafkaCluster) -> None:
    create_topics(cluster, {_TRICKLE: 1})
    Writer(cluster).warm_up({_TRICKLE: 1})


_CASES: Final[Sequence[_Case]] = (
    _Case("throughput", "MB/s", True, partial(_fill, _FULL), _throughput),
    _Case("conversion", "MB/s", True, partial(_fill, _CONVERTED), _converted),
    _Case("slow-link", "MB/s", True, _fill_slow, _slow_link),
    _Case("latency", "p50 in ms", False, _fill_single, _single),
    _Case("idle", "CPU of a fetch of 1,000 partitions in us", False, lambda c: idle_topics(c, _IDLE), _idle_cpu),
    _Case("trickle", "p50 of delivery in ms", False, _prepare_trickle, _trickle),
    _Case("wake", "p50 of delivery in ms", False, _prepare_idle, _wake),
)


if __name__ == "__main__":
    sys.exit(main())
