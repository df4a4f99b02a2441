"""The time until a record reaches the consumer of partitions that were all idle."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.frame import Figure, Table, measure_all
from tests.bench.load import Crowd, Side, Writer, followers, librdkafka, sides
from tests.bench.reader import Job
from tests.bench.stage import idle_topics
from tests.kafka.cluster import KafkaCluster

__all__ = ["run"]

_PARTITIONS: Final = 1_000
_SETTLE_S: Final = 1.0
_WARM_UP_SAMPLES: Final = 10
_GAPS_S: Final = (0.1, 0.4)
"""Between records, evenly distributed, so that they meet every moment of a client's wait."""


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Delivery to a scripted consumer and to librdkafka, next to direct."""
    samples, rounds = (20, 1) if quick else (50, 2)
    topics = idle_topics(cluster, _PARTITIONS)
    writer = Writer(cluster)
    writer.warm_up(topics)
    readers: Mapping[str, Callable[[Side], Crowd]] = {
        "a scripted client": lambda side: followers([Job(side.address, topics)]),
        "librdkafka": lambda side: librdkafka(side, topics),
    }
    with sides(cluster) as both:
        show_progress("warming up")  # the brokers' JVMs compile their code
        for reader in readers.values():
            _way(reader, both[0], writer, topics, _WARM_UP_SAMPLES)()
        return [
            table
            for name, reader in readers.items()
            for table in measure_all(
                f"long poll wake, {name}",
                {side.name: _way(reader, side, writer, topics, samples) for side in both},
                rounds=rounds,
                show_progress=show_progress,
            ).values()
        ]


def _way(
    reader: Callable[[Side], Crowd], side: Side, writer: Writer, topics: Mapping[str, int], samples: int
) -> Callable[[], Mapping[Figure, float]]:
    def once() -> Mapping[Figure, float]:
        chance = random.Random(samples)
        places = chance.sample([(topic, each) for topic, count in topics.items() for each in range(count)], samples)
        with reader(side) as consumer:
            time.sleep(_SETTLE_S)
            for place in places:
                writer.write(*place)
                time.sleep(chance.uniform(*_GAPS_S))
            writer.flush()
            time.sleep(_SETTLE_S)
            heard = consumer.finish()
        assert heard.records == samples, f"{heard.records} of {samples} records have arrived by {side.name}"
        return heard.delivery()

    return once
