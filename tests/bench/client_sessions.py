"""The CPU time of a client fetch in Sidefetch, as a full fetch and within a session, without broker or socket.

The client's partitions are at their end, and a fetch for them waits at the broker, so that only Sidefetch's work
from the client's bytes to the response's bytes is measured.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Final

from proxy.cluster.topology import BrokerId, Leader, TopicInfo, Topology
from proxy.fetch.cache import CacheKey, LogCache
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.commands import CacheCommand, FetcherId, OpenFetcher, SendFetch, Wake
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch.reader import Reader
from proxy.fetch_rules import FetchRules
from proxy.relay.client import ClientRelay
from proxy.relay.commands import ClientFrame, Command, LogsChanged, Reply, Tick
from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.wire.apis import VersionRange
from proxy.wire.fetch import (
    FETCH,
    MAX_VERSION,
    FetchOptions,
    FetchPartition,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
    read_request,
    read_response,
    response_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader, read_request_header
from tests.bench.frame import Expectation, Figure, Table, measure_all

__all__ = ["run"]

_CPU: Final = Figure("CPU of a fetch", "us")
_BYTES: Final = Figure("both ways", "B")
_HELD: Final = Figure("memory of a session", "B a partition")
_VERSION: Final = 13
_OPTIONS: Final = FetchOptions(500, 1)
_PARTITIONS_A_TOPIC: Final = 100
_SIZE_BYTES: Final = 4
_MOST_US: Final = 1000
"""The limit for an idle fetch of 10,000 partitions within a session, in microseconds."""


def run(*, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Measure fetches of 1,000 and 10,000 idle partitions, in full and within a session."""
    tables: list[Table] = []
    for partitions in (1_000, 10_000):
        fetches = 20 if quick else 100
        ways = {
            "full": partial(_fetches, partitions, fetches, within=False),
            "within a session": partial(_fetches, partitions, fetches, within=True),
        }
        measured = measure_all(
            f"{partitions} partitions", ways, rounds=2 if quick else 5, show_progress=show_progress
        )
        if partitions == 10_000:
            cpu_us = measured[_CPU].median("within a session")
            text = (
                f"an idle fetch of {partitions} partitions within a session: {cpu_us:,.0f} us, at most {_MOST_US}"
            )
            measured[_CPU] = measured[_CPU].expecting(Expectation(text, is_met=cpu_us <= _MOST_US))
        tables += measured.values()
    held = measure_all(
        "10000 partitions", {"within a session": partial(_held, 10_000)}, rounds=2, show_progress=show_progress
    )
    return [*tables, *held.values()]


