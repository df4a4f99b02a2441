"""A client relay and the log caches that it reads, driven together as ``net`` drives them, without connections."""

from collections.abc import Iterator
from typing import Any

from proxy.cluster.topology import BrokerId
from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.commands import (
    CacheCommand,
    CloseFetcher,
    CloseSession,
    EmitRecord,
    FetcherId,
    OpenFetcher,
    RefreshMetadata,
    SendFetch,
    Wake,
)
from proxy.fetch.reader import Reader
from proxy.fetch.reading import Reading
from proxy.relay.client import ClientRelay, Sasl
from proxy.relay.commands import (
    PASS,
    CloseLink,
    Command,
    Event,
    Link,
    LinkAnswering,
    LinkFrame,
    LinkLost,
    LinkOpened,
    LogsChanged,
    OpenLink,
    Send,
    Tick,
)
from proxy.wire.addresses import Place

__all__ = ["MemoryNeeded", "Solo"]


class MemoryNeeded:
    """An event: the memory of cached entries is needed, so that caches drop them."""


class Solo:
    """A client relay with its log caches; it takes all events and returns all commands, as if it were one machine.

    The commands of the caches are returned as commands of the relay's links: ``OpenLink``, ``Send``, ``CloseLink``.
    """

    def __init__(self, node_id: BrokerId, place: Place, reading: Reading, sasl: Sasl = Sasl.PASSES) -> None:
        self._reading = reading
        self._caches: dict[CacheKey, LogCache] = {}
        self._left: list[CloseSession | EmitRecord] = []
        self.relay = ClientRelay(node_id, place, reading, self, sasl)
        self._now_s = 0.0

    # As Caches:

    def join(self, key: CacheKey, reader: Reader, client_id: str | None) -> LogCache:
        del client_id
        cache = self._caches.setdefault(key, LogCache(key, self._reading, 0.0))
        cache.join(reader)
        return cache

    def part(self, cache: LogCache, reader: Reader) -> None:
        cache.part(reader)
        del self._caches[cache.key]
        self._left += cache.close(self._now_s)

    # As a connection:

    def handle(self, event: Event | MemoryNeeded, now_s: float) -> list[Command]:
        self._now_s = now_s
        return list(self._handle(event, now_s))

    @property
    def cache(self) -> LogCache:
        cache = self.relay.cache
        assert cache is not None
        return cache

    @property
    def deadline_s(self) -> float | None:
        caches = (cache.deadline_s(self._now_s) for cache in self._caches.values())
        return min((each for each in (self.relay.deadline_s, *caches) if each is not None), default=None)

    def leave(self, now_s: float) -> tuple[list[EmitRecord], list[CloseSession]]:
        """Disconnect the client; return the last telemetry records, and the requests that close its sessions."""
        self._now_s = now_s
        self.relay.leave(now_s)
        return self.take_left()

    def take_left(self) -> tuple[list[EmitRecord], list[CloseSession]]:
        """Return and clear the last telemetry records and requests of caches that the relay has left."""
        left, self._left = self._left, []
        records = [each for each in left if isinstance(each, EmitRecord)]
        return records, [each for each in left if isinstance(each, CloseSession)]

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the relay."""
        return getattr(self.relay, name)

    def is_busy(self, link: Link) -> bool:
        """Return whether a fetch waits for its response on *link*."""
        return any(link in cache.busy for cache in self._caches.values())

    def unserved(self) -> list[object]:
        return [*self.relay.reader.unserved()]

    def _handle(self, event: Event | MemoryNeeded, now_s: float) -> Iterator[Command]:
        match event:
            case (
                LinkOpened(FetcherId() as fetcher)
                | LinkFrame(FetcherId() as fetcher)
                | LinkAnswering(FetcherId() as fetcher)
                | LinkLost(FetcherId() as fetcher)
            ) if not any(cache.is_connected(fetcher) for cache in self._caches.values()):
                return  # its cache was left, and the connection is closed
            case MemoryNeeded():
                for cache in self._caches.values():
                    cache.drop_records()
            case LinkOpened(FetcherId() as fetcher, ranges):
                self.cache.opened(fetcher, ranges, now_s)
            case LinkFrame(FetcherId() as fetcher, frame):
                self.cache.received(fetcher, frame, now_s)
            case LinkAnswering(FetcherId() as fetcher):
                self.cache.answering(fetcher)
            case LinkLost(FetcherId() as fetcher):
                self.cache.lost(fetcher, now_s)
            case _:
                yield from self.relay.handle(event, now_s)
        yield from self._settled(now_s, is_tick=isinstance(event, Tick))

    def _settled(self, now_s: float, *, is_tick: bool) -> Iterator[Command]:
        del is_tick
        for cache in list(self._caches.values()):
            yield from self._carried_out(cache.take_commands(), now_s)
            for _ in range(100):
                cache.settle(now_s)
                commands = cache.take_commands()
                yield from self._carried_out(commands, now_s)
                if not any(isinstance(command, Wake) for command in commands):
                    break
            else:
                raise AssertionError("readers are woken without end")
        assert not self.unserved(), f"nothing answers {self.unserved()}"

    def _carried_out(self, commands: list[CacheCommand], now_s: float) -> Iterator[Command]:
        for command in commands:
            match command:
                case OpenFetcher(fetcher, client_id):
                    yield OpenLink(fetcher, client_id)
                case SendFetch(fetcher, frame):
                    yield Send(fetcher, [frame])
                case CloseFetcher(fetcher, why, is_fault):
                    yield CloseLink(fetcher, why, is_fault)
                case Wake(reader):
                    assert reader is self.relay.reader
                    yield from self.relay.handle(LogsChanged(), now_s)
                case EmitRecord() | RefreshMetadata():
                    yield command
                case CloseSession():
                    raise AssertionError("sessions are closed at the end only")


assert PASS
