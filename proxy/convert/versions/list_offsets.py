"""ListOffsets (API key 2) v0: offsets *before* a time, by the age of segments; v1 returns the first *at or after*.

| requested | v0 of old brokers | Sidefetch |
|---|---|---|
| -2, earliest | the log's start | the same |
| -1, latest | the high watermark, then segments' starts | that, and the log's start if more are requested |
| a time | starts of segments last written before it | the first offset at or after it, or else the latest |
| below -2 | UNSUPPORTED_VERSION (35) | the same |
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v1 import request as v1
from kio.schema.list_offsets.v1.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32, i64

from proxy.convert.versions.entities import Nested, OldRequest, OldResponse, limit_codes, read, write
from proxy.convert.versions.upgrade import Pieces, SendToBroker, Steps, Upgrade
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES", "ListOffsetsRequestV0", "ListOffsetsResponseV0"]

_LATEST: Final = -1
_EARLIEST: Final = -2
_NONE: Final = -1
_CODE: Final = limit_codes(
    ErrorCode.unsupported_version,
    kafka_storage_error=ErrorCode.not_leader_or_follower,
    fenced_leader_epoch=ErrorCode.not_leader_or_follower,
    unknown_leader_epoch=ErrorCode.not_leader_or_follower,
    offset_not_available=ErrorCode.leader_not_available,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionV0(Nested):
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    timestamp: i64 = field(metadata={"kafka_type": "int64"})
    max_num_offsets: i32 = field(metadata={"kafka_type": "int32"}, default=i32(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[ListOffsetsPartitionV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequestV0(OldRequest):
    __api_key__: ClassVar[i16] = i16(ApiKey.LIST_OFFSETS)
    replica_id: BrokerId = field(metadata={"kafka_type": "int32"})
    topics: tuple[ListOffsetsTopicV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionResponseV0(Nested):
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    old_style_offsets: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicResponseV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[ListOffsetsPartitionResponseV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.LIST_OFFSETS)
    topics: tuple[ListOffsetsTopicResponseV0, ...]


class _OffsetQuery(NamedTuple):
    topic: TopicName
    partition: i32
    timestamp: i64


class _OffsetResult(NamedTuple):
    error: ErrorCode
    offset: int


_Results = dict[_OffsetQuery, _OffsetResult]


def _steps(body: memoryview) -> Steps:
    request = read(ListOffsetsRequestV0, body)
    each = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    first = {query for topic, partition in each for query in _queries_of(topic, partition)}
    # A time without a record at or after it needs another request, for the latest offset.
    may_go_on = any(query.timestamp >= 0 for query in first)
    results = yield from _request_offsets(request.replica_id, first, may_go_on=may_go_on)
    missed = {
        _OffsetQuery(query.topic, query.partition, i64(_LATEST))
        for query, result in results.items()
        if query.timestamp >= 0 and result.error == ErrorCode.none and result.offset == _NONE
    }
    results |= yield from _request_offsets(request.replica_id, missed - results.keys(), may_go_on=False)
    return _build_response(request, results)


def _queries_of(topic: TopicName, partition: ListOffsetsPartitionV0) -> list[_OffsetQuery]:
    index, timestamp = partition.partition_index, partition.timestamp
    if timestamp < _EARLIEST:
        return []
    query = _OffsetQuery(topic, index, timestamp)
    is_more_wanted = timestamp == _LATEST and partition.max_num_offsets > 1
    return [query, query._replace(timestamp=i64(_EARLIEST))] if is_more_wanted else [query]


def _request_offsets(
    replica_id: BrokerId, queries: Iterable[_OffsetQuery], *, may_go_on: bool
) -> Generator[SendToBroker, memoryview, _Results]:
    """Request the offsets for all *queries*, and return the responses by query.

    A request may name a partition only once, so further queries about it go into further requests.

    Args: may_go_on: whether more queries may follow these.
    """
    results: _Results = {}
    left = sorted(queries)
    while left:
        now = {(each.topic, each.partition): each for each in reversed(left)}
        left = [each for each in left if now[each.topic, each.partition] is not each]
        is_last = not (left or may_go_on)
        answer = yield SendToBroker(write(_build_request(replica_id, now.values())), is_last=is_last)
        for topic in read(ListOffsetsResponse, answer).topics:
            for each in topic.partitions:
                query = now.get((topic.name, each.partition_index))
                if query is not None:
                    results[query] = _OffsetResult(_CODE(each.error_code), each.offset)
    return results


def _build_request(replica_id: BrokerId, queries: Iterable[_OffsetQuery]) -> v1.ListOffsetsRequest:
    by_topic: dict[TopicName, list[Any]] = {}
    for each in queries:
        partition = v1.ListOffsetsPartition(partition_index=each.partition, timestamp=each.timestamp)
        by_topic.setdefault(each.topic, []).append(partition)
    topics = (v1.ListOffsetsTopic(name=name, partitions=tuple(some)) for name, some in by_topic.items())
    return v1.ListOffsetsRequest(replica_id=replica_id, topics=tuple(topics))


def _build_response(request: ListOffsetsRequestV0, results: _Results) -> Pieces:
    def partition_response(topic: TopicName, partition: ListOffsetsPartitionV0) -> ListOffsetsPartitionResponseV0:
        error, offsets = _offsets(topic, partition, results)
        return ListOffsetsPartitionResponseV0(
            partition_index=partition.partition_index,
            error_code=error,
            old_style_offsets=tuple(map(i64, offsets[: max(partition.max_num_offsets, 0)])),
        )

    def topic_response(topic: ListOffsetsTopicV0) -> ListOffsetsTopicResponseV0:
        partitions = tuple(partition_response(topic.name, each) for each in topic.partitions)
        return ListOffsetsTopicResponseV0(name=topic.name, partitions=partitions)

    return write(ListOffsetsResponseV0(topics=tuple(map(topic_response, request.topics))))


def _offsets(topic: TopicName, partition: ListOffsetsPartitionV0, results: _Results) -> tuple[ErrorCode, list[int]]:
    if partition.timestamp < _EARLIEST:
        return ErrorCode.unsupported_version, []
    nothing = _OffsetResult(ErrorCode.unknown_server_error, _NONE)
    query = _OffsetQuery(topic, partition.partition_index, partition.timestamp)
    result = results.get(query, nothing)
    if partition.timestamp >= 0 and result == (ErrorCode.none, _NONE):
        result = results.get(query._replace(timestamp=i64(_LATEST)), nothing)
    if result.error != ErrorCode.none:
        return result.error, []
    start = results.get(query._replace(timestamp=i64(_EARLIEST)), nothing)
    has_more = partition.timestamp == _LATEST and start.error == ErrorCode.none and start.offset < result.offset
    return ErrorCode.none, [result.offset, start.offset] if has_more else [result.offset]


UPGRADES: Final = (
    Upgrade(
        "ListOffsets",
        ApiKey.LIST_OFFSETS,
        0,
        1,
        adds="for the latest offset, a second request for the earliest if several offsets are requested",
        loses="the starts of segments: for the latest, two offsets at most; for a time one, the first at or after "
        "it, or else the latest",
        steps=_steps,
    ),
)
