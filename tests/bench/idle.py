"""The cost for the brokers of fetches by a full-fetch client of idle partitions."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.bench.frame import Expectation, Table, Way, measure
from tests.bench.reader import Job
from tests.bench.stage import NODE, address_of, idle_topics, read
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch, Tap

__all__ = ["run"]

_MOST_BYTES: Final = 250
"""The largest size of a fetch within a session and its response, whatever the number of partitions."""
_FETCHES: Final = 12
_MAX_WAIT_MS: Final = 250
_SETTLE_S: Final = 0.5
"""After a client has gone: for its session to be closed."""


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure the bytes of a fetch between brokers and their client; report the creation of the session apart."""
    sizes = (100, 1_000) if quick else (100, 1_000, 10_000)
    with cluster.tap() as tap, Sidefetch(tap.bootstrap, options=("--upstream-max-wait", "0")) as sidefetch:
        ways = {
            "direct": f"127.0.0.1:{cluster.brokers[NODE].tap_port}",
            "Sidefetch": address_of(NODE, sidefetch.bootstrap),
        }
        return [
            table
            for size in sizes
            for table in _at(size, idle_topics(cluster, size), ways, tap, quick, show_progress)
        ]


def _at(
    size: int,
    topics: Mapping[str, int],
    addresses: Mapping[str, str],
    tap: Tap,
    quick: bool,
    show_progress: Callable[[str], None],
) -> list[Table]:
    steady: dict[str, list[float]] = {name: [] for name in addresses}
    once: list[float] = []

    def way(name: str) -> Way:
        def once_through() -> float:
            tap.forget()
            count = read(Job(addresses[name], topics, fetches=_FETCHES, max_wait_ms=_MAX_WAIT_MS))
            assert count.fewest_partitions == size, f"{count.fewest_partitions} of {size} partitions answered"
            time.sleep(_SETTLE_S)
            fetches = tap.answered()
            lasting = fetches if name == "direct" else [fetch for fetch in fetches if fetch.is_incremental]
            # The first two requests have every partition, the last one closes the session. A response of Sidefetch
            # may also answer the client fetch that began while its request was in flight.
            assert len(fetches) - len(lasting) <= 3, _story(fetches)
            assert len(lasting) >= _FETCHES - (2 if name == "direct" else 3), _story(fetches)
            costs = [float(fetch.request_bytes + fetch.response_bytes) for fetch in lasting]
            steady[name] += costs
            if name != "direct":
                once.append(tap.bytes_up + tap.bytes_down - sum(costs))
            return sum(costs) / len(costs)

        return Way(name, once_through)

    case = f"idle, {size:,} partitions"
    table = measure(
        case, "B a fetch", [way(name) for name in addresses], rounds=2 if quick else 3, show_progress=show_progress
    )
    worst = max(steady["Sidefetch"])
    return [
        table.expecting(
            Expectation(
                f"{case}: {worst:.0f} B both ways at most, under {_MOST_BYTES}, however many partitions",
                is_met=worst < _MOST_BYTES,
            )
        ),
        Table(f"{case}: to begin and end", "B a client", {"Sidefetch": once}),
    ]


def _story(fetches: Sequence[SeenFetch]) -> str:
    return "\n".join(["fetches were not incremental:", *map(str, fetches)])
