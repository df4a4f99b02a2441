"""A client that fetches every partition in every fetch (Fetch v11, no session) and discards the records.

It uses the standard library alone, so that it starts quickly and costs little. ``python reader.py '{"address":
"127.0.0.1:9092", ...}'`` prints its counts as JSON.
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

_FETCH = 1
_VERSION = 11
_ENTRY = struct.Struct(">iiqqi")
"""A partition of a request: index, leader epoch, offset, log start offset, max bytes."""
_HEAD = struct.Struct(">ihqqqi")
"""A partition of a response: index, error, high watermark, last stable offset, log start, aborted transactions."""
_BATCH_HEADER_BYTES = 61

Offsets = dict[tuple[str, int], int]
"""The next offset to ask for, by topic and partition."""


@dataclass(frozen=True)
class Job:
    """The job of the reader."""

    address: str
    topics: Mapping[str, int]
    """Topics and how many of their partitions to read; one broker leads them all."""
    first_partition: int = 0
    """The first partition of each topic."""
    first_offset: int = 0
    """The offset of each partition at which a pass begins."""
    fetches: int = 0
    """Fetch so often; 0: until all that is there now has been read, *passes* times."""
    passes: int = 1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_bytes: int = 1024 * 1024
    """The default of Kafka's own consumer."""
    client_id: str = "bench"
    leader: str = ""
    """The broker to ask for offsets if *address* is that of a follower: only leaders have them."""
    not_before_s: float = 0.0
    """A time of ``time.monotonic``, which all processes share, so that readers begin together."""

    @property
    def partitions(self) -> int:
        return sum(self.topics.values())


@dataclass
class Count:
    """The counts of the reader."""

    began_s: float = 0.0
    """A time of ``time.monotonic``."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the client itself."""
    fetches: int = 0
    record_bytes: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    fewest_partitions: int = 1 << 31
    """In any answer."""
    errors: list[int] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    """The arrival of each response with records, since the beginning of its pass."""


