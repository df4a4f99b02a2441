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

from proxy.convert.versions.entities import Nested, OldRequest, OldResponse, read, up_to, write
from proxy.convert.versions.upgrade import AskBroker, Pieces, Steps, Upgrade
from proxy.wire.apis import ApiKey

__all__ = ["LIFTS", "ListOffsetsRequestV0", "ListOffsetsResponseV0"]

_LATEST: Final = -1
_EARLIEST: Final = -2
_NONE: Final = -1
_CODE: Final = up_to(
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


class _Question(NamedTuple):
    topic: TopicName
    partition: i32
    timestamp: i64


class _Told(NamedTuple):
    error: ErrorCode
    offset: int


_Answers = dict[_Question, _Told]


def _steps(body: memoryview) -> Steps:
    request = read(ListOffsetsRequestV0, body)
    each = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    first = {question for topic, partition in each for question in _questions(topic, partition)}
    # A time without a record at or after it needs another request, for the latest offset.
    may_go_on = any(question.timestamp >= 0 for question in first)
    answers = yield from _asked(request.replica_id, first, may_go_on=may_go_on)
    missed = {
        _Question(question.topic, question.partition, i64(_LATEST))
        for question, told in answers.items()
        if question.timestamp >= 0 and told.error == ErrorCode.none and told.offset == _NONE
    }
    answers |= yield from _asked(request.replica_id, missed - answers.keys(), may_go_on=False)
    return _answer(request, answers)


def _questions(topic: TopicName, partition: ListOffsetsPartitionV0) -> list[_Question]:
    index, timestamp = partition.partition_index, partition.timestamp
    if timestamp < _EARLIEST:
        return []
    question = _Question(topic, index, timestamp)
    is_more_wanted = timestamp == _LATEST and partition.max_num_offsets > 1
    return [question, question._replace(timestamp=i64(_EARLIEST))] if is_more_wanted else [question]


def _asked(
    replica_id: BrokerId, questions: Iterable[_Question], *, may_go_on: bool
) -> Generator[AskBroker, memoryview, _Answers]:
    """Request the offsets for all *questions*, and return the responses by question.

    A request may name a partition only once, so further questions about it go into further requests.

    Args: may_go_on: whether more questions may follow these.
    """
    answers: _Answers = {}
    left = sorted(questions)
    while left:
        now = {(each.topic, each.partition): each for each in reversed(left)}
        left = [each for each in left if now[each.topic, each.partition] is not each]
        is_last = not (left or may_go_on)
        answer = yield AskBroker(write(_request(replica_id, now.values())), is_last=is_last)
        for topic in read(ListOffsetsResponse, answer).topics:
            for each in topic.partitions:
                question = now.get((topic.name, each.partition_index))
                if question is not None:
                    answers[question] = _Told(_CODE(each.error_code), each.offset)
    return answers


def _request(replica_id: BrokerId, questions: Iterable[_Question]) -> v1.ListOffsetsRequest:
    by_topic: dict[TopicName, list[Any]] = {}
    for each in questions:
        partition = v1.ListOffsetsPartition(partition_index=each.partition, timestamp=each.timestamp)
        by_topic.setdefault(each.topic, []).append(partition)
    topics = (v1.ListOffsetsTopic(name=name, partitions=tuple(some)) for name, some in by_topic.items())
    return v1.ListOffsetsRequest(replica_id=replica_id, topics=tuple(topics))


def _answer(request: ListOffsetsRequestV0, answers: _Answers) -> Pieces:
    def answered(topic: TopicName, partition: ListOffsetsPartitionV0) -> ListOffsetsPartitionResponseV0:
        error, offsets = _offsets(topic, partition, answers)
        return ListOffsetsPartitionResponseV0(
            partition_index=partition.partition_index,
            error_code=error,
            old_style_offsets=tuple(map(i64, offsets[: max(partition.max_num_offsets, 0)])),
        )

    def answered_all(topic: ListOffsetsTopicV0) -> ListOffsetsTopicResponseV0:
        partitions = tuple(answered(topic.name, each) for each in topic.partitions)
        return ListOffsetsTopicResponseV0(name=topic.name, partitions=partitions)

    return write(ListOffsetsResponseV0(topics=tuple(map(answered_all, request.topics))))


def _offsets(topic: TopicName, partition: ListOffsetsPartitionV0, answers: _Answers) -> tuple[ErrorCode, list[int]]:
    if partition.timestamp < _EARLIEST:
        return ErrorCode.unsupported_version, []
    nothing = _Told(ErrorCode.unknown_server_error, _NONE)
    asked = _Question(topic, partition.partition_index, partition.timestamp)
    told = answers.get(asked, nothing)
    if partition.timestamp >= 0 and told == (ErrorCode.none, _NONE):
        told = answers.get(asked._replace(timestamp=i64(_LATEST)), nothing)
    if told.error != ErrorCode.none:
        return told.error, []
    start = answers.get(asked._replace(timestamp=i64(_EARLIEST)), nothing)
    has_more = partition.timestamp == _LATEST and start.error == ErrorCode.none and start.offset < told.offset
    return ErrorCode.none, [told.offset, start.offset] if has_more else [told.offset]


LIFTS: Final = (
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
