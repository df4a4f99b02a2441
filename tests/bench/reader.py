"""A client that fetches every partition in every fetch (Fetch v11, no session) and keeps nothing.

It is a script of the standard library alone, so that it starts quickly and costs little next to what it measures.
``python reader.py '{"address": "127.0.0.1:9092", ...}'`` prints what it counted as JSON.
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
_MAX_BYTES = 50 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
"""Both as Kafka's own consumer has them by default."""

Offsets = dict[tuple[str, int], int]
"""The next offset to ask for, by topic and partition."""


@dataclass(frozen=True)
class Job:
    """What to do."""

    address: str
    topics: Mapping[str, int]
    """Topics and how many of their partitions, from 0, to read; one broker leads them all."""
    fetches: int = 0
    """Fetch so often; 0: until all that is there now has been read, *passes* times."""
    passes: int = 1
    max_wait_ms: int = 500
    client_id: str = "bench"


@dataclass
class Count:
    """What came of it."""

    seconds: float = 0.0
    fetches: int = 0
    record_bytes: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    fewest_partitions: int = 1 << 31
    """In any answer."""
    errors: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """What an answer says of one partition."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    record_bytes: int
    next_offset: int
    """After the last whole batch; -1 where there is none."""

    @classmethod
    def all_of(cls, answer: memoryview) -> Iterator[Self]:
        """Of a Fetch v11 answer, without its size and correlation id."""
        at = 10
        (topics,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", answer, at)
            topic = bytes(answer[at + 2 : at + 2 + length]).decode()
            (partitions,) = struct.unpack_from(">i", answer, at + 2 + length)
            at += 6 + length
            for _ in range(partitions):
                partition, error, high, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
                at += 34 + 16 * max(aborted, 0)
                _, size = struct.unpack_from(">ii", answer, at)
                size = max(size, 0)
                at += 8
                yield cls(topic, partition, error, high, size, next_offset(answer[at : at + size]))
                at += size


def next_offset(records: memoryview) -> int:
    """The offset after the last whole batch, by the batches' headers alone; -1 for none."""
    at, found = 0, -1
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, at + 23)
        found = base + delta + 1
        at += 12 + length
    return found


def request(job: Job, correlation_id: int, offsets: Offsets) -> bytes:
    """A whole frame."""
    client_id = job.client_id.encode()
    out = bytearray(struct.pack(">hhih", _FETCH, _VERSION, correlation_id, len(client_id)) + client_id)
    out += struct.pack(">iiiibii", -1, job.max_wait_ms, 1, _MAX_BYTES, 0, 0, -1)
    out += struct.pack(">i", len(job.topics))
    for topic, partitions in job.topics.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
        for partition in range(partitions):
            out += struct.pack(">iiqqi", partition, -1, offsets.get((topic, partition), 0), -1, _PARTITION_BYTES)
    out += struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(out)) + out


class Connection:
    """Blocking, one request at a time, one buffer for all answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> memoryview:
        """The answer without its size; good until the next call."""
        self._socket.sendall(frame)
        self._fill(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._fill(size)
        return self._buffer[:size]

    def _fill(self, size: int) -> None:
        got = 0
        while got < size:
            count = self._socket.recv_into(self._buffer[got:size])
            if not count:
                raise ConnectionError("closed in the middle of an answer")
            got += count


def run(job: Job) -> Count:
    """Do it."""
    count = Count()
    with Connection(job.address) as connection:
        began = time.perf_counter()
        if job.fetches:
            offsets: Offsets = {}
            for _ in range(job.fetches):
                _fetch(connection, job, offsets, count)
        else:
            for _ in range(job.passes):
                _drain(connection, job, count)
        count.seconds = time.perf_counter() - began
    return count


def _drain(connection: Connection, job: Job, count: Count) -> None:
    """Read until every partition's next offset is its high watermark."""
    offsets: Offsets = {}
    unread = True
    while unread:
        parts = _fetch(connection, job, offsets, count)
        unread = len(parts) < sum(job.topics.values()) or any(
            offsets.get((part.topic, part.partition), 0) < part.high_watermark for part in parts
        )


def _fetch(connection: Connection, job: Job, offsets: Offsets, count: Count) -> Sequence[Part]:
    frame = request(job, count.fetches, offsets)
    answer = connection.ask(frame)
    (correlation_id,) = struct.unpack_from(">i", answer)
    if correlation_id != count.fetches:
        raise ConnectionError(f"answer {correlation_id} to request {count.fetches}")
    (error,) = struct.unpack_from(">h", answer, 8)
    parts = list(Part.all_of(answer[4:]))
    for part in parts:
        if part.next_offset >= 0:
            offsets[part.topic, part.partition] = part.next_offset
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
