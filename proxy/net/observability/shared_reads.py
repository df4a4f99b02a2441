"""The telemetry of log caches that clients share: upstream fetches and sessions that belong to no single client."""

import attrs

from proxy.cluster.topology import Topology
from proxy.events import FetchRecord, Record, SessionRecord
from proxy.net.observability.observers import Observers, SharedCacheInfo
from proxy.net.observability.traffic import count_fetch
from proxy.relay.traffic import Traffic

__all__ = ["SharedCacheRecorder"]


class SharedCacheRecorder:
    """The receiver of the event records of one log cache that clients share.

    It passes them to the observers as records of the cache (``SharedCacheInfo``), each once, whatever the number of
    clients. The fetcher ids get the number of the cache, so that they are unique in the process.
    """

    def __init__(self, observers: Observers, traffic: Traffic, rack: str | None) -> None:
        """Create the recorder; *rack* is the rack of this process, None or empty if it is unknown."""
        self._observers = observers
        self._traffic = traffic
        self._rack = rack
        self._cache = SharedCacheInfo()

    def observe(self, record: Record, topology: Topology) -> None:
        """Pass *record* to the observers; *topology* is the present one of the cache's principal."""
        self._cache.topology = topology
        match record:
            case FetchRecord():
                record = attrs.evolve(
                    record,
                    fetcher_id=self._unique_id(record.fetcher_id),
                    client_fetches=record.client_fetches if _has_served(record) else 0,
                )
                count_fetch(self._traffic, record, topology, self._rack)
            case SessionRecord():
                record = attrs.evolve(record, fetcher_id=self._unique_id(record.fetcher_id))
            case _:
                pass
        self._observers.observe(self._cache, record)

    def end(self) -> None:
        """Report the end of the cache to the observers; no record may follow."""
        self._observers.end_connection(self._cache)

    def _unique_id(self, fetcher_id: str) -> str:
        return f"cache-{self._cache.number}/{fetcher_id}"


def _has_served(record: FetchRecord) -> bool:
    """Return whether a fetch can have served clients: it has a response, and did not only close a session."""
    return bool(record.response_bytes and record.size)
