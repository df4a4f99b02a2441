"""Encode and decode Kafka messages of every version: by kio's schemas, and by ours for versions that kio lacks.

Unlike kio's own reader, ``decode`` skips unknown tagged fields (KIP-482) and reports where tag sections are.
Times are milliseconds, errors are numbers, and the all-zero UUID is None.
"""

import functools
import struct
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any, Final

import attrs
from kio.index import load_request_schema, load_response_schema
from kio.serial._introspect import classify_field, is_optional
from kio.static.primitive import i16

__all__ = ["Apis", "TagSection", "Values", "decode_response", "encode_request", "is_flexible_response"]

Values = dict[str, Any]


class Apis:
    """API keys."""

    PRODUCE: Final = 0
    FETCH: Final = 1
    LIST_OFFSETS: Final = 2
    METADATA: Final = 3
    OFFSET_COMMIT: Final = 8
    OFFSET_FETCH: Final = 9
    FIND_COORDINATOR: Final = 10
    API_VERSIONS: Final = 18


@attrs.frozen
class TagSection:
    """The tagged fields of one structure within a message."""

    start: int
    """The position of their count."""
    count: int
    first: int
    """The position of the first of them."""
    end: int
    depth: int
    """0 in the message itself, 1 in an element of one of its arrays, and so on."""


@attrs.frozen
class _Field:
    name: str
    kind: "str | _Spec"
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    default: Any = None


@attrs.frozen
class _Spec:
    """The layout of a structure in one version."""

    fields: tuple[_Field, ...]
    is_flexible: bool = False


_NUMBERS: Final = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
    "float64": ">d",
}


@functools.cache
def _of_kio(kind: Any) -> _Spec:
    return _Spec(tuple(_field(each) for each in fields(kind)), kind.__flexible__)


