"""Verification of responses: what a client got is compared with a direct fetch from the broker.

Only partitions with records are compared: the offsets of the others may change at any moment. Under read_committed,
the lists of aborted transactions are compared, too. The exact rule: as far as the records of both sides go, both
list the same transactions, each once. A broker lists those that end at the requested offset or later, and begin
before its index entry behind the last record: it may list some that begin behind the records. All transactions that
begin before the last stable offset have ended, so that the list for records that were read does not change.

Source: Kafka's UnifiedLog.addAbortedTransactions and TransactionIndex.collectAbortedTxns.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from proxy.cluster.topology import TopicInfo, Topology
from proxy.convert.kernel import whole_entries
from proxy.errors import ErrorCode
from proxy.fetch.log import AbortedPair
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
_ISOLATION_VERSION: Final = 4
"""The first Fetch version with isolation levels and aborted transactions."""
_LARGEST_ANSWER_BYTES: Final = 16 * 1024**2
"""The largest response that is sampled: sampling copies it."""
_MOST_BYTES: Final = 64 * 1024
"""The most bytes of one partition that are compared, unless its first batch is larger."""
_BATCH_START: Final = struct.Struct(">qi")
"""Base offset, and number of bytes that follow; the same in all record formats."""


@attrs.frozen
class Sample:
    """The first records of one partition of a response to a client."""

    topic: TopicInfo
    partition: int
    offset: int
    """The offset that the client requested."""
    records: bytes
    """The beginning of the records of the partition; the last batch may be incomplete."""
    delivered_bytes: int
    """The size of all records of the partition in the response."""
    aborted: tuple[AbortedPair, ...] | None = None
    """The aborted transactions of the partition in the response; None if the client does not filter by them."""

    def key(self, version: int) -> PartitionKey | None:
        """Return the partition as Fetch *version* names it, by topic id or name; None if that is not known."""
        topic = self.topic.topic_id if version >= IDS_VERSION else self.topic.name
        return None if topic is None else PartitionKey(topic, self.partition)


@attrs.frozen
class Compared:
    """The result of the comparison of a sample with a direct fetch."""

    sample: Sample
    equal: bool | None
    """Whether records and aborted transactions are equal; None if that is not known: the broker sent no records."""
    direct_bytes: int = 0
    """The size of the records that the broker sent."""
    error: int = 0
    """The error code of the broker for the partition or the whole response."""
    aborted_missing: int = 0
    """The number of aborted transactions that only the broker listed for the records that are equal."""
    aborted_extra: int = 0
    """The number of those that only the client's response listed, or listed again."""


def samples(request: FetchRequest, pieces: Sequence[bytes | memoryview], topology: Topology) -> list[Sample]:
    """Return a sample of each partition with records in *pieces*, a response to *request*.

    There are no samples if the response is over 16 MiB. Partitions with an error, or of a topic that *topology*
    lacks, are left out.
    """
    if sum(map(len, pieces)) > _LARGEST_ANSWER_BYTES:
        return []
    answer = read_response(request.version, memoryview(b"".join(pieces))[_SIZE_BYTES:])
    layout = request_layout(request.version)
    offsets = {
        (section.topic, fields[0]): layout.fetch_partition(fields).offset
        for section in request.sections
        for fields in layout.entry.iter_unpack(section.entries)
    }
    is_filtered = request.version >= _ISOLATION_VERSION and bool(request.options.isolation)
    found = []
    for topic, replies in answer.topics:
        info = topology.topic(topic)
        for reply in replies:
            offset = offsets.get((topic, reply.partition))
            if info is not None and offset is not None and len(reply.records) and not reply.error:
                kept = bytes(reply.records[: _is_enough(reply.records)])
                aborted = (reply.aborted or ()) if is_filtered else None
                found.append(Sample(info, reply.partition, offset, kept, len(reply.records), aborted))
    return found


def _is_enough(records: bytes | memoryview) -> int:
    """Return the number of bytes to compare: brokers send no part of a batch, unless it is the first one."""
    first = _MOST_BYTES
    if len(records) >= _BATCH_START.size:
        first = max(first, _BATCH_START.size + _BATCH_START.unpack_from(records)[1])
    return min(first, len(records))


def direct_fetch(
    sampled: Iterable[Sample], version: int, correlation_id: int, client_id: str, *, committed: bool
) -> bytes:
    """Return an encoded fetch of the sampled partitions from the same offsets, without session and max wait.

    Samples whose topic Fetch *version* cannot name are left out. The frame has its size prefix.
    """
    requested = {
        key: FetchPartition(sample.offset, len(sample.records))
        for sample in sampled
        if (key := sample.key(version)) is not None
    }
    options = FetchOptions(0, 1, sum(wanted.max_bytes for wanted in requested.values()), int(committed))
    header = RequestHeader(FETCH, version, correlation_id, client_id)
    return write_request(header, options, NO_SESSION, FINAL_EPOCH, requested, ())


def compare(
    sampled: Sequence[Sample], version: int, response: FetchResponse, *, committed: bool
) -> Iterator[Compared]:
    """Yield the comparison of each sample with its partition in the *response* to ``direct_fetch``.

    Limits may cut off either side, so they are equal if one begins with the other. The result is unknown (None) if
    the partition has an error or is missing, or if it has no records in the response although it has some at the
    offset. If it has none there, they differ. If the records are equal, the aborted transactions must be.

    *committed*: whether the readable records end at the last stable offset rather than at the high watermark.
    """
    replies = {PartitionKey(topic, each.partition): each for topic, parts in response.topics for each in parts}
    for sample in sampled:
        key = sample.key(version)
        reply = None if key is None else replies.get(key)
        if reply is None:
            yield Compared(sample, None, error=response.error)
        elif reply.error != ErrorCode.none:
            yield Compared(sample, None, error=reply.error)
        else:
            yield _compare_partition(sample, reply, committed=committed)


def _compare_partition(sample: Sample, reply: PartitionReply, *, committed: bool) -> Compared:
    equal, direct_bytes = _are_records_equal(sample, reply, committed=committed), len(reply.records)
    if not equal or sample.aborted is None:
        return Compared(sample, equal, direct_bytes)
    common = memoryview(sample.records)[:direct_bytes]
    end = whole_entries(common, len(common)).next_offset
    delivered = Counter(pair for pair in sample.aborted if pair[1] < end)
    direct = Counter(pair for pair in reply.aborted or () if pair[1] < end)
    missing, extra = (direct - delivered).total(), (delivered - direct).total()
    return Compared(sample, not missing and not extra, direct_bytes, 0, missing, extra)


def _are_records_equal(sample: Sample, reply: PartitionReply, *, committed: bool) -> bool | None:
    shared = min(len(sample.records), len(reply.records))
    if shared:
        return sample.records[:shared] == reply.records[:shared]
    # Below the end, a response without records is due to a limit of the broker; at the end, there are none.
    end = reply.last_stable_offset if committed else reply.high_watermark
    return None if sample.offset < end else False
