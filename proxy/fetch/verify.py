"""Whether a client was read what the broker has: an answer of ours is compared with the broker's to a fetch apart.

Only partitions that brought records are looked at: what is said of the others may be true of one moment only.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from proxy.cluster.topology import TopicInfo, Topology
from proxy.errors import ErrorCode
from proxy.session.epochs import FINAL_EPOCH, NO_SESSION
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    FetchOptions,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionKey,
    PartitionReply,
    read_response,
    request_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader

__all__ = ["Compared", "Sample", "compare", "direct_fetch", "samples"]

_SIZE_BYTES: Final = 4
_LARGEST_ANSWER_BYTES: Final = 16 * 1024**2
"""Of an answer that is looked at: it is copied for that."""
_MOST_BYTES: Final = 64 * 1024
"""Of one partition's records that are compared, but for a first batch that is larger."""
_BATCH_START: Final = struct.Struct(">qi")
"""Base offset, and how many bytes follow; the same in all record formats."""


@attrs.frozen
class Sample:
    """What one partition of an answer brought."""

    topic: TopicInfo
    partition: int
    offset: int
    """That the client asked for."""
    records: bytes
    """Whole batches or not, the first of what it was read."""
    delivered_bytes: int
    """All that it was read."""

    def key(self, version: int) -> PartitionKey | None:
        """As a fetch of *version* names it; None if it cannot."""
        topic = self.topic.topic_id if version >= IDS_VERSION else self.topic.name
        return None if topic is None else PartitionKey(topic, self.partition)


@attrs.frozen
class Compared:
    """What a direct fetch said of a sample."""

    sample: Sample
    equal: bool | None
    """None: it cannot be told, since the broker read nothing."""
    direct_bytes: int = 0
    error: int = 0
    """The broker's."""


def samples(request: FetchRequest, pieces: Sequence[bytes | memoryview], topology: Topology) -> list[Sample]:
    """The partitions that brought records in the answer *pieces* to *request*; none of an answer over 16 MiB.

    Cost:   a copy of the answer for the time of the call; what is kept is 64 KiB or one batch for a partition.
    Raises: MalformedFrame: our own answer is not one.
    """
    if sum(map(len, pieces)) > _LARGEST_ANSWER_BYTES:
        return []
    answer = read_response(request.version, memoryview(b"".join(pieces))[_SIZE_BYTES:])
    layout = request_layout(request.version)
    offsets = {
        (section.topic, fields[0]): layout.ask(fields).offset
        for section in request.sections
        for fields in layout.entry.iter_unpack(section.entries)
    }
    found = []
    for topic, replies in answer.topics:
        info = topology.topic(topic)
        for reply in replies:
            offset = offsets.get((topic, reply.partition))
            if info is not None and offset is not None and len(reply.records) and not reply.error:
                kept = bytes(reply.records[: _enough(reply.records)])
                found.append(Sample(info, reply.partition, offset, kept, len(reply.records)))
    return found


def _enough(records: bytes | memoryview) -> int:
    """How many bytes to compare: brokers bring no part of a batch, unless it is the answer's first."""
    first = _MOST_BYTES
    if len(records) >= _BATCH_START.size:
        first = max(first, _BATCH_START.size + _BATCH_START.unpack_from(records)[1])
    return min(first, len(records))


def direct_fetch(
    sampled: Iterable[Sample], version: int, correlation_id: int, client_id: str, *, committed: bool
) -> bytes:
    """A fetch of the same partitions from the same offsets, without session or wait, with its size."""
    asks = {
        key: FetchPartition(sample.offset, len(sample.records))
        for sample in sampled
        if (key := sample.key(version)) is not None
    }
    options = FetchOptions(0, 1, sum(ask.max_bytes for ask in asks.values()), int(committed))
    header = RequestHeader(FETCH, version, correlation_id, client_id)
    return write_request(header, options, NO_SESSION, FINAL_EPOCH, asks, ())


def compare(
    sampled: Sequence[Sample], version: int, response: FetchResponse, *, committed: bool
) -> Iterator[Compared]:
    """Each sample next to the broker's answer: limits may cut either short, so one must begin with the other."""
    replies = {PartitionKey(topic, each.partition): each for topic, parts in response.topics for each in parts}
    for sample in sampled:
        key = sample.key(version)
        reply = None if key is None else replies.get(key)
        if reply is None:
            yield Compared(sample, None, error=response.error)
        elif reply.error != ErrorCode.none:
            yield Compared(sample, None, error=reply.error)
        else:
            yield Compared(sample, _equal(sample, reply, committed=committed), len(reply.records))


def _equal(sample: Sample, reply: PartitionReply, *, committed: bool) -> bool | None:
    shared = min(len(sample.records), len(reply.records))
    if shared:
        return sample.records[:shared] == reply.records[:shared]
    # Nothing, where there is something to be read, is a limit of the broker's own; at the end it is its word.
    end = reply.last_stable_offset if committed else reply.high_watermark
    return None if sample.offset < end else False
