"""OffsetForLeaderEpoch (API key 23) v0 and v1: the end offsets of leader epochs, to detect truncation of a log."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v2.request import OffsetForLeaderEpochRequest
from kio.schema.offset_for_leader_epoch.v2.response import OffsetForLeaderEpochResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i64

from proxy.convert.versions.entities import Code, Nested, OldRequest, OldResponse, read, recast, up_to, write
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey

__all__ = [
    "LIFTS",
    "OffsetForLeaderEpochRequestV0",
    "OffsetForLeaderEpochResponseV0",
    "OffsetForLeaderEpochResponseV1",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartitionV0(Nested):
    partition: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicV0(Nested):
    topic: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[OffsetForLeaderPartitionV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequestV0(OldRequest):
    """The OffsetForLeaderEpoch request of v0 and v1, which have one layout: a leader epoch for each partition."""

    __api_key__: ClassVar[i16] = i16(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    topics: tuple[OffsetForLeaderTopicV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffsetV0(Nested):
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    partition: i32 = field(metadata={"kafka_type": "int32"})
    end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResultV0(Nested):
    topic: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[EpochEndOffsetV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    topics: tuple[OffsetForLeaderTopicResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffsetV1(Nested):
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    partition: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResultV1(Nested):
    topic: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[EpochEndOffsetV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponseV1(OldResponse):
    __version__: ClassVar[i16] = i16(1)
    __api_key__: ClassVar[i16] = i16(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    topics: tuple[OffsetForLeaderTopicResultV1, ...]


def _lifted(body: memoryview) -> Pieces:
    return write(recast(OffsetForLeaderEpochRequest, read(OffsetForLeaderEpochRequestV0, body)))


def _lowered(kind: type[Any], code: Code, answer: memoryview) -> Pieces:
    return write(recast(kind, read(OffsetForLeaderEpochResponse, answer), code))


def _lift(version: int, lower: Callable[[memoryview], Pieces]) -> Upgrade:
    return Upgrade(
        "OffsetForLeaderEpoch",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        2,
        adds="no current leader epoch: no client is fenced",
        loses="nothing",
        steps=upgrade_once(_lifted, lower),
    )


LIFTS: Final = (
    _lift(0, partial(_lowered, OffsetForLeaderEpochResponseV0, up_to(ErrorCode.invalid_fetch_session_epoch))),
    _lift(1, partial(_lowered, OffsetForLeaderEpochResponseV1, up_to(ErrorCode.listener_not_found))),
)
