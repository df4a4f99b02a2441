"""Sidefetch's resources, on the machine and at the brokers."""

from pathlib import Path

import attrs

from tests.bench.machine import resident_mib
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts

__all__ = ["Taken", "taken"]


@attrs.frozen
class Taken:
    """At one moment."""

    resident_mib: float
    descriptors: int
    threads: int
    sessions: int
    """At all brokers: those of followers too, which are as many at all times."""


def taken(pid: int, cluster: KafkaCluster) -> Taken:
    """Measure the resources of process *pid*."""
    process = Path(f"/proc/{pid}")
    return Taken(
        round(resident_mib(pid, "VmRSS"), 1),
        len(list((process / "fd").iterdir())),
        len(list((process / "task").iterdir())),
        sum(each.sessions for each in broker_counts(cluster).values()),
    )
