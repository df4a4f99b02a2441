"""Several client relays that read one log cache, without connections."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from proxy.cluster.topology import BrokerId, Topology
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
from proxy.relay.client import ClientRelay
from proxy.relay.commands import (
    ClientFrame,
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
    Reply,
    RunInThread,
    Send,
    ThreadFinished,
)
from proxy.wire.addresses import Place
from tests.relay.playbook import Part, Play, told
from tests.relay.solo import MemoryNeeded

__all__ = ["SharedPlay", "SharedRelays"]


class SharedRelays:
    """The relays of several clients with their log caches; it takes all events and returns all commands.

    The commands of the caches are returned as commands of links: ``OpenLink``, ``Send``, ``CloseLink``. Replies to
    clients are kept in ``replies``.
    """

    def __init__(self, nodes: Mapping[str, int], place: Place, reading: Reading) -> None:
        """*nodes*: the broker that each client takes for the leader."""
        self._reading = reading
        self._caches: dict[CacheKey, LogCache] = {}
        self._now_s = 0.0
        self.relays = {name: ClientRelay(BrokerId(node), place, reading, self) for name, node in nodes.items()}
        self.client = next(iter(nodes))
        """The name of the client that sends the next request."""
        self.replies: dict[str, list[Reply]] = {name: [] for name in nodes}
        """The replies to each client, by its name."""

    # As Caches:

    def join(self, key: CacheKey, reader: Reader, client_id: str | None) -> LogCache:
        del client_id
        cache = self._caches.setdefault(key, LogCache(key, self._reading, 0.0))
        cache.join(reader)
        return cache

    def part(self, cache: LogCache, reader: Reader) -> None:
        cache.part(reader)

    # As connections:

    @property
    def cache(self) -> LogCache:
        """The log cache, if there is only one, else that of the client that sends the next request."""
        if len(self._caches) == 1:
            return next(iter(self._caches.values()))
        cache = self.relays[self.client].cache
        assert cache is not None
        return cache

    @property
    def caches(self) -> Sequence[LogCache]:
        return list(self._caches.values())

    @property
    def deadline_s(self) -> float | None:
        times = [each.deadline_s(self._now_s) for each in self._caches.values()]
        times += [each.deadline_s for each in self.relays.values()]
        return min((each for each in times if each is not None), default=None)

    def is_busy(self, link: Link) -> bool:
        """Return whether a fetch waits for its response on *link*."""
        return link in self.cache.busy

    def leave(self, name: str, now_s: float) -> list[Command]:
        """Disconnect the client *name*; return the commands that result."""
        self._now_s = now_s
        self.relays.pop(name).leave(now_s)
        return list(self._settled(now_s))

    def unserved(self) -> list[object]:
        return [key for relay in self.relays.values() for key in relay.reader.unserved()]

    def handle(self, event: Event | MemoryNeeded, now_s: float) -> list[Command]:
        self._now_s = now_s
        return list(self._handle(event, now_s))

    def _handle(self, event: Event | MemoryNeeded, now_s: float) -> Iterator[Command]:
        match event:
            case MemoryNeeded():
                self.cache.drop_records()
            case LinkOpened(FetcherId() as fetcher, ranges):
                self.cache.opened(fetcher, ranges, now_s)
            case LinkFrame(FetcherId() as fetcher, frame):
                self.cache.received(fetcher, frame, now_s)
            case LinkAnswering(FetcherId() as fetcher):
                self.cache.answering(fetcher)
            case LinkLost(FetcherId() as fetcher):
                self.cache.lost(fetcher, now_s)
            case ClientFrame():
                yield from self._passed(self.client, event, now_s)
            case _:
                for name in self.relays:
                    yield from self._passed(name, event, now_s)
        yield from self._settled(now_s)

    def _passed(self, name: str, event: Event, now_s: float) -> Iterator[Command]:
        for command in self.relays[name].handle(event, now_s):
            match command:
                case RunInThread(worker, run):
                    yield from self._passed(name, ThreadFinished(worker, run()), now_s)
                case Reply():
                    self.replies[name].append(command)
                case _:
                    yield command

    def _settled(self, now_s: float) -> Iterator[Command]:
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
                    name = next(name for name, each in self.relays.items() if each.reader is reader)
                    yield from self._passed(name, LogsChanged(), now_s)
                case EmitRecord() | RefreshMetadata():
                    yield command
                case CloseSession():
                    raise AssertionError("sessions are closed at the end only")


class SharedPlay(Play):
    """A conversation of several clients that share reads, with brokers that follow a script."""

    relay: Any

    def __init__(self, known: Topology | None = None, *, clients: Any = ("a", "b"), **options: Any) -> None:
        """Args: clients: names, or a mapping of names to the brokers that they take for the leader."""
        super().__init__(known, **{"upstream_max_wait_s": 10, **options})
        self._reading = attrs.evolve(self._reading, shares_reads="principal")
        nodes = clients if isinstance(clients, Mapping) else dict.fromkeys(clients, 1)
        self.opens = True
        """Whether connections to brokers are opened at once."""
        self.relay = SharedRelays(nodes, self.place, self._reading)

    def handle(self, event: Event | MemoryNeeded) -> list[Command]:
        """Handle one event, and open all connections to brokers that are wanted; return the other commands."""
        left = []
        for command in super().handle(event):
            if isinstance(command, OpenLink) and self.opens:
                left += self.open(command.link)
            else:
                left.append(command)
        return left

    def fetch_as(self, name: str, offsets: Mapping[int, int], **options: Any) -> list[Command]:
        """Handle a fetch of client *name*."""
        self.relay.client = name
        return self.fetch(offsets, **options)

    def answers(self, name: str, *, version: int = 11) -> list[Any]:
        """Return the responses to client *name* since the last call, decoded."""
        replies, self.relay.replies[name] = self.relay.replies[name], []
        return told(replies, version=version)

    def records(self, name: str) -> list[dict[int, bytes]]:
        """Return the records by partition of each response to client *name* since the last call."""
        return [
            {part.partition_index: bytes(part.records) for topic in answer.responses for part in topic.partitions}
            for answer in self.answers(name)
        ]

    def leave(self, name: str) -> list[Command]:
        """Disconnect the client *name*; return the commands that result."""
        return self.relay.leave(name, self.now_s)  # type: ignore[no-any-return]

    def at_end(self, *partitions: int, offset: int = 0) -> None:
        """Let all clients fetch *partitions* from *offset* on, and wait there in one long poll of session 7."""
        offsets = dict.fromkeys(partitions, offset)
        idle = dict.fromkeys(partitions, Part(high_watermark=offset))
        for name in self.relay.relays:
            self.fetch_as(name, offsets)
        self.wait(0.5)
        self.answer(idle)
        for name in self.relay.relays:
            assert len(self.answers(name)) == 1
            self.fetch_as(name, offsets)
        self.answer(idle, session_id=7)
        assert self.asked[-1].max_wait_ms > 500
        self.asked.clear()
