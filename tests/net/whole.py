"""A Sidefetch process in front of an embedded cluster, and its memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from tests.sidefetch import Sidefetch

__all__ = ["resident_mib", "sidefetch_before_brokers"]


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@asynccontextmanager
async def sidefetch_before_brokers(*options: str) -> AsyncIterator[tuple[EmbeddedCluster, Sidefetch, str]]:
    """In front of an embedded cluster; and where it stands for broker 1."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        sidefetch = Sidefetch(cluster.bootstrap, options=options, grace_s=0.5)
        await trio.to_thread.run_sync(sidefetch.__enter__)
        try:
            port = await trio.to_thread.run_sync(sidefetch.port_of, 1)
            yield cluster, sidefetch, f"127.0.0.1:{port}"
            assert " unhandled-exception " not in sidefetch.log_text()
        finally:
            await trio.to_thread.run_sync(sidefetch.__exit__, None, None, None)
