"""OffsetFetch (API key 9) v0: sent to the group's coordinator, whichever broker the client has sent it to.

Brokers answered v0 from ZooKeeper. The layout is that of v1.
"""

import dataclasses
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v1 import response as v1
from kio.schema.offset_fetch.v1.request import OffsetFetchRequest
from kio.static.primitive import i64

from proxy.convert.versions.coordinator import send_to_coordinator
from proxy.convert.versions.entities import limit_codes, read, write
from proxy.convert.versions.upgrade import Steps, Upgrade
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES"]

_NO_OFFSET: Final = i64(-1)
_CODE: Final = limit_codes(
    ErrorCode.not_enough_replicas_after_append,
    coordinator_load_in_progress=ErrorCode.unknown_server_error,
    coordinator_not_available=ErrorCode.unknown_server_error,
    not_coordinator=ErrorCode.unknown_server_error,
)
"""Error codes for v0 clients, which know of no coordinator: brokers reported ZooKeeper's errors like this."""


def _steps(body: memoryview) -> Steps:
    request = read(OffsetFetchRequest, body)
    answer = yield from send_to_coordinator(request.group_id, [body], v1.OffsetFetchResponse)
    response = answer or _refuse_fetch(request)
    topics = (
        dataclasses.replace(topic, partitions=tuple(map(_downgrade_partition, topic.partitions)))
        for topic in response.topics
    )
    return write(dataclasses.replace(response, topics=tuple(topics)))


def _downgrade_partition(partition: Any) -> Any:
    code = _CODE(partition.error_code)
    if code == ErrorCode.none and partition.committed_offset == _NO_OFFSET:
        code = ErrorCode.unknown_topic_or_partition
    return dataclasses.replace(partition, error_code=code, metadata=partition.metadata or "")


def _refuse_fetch(request: OffsetFetchRequest) -> v1.OffsetFetchResponse:
    def partition_error(index: Any) -> v1.OffsetFetchResponsePartition:
        return v1.OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=_NO_OFFSET,
            metadata="",
            error_code=ErrorCode.coordinator_not_available,
        )

    return v1.OffsetFetchResponse(
        topics=tuple(
            v1.OffsetFetchResponseTopic(
                name=topic.name, partitions=tuple(map(partition_error, topic.partition_indexes))
            )
            for topic in request.topics
        )
    )


UPGRADES: Final = (
    Upgrade(
        "OffsetFetch",
        ApiKey.OFFSET_FETCH,
        0,
        1,
        adds="nothing; sent to the group's coordinator. A missing offset is error 3, as in v0",
        loses="ZooKeeper: offsets are those kept in Kafka",
        steps=_steps,
    ),
)
