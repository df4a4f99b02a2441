"""The functions that one client fetch runs through: ``python -m tests.functions [-v]``.

A measure of how much a reader of the code must know. Sidefetch and an embedded cluster run in this process. A
profiler records the functions of ``proxy`` that are called between a client's request and its response, without
those of ``proxy.net``, which moves bytes, and without calls by the cluster and the client.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import attrs
import trio

from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from tests.net.proxied import ask, running
from tests.old_clients import fetch_frame, heard
from tests.pages import ROOT

_PROXY: Final = str(ROOT / "proxy")
_NET: Final = str(ROOT / "proxy" / "net")
_DEMO: Final = str(ROOT / "proxy" / "demo")
_MAX_WAIT_MS: Final = 300


def main(arguments: list[str]) -> int:
    """Print the number of functions and modules by case; with ``-v`` also their names."""
    parser = argparse.ArgumentParser(prog="python -m tests.functions", description=__doc__)
    parser.add_argument("-v", action="store_true", help="print the names, too")
    is_verbose = parser.parse_args(arguments).v
    for name, (version, case) in _CASES.items():
        called = trio.run(_called_by, version, case)
        modules = {code.co_filename for code in called}
        print(f"{name}: {len(called)} functions in {len(modules)} modules")
        for code in sorted(called, key=lambda code: (code.co_filename, code.co_firstlineno)) if is_verbose else ():
            print(f"    {Path(code.co_filename).relative_to(_PROXY)}: {code.co_qualname}")
    return 0


@attrs.define
class _Consumer:
    """A client that reads partition 0 of topic ``t``, with two idle partitions beside it."""

    cluster: EmbeddedCluster
    connection: KafkaConnection
    version: int
    offset: int = 0

    def produce(self) -> None:
        self.cluster.append("t", 0, [bytes(100)])

    async def fetch(self) -> None:
        """Fetch once, and check that records are delivered if there are any."""
        end = self.cluster.partition("t", 0).log.end
        offsets = {0: self.offset, 1: 0, 2: 0}
        if self.version < 4:
            await self.connection.send_frame(fetch_frame(self.version, offsets, max_wait_ms=_MAX_WAIT_MS))
            frame = await self.connection.receive_frame()
            assert frame is not None
            records = heard([len(frame).to_bytes(4) + frame], self.version)[0].records
        else:
            response = await self.connection.call("fetch", self.version, ask(offsets, max_wait=_MAX_WAIT_MS))
            partitions = {each.partition_index: each for each in response.responses[0].partitions}
            records = partitions[0].records or ()
        assert bool(records) == (end > self.offset)
        self.offset = end


async def _missed(consumer: _Consumer) -> None:
    """Leave records that no fetch of Sidefetch has asked for: the consumer seeks back."""
    consumer.produce()
    await consumer.fetch()
    consumer.offset = 0


async def _read_before(consumer: _Consumer) -> None:
    """Leave records that Sidefetch received while the consumer was not asking."""
    await consumer.fetch()
    consumer.produce()
    await trio.sleep(0.2)


async def _nothing_new(consumer: _Consumer) -> None:
    await consumer.fetch()


_CASES: Final[dict[str, tuple[int, Callable[[_Consumer], Awaitable[None]]]]] = {
    "answered from memory": (12, _read_before),
    "missed": (12, _missed),
    "missed and converted": (2, _missed),
    "nothing new": (12, _nothing_new),
}
"""By name, the client's version of Fetch and the steps before its measured fetch."""


async def _called_by(version: int, prepare: Callable[[_Consumer], Awaitable[None]]) -> set[CodeType]:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        async with running(cluster) as it, it.client(1) as connection:
            consumer = _Consumer(cluster, connection, version)
            consumer.produce()
            await consumer.fetch()
            await prepare(consumer)
            with _profiled() as called:
                await consumer.fetch()
    return called


@contextmanager
def _profiled() -> Iterator[set[CodeType]]:
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in called or not code.co_filename.startswith(_PROXY):
            return
        if not (code.co_filename.startswith(_NET) or _is_of_demo(frame) or code.co_name.startswith("<")):
            called.add(code)

    sys.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(None)


def _is_of_demo(frame: FrameType | None) -> bool:
    """Return whether a function of ``proxy.demo`` is among the callers of *frame*, or is its own."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_DEMO):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