@dataclass(frozen=True)
class Part:
    """The fields of one partition of a response."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    record_bytes: int
    """Of whole batches: brokers also send a part of the next one, which the client must fetch again."""
    next_offset: int
    """After the last whole batch; -1 where there is none."""
    times: Sequence[int] = ()
    """The timestamp of the first record of each whole batch."""

    @classmethod
    def all_of(cls, answer: memoryview, *, quiet: bool = True) -> Iterator[Self]:
        """Of a Fetch v11 answer, without size and correlation id; *quiet* ones have neither records nor error."""
        at = 10
        (topics,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", answer, at)
            topic = bytes(answer[at + 2 : at + 2 + length]).decode()
            (partitions,) = struct.unpack_from(">i", answer, at + 2 + length)
            at += 6 + length
            for _ in range(partitions):
                partition, error, high, _, _, aborted = _HEAD.unpack_from(answer, at)
                at += 34 + 16 * max(aborted, 0)
                _, size = struct.unpack_from(">ii", answer, at)
                size = max(size, 0)
                at += 8
                if quiet or error or size:
                    yield cls(topic, partition, error, high, *whole_batches(answer[at : at + size]))
                at += size


def whole_batches(records: memoryview) -> tuple[int, int, Sequence[int]]:
    """The bytes of the whole batches, the offset after the last, -1 for none, and their first timestamps."""
    at, found = 0, -1
    times: list[int] = []
    while at + _BATCH_HEADER_BYTES <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        delta, time_of_first = struct.unpack_from(">iq", records, at + 23)
        found = base + delta + 1
        times.append(time_of_first)
        at += 12 + length
    return at, found, times


class Asking:
    """The request of a job: encoded once, then only changed."""

    def __init__(self, job: Job) -> None:
        self._places: dict[tuple[str, int], int] = {}
        client_id = job.client_id.encode()
        out = bytearray(struct.pack(">ihhih", 0, _FETCH, _VERSION, 0, len(client_id)) + client_id)
        out += struct.pack(">iiiibii", -1, job.max_wait_ms, job.min_bytes, job.max_bytes, 0, 0, -1)
        out += struct.pack(">i", len(job.topics))
        for topic, partitions in job.topics.items():
            name = topic.encode()
            out += struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
            for partition in range(job.first_partition, job.first_partition + partitions):
                self._places[topic, partition] = len(out) + 8
                out += _ENTRY.pack(partition, -1, job.first_offset, -1, job.partition_bytes)
        out += struct.pack(">ih", 0, 0)
        struct.pack_into(">i", out, 0, len(out) - 4)
        self._frame = out

    def move(self, topic: str, partition: int, offset: int) -> None:
        """Ask for *offset* from now on."""
        struct.pack_into(">q", self._frame, self._places[topic, partition], offset)

    def frame(self, correlation_id: int) -> bytearray:
        """A whole frame, good until the next call."""
        struct.pack_into(">i", self._frame, 8, correlation_id)
        return self._frame


class Connection:
    """Blocking, one request at a time, one buffer for all answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, frame: bytes | bytearray) -> memoryview:
        """The answer without its size; good until the next call."""
        self.send(frame)
        self._fill(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._fill(size)
        return self._buffer[:size]

    def send(self, frame: bytes | bytearray) -> None:
        """For those who read the answer from ``socket`` themselves."""
        self.socket.sendall(frame)

    def _fill(self, size: int) -> None:
        got = 0
        while got < size:
            count = self.socket.recv_into(self._buffer[got:size])
            if not count:
                raise ConnectionError("closed in the middle of an answer")
            got += count


def run(job: Job) -> Count:
    """Do it."""
    count = Count()
    with Connection(job.address) as connection:
        time.sleep(max(job.not_before_s - time.monotonic(), 0.0))
        count.began_s, cpu_before_s = time.monotonic(), time.process_time()
        if job.fetches:
            asking = Asking(job)
            for _ in range(job.fetches):
                _fetch(connection, asking, count)
        else:
            for _ in range(job.passes):
                _drain(connection, job, count)
        count.seconds = time.monotonic() - count.began_s
        count.cpu_s = time.process_time() - cpu_before_s
    return count


def _drain(connection: Connection, job: Job, count: Count) -> None:
    """Read until every partition's next offset is its high watermark."""
    asking = Asking(job)
    offsets: Offsets = {}
    began = time.perf_counter()
    unread = True
    while unread:
        parts = _fetch(connection, asking, count)
        if any(part.record_bytes for part in parts):
            count.arrivals_s.append(time.perf_counter() - began)
        offsets |= {(part.topic, part.partition): part.next_offset for part in parts if part.next_offset >= 0}
        unread = len(parts) < job.partitions or any(
            offsets.get((part.topic, part.partition), 0) < part.high_watermark for part in parts
        )


def _fetch(connection: Connection, asking: Asking, count: Count) -> Sequence[Part]:
    frame = asking.frame(count.fetches)
    answer = connection.ask(frame)
    (correlation_id,) = struct.unpack_from(">i", answer)
    if correlation_id != count.fetches:
        raise ConnectionError(f"answer {correlation_id} to request {count.fetches}")
    (error,) = struct.unpack_from(">h", answer, 8)
    parts = list(Part.all_of(answer[4:]))
    for part in parts:
        if part.next_offset >= 0:
            asking.move(part.topic, part.partition, part.next_offset)
    count.fetches += 1
    count.bytes_sent += len(frame)
    count.bytes_received += len(answer) + 4
    count.record_bytes += sum(part.record_bytes for part in parts)
    count.fewest_partitions = min(count.fewest_partitions, len(parts))
    count.errors += [each for each in (error, *(part.error for part in parts)) if each]
    if count.errors:
        raise ConnectionError(f"answered with errors {sorted(set(count.errors))}")
    return parts


if __name__ == "__main__":
    print(json.dumps(asdict(run(Job(**json.loads(sys.argv[1]))))))
