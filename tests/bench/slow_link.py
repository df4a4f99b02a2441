"""The speed of a client that fetches little at a time from distant brokers."""

from collections.abc import Callable
from typing import Final

from tests.bench.frame import Expectation, Table, Way, measure
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of, create_topics, fill, read
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.tap import Tap

__all__ = ["run"]

_ONE_WAY_S: Final = 0.0025
"""On top of loopback: 5 ms there and back, as between regions that are close."""
_FETCH_BYTES: Final = 16 * 1024
_PARTITIONS: Final = (1, 4)
_LEAST_RATIO: Final = 2.0


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """MB/s of fetches of 16 KiB, one at a time: direct, and through Sidefetch that does and does not read ahead."""
    megabytes = 4 if quick else 8
    tables = []
    with (
        Tap(cluster.tapped, delay_s=_ONE_WAY_S) as tap,
        Sidefetch(tap.bootstrap, options=("--read-ahead", "on")) as ahead,
        Sidefetch(tap.bootstrap, options=("--read-ahead", "off")) as behind,
    ):
        addresses = {
            "direct": f"127.0.0.1:{cluster.brokers[NODE].tap_port}",
            "Sidefetch, --read-ahead on": address_of(NODE, ahead.bootstrap),
            "Sidefetch, --read-ahead off": address_of(NODE, behind.bootstrap),
        }
        for partitions in _PARTITIONS:
            topic = f"far-{partitions}"
            create_topics(cluster, {topic: partitions})
            fill(cluster, topic, partitions, megabytes=megabytes, batch_bytes=_FETCH_BYTES // 2)
            ways = [_way(name, address, topic, partitions) for name, address in addresses.items()]
            case = f"5 ms away, {partitions} partition{'s' * (partitions > 1)}, 16 KiB a fetch"
            table = measure(case, "MB/s", ways, rounds=2 if quick else 5, show_progress=show_progress)
            ratio = table.ratio("Sidefetch, --read-ahead on")
            text = f"{case}: {ratio:.1f} times as fast as direct, at least {_LEAST_RATIO:g}"
            tables.append(table.expecting(Expectation(text, is_met=ratio >= _LEAST_RATIO)))
    return tables


def _way(name: str, address: str, topic: str, partitions: int) -> Way:
    job = Job(address, {topic: partitions}, max_bytes=_FETCH_BYTES, partition_bytes=_FETCH_BYTES)

    def once() -> float:
        count = read(job)
        return count.record_bytes / count.seconds / 1e6

    return Way(name, once)