class _Conversation:
    """A client with *partitions* at offset 100, where they end, and a broker that has nothing new."""

    def __init__(self, partitions: int) -> None:
        self.now_s = 0.0
        self.asks = {
            PartitionKey(TopicId((1 + number // _PARTITIONS_A_TOPIC).to_bytes(16)), number): FetchPartition(
                100, 1 << 20
            )
            for number in range(partitions)
        }
        self.sessions = ClientSessions(1, partial(next, count(1)))
        self._reading = FetchConfig(1e6, fetch_buffer_bytes=8 << 20, response_timeout_s=5, sessions=self.sessions)
        self._topology = _topology(self.asks)
        self._relay = ClientRelay(BrokerId(1), lambda *_: None, self._reading, self)
        self._correlation_ids = count(1)

    def fetch(self, session_id: int, epoch: int, asks: Mapping[PartitionKey, FetchPartition]) -> bytes:
        """The client's frame, without its size."""
        header = RequestHeader(FETCH, _VERSION, next(self._correlation_ids), "client")
        return write_request(header, _OPTIONS, session_id, epoch, asks, ())[_SIZE_BYTES:]

    def join(self, key: CacheKey, reader: Reader, client_id: str | None) -> LogCache:
        """Return the only log cache."""
        del client_id
        cache = LogCache(key, self._reading, 0.0)
        cache.join(reader)
        return cache

    def part(self, cache: LogCache, reader: Reader) -> None:
        """Remove the only reader."""
        cache.part(reader)

    def answered(self, frame: bytes) -> bytes:
        """The client's answer, after whatever wait, without its size."""
        event: ClientFrame | Tick = ClientFrame(memoryview(frame), self._topology, FetchRules())
        while True:
            answer = self._handle(event)
            if answer is not None:
                return answer[_SIZE_BYTES:]
            cache = self._relay.cache
            assert cache is not None
            times = (self._relay.deadline_s, cache.deadline_s(self.now_s))
            self.now_s = min((each for each in times if each is not None), default=self.now_s)
            event = Tick()

    def _handle(self, event: ClientFrame | Tick) -> bytes | None:
        """Carry out all that follows from *event*; return the response, if there is one."""
        commands, answer = self._relay.handle(event, self.now_s), None
        cache = self._relay.cache
        assert cache is not None
        while True:
            for command in commands:
                if isinstance(command, Reply):
                    answer = b"".join(map(bytes, command.pieces))  # type: ignore[arg-type]
            asked = cache.take_commands()
            if not asked:
                cache.settle(self.now_s)
                asked = cache.take_commands()
            if not asked:
                return answer
            commands = [each for command in asked for each in self._carry_out(cache, command)]

    def _carry_out(self, cache: LogCache, command: CacheCommand) -> list[Command]:
        match command:
            case OpenFetcher(fetcher, _):
                cache.opened(fetcher, {FETCH: VersionRange(0, MAX_VERSION)}, self.now_s)
            case SendFetch(fetcher, frame):
                self._asked(cache, fetcher, frame)
            case Wake():
                return self._relay.handle(LogsChanged(), self.now_s)
            case _:
                pass
        return []

    def _asked(self, cache: LogCache, fetcher: FetcherId, sent: bytes) -> None:
        """Answer fetches that name partitions with their offsets at once, and let all others wait."""
        frame = memoryview(sent)[_SIZE_BYTES:]
        header, cursor = read_request_header(frame)
        request = read_request(header, cursor)
        if request.session_epoch > 0 and not request.sections:
            return
        layout = response_layout(header.api_version)
        body = [layout.header(header.correlation_id, 0, 0, len(request.sections), 7 * (request.session_epoch >= 0))]
        for section in request.sections:
            partitions = len(section.entries) // 33
            body.append(layout.topic(section.topic, partitions))
            for at in range(partitions):
                number = int.from_bytes(section.entries[at * 33 : at * 33 + 4])
                body += layout.partition(PartitionReply(number, 0, 100, 100, 0), 0)
            body.append(layout.topic_end)
        body.append(layout.end(()))
        cache.received(fetcher, memoryview(b"".join(body)), self.now_s)


def _topology(asks: Mapping[PartitionKey, FetchPartition]) -> Topology:
    led: dict[TopicId, dict[int, Leader]] = {}
    for key in asks:
        assert isinstance(key.topic, bytes)
        led.setdefault(key.topic, {})[key.partition] = Leader(BrokerId(1), 5)
    topics: dict[Topic, TopicInfo] = {}
    for topic_id, leaders in led.items():
        topics[topic_id] = topics[topic_id.hex()] = TopicInfo(topic_id.hex(), topic_id, 0, leaders)
    return Topology("cluster", {}, topics)


def _fetches(partitions: int, fetches: int, *, within: bool) -> Mapping[Figure, float]:
    client = _Conversation(partitions)
    session_id, size = NO_SESSION, 0
    for _ in range(3):
        answer = client.answered(client.fetch(session_id, INITIAL_EPOCH if within else FINAL_EPOCH, client.asks))
        session_id = SessionId(read_response(_VERSION, answer).session_id)
    cpu_s = 0.0
    for number in range(fetches):
        epoch, asks = (1 + number, {}) if within else (FINAL_EPOCH, client.asks)
        frame = client.fetch(session_id, epoch, asks)
        started_s = time.process_time()
        answer = client.answered(frame)
        cpu_s += time.process_time() - started_s
        size += len(frame) + len(answer) + 2 * _SIZE_BYTES
    assert read_response(_VERSION, answer).session_id == session_id
    return {_CPU: cpu_s / fetches * 1e6, _BYTES: size / fetches}


def _held(partitions: int) -> Mapping[Figure, float]:
    """Return the memory of a session, without the part that it shares with its connection."""
    client = _Conversation(partitions)
    frame = client.fetch(NO_SESSION, INITIAL_EPOCH, client.asks)
    tracemalloc.start()
    try:
        session_id = read_response(_VERSION, client.answered(frame)).session_id
        sessions = client.sessions
        del client, frame
        gc.collect()  # the reader and its log cache refer to each other
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sessions.close(session_id, 1)
    return {_HELD: held / partitions}
