"""The embedded cluster in a process of its own, for cases with more partitions than real brokers support.

``python -m tests.bench.embedded TOPICS PARTITIONS BUSY`` prints the address of its only broker, and for each line
of
input the broker's counts as JSON.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import attrs
import trio

from proxy.demo.cluster import embedded_cluster
from tests.processes import Process

__all__ = ["Counts", "Embedded", "embedded", "topic_name"]

NODE: Final = 1
_RECORD: Final = bytes(100)


def topic_name(number: int) -> str:
    return f"idle-{number:04}"


@attrs.frozen
class Counts:
    """The counts of the broker so far."""

    fetches: int
    incremental_fetches: int
    """The part of ``fetches`` that was incremental."""
    bytes: int
    """Bytes of fetches and their responses."""


class Embedded:
    """Made by ``embedded``."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.bootstrap = process.stdout.readline().strip()
        assert self.bootstrap, process.log_text()

    def counts(self) -> Counts:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counts(**json.loads(self._process.stdout.readline()))


@contextlib.contextmanager
def embedded(topics: int, partitions: int, busy: int = 0) -> Iterator[Embedded]:
    """A cluster of one broker with *topics* of *partitions* each, of which the first *busy* have two batches."""
    command = [sys.executable, "-m", "tests.bench.embedded", str(topics), str(partitions), str(busy)]
    with (
        tempfile.TemporaryDirectory(prefix="sidefetch-embedded-") as folder,
        Process(command, log=Path(folder) / "embedded.log", piped=True) as process,
    ):
        yield Embedded(process)


async def _serve(topics: int, partitions: int, busy: int) -> None:
    async with embedded_cluster(1) as cluster:
        for number in range(topics):
            cluster.create_topic(topic_name(number), partitions)
            for index, _ in product(range(busy), range(2)):
                cluster.append(topic_name(number), index, [_RECORD])
        print(cluster.bootstrap, flush=True)
        lines = trio.wrap_file(sys.stdin)
        while await lines.readline():
            counted = cluster.counters
            both_ways = counted.fetch_request_bytes + counted.fetch_response_bytes
            reported = Counts(counted.fetches, counted.incremental_fetches, both_ways)
            print(json.dumps(attrs.asdict(reported)), flush=True)


if __name__ == "__main__":
    trio.run(_serve, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
