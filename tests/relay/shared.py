"""Several client relays that read one log cache, without connections."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.fetch.cache import LogCache
from proxy.fetch.fetch_config import FetchConfig
from proxy.relay.client import ClientRelay, Sasl
from proxy.relay.commands import (
    PASS,
    ClientFrame,
    Command,
    Event,
    Link,
    OpenLink,
    Reply,
    RunInThread,
    Send,
    ThreadFinished,
)
from proxy.wire.addresses import AddressMap
from tests.relay.driver import MemoryNeeded, RelayDriver
from tests.relay.playbook import LONG_POLL, Asked, Part, Play, client_responses

__all__ = ["SharedPlay", "SharedRelays"]


class SharedRelays(RelayDriver):
    """The relays of several clients with their log caches; replies to clients are kept in ``replies``."""

    def __init__(
        self, nodes: Mapping[str, int], map_address: AddressMap, reading: FetchConfig, sasl: Sasl = Sasl.PASSES
    ) -> None:
        """*nodes*: the broker that each client takes for the leader."""
        super().__init__(reading)
        self.relays |= {
            name: ClientRelay(BrokerId(node), map_address, reading, self, sasl) for name, node in nodes.items()
        }
        self.client = next(iter(nodes))
        """The name of the client that sends the next request."""
        self.replies: dict[str, list[Reply]] = {name: [] for name in nodes}
        """The replies to each client, by its name."""
        self.senders: deque[LogCache] = deque()
        """The log cache of each upstream fetch that was returned and not yet read, in order."""

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

    def leave(self, name: str, now_s: float) -> list[Command]:
        """Disconnect the client *name*; return the commands that result."""
        self._now_s = now_s
        self.relays.pop(name).close(now_s)
        return list(self.settled(now_s))

    def _carried_out(self, cache: LogCache, now_s: float) -> Generator[Command, None, bool]:
        commands = super()._carried_out(cache, now_s)
        while True:
            try:
                command = next(commands)
            except StopIteration as end:
                return bool(end.value)
            if isinstance(command, Send):
                self.senders.append(cache)
            yield command

    def receivers(self, event: Event) -> Iterable[str]:
        is_own = isinstance(event, ClientFrame) or getattr(event, "link", None) is PASS
        return [self.client] if is_own else super().receivers(event)

    def passed(self, name: str, event: Event, now_s: float) -> Iterator[Command]:
        for command in super().passed(name, event, now_s):
            match command:
                case RunInThread(worker, run):
                    yield from self.passed(name, ThreadFinished(worker, run()), now_s)
                case Reply():
                    self.replies[name].append(command)
                case _:
                    yield command


class SharedPlay(Play):
    """A conversation of several clients that share reads, with brokers that follow a script."""

    relay: Any

    def __init__(
        self,
        known: Topology | None = None,
        *,
        clients: Any = ("a", "b"),
        sasl: Sasl = Sasl.PASSES,
        **options: Any,
    ) -> None:
        """Args: clients: names, or a mapping of names to the brokers that they take for the leader."""
        super().__init__(known, **{"upstream_max_wait_s": 10, **options})
        self._reading = attrs.evolve(self._reading, shares_reads="principal")
        nodes = clients if isinstance(clients, Mapping) else dict.fromkeys(clients, 1)
        self._in_flight: dict[tuple[LogCache, Link], tuple[Asked, int]] = {}
        """The last upstream fetch of each log cache on each link, with its correlation id."""
        self.opens = True
        """Whether connections to brokers are opened at once."""
        self.relay = SharedRelays(nodes, self.map_address, self._reading, sasl)

    def handle(self, event: Event | MemoryNeeded) -> list[Command]:
        """Handle one event, and open all connections to brokers that are wanted; return the other commands."""
        left = []
        for command in super().handle(event):
            if isinstance(command, OpenLink) and self.opens:
                left += self.open(command.link)
            else:
                left.append(command)
        return left

    def answer(
        self, parts: Mapping[int, Part], *, link: Link = LONG_POLL, **client_responses: Any
    ) -> list[Command]:
        """Send the broker's response to the last request on *link* of the cache of the client that fetched last."""
        self._last[link], self._correlation_ids[link] = self._in_flight[self.relay.cache, link]
        return super().answer(parts, link=link, **client_responses)

    def _read_fetch(self, link: Link, frame: bytes) -> Asked:
        asked = super()._read_fetch(link, frame)
        self._in_flight[self.relay.senders.popleft(), link] = asked, self._correlation_ids[link]
        return asked

    def fetch_as(self, name: str, offsets: Mapping[int, int], **options: Any) -> list[Command]:
        """Handle a fetch of client *name*."""
        self.relay.client = name
        return self.fetch(offsets, **options)

    def answers(self, name: str, *, version: int = 11) -> list[Any]:
        """Return the responses to client *name* since the last call, decoded."""
        replies, self.relay.replies[name] = self.relay.replies[name], []
        return client_responses(replies, version=version)

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
