"""A client that fetches one record at a time, at a steady pace, and notes the duration of each fetch.

Its byte limit admits a single batch, and it waits for the response before it fetches again; a late fetch is sent at
once. ``python -m tests.bench.paced '{"address": ...}'`` prints the durations.
"""

import json
import struct
import sys
import time
from dataclasses import asdict, dataclass

from tests.bench.reader import Asking, Connection, Job, Part


@dataclass(frozen=True)
class Pace:
    """The job of the client."""

    address: str
    topic: str
    """A topic with one partition, and at least as many batches of one record as are fetched."""
    fetches: int
    per_s: float
    step: int = 1
    """The distance from one offset to the next, in a circle; 1 reads in order, as usual clients do."""


@dataclass(frozen=True)
class Times:
    """The results of the client."""

    seconds: float
    waits_us: list[float]
    """The time from sending each fetch to the last byte of its response."""


def run(pace: Pace) -> Times:
    asking = Asking(Job(pace.address, {pace.topic: 1}, max_bytes=1, partition_bytes=1))
    waits_us = []
    with Connection(pace.address) as connection:
        began_s = time.perf_counter()
        for number in range(pace.fetches):
            time.sleep(max(began_s + number / pace.per_s - time.perf_counter(), 0.0))
            offset = number * pace.step % pace.fetches
            asking.move(pace.topic, 0, offset)
            frame = asking.frame(number)
            sent_s = time.perf_counter()
            answer = connection.ask(frame)
            waits_us.append(1e6 * (time.perf_counter() - sent_s))
            _check(answer, number, offset)
        return Times(time.perf_counter() - began_s, waits_us)


def _check(answer: memoryview, number: int, offset: int) -> None:
    (correlation_id,) = struct.unpack_from(">i", answer)
    (part,) = Part.all_of(answer[4:])
    if (correlation_id, part.error, part.next_offset) != (number, 0, offset + 1):
        raise ConnectionError(f"answer {correlation_id} to request {number}: {part}")


if __name__ == "__main__":
    print(json.dumps(asdict(run(Pace(**json.loads(sys.argv[1]))))))
