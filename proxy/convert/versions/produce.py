"""Produce (API key 0) v0 to v2: message sets become record batches, a partition's in one request if it fits.

| version | response |
|---|---|
| 0 | error and base offset of each partition |
| 1 | as v0, and the throttle time, at the end |
| 2 | as v1, and the append time of each partition, if the broker sets the timestamps of records |

A message set that does not fit into one batch is sent in several requests, one after another, until one fails. A
message set that cannot be converted is not sent, and Sidefetch returns an error for it. With acks=0 there is no
response: Sidefetch closes the client's connection instead of returning the error, as a broker would.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple

import attrs
from kio.schema.errors import ErrorCode
from kio.schema.produce.v3.response import ProduceResponse
from kio.schema.types import TopicName
from kio.static.primitive import TZAware, i16, i32, i32Timedelta, i64

from proxy.convert.up import to_batches
from proxy.convert.versions.entities import Code, Nested, OldResponse, limit_codes, read, recast, write
from proxy.convert.versions.upgrade import Compute, SendToBroker, Steps, Upgrade
from proxy.errors import BadRecords, ClientProtocolError, MalformedFrame
from proxy.wire.apis import ApiKey
from proxy.wire.primitives import Cursor, write_string

__all__ = ["MAX_BATCH_BYTES", "UPGRADES", "ProduceResponseV0", "ProduceResponseV1", "ProduceResponseV2"]

MAX_BATCH_BYTES: Final = 1_000_000
"""The largest size of a batch in bytes, below the brokers' default limit (message.max.bytes: 1,048,588)."""

