"""A log cache without connections, whose logs tests fill."""

from typing import Any

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.positions import Positions
from proxy.fetch.shared_log import LogKey, SharedLog
from proxy.wire.fetch import FetchPartition, PartitionKey

__all__ = ["Owner", "append", "cache_of", "key_of", "positions_of", "read"]

SOURCE = Source(BrokerId(1))


class Owner:
    """A reader that ignores what its logs report."""

    node_id = BrokerId(1)

    def watched(self, now_s: float) -> None:
        pass


def cache_of(*, is_exclusive: bool = False, upstream_max_wait_s: float = 10.0) -> LogCache:
    reading = FetchConfig(upstream_max_wait_s, fetch_buffer_bytes=8 << 20, response_timeout_s=5)
    return LogCache(CacheKey("owner", "client", 0, "", False, is_exclusive, None), reading, 0.0)


def key_of(partition: int, epoch: int = 5, *, is_probe: bool = False) -> LogKey:
    return LogKey(PartitionKey("t", partition), SOURCE, epoch, -1, is_probe)


def positions_of(cache: LogCache, *, is_probe: bool = False) -> Positions:
    owner: Any = Owner()
    return Positions(owner, cache, is_probe, since_s=float("inf" if is_probe else "-inf"))


def read(
    positions: Positions, partition: int, offset: int = 0, max_bytes: int = 1 << 20, now_s: float = 0.0
) -> SharedLog:
    """Read a partition from *offset* on; return its log."""
    key = key_of(partition, is_probe=positions.is_probe)
    positions.find(key.partition, key, FetchPartition(offset, max_bytes), now_s)
    return positions.logs[key.partition]


def append(log: SharedLog, records: bytes, now_s: float = 0.0) -> None:
    """Append the records of a response to *log*, and notify its readers."""
    assert log.log.append(log.log.end, memoryview(records), now_s=now_s)
    log.moved(len(records), now_s)
    for reader in log.readers:
        reader.log_moved(log)
