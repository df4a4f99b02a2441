"""A client of Fetch v1 or v3 that reads partitions from start to end and discards the records.

It looks at the entries of message sets, not into them: a client's decompression costs the same either way. Compiled
code does that, as it would otherwise be the slowest part. ``python old_reader.py '{"address": "127.0.0.1:9092",
...}'`` prints its counts as JSON.
"""

import json
import struct
import sys
import time
from dataclasses import asdict, dataclass

from proxy.convert.kernel import Whole, whole_entries
from tests.bench.reader import Connection

_ASK = struct.Struct(">iqi")
_HEAD = struct.Struct(">ihqi")
_LIMITED_VERSION = 3
"""The first version in which a fetch limits the size of the whole response."""


@dataclass(frozen=True)
class OldJob:
    """The job of the reader."""

    address: str
    topic: str
    partitions: int
    version: int
    partition_bytes: int = 1024 * 1024
    passes: int = 1
    """How often to read all records."""


@dataclass
class OldCount:
    """The counts of the reader."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the client itself."""
    fetches: int = 0
    records: int = 0
    entry_bytes: int = 0
    other_bytes: int = 0
    """Bytes of message sets that belong to no message."""


def run(job: OldJob) -> OldCount:
    count = OldCount()
    with Connection(job.address) as connection:
        began, cpu_before_s = time.perf_counter(), time.process_time()
        for _ in range(job.passes):
            _drain(connection, job, count)
        count.seconds = time.perf_counter() - began
        count.cpu_s = time.process_time() - cpu_before_s
    return count


def _drain(connection: Connection, job: OldJob, count: OldCount) -> None:
    offsets = dict.fromkeys(range(job.partitions), 0)
    unread = True
    while unread:
        answer = connection.ask(_request(job, offsets, count.fetches))
        count.fetches += 1
        unread = False
        at = 4 + 4 + 4 + 2 + len(job.topic) + 4
        for _ in offsets:
            partition, error, high_watermark, size = _HEAD.unpack_from(answer, at)
            if error:
                raise ConnectionError(f"partition {partition}: error {error}")
            at += _HEAD.size
            end = at + size
            whole = whole_entries(answer[at:end], size) if size else Whole(0, -1)
            count.entry_bytes += whole.end
            count.other_bytes += size - whole.end
            if whole.end:
                count.records += whole.next_offset - offsets[partition]
                offsets[partition] = whole.next_offset
            unread = unread or offsets[partition] < high_watermark
            at = end


def _request(job: OldJob, offsets: dict[int, int], correlation_id: int) -> bytes:
    body = struct.pack(">hhih", 1, job.version, correlation_id, -1) + struct.pack(">iii", -1, 100, 1)
    if job.version >= _LIMITED_VERSION:
        body += struct.pack(">i", 50 * 1024 * 1024)
    body += struct.pack(">ih", 1, len(job.topic)) + job.topic.encode() + struct.pack(">i", len(offsets))
    body += b"".join(_ASK.pack(partition, offset, job.partition_bytes) for partition, offset in offsets.items())
    return struct.pack(">i", len(body)) + body


if __name__ == "__main__":
    print(json.dumps(asdict(run(OldJob(**json.loads(sys.argv[1]))))))