def _field(field: Any) -> _Field:
    found: Any = classify_field(field)
    nested = hasattr(found.type_, "__flexible__")
    tag = field.metadata.get("tag")
    default = None if field.default is MISSING else _plain(field.default)
    return _Field(
        field.name,
        _of_kio(found.type_) if nested else field.metadata["kafka_type"],
        found.is_array,
        is_optional(field) and (tag is None or not nested),
        tag,
        default,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return value.value if hasattr(value, "value") else value


def _old(*described: str | tuple[str, _Spec]) -> _Spec:
    """Describe a structure by ``name:type``, ``name:type[]``, or (name, structure of the elements)."""
    found = []
    for each in described:
        if isinstance(each, tuple):
            found.append(_Field(each[0], each[1], is_array=True))
        else:
            name, _, kind = each.partition(":")
            found.append(_Field(name, kind.removesuffix("[]"), kind.endswith("[]"), kind in ("bytes", "records")))
    return _Spec(tuple(found))


def _fetch_request(version: int) -> _Spec:
    partition = _old("partition:int32", "fetch_offset:int64", "partition_max_bytes:int32")
    limit = ("max_bytes:int32",) if version >= 3 else ()
    topics = ("topics", _old("topic:string", ("partitions", partition)))
    return _old("replica_id:int32", "max_wait:int32", "min_bytes:int32", *limit, topics)


def _fetch_response(version: int) -> _Spec:
    partition = _old("partition_index:int32", "error_code:int16", "high_watermark:int64", "records:records")
    throttle = ("throttle_time:int32",) if version >= 1 else ()
    return _old(*throttle, ("responses", _old("topic:string", ("partitions", partition))))


def _produce_response(version: int) -> _Spec:
    more = ("log_append_time:int64",) if version >= 2 else ()
    partition = _old("index:int32", "error_code:int16", "base_offset:int64", *more)
    throttle = ("throttle_time:int32",) if version >= 1 else ()
    return _old(("responses", _old("name:string", ("partition_responses", partition))), *throttle)


def _commit_request(version: int) -> _Spec:
    times = ("commit_timestamp:int64",) if version == 1 else ()
    partition = _old("partition_index:int32", "committed_offset:int64", *times, "committed_metadata:string")
    member = ("generation_id_or_member_epoch:int32", "member_id:string") if version == 1 else ()
    return _old("group_id:string", *member, ("topics", _old("name:string", ("partitions", partition))))


_PRODUCE = _old(
    "acks:int16",
    "timeout:int32",
    ("topic_data", _old("name:string", ("partition_data", _old("index:int32", "records:records")))),
)


def _of_topics(*partition: str) -> tuple[str, _Spec]:
    return "topics", _old("name:string", ("partitions", _old(*partition)))


_LIST_OFFSETS = _old(
    "replica_id:int32", _of_topics("partition_index:int32", "timestamp:int64", "max_num_offsets:int32")
)
_OFFSETS_LISTED = _old(_of_topics("partition_index:int32", "error_code:int16", "old_style_offsets:int64[]"))
_COMMITTED = _old(_of_topics("partition_index:int32", "error_code:int16"))
_OFFSET_FETCH = _old("group_id:string", ("topics", _old("name:string", "partition_indexes:int32[]")))
_OFFSETS_FETCHED = _old(
    _of_topics("partition_index:int32", "committed_offset:int64", "metadata:string", "error_code:int16")
)

_REQUESTS: Final[Mapping[tuple[int, int], _Spec]] = {
    **{(Apis.FETCH, version): _fetch_request(version) for version in range(4)},
    **{(Apis.PRODUCE, version): _PRODUCE for version in range(3)},
    (Apis.LIST_OFFSETS, 0): _LIST_OFFSETS,
    **{(Apis.OFFSET_COMMIT, version): _commit_request(version) for version in range(2)},
    (Apis.OFFSET_FETCH, 0): _OFFSET_FETCH,
}
_RESPONSES: Final[Mapping[tuple[int, int], _Spec]] = {
    **{(Apis.FETCH, version): _fetch_response(version) for version in range(4)},
    **{(Apis.PRODUCE, version): _produce_response(version) for version in range(3)},
    (Apis.LIST_OFFSETS, 0): _OFFSETS_LISTED,
    **{(Apis.OFFSET_COMMIT, version): _COMMITTED for version in range(2)},
    (Apis.OFFSET_FETCH, 0): _OFFSETS_FETCHED,
}


def _request(key: int, version: int) -> _Spec:
    return _REQUESTS.get((key, version)) or _of_kio(load_request_schema(key, i16(version)))


def _response(key: int, version: int) -> _Spec:
    return _RESPONSES.get((key, version)) or _of_kio(load_response_schema(key, i16(version)))


def is_flexible_response(key: int, version: int) -> bool:
    """Return whether a response has tagged fields; its header has them too, except that of ApiVersions."""
    return _response(key, version).is_flexible


def encode_request(key: int, version: int, correlation_id: int, client_id: str, values: Values) -> bytes:
    """Return a request with its header, without its size. Values that the version does not have are left out."""
    spec = _request(key, version)
    name = client_id.encode()
    writer = _Writer()
    writer.buffer += struct.pack(">hhih", key, version, correlation_id, len(name)) + name
    if spec.is_flexible:
        writer.buffer.append(0)
    writer.struct(spec, values)
    return bytes(writer.buffer)


def decode_response(key: int, version: int, frame: bytes) -> tuple[int, Values, list[TagSection]]:
    """Return the correlation id, the body and the tag sections of a response, the header's first.

    Raises: ValueError: the frame is longer than its message. struct.error, IndexError: it is shorter.
    """
    spec = _response(key, version)
    reader = _Reader(frame)
    correlation_id = int(reader.number(">i"))
    if spec.is_flexible and key != Apis.API_VERSIONS:
        reader.tags({}, {}, 0)
    if key == Apis.API_VERSIONS and frame[4:6] == b"\x00\x23":
        spec = _response(key, 0)  # an unsupported version is answered in the layout of version 0
    values = reader.struct(spec, 0)
    if reader.at != len(frame):
        raise ValueError(f"{len(frame) - reader.at} bytes behind the response")
    return correlation_id, values, reader.sections


class _Writer:
    def __init__(self) -> None:
        self.buffer = bytearray()

    def struct(self, spec: _Spec, values: Values) -> None:
        for field in spec.fields:
            if field.tag is None:
                self.field(field, values.get(field.name, field.default), spec.is_flexible)
        if spec.is_flexible:
            tagged = [
                each
                for each in spec.fields
                if each.tag is not None and each.name in values and values[each.name] != each.default
            ]
            self.varint(len(tagged))
            for field in sorted(tagged, key=lambda each: each.tag or 0):
                inner = _Writer()
                inner.field(field, values[field.name], spec.is_flexible)
                self.varint(field.tag or 0)
                self.varint(len(inner.buffer))
                self.buffer += inner.buffer

    def field(self, field: _Field, value: Any, flexible: bool) -> None:
        if not field.is_array:
            self.value(field.kind, value, flexible)
            return
        self.length(None if value is None and field.is_nullable else len(value or ()), flexible, ">i")
        for each in value or ():
            self.value(field.kind, each, flexible)

    def value(self, kind: str | _Spec, value: Any, flexible: bool) -> None:
        if isinstance(kind, _Spec):
            self.struct(kind, value)
        elif kind in _NUMBERS:
            self.buffer += struct.pack(_NUMBERS[kind], -1 if value is None else value)
        elif kind == "uuid":
            self.buffer += (value or uuid.UUID(int=0)).bytes
        else:
            data = value.encode() if isinstance(value, str) else value
            self.length(None if data is None else len(data), flexible, ">h" if kind == "string" else ">i")
            self.buffer += data or b""

    def length(self, length: int | None, flexible: bool, kind: str) -> None:
        if flexible:
            self.varint(0 if length is None else length + 1)
        else:
            self.buffer += struct.pack(kind, -1 if length is None else length)

    def varint(self, value: int) -> None:
        self.buffer += varint(value)


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Reader:
    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.at = 0
        self.sections: list[TagSection] = []

    def struct(self, spec: _Spec, depth: int) -> Values:
        values: Values = {
            field.name: self.field(field, spec.is_flexible, depth) for field in spec.fields if field.tag is None
        }
        if spec.is_flexible:
            known = {field.tag: field for field in spec.fields if field.tag is not None}
            self.tags(known, values, depth)
        return values

    def tags(self, known: Mapping[int, _Field], values: Values, depth: int) -> None:
        """Read a tag section: those of *known* into *values*; the others are skipped."""
        start = self.at
        count = self.varint()
        first = self.at
        for _ in range(count):
            tag, size = self.varint(), self.varint()
            end = self.at + size
            if tag in known:
                values[known[tag].name] = self.field(known[tag], True, depth)
            self.at = end
        self.sections.append(TagSection(start, count, first, self.at, depth))

    def field(self, field: _Field, flexible: bool, depth: int) -> Any:
        if not field.is_array:
            return self.value(field.kind, flexible, depth)
        count = self.length(flexible, ">i")
        return None if count is None else [self.value(field.kind, flexible, depth + 1) for _ in range(count)]

    def value(self, kind: str | _Spec, flexible: bool, depth: int) -> Any:
        if isinstance(kind, _Spec):
            return self.struct(kind, depth)
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == "uuid":
            return uuid.UUID(bytes=self.take(16))
        length = self.length(flexible, ">h" if kind == "string" else ">i")
        if length is None:
            return None
        data = self.take(length)
        return data.decode() if kind == "string" else data

    def take(self, size: int) -> bytes:
        data = self.frame[self.at : self.at + size]
        if len(data) != size:
            raise ValueError("the response is cut")
        self.at += size
        return data

    def number(self, kind: str) -> Any:
        (value,) = struct.unpack_from(kind, self.frame, self.at)
        self.at += struct.calcsize(kind)
        return value

    def length(self, flexible: bool, kind: str) -> int | None:
        length = self.varint() - 1 if flexible else int(self.number(kind))
        return None if length < 0 else length

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
