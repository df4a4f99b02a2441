"""DescribeAcls, CreateAcls and DeleteAcls (API keys 29 to 31) v0, without pattern types: all names are literal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.create_acls.v1.request import CreateAclsRequest
from kio.schema.create_acls.v1.response import CreateAclsResponse
from kio.schema.delete_acls.v1.request import DeleteAclsRequest
from kio.schema.delete_acls.v1.response import DeleteAclsResponse
from kio.schema.describe_acls.v1.request import DescribeAclsRequest
from kio.schema.describe_acls.v1.response import AclDescription, DescribeAclsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i16, i32Timedelta

from proxy.convert.versions.entities import Nested, OldRequest, OldResponse, limit_codes, read, recast, write
from proxy.convert.versions.upgrade import Pieces, Upgrade, read_throttle_in_front, upgrade_once
from proxy.wire.apis import ApiKey

__all__ = [
    "UPGRADES",
    "CreateAclsRequestV0",
    "DeleteAclsRequestV0",
    "DeleteAclsResponseV0",
    "DescribeAclsRequestV0",
    "DescribeAclsResponseV0",
]

_CODE: Final = limit_codes(ErrorCode.invalid_fetch_session_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsRequestV0(OldRequest):
    __api_key__: ClassVar[i16] = i16(ApiKey.DESCRIBE_ACLS)
    resource_type_filter: i8 = field(metadata={"kafka_type": "int8"})
    resource_name_filter: str | None = field(metadata={"kafka_type": "string"})
    principal_filter: str | None = field(metadata={"kafka_type": "string"})
    host_filter: str | None = field(metadata={"kafka_type": "string"})
    operation: i8 = field(metadata={"kafka_type": "int8"})
    permission_type: i8 = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResourceV0(Nested):
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    acls: tuple[AclDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.DESCRIBE_ACLS)
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    resources: tuple[DescribeAclsResourceV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreationV0(Nested):
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    principal: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    operation: i8 = field(metadata={"kafka_type": "int8"})
    permission_type: i8 = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequestV0(OldRequest):
    __api_key__: ClassVar[i16] = i16(ApiKey.CREATE_ACLS)
    creations: tuple[AclCreationV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilterV0(Nested):
    resource_type_filter: i8 = field(metadata={"kafka_type": "int8"})
    resource_name_filter: str | None = field(metadata={"kafka_type": "string"})
    principal_filter: str | None = field(metadata={"kafka_type": "string"})
    host_filter: str | None = field(metadata={"kafka_type": "string"})
    operation: i8 = field(metadata={"kafka_type": "int8"})
    permission_type: i8 = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequestV0(OldRequest):
    __api_key__: ClassVar[i16] = i16(ApiKey.DELETE_ACLS)
    filters: tuple[DeleteAclsFilterV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsMatchingAclV0(Nested):
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    principal: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    operation: i8 = field(metadata={"kafka_type": "int8"})
    permission_type: i8 = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilterResultV0(Nested):
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    matching_acls: tuple[DeleteAclsMatchingAclV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.DELETE_ACLS)
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    filter_results: tuple[DeleteAclsFilterResultV0, ...]


def _upgrade_request(kind: type[Any], newer: type[Any], body: memoryview) -> Pieces:
    """Convert a request to v1; the pattern type that v1 adds is LITERAL by default."""
    return write(recast(newer, read(kind, body)))


def _downgrade_response(kind: type[Any], newer: type[Any], answer: memoryview) -> Pieces:
    return write(recast(kind, read(newer, answer), _CODE))


def _make_upgrade(
    api: str,
    key: int,
    upgrade: Callable[[memoryview], Pieces],
    downgrade: Callable[[memoryview], Pieces],
) -> Upgrade:
    return Upgrade(
        api,
        key,
        0,
        1,
        adds="the pattern type LITERAL",
        loses="ACLs for prefixed names are not listed, created or deleted",
        steps=upgrade_once(upgrade, downgrade),
        throttle_ms=read_throttle_in_front,
    )


UPGRADES: Final = (
    _make_upgrade(
        "DescribeAcls",
        ApiKey.DESCRIBE_ACLS,
        partial(_upgrade_request, DescribeAclsRequestV0, DescribeAclsRequest),
        partial(_downgrade_response, DescribeAclsResponseV0, DescribeAclsResponse),
    ),
    _make_upgrade(
        "CreateAcls",
        ApiKey.CREATE_ACLS,
        partial(_upgrade_request, CreateAclsRequestV0, CreateAclsRequest),
        partial(_downgrade_response, CreateAclsResponse, CreateAclsResponse),
    ),
    _make_upgrade(
        "DeleteAcls",
        ApiKey.DELETE_ACLS,
        partial(_upgrade_request, DeleteAclsRequestV0, DeleteAclsRequest),
        partial(_downgrade_response, DeleteAclsResponseV0, DeleteAclsResponse),
    ),
)
