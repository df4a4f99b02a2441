"""Kafka messages of any version, encoded from nested dicts and decoded to objects by the library kio.

kio has one class for each version of each message. Handlers need not distinguish them: they read attributes that
exist in the versions they serve, and return nested dicts with all fields. Fields that a version does not have are
dropped; missing fields become the field's default or zero.
"""

import datetime
import io
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache
from types import UnionType
from typing import Any, Final, NamedTuple

import attrs
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

__all__ = [
    "ApiKey",
    "ReceivedRequest",
    "encode_request",
    "encode_response",
    "read_request",
    "read_response",
    "served",
]

ApiKey = int

_OWN_DEFAULT: Final = object()
_ZERO: Final[Mapping[str, object]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "uuid": None,
    "float64": 0.0,
}


def served(name: str) -> tuple[int, int]:
    """Return the oldest and the newest version of API *name* (such as ``list_offsets``) that kio has.

    An embedded broker serves these unless it is configured otherwise.
    """
    versions = [v for v, kinds in schema_name_map[name].items() if EntityType.request in kinds]
    return min(versions), max(versions)


class _Field(NamedTuple):
    name: str
    nested: type | None
    many: bool
    convert: Callable[[Any], Any] | None
    default: object
    """``_OWN_DEFAULT`` if the class has a default of its own."""


def _milliseconds(value: float | datetime.timedelta) -> datetime.timedelta:
    return value if isinstance(value, datetime.timedelta) else datetime.timedelta(milliseconds=value)


@cache
def _fields(schema: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(schema)
    plan = []
    for name, field in schema.__dataclass_fields__.items():  # type: ignore[attr-defined]
        if name.startswith("__"):
            continue
        hint = hints[name]
        options = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
        optional = type(None) in options
        plain = next(option for option in options if option is not type(None))
        many = typing.get_origin(plain) is tuple
        item = typing.get_args(plain)[0] if many else plain
        nested = item if hasattr(item, "__dataclass_fields__") else None
        kind = field.metadata.get("kafka_type", "")
        convert = _milliseconds if kind.startswith("timedelta") else ErrorCode if kind == "error_code" else None
        default: object
        if field.default is not MISSING or field.default_factory is not MISSING:
            default = _OWN_DEFAULT
        elif many:
            default = None if optional else ()
        else:
            default = None if optional else _ZERO.get(kind, 0)
        plan.append(_Field(name, nested, many, convert, default))
    return tuple(plan)


def build(schema: type, values: Mapping[str, Any]) -> Any:
    """Return an object of kio's message class *schema* with *values*, nested dicts by field name.

    Values for fields that the class does not have are ignored; fields without a value get their default or zero.
    """
    filled: dict[str, Any] = {}
    for name, nested, many, convert, default in _fields(schema):
        if name not in values:
            if default is not _OWN_DEFAULT:
                filled[name] = default
            continue
        value = values[name]
        if value is not None:
            if nested is not None:
                value = tuple([build(nested, item) for item in value]) if many else build(nested, value)
            elif many:
                value = tuple(value)
            elif convert is not None:
                value = convert(value)
        filled[name] = value
    return schema(**filled)


@attrs.frozen
class ReceivedRequest:
    """A decoded request: the fields of its header, and its body."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """The body as an object of kio's class for this API and version."""


def read_request(frame: bytes) -> ReceivedRequest:
    """Decode the header and the body of the request in *frame*, which is without its size prefix.

    Raises: kio's exceptions for an unknown API or version, or a malformed message.
    """
    key, version = int.from_bytes(frame[0:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
    schema: Any = load_request_schema(key, version)
    header, size = entity_reader(schema.__header_schema__)(frame, 0)
    body, _ = entity_reader(schema)(frame, size)
    return ReceivedRequest(key, version, header.correlation_id, header.client_id, body)


def _frame(schema: Any, header: Mapping[str, object], values: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO(b"\0\0\0\0")
    buffer.seek(4)
    header_schema = schema.__header_schema__
    entity_writer(header_schema)(buffer, build(header_schema, header))
    entity_writer(schema)(buffer, build(schema, values))
    size = buffer.tell() - 4
    buffer.seek(0)
    buffer.write(size.to_bytes(4, "big"))
    return buffer.getvalue()


def encode_response(key: ApiKey, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Encode a response as a frame with its size prefix; *values* are those of its body, as for ``build``."""
    return _frame(load_response_schema(key, version), {"correlation_id": correlation_id}, values)


def encode_request(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> bytes:
    """Encode a request as a frame with its size prefix; *values* are those of its body, as for ``build``."""
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    return _frame(load_request_schema(key, version), header, values)


def read_response(key: ApiKey, version: int, frame: bytes) -> tuple[int, Any]:
    """Decode the response in *frame*, which is without its size prefix, to a request of API *key* in *version*.

    Returns: the correlation id, and the body as an object of kio's class.
    """
    schema: Any = load_response_schema(key, version)
    header, size = entity_reader(schema.__header_schema__)(frame, 0)
    body, _ = entity_reader(schema)(frame, size)
    return header.correlation_id, body
