"""A client relay and the log caches that it reads, without connections."""

from typing import Any

from proxy.cluster.topology import BrokerId
from proxy.fetch.cache import LogCache
from proxy.fetch.commands import CloseSession, EmitRecord
from proxy.fetch.fetch_config import FetchConfig
from proxy.relay.client import ClientRelay, Sasl
from proxy.wire.addresses import AddressMap
from tests.relay.driver import RelayDriver

__all__ = ["Solo"]


class Solo(RelayDriver):
    """The relay of one client with its log caches."""

    def __init__(
        self, node_id: BrokerId, map_address: AddressMap, reading: FetchConfig, sasl: Sasl = Sasl.PASSES
    ) -> None:
        super().__init__(reading)
        self.relay = ClientRelay(node_id, map_address, reading, self, sasl)
        self.relays[""] = self.relay

    @property
    def cache(self) -> LogCache:
        cache = self.relay.cache
        assert cache is not None
        return cache

    def leave(self, now_s: float) -> tuple[list[EmitRecord], list[CloseSession]]:
        """Disconnect the client; return the last telemetry records, and the requests that close its sessions."""
        self._now_s = now_s
        self.relay.close(now_s)
        return self.take_left()

    def take_left(self) -> tuple[list[EmitRecord], list[CloseSession]]:
        """Return and clear the last telemetry records and requests of caches that the relay has left."""
        left, self._left = self._left, []
        records = [each for each in left if isinstance(each, EmitRecord)]
        return records, [each for each in left if isinstance(each, CloseSession)]

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the relay."""
        return getattr(self.relay, name)
