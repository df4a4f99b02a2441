"""DescribeConfigs (API key 32) v0, which has a flag for default values in place of v1's source of each value."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.describe_configs.v1.response import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i16, i32Timedelta

from proxy.convert.versions.entities import Nested, OldResponse, limit_codes, read, recast, write
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES", "DescribeConfigsResponseV0"]

_WITHOUT_SYNONYMS: Final = b"\0"
_DEFAULT_CONFIG: Final = 5
"""The source code of the broker's built-in default; configured defaults have others."""
_CODE: Final = limit_codes(ErrorCode.reassignment_in_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResultV0(Nested):
    name: str = field(metadata={"kafka_type": "string"})
    value: str | None = field(metadata={"kafka_type": "string"})
    read_only: bool = field(metadata={"kafka_type": "bool"})
    is_default: bool = field(metadata={"kafka_type": "bool"})
    is_sensitive: bool = field(metadata={"kafka_type": "bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResultV0(Nested):
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    configs: tuple[DescribeConfigsResourceResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseV0(OldResponse):
    __api_key__: ClassVar[i16] = i16(ApiKey.DESCRIBE_CONFIGS)
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DescribeConfigsResultV0, ...]


def _upgrade_request(body: memoryview) -> Pieces:
    """Append v1's field for synonyms."""
    return [body, _WITHOUT_SYNONYMS]


def _downgrade_response(answer: memoryview) -> Pieces:
    response = read(DescribeConfigsResponse, answer)
    return write(recast(DescribeConfigsResponseV0, response, _CODE, is_default=_is_default))


def _is_default(config: Any) -> bool:
    return int(config.config_source) == _DEFAULT_CONFIG


UPGRADES: Final = (
    Upgrade(
        "DescribeConfigs",
        ApiKey.DESCRIBE_CONFIGS,
        0,
        1,
        adds="include_synonyms is false",
        loses="nothing",
        steps=upgrade_once(_upgrade_request, _downgrade_response),
    ),
)
