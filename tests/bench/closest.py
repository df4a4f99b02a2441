"""Reads from the closest replica, with followers and leaders on three brokers: delay and number of requests.

Some partitions have a replica in the rack of ``NODE`` and some have none there, so that a fetch of both reads from
two brokers.

A follower serves only records that it knows to be committed, and it learns that with its next fetch from the
leader,
which waits there for up to 500 ms (``replica.fetch.wait.max.ms``) if nothing else is written. That holds for every
consumer of a follower, so Sidefetch is compared with a client that reads the same replica directly, with the leader
beside them.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.bench.load import P50, Crowd, Side, Writer, followers, librdkafka
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of, create_missing_topics
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts, record_bytes_out
from tests.sidefetch import Sidefetch

__all__ = ["run_idle", "run_wake"]

_LEADER: Final = 2
"""The leader of the partitions that the scripted client reads."""
_NEAR: Final = {"closest-near-1": (1, 2, 3), "closest-near-2": (2, 1, 3), "closest-near-3": (3, 1, 2)}
"""Topics kept in the rack, and their replicas, the leader first."""
_FAR: Final = {"closest-far-2": (2, 3), "closest-far-3": (3, 2)}
"""Topics that are not."""
_PARTITIONS: Final = 50
"""The number of partitions of each topic."""
_UPSTREAM_MAX_WAIT_S: Final = 5.0
_SETTLE_S: Final = 2.0
_WARM_UP_SAMPLES: Final = 10
_GAPS_S: Final = (0.1, 0.4)
"""Between records, evenly distributed, so that they meet every moment of a client's wait."""
_MOST_LATER_MS: Final = 10.0
_MOST_LATER: Final = 0.2
"""The largest additional delay, relative to a direct read from the same replica."""