_MOST_PARTITIONS: Final = 10_000
"""The most partitions of one request: each takes half a kB of memory, and 10 microseconds in the event loop."""
_ACKS: Final = struct.Struct(">hi")
_I32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">ii")
_NO_TRANSACTION: Final = write_string(None, flexible=False)
_NO_OFFSET: Final = i64(-1)
_NO_THROTTLE: Final = i32Timedelta.parse(timedelta())
_CODES: Final[Sequence[Code]] = tuple(
    limit_codes(
        newest,
        kafka_storage_error=ErrorCode.not_leader_or_follower,
        invalid_record=ErrorCode.corrupt_message,
    )
    for newest in (
        ErrorCode.invalid_required_acks,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.policy_violation,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponseV0(Nested):
    index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    base_offset: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponseV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partition_responses: tuple[PartitionProduceResponseV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.PRODUCE)
    responses: tuple[TopicProduceResponseV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseV1(OldResponse):
    __version__: ClassVar[i16] = i16(1)
    __api_key__: ClassVar[i16] = i16(ApiKey.PRODUCE)
    responses: tuple[TopicProduceResponseV0, ...]
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduceResponseV2(Nested):
    index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    base_offset: i64 = field(metadata={"kafka_type": "int64"})
    log_append_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduceResponseV2(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    partition_responses: tuple[PartitionProduceResponseV2, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseV2(OldResponse):
    __version__: ClassVar[i16] = i16(2)
    __api_key__: ClassVar[i16] = i16(ApiKey.PRODUCE)
    responses: tuple[TopicProduceResponseV2, ...]
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})


_RESPONSES: Final[Sequence[type[Any]]] = (ProduceResponseV0, ProduceResponseV1, ProduceResponseV2)


class _Key(NamedTuple):
    topic: str
    partition: int


@attrs.frozen
class _Request:
    """A Produce request of v0 to v2, decoded.

    Layout: ``acks: i16 | timeout: i32 | topics: array of (name: string | array of (partition: i32 | message set:
        nullable bytes))``.
    """

    acks: int
    timeout_ms: int
    sets: Mapping[_Key, memoryview]
    """The message sets in the client's order."""

    @classmethod
    def read(cls, body: memoryview) -> "_Request":
        cursor = Cursor(body)
        acks, timeout_ms = cursor.i16(), cursor.i32()
        sets: dict[_Key, memoryview] = {}
        partitions = 0
        for _ in range(cursor.count(flexible=False, item_bytes=6)):
            topic = cursor.string(flexible=False)
            count = cursor.count(flexible=False, item_bytes=8)
            partitions += count
            if partitions > _MOST_PARTITIONS:
                raise MalformedFrame(f"records for more than {_MOST_PARTITIONS} partitions")
            for _ in range(count):
                key = _Key(topic, cursor.i32())
                sets[key] = memoryview(cursor.take(max(cursor.length(flexible=False), 0)))
        cursor.check_end()
        return cls(acks, timeout_ms, sets)


@attrs.frozen
class _PartitionResult:
    """The response for one partition."""

    index: int
    error_code: ErrorCode
    base_offset: int = _NO_OFFSET
    log_append_time: TZAware | None = None


class _TopicResult(NamedTuple):
    name: str
    partition_responses: tuple[_PartitionResult, ...]


class _ProduceResult(NamedTuple):
    responses: tuple[_TopicResult, ...]
    throttle_time: i32Timedelta


_Batch = bytes | memoryview
_Converted = Mapping[_Key, tuple[_Batch, ...] | ErrorCode]


def _steps(version: int, body: memoryview) -> Steps:
    request = _Request.read(body)
    converted: _Converted = yield Compute(partial(_convert_sets, request), len(body))
    results = {
        key: _PartitionResult(key.partition, some if isinstance(some, ErrorCode) else ErrorCode.none)
        for key, some in converted.items()
    }
    is_refused = any(each.error_code != ErrorCode.none for each in results.values())
    # With acks 0, the connection is closed once the rest of the request has arrived at the broker.
    acks = request.acks or int(is_refused)
    throttle_time = _NO_THROTTLE
    left = {key: some for key, some in converted.items() if isinstance(some, tuple) and some}
    while left:
        now = {key: some[0] for key, some in left.items()}
        left = {key: some[1:] for key, some in left.items() if some[1:]}
        request_body = _encode_request(acks, request.timeout_ms, now)
        answer = yield SendToBroker(request_body, is_answered=acks != 0, is_last=not left)
        if answer is not None:
            response = read(ProduceResponse, answer)
            throttle_time = max(throttle_time, response.throttle_time)
            _merge_response(results, now, response)
            left = {key: some for key, some in left.items() if results[key].error_code == ErrorCode.none}
    if request.acks:
        return write(_build_response(version, results, throttle_time))
    if is_refused:
        raise ClientProtocolError("records that are not to be acknowledged cannot be converted")
    return None


def _convert_sets(request: _Request) -> _Converted:
    """Return the record batches of each partition, or an error code. Cost: O(records)."""
    return {key: _convert_set(message_set) for key, message_set in request.sets.items()}


def _convert_set(message_set: memoryview) -> tuple[_Batch, ...] | ErrorCode:
    try:
        return to_batches(message_set, max_batch_bytes=MAX_BATCH_BYTES)
    except BadRecords as wrong:
        return wrong.code


def _encode_request(acks: int, timeout_ms: int, batches: Mapping[_Key, _Batch]) -> list[bytes | memoryview]:
    """Encode a request of v3. Layout: ``transactional_id: nullable string``, then as v2. Batches are not copied."""
    pieces: list[bytes | memoryview] = [_NO_TRANSACTION + _ACKS.pack(acks, timeout_ms)]
    topics = [(topic, list(keys)) for topic, keys in groupby(batches, key=lambda key: key.topic)]
    pieces.append(_I32.pack(len(topics)))
    for topic, keys in topics:
        pieces.append(write_string(topic, flexible=False) + _I32.pack(len(keys)))
        for key in keys:
            pieces += (_PARTITION.pack(key.partition, len(batches[key])), batches[key])
    return pieces


def _merge_response(results: dict[_Key, _PartitionResult], keys: Iterable[_Key], response: ProduceResponse) -> None:
    """Merge *response* into *results*, which has the offset of each partition's first batch, or the first error."""
    answers = {
        _Key(topic.name, int(each.index)): each
        for topic in response.responses
        for each in topic.partition_responses
    }
    for key in keys:
        answer = answers.get(key)
        if answer is None:
            results[key] = _PartitionResult(key.partition, ErrorCode.unknown_server_error)
        elif answer.error_code != ErrorCode.none:
            results[key] = _PartitionResult(key.partition, answer.error_code)
        elif results[key].base_offset == _NO_OFFSET:
            results[key] = _PartitionResult(
                key.partition, ErrorCode.none, answer.base_offset, answer.log_append_time
            )


def _build_response(version: int, results: Mapping[_Key, _PartitionResult], throttle_time: i32Timedelta) -> Any:
    topics = groupby(results.items(), key=lambda item: item[0].topic)
    responses = (_TopicResult(topic, tuple(each for _, each in some)) for topic, some in topics)
    return recast(_RESPONSES[version], _ProduceResult(tuple(responses), throttle_time), _CODES[version])


UPGRADES: Final = tuple(
    Upgrade(
        "Produce",
        ApiKey.PRODUCE,
        version,
        3,
        adds="no transaction; message sets become record batches, and a large set several requests",
        loses="offsets that the client set in its messages, which brokers ignored",
        steps=partial(_steps, version),
    )
    for version in range(3)
)
