"""Consumers that send full fetches (see ``reader``) and note the arrival of records.

``python -m tests.bench.follower`` runs all of them in one process with the standard library alone; ``load`` sends
it
commands. They begin at the end of every partition.
"""

import contextlib
import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Sequence

from tests.bench.reader import Asking, Connection, Job, Part

_LIST_OFFSETS = 2
_LATEST = -1
_ANSWERS_TO_BEGIN = 2
"""Responses that each consumer must have got before all count as ready: sessions are created by then."""


def end_offsets(connection: Connection, job: Job) -> dict[tuple[str, int], int]:
    """Return the end offsets by ListOffsets v1."""
    client_id = job.client_id.encode()
    out = bytearray(struct.pack(">hhih", _LIST_OFFSETS, 1, 0, len(client_id)) + client_id)
    out += struct.pack(">ii", -1, len(job.topics))
    for topic, partitions in job.topics.items():
        name = topic.encode()
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
        for partition in range(job.first_partition, job.first_partition + partitions):
            out += struct.pack(">iq", partition, _LATEST)
    answer = connection.ask(struct.pack(">i", len(out)) + out)
    found: dict[tuple[str, int], int] = {}
    (topics,) = struct.unpack_from(">i", answer, 4)
    at = 8
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at)
        topic = bytes(answer[at + 2 : at + 2 + length]).decode()
        (partitions,) = struct.unpack_from(">i", answer, at + 2 + length)
        at += 6 + length
        for _ in range(partitions):
            partition, error, _, offset = struct.unpack_from(">ihqq", answer, at)
            if error:
                raise ConnectionError(f"{topic}-{partition} has no end: error {error}")
            found[topic, partition] = offset
            at += 22
    return found


class Follower:
    """One consumer; ``read`` never waits."""

    def __init__(self, job: Job) -> None:
        self._connection = Connection(job.address)
        self._asking = Asking(job)
        with Connection(job.leader) if job.leader else contextlib.nullcontext(self._connection) as leader:
            self._next = end_offsets(leader, job)
        for (topic, partition), offset in self._next.items():
            self._asking.move(topic, partition, offset)
        self._buffer = bytearray(1 << 16)
        self._got = 0
        self.socket: socket.socket = self._connection.socket
        self.fetches = 0
        self.records = 0
        self.arrivals: list[tuple[int, int]] = []
        """The creation of each batch's first record and its arrival, in microseconds since 1970."""

    def ask(self) -> None:
        self._connection.send(self._asking.frame(self.fetches))

    def read(self) -> None:
        """Read the available bytes; fetch again once a response is complete."""
        size = struct.unpack_from(">i", self._buffer)[0] + 4 if self._got >= 4 else 4
        if size > len(self._buffer):
            self._buffer.extend(bytes(size - len(self._buffer)))
        count = self.socket.recv_into(memoryview(self._buffer)[self._got : size])
        if not count:
            raise ConnectionError("closed in the middle of an answer")
        self._got += count
        if self._got == size > 4:
            self._got = 0
            self._take(memoryview(self._buffer)[4:size])
            self.ask()

    def _take(self, answer: memoryview) -> None:
        now_us = time.time_ns() // 1000
        correlation_id, _, error = struct.unpack_from(">iih", answer)
        if error or correlation_id != self.fetches:
            raise ConnectionError(f"answer {correlation_id} to request {self.fetches}, error {error}")
        self.fetches += 1
        for part in Part.all_of(answer[4:], quiet=False):
            if part.error:
                raise ConnectionError(f"{part.topic}-{part.partition}: error {part.error}")
            if part.next_offset >= 0:
                place = part.topic, part.partition
                self.records += part.next_offset - self._next[place]
                self._next[place] = part.next_offset
                self._asking.move(*place, part.next_offset)
                self.arrivals += [(time_us, now_us) for time_us in part.times]


def follow(jobs: Sequence[Job]) -> list[Follower]:
    """Say ``ready`` once all have been answered; go on until standard input ends or has a line."""
    followers = [Follower(job) for job in jobs]
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for follower in followers:
            selector.register(follower.socket, selectors.EVENT_READ, follower)
            follower.ask()
        beginning = set(followers)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return followers
                key.data.read()
                if key.data in beginning and key.data.fetches >= _ANSWERS_TO_BEGIN:
                    beginning.remove(key.data)
                    if not beginning:
                        print("ready", flush=True)


if __name__ == "__main__":
    done = follow([Job(**job) for job in json.loads(sys.stdin.readline())["jobs"]])
    print(
        json.dumps(
            {
                "records": sum(each.records for each in done),
                "arrivals": [arrival for each in done for arrival in each.arrivals],
            }
        )
    )
