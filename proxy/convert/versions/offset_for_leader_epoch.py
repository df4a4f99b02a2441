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

from proxy.convert.versions.entities import (
    Code,
    Nested,
    OldRequest,
    OldResponse,
    limit_codes,
    read,
    recast,
    write,
)
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey

__all__ = [
    "UPGRADES",
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


def _upgrade_request(body: memoryview) -> Pieces:
    return write(recast(OffsetForLeaderEpochRequest, read(OffsetForLeaderEpochRequestV0, body)))


def _downgrade_response(kind: type[Any], code: Code, answer: memoryview) -> Pieces:
    return write(recast(kind, read(OffsetForLeaderEpochResponse, answer), code))


def _make_upgrade(version: int, downgrade: Callable[[memoryview], Pieces]) -> Upgrade:
    return Upgrade(
        "OffsetForLeaderEpoch",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        2,
        adds="no current leader epoch: no client is fenced",
        loses="nothing",
        steps=upgrade_once(_upgrade_request, downgrade),
    )


UPGRADES: Final = (
    _make_upgrade(
        0,
        partial(
            _downgrade_response,
            OffsetForLeaderEpochResponseV0,
            limit_codes(ErrorCode.invalid_fetch_session_epoch),
        ),
    ),
    _make_upgrade(
        1,
        partial(_downgrade_response, OffsetForLeaderEpochResponseV1, limit_codes(ErrorCode.listener_not_found)),
    ),
)
