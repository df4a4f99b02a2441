"""The second opinion on Fetch: the same requests and answers as kio's entities."""

import uuid
from datetime import timedelta
from itertools import groupby
from typing import Any, get_args, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.wire.fetch import FETCH, FetchRequest, FetchResponse, PartitionKey, PartitionReply, Topic, request_layout
from tests.wire.entities import item_type, made

__all__ = [
    "KIO_VERSIONS",
    "asked_of",
    "entries_of",
    "forgotten_of",
    "request_type",
    "response_entity",
    "response_type",
    "runs",
    "topic_fields",
]

KIO_VERSIONS = range(4, 19)


def request_type(version: int) -> Any:
    return load_request_schema(i16(FETCH), i16(version))


def response_type(version: int) -> Any:
    return load_response_schema(i16(FETCH), i16(version))


def topic_fields(topic: Topic, *, named: str = "topic") -> dict[str, Any]:
    """Return the field by which an entity names a topic."""
    return {"topic_id": uuid.UUID(bytes=topic)} if isinstance(topic, bytes) else {named: topic}


def topic_of(entity: Any) -> Topic:
    topic_id = getattr(entity, "topic_id", None)
    name: Topic = entity.topic if topic_id is None else topic_id.bytes
    return name


def entries_of(entity: Any) -> list[tuple[Topic, list[tuple[int, ...]]]]:
    """Return, by topic of a kio request, (partition, offset, max bytes, epoch, last fetched epoch)."""
    return [
        (
            topic_of(each),
            [
                (
                    p.partition,
                    p.fetch_offset,
                    p.partition_max_bytes,
                    getattr(p, "current_leader_epoch", -1),
                    getattr(p, "last_fetched_epoch", -1),
                )
                for p in each.partitions
            ],
        )
        for each in entity.topics
    ]


def asked_of(request: FetchRequest) -> list[tuple[Topic, list[tuple[int, ...]]]]:
    """Return the same from a request of ``proxy.wire``."""
    layout = request_layout(request.version)
    return [
        (
            section.topic,
            [(fields[0], *layout.fetch_partition(fields)) for fields in layout.entry.iter_unpack(section.entries)],
        )
        for section in request.sections
    ]


def forgotten_of(entity: Any) -> list[PartitionKey]:
    return [
        PartitionKey(topic_of(each), partition)
        for each in getattr(entity, "forgotten_topics_data", ())
        for partition in each.partitions
    ]


def runs(keys: list[PartitionKey]) -> list[tuple[Topic, list[int]]]:
    """Neighbours of one topic together."""
    return [(topic, [key.partition for key in run]) for topic, run in groupby(keys, key=lambda key: key.topic)]


def response_entity(version: int, response: FetchResponse) -> Any:
    """An answer as kio has it."""
    kind = response_type(version)
    topic_kind = item_type(kind, "responses")
    given: dict[str, Any] = {
        "throttle_time": timedelta(milliseconds=response.throttle_ms),
        "responses": tuple(
            topic_kind(**topic_fields(topic), partitions=tuple(_partition(topic_kind, each) for each in replies))
            for topic, replies in response.topics
        ),
    }
    if version >= 7:
        given |= {"error_code": ErrorCode(response.error), "session_id": response.session_id}
    if version >= 16:
        endpoint = item_type(kind, "node_endpoints")
        given["node_endpoints"] = tuple(endpoint(**each._asdict()) for each in response.endpoints)
    return kind(**given)


def _partition(topic_kind: Any, reply: PartitionReply) -> Any:
    version = topic_kind.__version__
    kind = item_type(topic_kind, "partitions")
    aborted = None
    if reply.aborted is not None:
        transaction = _nullable_item_type(kind, "aborted_transactions")
        aborted = tuple(transaction(producer_id=p, first_offset=o) for p, o in reply.aborted)
    given: dict[str, Any] = {
        "partition_index": reply.partition,
        "error_code": ErrorCode(reply.error),
        "high_watermark": reply.high_watermark,
        "last_stable_offset": reply.last_stable_offset,
        "aborted_transactions": aborted,
        "records": bytes(reply.records),
    }
    if version >= 5:
        given["log_start_offset"] = reply.log_start_offset
    if version >= 11:
        given["preferred_read_replica"] = reply.preferred_read_replica
    if reply.diverging_epoch is not None:
        epoch, end_offset = reply.diverging_epoch
        given["diverging_epoch"] = _field_type(kind, "diverging_epoch")(epoch=epoch, end_offset=end_offset)
    if reply.current_leader is not None:
        leader_id, leader_epoch = reply.current_leader
        given["current_leader"] = _field_type(kind, "current_leader")(
            leader_id=leader_id, leader_epoch=leader_epoch
        )
    return made(kind, **given)


def _field_type(kind: Any, name: str) -> Any:
    return get_type_hints(kind)[name]


def _nullable_item_type(kind: Any, name: str) -> Any:
    (array,) = (each for each in get_args(_field_type(kind, name)) if each is not type(None))
    return get_args(array)[0]