def run_wake(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure the time from the production of a record to its delivery, if only one broker has something new."""
    samples, rounds = (20, 1) if quick else (50, 3)
    near, far = _of(_LEADER, _NEAR), _of(_LEADER, _FAR)
    with _sides(cluster) as (direct, through):
        job = Job(cluster.brokers[NODE].address, near, leader=direct.address)
        cases = [
            _Case(
                "data at a follower",
                {
                    "its leader": lambda: _scripted(direct),
                    "the follower": lambda: followers([job]),
                    "Sidefetch": lambda: _scripted(through),
                },
                near,
                compared_with="the follower",
                source=NODE,
            ),
            _Case(
                "data at the leader, followers beside it",
                {"its leader": lambda: _scripted(direct), "Sidefetch": lambda: _scripted(through)},
                far,
                compared_with="its leader",
                source=_LEADER,
            ),
            _Case(
                "librdkafka, data at followers",
                {
                    "the leaders": lambda: _librdkafka(direct),
                    "the followers": lambda: librdkafka(direct, _all(), rack=cluster.brokers[NODE].rack),
                    "Sidefetch": lambda: _librdkafka(through),
                },
                dict.fromkeys(_NEAR, _PARTITIONS),
                compared_with="the followers",
                source=NODE,
            ),
        ]
        writer = Writer(cluster)
        writer.warm_up(_all())
        show_progress("warming up")  # the brokers' JVMs compile their code
        for case in cases:
            case.once(cluster, next(iter(case.ways)), writer, _WARM_UP_SAMPLES)
        return [table for case in cases for table in _wake(case, cluster, writer, samples, rounds, show_progress)]


def run_idle(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure the requests of an idle consumer at each broker, within the time that a fetch may wait there."""
    windows = 3 if quick else 8
    with _sides(cluster) as both:
        readers: Mapping[str, tuple[Callable[[Side], Crowd], int]] = {
            "a connection to one broker": (_scripted, 1),
            "librdkafka, connections to three": (_librdkafka, len(cluster.brokers)),
        }
        return [
            table
            for name, (reader, connections) in readers.items()
            for table in _idle(name, reader, connections, cluster, both, windows, show_progress)
        ]


@contextlib.contextmanager
def _sides(cluster: KafkaCluster) -> Iterator[list[Side]]:
    """Direct, and through a Sidefetch in the rack of ``NODE``; the topics are there."""
    for topics in (_NEAR, _FAR):
        for topic, replicas in topics.items():
            create_missing_topics(cluster, {topic: _PARTITIONS}, replicas=replicas)
    options = ("--rack", cluster.brokers[NODE].rack, "--upstream-max-wait", f"{_UPSTREAM_MAX_WAIT_S:g}s")
    with Sidefetch(cluster.bootstrap, options=options) as sidefetch:
        yield [
            Side("direct", cluster.bootstrap, cluster.brokers[_LEADER].address),
            Side("Sidefetch", sidefetch.bootstrap, address_of(_LEADER, sidefetch.bootstrap), sidefetch.process.pid),
        ]


def _of(leader: int, topics: Mapping[str, Sequence[int]]) -> dict[str, int]:
    return {topic: _PARTITIONS for topic, replicas in topics.items() if replicas[0] == leader}


def _all() -> dict[str, int]:
    return dict.fromkeys((*_NEAR, *_FAR), _PARTITIONS)


def _scripted(side: Side) -> Crowd:
    """One connection to one leader, for partitions of both kinds."""
    return followers([Job(side.address, _of(_LEADER, {**_NEAR, **_FAR}))])


def _librdkafka(side: Side) -> Crowd:
    """A connection to each broker, for all partitions."""
    return librdkafka(side, _all())


@attrs.frozen
class _Case:
    name: str
    ways: Mapping[str, Callable[[], Crowd]]
    """The ways; the last one is ``Sidefetch``."""
    topics: Mapping[str, int]
    """The topics that get records, and their numbers of partitions."""
    compared_with: str
    """The way by which a client would read the same replica by itself."""
    source: int
    """The broker that *topics* are read from through Sidefetch, and no other."""

    def once(self, cluster: KafkaCluster, way: str, writer: Writer, samples: int) -> Mapping[Figure, float]:
        chance = random.Random(samples)
        places = [(topic, each) for topic, count in self.topics.items() for each in range(count)]
        with self.ways[way]() as consumer:
            time.sleep(_SETTLE_S)
            before = record_bytes_out(cluster, *self.topics)
            for place in chance.sample(places, samples):
                writer.write(*place)
                time.sleep(chance.uniform(*_GAPS_S))
            writer.flush()
            time.sleep(_SETTLE_S)
            after = record_bytes_out(cluster, *self.topics)
            heard = consumer.finish()
        assert heard.records == samples, f"{heard.records} of {samples} records have arrived by {way}"
        if way == "Sidefetch":
            sources = {node for node in after if after[node] > before[node]}
            assert sources == {self.source}, f"{self.name}: read from {sources}"
        return heard.delivery()


def _wake(
    case: _Case,
    cluster: KafkaCluster,
    writer: Writer,
    samples: int,
    rounds: int,
    show_progress: Callable[[str], None],
) -> list[Table]:
    def way(name: str) -> Callable[[], Mapping[Figure, float]]:
        return lambda: case.once(cluster, name, writer, samples)

    title = f"closest wake, {case.name}"
    tables = measure_all(title, {name: way(name) for name in case.ways}, rounds=rounds, show_progress=show_progress)
    direct, through = (tables[P50].median(name) for name in (case.compared_with, "Sidefetch"))
    text = (
        f"{title}: p50 {through:.3g} ms, {direct:.3g} ms from {case.compared_with}, "
        f"at most {_MOST_LATER_MS:g} ms or {_MOST_LATER:.0%} later"
    )
    is_met = through - direct <= max(_MOST_LATER_MS, _MOST_LATER * direct)
    tables[P50] = tables[P50].expecting(Expectation(text, is_met=is_met))
    return list(tables.values())


def _idle(
    name: str,
    reader: Callable[[Side], Crowd],
    connections: int,
    cluster: KafkaCluster,
    both: Sequence[Side],
    windows: int,
    show_progress: Callable[[str], None],
) -> Iterator[Table]:
    def way(side: Side) -> Callable[[], Mapping[Figure, float]]:
        def once() -> Mapping[Figure, float]:
            with reader(side) as consumer:
                time.sleep(_SETTLE_S + _UPSTREAM_MAX_WAIT_S)  # sessions are made
                before, began = broker_counts(cluster), time.monotonic()
                time.sleep(windows * _UPSTREAM_MAX_WAIT_S)
                after, seconds = broker_counts(cluster), time.monotonic() - began
                consumer.finish()
            return {
                Figure(f"fetches within the max wait at {node}", ""): (
                    (after[node].consumer_fetches - before[node].consumer_fetches) * _UPSTREAM_MAX_WAIT_S / seconds
                )
                for node in after
            }

        return once

    case = f"closest idle, {name}"
    tables = measure_all(case, {side.name: way(side) for side in both}, rounds=1, show_progress=show_progress)
    most = connections * (windows + 1) / windows  # one more may end within the time that is counted
    for figure, table in tables.items():
        seen = max(table.values["Sidefetch"])
        text = f"{case}: {seen:.3g} {figure.name}, at most {most:.3g}: one a connection of the client"
        yield table.expecting(Expectation(text, is_met=seen <= most))
