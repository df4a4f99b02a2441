"""OffsetCommit (API key 8) v0 and v1: sent to the group's coordinator, whichever broker the client has sent it to.

With v0, any broker stored the offsets in ZooKeeper. v1 was the first version for the coordinator; it has a
timestamp for each partition, from which the retention time of the offset began.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v2 import response as v2
from kio.schema.offset_commit.v2.request import OffsetCommitRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32, i64

from proxy.convert.versions.coordinator import send_to_coordinator
from proxy.convert.versions.entities import Code, Nested, OldRequest, limit_codes, read, recast, write
from proxy.convert.versions.upgrade import Steps, Upgrade
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES", "OffsetCommitRequestV0", "OffsetCommitRequestV1"]

_NOT_READY: Final = {
    "coordinator_load_in_progress": ErrorCode.unknown_server_error,
    "coordinator_not_available": ErrorCode.unknown_server_error,
    "not_coordinator": ErrorCode.unknown_server_error,
}
"""Error codes for v0 clients, which know of no coordinator: brokers reported ZooKeeper's errors like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestPartitionV0(Nested):
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    committed_offset: i64 = field(metadata={"kafka_type": "int64"})
    committed_metadata: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopicV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[OffsetCommitRequestPartitionV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestV0(OldRequest):
    __api_key__: ClassVar[i16] = i16(ApiKey.OFFSET_COMMIT)
    group_id: GroupId = field(metadata={"kafka_type": "string"})
    topics: tuple[OffsetCommitRequestTopicV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestPartitionV1(Nested):
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    committed_offset: i64 = field(metadata={"kafka_type": "int64"})
    commit_timestamp: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    committed_metadata: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopicV1(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[OffsetCommitRequestPartitionV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestV1(OldRequest):
    __version__: ClassVar[i16] = i16(1)
    __api_key__: ClassVar[i16] = i16(ApiKey.OFFSET_COMMIT)
    group_id: GroupId = field(metadata={"kafka_type": "string"})
    generation_id_or_member_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    member_id: str = field(metadata={"kafka_type": "string"})
    topics: tuple[OffsetCommitRequestTopicV1, ...]


def _steps(kind: type[Any], code: Code, body: memoryview) -> Steps:
    request = read(kind, body)
    upgraded = recast(OffsetCommitRequest, request, member_id=_member_of)
    answer = yield from send_to_coordinator(request.group_id, write(upgraded), v2.OffsetCommitResponse)
    return write(recast(v2.OffsetCommitResponse, answer or _refuse_commit(upgraded), code))


def _member_of(request: Any) -> str:
    return getattr(request, "member_id", "")


def _refuse_commit(request: OffsetCommitRequest) -> v2.OffsetCommitResponse:
    def partition_error(partition: Any) -> v2.OffsetCommitResponsePartition:
        return v2.OffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=ErrorCode.coordinator_not_available
        )

    return v2.OffsetCommitResponse(
        topics=tuple(
            v2.OffsetCommitResponseTopic(name=topic.name, partitions=tuple(map(partition_error, topic.partitions)))
            for topic in request.topics
        )
    )


def _make_upgrade(version: int, steps: Callable[[memoryview], Steps], adds: str, loses: str) -> Upgrade:
    return Upgrade("OffsetCommit", ApiKey.OFFSET_COMMIT, version, 2, adds, loses, steps)


UPGRADES: Final = (
    _make_upgrade(
        0,
        partial(
            _steps, OffsetCommitRequestV0, limit_codes(ErrorCode.not_enough_replicas_after_append, **_NOT_READY)
        ),
        "no generation, no member, the broker's retention time; sent to the group's coordinator",
        "ZooKeeper: offsets are kept in Kafka",
    ),
    _make_upgrade(
        1,
        partial(_steps, OffsetCommitRequestV1, limit_codes(ErrorCode.cluster_authorization_failed)),
        "the broker's retention time; sent to the group's coordinator",
        "the time of each commit, from which its retention time began",
    ),
)
