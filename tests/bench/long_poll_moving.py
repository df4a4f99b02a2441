"""Cases in which long polls must not cost anything: busy partitions, changing consumers, waits of the clients."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.load import (
    BROKER_CPU,
    FETCHES,
    P50,
    P99,
    Crowd,
    Side,
    Writer,
    cost_of,
    delivery,
    followers,
    idle_cpu,
    librdkafka,
    sides,
)
from tests.bench.reader import Job
from tests.bench.stage import create_topics, fill, idle_topics, read
from tests.kafka.cluster import KafkaCluster

__all__ = ["run"]

_MOST: Final = 1.2
"""Times direct, of delivery, fetches and CPU of the broker."""
_TOPIC: Final = "long-poll-moving"
_DRAIN_FETCH_BYTES: Final = 128 * 1024
"""So that a pass takes a hundred fetches or so, and asking weighs more than copying."""
_DRAIN_PASSES: Final = 5
_DRAIN_FETCHES: Final = Figure("fetches at the broker", "a pass")
_DRAIN_CPU: Final = Figure("CPU of the broker", "ms a pass")
_LIMITED: Final = (P50, P99, FETCHES, BROKER_CPU, _DRAIN_FETCHES, _DRAIN_CPU)
_SETTLE_S: Final = 1.0
_WARM_UP_S: Final = 2.0


@attrs.frozen
class _Scene:
    """The busy partitions, and their readers."""

    name: str
    consumers: Callable[[Side], Crowd]
    places: Sequence[tuple[str, int]]
    per_s: float
    size: int = 100
    tail_s: float = 1.5
    """For the last records to arrive."""


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Delivery from a record's writing to its arrival, fetches and CPU of the broker: none worse than direct."""
    partitions, consumers = (1_000, 20) if quick else (5_000, 200)
    seconds, rounds = (5.0, 1) if quick else (10.0, 2)
    topics = idle_topics(cluster, partitions)
    create_topics(cluster, {_TOPIC: 100})
    to_drain = dict(itertools.islice(topics.items(), 10))
    for topic in to_drain:
        fill(cluster, topic, 100, megabytes=1)
    writer = Writer(cluster)
    writer.warm_up({**topics, _TOPIC: 100})
    with sides(cluster) as both:
        scenes = _scenes(topics, consumers)
        show_progress("warming up")  # the brokers' JVMs compile their code
        for scene in scenes[:2]:
            with scene.consumers(both[0]) as crowd:
                writer.write_evenly(scene.places, per_s=scene.per_s, seconds=_WARM_UP_S, size=scene.size)
                crowd.finish()
        time.sleep(_SETTLE_S)
        alone = idle_cpu(cluster, seconds)
        cases = {
            scene.name: {side.name: _way(scene, side, cluster, writer, seconds, alone) for side in both}
            for scene in scenes
        }
        cases["a drain with max wait 0"] = {side.name: _draining(side, to_drain, cluster, alone) for side in both}
        return [
            table
            for name, ways in cases.items()
            for table in _judged(
                measure_all(f"long poll moving, {name}", ways, rounds=rounds, show_progress=show_progress)
            )
        ]


def _scenes(topics: Mapping[str, int], consumers: int) -> list[_Scene]:
    everywhere = [(topic, each) for each in range(100) for topic in topics]
    busy = everywhere[::101]  # 100 would be the same topic each time
    return [
        _Scene("a trickle", lambda side: followers([Job(side.address, topics)]), everywhere, 50),
        _Scene(
            "a group that rebalances",
            lambda side: librdkafka(side, {_TOPIC: 100}, group="long-poll-group", stable=3, leaves_every_s=1.0),
            [(_TOPIC, each) for each in range(100)],
            50,
            tail_s=4.0,
        ),
        _Scene("1 % busy", lambda side: followers([Job(side.address, topics)]), busy, 500, size=1024),
        _Scene(
            f"{consumers} consumers",
            lambda side: followers(_shares(side.address, topics, consumers)),
            everywhere,
            50,
        ),
        _Scene(
            "min bytes of 1 MiB",
            lambda side: followers([Job(side.address, {_TOPIC: 100}, min_bytes=1 << 20)]),
            [(_TOPIC, each) for each in (3, 30, 60, 90)],
            256,
            size=16 * 1024,
        ),
    ]


def _shares(address: str, topics: Mapping[str, int], consumers: int) -> list[Job]:
    """A job a consumer, of equal shares of every ten topics."""
    names = list(topics)
    groups = [names[first : first + 10] for first in range(0, len(names), 10)]
    each = 100 * len(groups) // consumers
    return [
        Job(address, dict.fromkeys(group, each), first_partition=first, client_id=f"bench-{number}-{first}")
        for number, group in enumerate(groups)
        for first in range(0, 100, each)
    ]


def _way(
    scene: _Scene, side: Side, cluster: KafkaCluster, writer: Writer, seconds: float, alone: float
) -> Callable[[], Mapping[Figure, float]]:
    def once() -> Mapping[Figure, float]:
        with scene.consumers(side) as crowd:
            time.sleep(_SETTLE_S)
            began_us = time.time_ns() // 1000
            written, cost = cost_of(
                lambda: writer.write_evenly(scene.places, per_s=scene.per_s, seconds=seconds, size=scene.size),
                cluster,
                side,
            )
            time.sleep(scene.tail_s)
            heard = crowd.finish().since(began_us)
        assert heard.records == written, f"{heard.records} of {written} records have arrived by {side.name}"
        return {**heard.delivery(), **cost.a_second(alone)}

    return once


def _draining(
    side: Side, topics: Mapping[str, int], cluster: KafkaCluster, alone: float
) -> Callable[[], Mapping[Figure, float]]:
    """Read from start to end by short fetches that do not wait; deliveries count from the start."""
    job = Job(
        side.address,
        topics,
        passes=_DRAIN_PASSES,
        max_wait_ms=0,
        max_bytes=_DRAIN_FETCH_BYTES,
    )

    def once() -> Mapping[Figure, float]:
        count, cost = cost_of(lambda: read(job), cluster, side)
        return {
            **delivery([1000 * arrival_s for arrival_s in count.arrivals_s]),
            _DRAIN_FETCHES: cost.fetches / _DRAIN_PASSES,
            _DRAIN_CPU: 1000 * cost.own_share(alone) / _DRAIN_PASSES,
        }

    return once


def _judged(tables: Mapping[Figure, Table]) -> list[Table]:
    return [table.expecting(_no_worse(table)) if figure in _LIMITED else table for figure, table in tables.items()]


def _no_worse(table: Table) -> Expectation:
    ratio = table.ratio("Sidefetch")
    return Expectation(f"{table.case}: {ratio:.2f} of direct, at most {_MOST:g}", is_met=ratio <= _MOST)
