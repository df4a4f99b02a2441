"""The cost of TLS with the brokers: the same records through Sidefetch with and without it."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.frame import Expectation, Table, measure
from tests.bench.stage import KAFKA, NODE, address_of, create_topics, fill, reading_way
from tests.certificates import Authority
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

__all__ = ["run"]

_TOPIC: Final = "full"
_PARTITIONS: Final = 4
_LEAST_RATIO: Final = 0.1
"""The least speed relative to plaintext: the brokers' own TLS, which copies every byte in Java, is the main
cost."""


def run(*, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """MB/s of records of 1 KiB, with brokers of its own."""
    megabytes = 64 if quick else 256
    with contextlib.ExitStack() as stage:
        authority = Authority(Path(stage.enter_context(tempfile.TemporaryDirectory(prefix="sidefetch-bench-"))))
        settings = {
            "listener.security.protocol.map": "TLS:SSL,"
            + ",".join(f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "TAPPED", "INTERNAL", "CONTROLLER")),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue("127.0.0.1", file="broker").both,
        }
        show_progress(f"starting three brokers of Kafka {KAFKA} that speak TLS")
        cluster = stage.enter_context(
            KafkaCluster(KAFKA, quick=False, heap_mib=1024, settings=settings, listeners=("TLS",))
        )
        create_topics(cluster, {_TOPIC: _PARTITIONS})
        show_progress("writing records")
        fill(cluster, _TOPIC, _PARTITIONS, megabytes=megabytes)
        options = ["--upstream-tls", "on", "--upstream-tls-ca", str(authority.path)]
        plain = stage.enter_context(Sidefetch(cluster.bootstrap))
        secured = stage.enter_context(Sidefetch(cluster.bootstrap_of("TLS"), options=options))
        ways = [
            reading_way("Sidefetch, plaintext", address_of(NODE, plain.bootstrap), _TOPIC, _PARTITIONS, megabytes),
            reading_way("Sidefetch, TLS", address_of(NODE, secured.bootstrap), _TOPIC, _PARTITIONS, megabytes),
        ]
        show_progress("warming up")
        for way in ways:
            way.run()
        table = measure(
            "TLS, reading 1 KiB records", "MB/s", ways, rounds=3 if quick else 5, show_progress=show_progress
        )
    ratio = table.ratio("Sidefetch, TLS")
    return [
        table.expecting(
            Expectation(f"TLS: {ratio:.2f} of plaintext, at least {_LEAST_RATIO}", is_met=ratio >= _LEAST_RATIO)
        )
    ]
