"""CreateTopics (API key 19) v0 and v1, DeleteTopics (20) v0."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.create_topics.v2.response import CreateTopicsResponse
from kio.schema.delete_topics.v1.response import DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16

from proxy.convert.versions.entities import Code, Nested, OldResponse, limit_codes, read, recast, write
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES", "CreateTopicsResponseV0", "CreateTopicsResponseV1", "DeleteTopicsResponseV0"]

_NOT_ONLY_VALIDATED: Final = b"\0"
_DELETED: Final = limit_codes(ErrorCode.policy_violation, topic_deletion_disabled=ErrorCode.invalid_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResultV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.CREATE_TOPICS)
    topics: tuple[CreatableTopicResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResultV1(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV1(OldResponse):
    __version__: ClassVar[i16] = i16(1)
    __api_key__: ClassVar[i16] = i16(ApiKey.CREATE_TOPICS)
    topics: tuple[CreatableTopicResultV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResultV0(Nested):
    name: TopicName = field(metadata={"kafka_type": "string"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.DELETE_TOPICS)
    responses: tuple[DeletableTopicResultV0, ...]


def _downgrade_create(kind: type[Any], code: Code, answer: memoryview) -> Pieces:
    return write(recast(kind, read(CreateTopicsResponse, answer), code))


def _downgrade_delete(answer: memoryview) -> Pieces:
    return write(recast(DeleteTopicsResponseV0, read(DeleteTopicsResponse, answer), _DELETED))


def _add_validate_only(body: memoryview) -> Pieces:
    """Append v1's field ``validate_only``, which is false."""
    return [body, _NOT_ONLY_VALIDATED]


def _keep_body(body: memoryview) -> Pieces:
    return [body]


_CREATED_V0: Final = partial(
    _downgrade_create, CreateTopicsResponseV0, limit_codes(ErrorCode.unsupported_for_message_format)
)
_CREATED_V1: Final = partial(_downgrade_create, CreateTopicsResponseV1, limit_codes(ErrorCode.policy_violation))
_ONLY_VALIDATED: Final = "validate_only is false"

UPGRADES: Final = (
    Upgrade(
        "CreateTopics",
        ApiKey.CREATE_TOPICS,
        0,
        2,
        _ONLY_VALIDATED,
        "nothing",
        upgrade_once(_add_validate_only, _CREATED_V0),
    ),
    Upgrade(
        "CreateTopics", ApiKey.CREATE_TOPICS, 1, 2, "nothing", "nothing", upgrade_once(_keep_body, _CREATED_V1)
    ),
    Upgrade(
        "DeleteTopics",
        ApiKey.DELETE_TOPICS,
        0,
        1,
        "nothing",
        "nothing",
        upgrade_once(_keep_body, _downgrade_delete),
    ),
)
