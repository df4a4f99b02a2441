"""Client relays and the log caches that they read, driven together as ``net`` drives them, without connections."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator

from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.commands import (
    CloseFetcher,
    CloseSession,
    EmitRecord,
    FetcherId,
    OpenFetcher,
    RefreshMetadata,
    SendFetch,
    Wake,
)
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.reader import Reader
from proxy.relay.client import ClientRelay
from proxy.relay.commands import (
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
)

__all__ = ["MemoryNeeded", "RelayDriver"]


class MemoryNeeded:
    """An event: the memory of cached entries is needed, so that caches drop them."""


class RelayDriver(ABC):
    """Client relays with their log caches; it takes all events and returns all commands, as if it were one machine.

    The commands of the caches are returned as commands of links: ``OpenLink``, ``Send``, ``CloseLink``.
    """

    def __init__(self, reading: FetchConfig) -> None:
        self._reading = reading
        self._caches: dict[CacheKey, LogCache] = {}
        self._links: dict[CacheKey, set[FetcherId]] = {}
        """The connections of each cache that are open or being opened."""
        self._left: list[CloseSession | EmitRecord] = []
        self._now_s = 0.0
        self.relays: dict[str, ClientRelay] = {}
        """The relays by the names of their clients."""

    @property
    @abstractmethod
    def cache(self) -> LogCache:
        """The log cache whose connections events of links are about."""

    def receivers(self, event: Event) -> Iterable[str]:  # noqa: ARG002
        """Return the names of the clients whose relays get an event that is not about a fetcher: of all clients."""
        return list(self.relays)

    def passed(self, name: str, event: Event, now_s: float) -> Iterator[Command]:
        """Pass an event to the relay of client *name*; yield the commands."""
        yield from self.relays[name].handle(event, now_s)

    # As Caches:

    def join(self, key: CacheKey, reader: Reader, client_id: str | None) -> LogCache:
        del client_id
        cache = self._caches.setdefault(key, LogCache(key, self._reading, 0.0))
        self._links.setdefault(key, set())
        cache.join(reader)
        return cache

    def part(self, cache: LogCache, reader: Reader) -> None:
        cache.part(reader)
        if cache.key.is_exclusive:
            del self._caches[cache.key], self._links[cache.key]
            self._left += cache.close(self._now_s)

    # As connections:

    def handle(self, event: Event | MemoryNeeded, now_s: float) -> list[Command]:
        self._now_s = now_s
        return list(self._handle(event, now_s))

    @property
    def deadline_s(self) -> float | None:
        times = [each.deadline_s(self._now_s) for each in self._caches.values()]
        times += [each.deadline_s for each in self.relays.values()]
        return min((each for each in times if each is not None), default=None)

    def is_busy(self, link: Link) -> bool:
        """Return whether a fetch waits for its response on *link*."""
        return any(link in cache.busy for cache in self._caches.values())

    def unserved(self) -> list[object]:
        return [key for relay in self.relays.values() for key in relay.reader.unserved()]

    def _handle(self, event: Event | MemoryNeeded, now_s: float) -> Iterator[Command]:
        match event:
            case (
                LinkOpened(FetcherId() as fetcher)
                | LinkFrame(FetcherId() as fetcher)
                | LinkAnswering(FetcherId() as fetcher)
                | LinkLost(FetcherId() as fetcher)
            ) if not any(fetcher in links for links in self._links.values()):
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
                self._links[self.cache.key].discard(fetcher)
                self.cache.lost(fetcher, now_s)
            case _:
                for name in self.receivers(event):
                    yield from self.passed(name, event, now_s)
        yield from self.settled(now_s)

    def settled(self, now_s: float) -> Iterator[Command]:
        """Settle all caches until no reader is woken any more; yield the commands."""
        for cache in list(self._caches.values()):
            yield from self._carried_out(cache, now_s)
            for _ in range(100):
                cache.settle(now_s)
                if not (yield from self._carried_out(cache, now_s)):
                    break
            else:
                raise AssertionError("readers are woken without end")
        assert not self.unserved(), f"nothing answers {self.unserved()}"

    def _carried_out(self, cache: LogCache, now_s: float) -> Generator[Command, None, bool]:
        """Carry out the pending commands of *cache*; return whether a reader was woken."""
        has_woken = False
        for command in cache.take_commands():
            match command:
                case OpenFetcher(fetcher, client_id):
                    self._links[cache.key].add(fetcher)
                    yield OpenLink(fetcher, client_id)
                case SendFetch(fetcher, frame):
                    yield Send(fetcher, [frame])
                case CloseFetcher(fetcher, why, is_fault):
                    self._links[cache.key].discard(fetcher)
                    yield CloseLink(fetcher, why, is_fault)
                case Wake(reader):
                    has_woken = True
                    (name,) = (name for name, each in self.relays.items() if each.reader is reader)
                    yield from self.passed(name, LogsChanged(), now_s)
                case EmitRecord() | RefreshMetadata():
                    yield command
                case CloseSession():
                    raise AssertionError("sessions are closed at the end only")
        return has_woken
