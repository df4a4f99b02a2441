"""How fast records come through, and what memory that takes."""

import contextlib
import time
from collections.abc import Callable
from typing import Final

from tests.bench.frame import Expectation, Table, measure
from tests.bench.machine import resident_mib
from tests.bench.stage import NODE, address_of, create_topics, fill, haproxy, haproxy_path, reading_way
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_TOPIC: Final = "full"
_PARTITIONS: Final = 4
_LEAST_RATIO: Final = 0.3
"""Of direct: what HAProxy, which copies through one thread as well, reaches."""
_MOST_IDLE_MIB: Final = 60
_IDLE_STARTS: Final = 3


def run(cluster: KafkaCluster, *, quick: bool, tell: Callable[[str], None]) -> list[Table]:
    """MB/s of records of 1 KiB, not compressed; then Sidefetch's resident memory."""
    create_topics(cluster, {_TOPIC: _PARTITIONS})
    tell("writing records")
    megabytes = 128 if quick else 512
    fill(cluster, _TOPIC, _PARTITIONS, megabytes=megabytes)
    direct = cluster.brokers[NODE].address
    idle = [_idle_mib(cluster.bootstrap) for _ in range(_IDLE_STARTS)]
    with contextlib.ExitStack() as stage:
        ways = [reading_way("direct", direct, _TOPIC, _PARTITIONS, megabytes)]
        if path := haproxy_path():
            ways.append(
                reading_way("HAProxy", stage.enter_context(haproxy(path, direct)), _TOPIC, _PARTITIONS, megabytes)
            )
        sidefetch = stage.enter_context(Sidefetch(cluster.bootstrap))
        ways.append(reading_way("Sidefetch", address_of(NODE, sidefetch.bootstrap), _TOPIC, _PARTITIONS, megabytes))
        case = "reading 1 KiB records"
        tell("warming up")
        for way in ways:  # the brokers' JVMs compile what they use
            way.run()
        table = measure(case, "MB/s", ways, rounds=3 if quick else 5, tell=tell)
        after, peak = (resident_mib(sidefetch.process.pid, field) for field in ("VmRSS", "VmHWM"))
    ratio = table.ratio("Sidefetch")
    memory = Table("memory of Sidefetch", "MiB", {"idle": idle, "after reading": [after], "peak": [peak]})
    return [
        table.expecting(
            Expectation(f"{case}: {ratio:.2f} of direct, at least {_LEAST_RATIO}", is_met=ratio >= _LEAST_RATIO)
        ),
        memory.expecting(
            Expectation(
                f"memory: {max(idle):.0f} MiB idle, at most {_MOST_IDLE_MIB}", is_met=max(idle) <= _MOST_IDLE_MIB
            )
        ),
    ]


def _idle_mib(bootstrap: str) -> float:
    with Sidefetch(bootstrap) as sidefetch:
        address_of(NODE, sidefetch.bootstrap)  # it knows the cluster by now
        time.sleep(1)
        return resident_mib(sidefetch.process.pid, "VmRSS")
