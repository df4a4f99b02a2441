"""Checks and edits of a message before kio decodes it: impossible arrays are refused, unknown parts replaced.

kio reserves memory for as many items as an array claims to have: four bytes from an untrusted peer could take
16 GB, and if these are not available, the whole process ends. And it accepts null for an array that is never null.

kio refuses a tagged field that it does not know. KIP-482 lets peers add tagged fields within a version, and wants
readers to skip them. The walk over the message meets every tag section anyway, so it cuts unknown fields out there,
for every struct of every message and header that kio decodes.

kio refuses an error code that it does not know, too. Kafka's clients treat one as UNKNOWN_SERVER_ERROR
(``Errors.forCode``), so unknown codes are replaced by that: Sidefetch works with a broker newer than kio.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterable
from functools import cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final, get_args, get_origin, get_type_hints

from proxy.errors import ErrorCode, MalformedFrame
from proxy.wire.primitives import Cursor, write_tags

__all__ = ["cursor_at", "with_known_parts"]

_FIXED: Final = MappingProxyType(
    {
        "bool": 1,
        "int8": 1,
        "uint8": 1,
        "int16": 2,
        "uint16": 2,
        "int32": 4,
        "uint32": 4,
        "timedelta_i32": 4,
        "int64": 8,
        "uint64": 8,
        "timedelta_i64": 8,
        "datetime_i64": 8,
        "float64": 8,
        "uuid": 16,
    }
)
"""The sizes of values in bytes, by kio's names of their types."""
_LARGEST_TAG: Final = 2**31 - 1
_KNOWN_ERRORS: Final = frozenset(map(int, ErrorCode))
_UNKNOWN_SERVER_ERROR: Final = struct.pack(">h", ErrorCode.unknown_server_error)


class _Walk(Cursor):
    """A cursor that notes which parts of its frame must be replaced."""

    __slots__ = ("edits",)

    def __init__(self, frame: bytes | memoryview, at: int = 0) -> None:
        super().__init__(frame, at)
        self.edits: list[tuple[int, int, bytes]] = []
        """(start, end, replacement), in the order of the frame."""

    def apply_edits(self) -> bytes | memoryview:
        """Return the frame with its replacements; the frame itself if there are none."""
        if not self.edits:
            return self.frame
        parts: list[bytes | memoryview] = []
        copied = 0
        for start, end, replacement in self.edits:
            parts += (self.frame[copied:start], replacement)
            copied = end
        return b"".join((*parts, self.frame[copied:]))


_Step = int | Callable[[_Walk], None]
"""The number of bytes to skip, or a function that skips a value whose size it must read."""


def with_known_parts(kind: type, frame: bytes | memoryview, at: int) -> bytes | memoryview:
    """Check the encoded entity at position *at* of *frame*, and remove or replace the parts that kio cannot decode.

    *kind* is the kio class of the entity. Unknown tagged fields are cut out, unknown error codes become
    UNKNOWN_SERVER_ERROR. Return the whole frame with these edits, or *frame* itself if there are none.

    Cost:   O(items of the entity) in Python, some 0.3 us a value of no fixed size; arrays of numbers are skipped
            whole. A copy of the frame if there are edits.
    Raises: MalformedFrame: the frame ends within the entity, an array claims more items than the rest of the frame
            can have, or an array is null that must not be.
    """
    walk = _Walk(frame, at)
    _skip_all(_steps(kind), walk)
    return walk.apply_edits()


def cursor_at(kind: type, name: str, frame: bytes | memoryview, at: int) -> Cursor:
    """Return a cursor at the field *name* of the encoded entity that starts at position *at* of *frame*.

    *kind* is the kio class of the entity. If the field is tagged, the cursor stands at the entity's tagged fields.

    Raises: MalformedFrame: the bytes before the field are not those of such an entity.
    """
    walk = _Walk(frame, at)
    _skip_all(_steps_before(kind, name), walk)
    return walk


def _skip_all(steps: tuple[_Step, ...], cursor: _Walk) -> None:
    for step in steps:
        if isinstance(step, int):
            cursor.skip(step)
        else:
            step(cursor)


@cache
def _steps(kind: Any) -> tuple[_Step, ...]:
    """Return the steps that skip an entity of class *kind*; adjacent values of fixed size are one step."""
    untagged, tagged = _field_steps(kind)
    return (
        (*_merge_steps(untagged.values()), _step_over_tags(tagged))
        if kind.__flexible__
        else _merge_steps(untagged.values())
    )


@cache
def _steps_before(kind: Any, name: str) -> tuple[_Step, ...]:
    untagged, _ = _field_steps(kind)
    return _merge_steps(step for _, step in takewhile(lambda item: item[0] != name, untagged.items()))


def _field_steps(kind: Any) -> tuple[dict[str, _Step], dict[int, _Step]]:
    """Return the steps that skip an entity's fields, by name; and those of its tagged fields, by tag."""
    hints = get_type_hints(kind)
    untagged: dict[str, _Step] = {}
    tagged: dict[int, _Step] = {}
    for field in dataclasses.fields(kind):
        # The client id in a request's header is not compact, so that brokers can read it in any version (KIP-482).
        is_never_compact = (kind.__name__, field.name) == ("RequestHeader", "client_id")
        flexible = kind.__flexible__ and not is_never_compact
        step = _step_for(hints[field.name], field.metadata.get("kafka_type"), flexible=flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step
        else:
            untagged[field.name] = step
    return untagged, tagged


def _merge_steps(steps: Iterable[_Step]) -> tuple[_Step, ...]:
    merged: list[_Step] = []
    for step in steps:
        if isinstance(step, int) and merged and isinstance(merged[-1], int):
            merged[-1] += step
        else:
            merged.append(step)
    return tuple(merged)


def _step_for(hint: Any, kafka_type: str | None, *, flexible: bool) -> _Step:
    options = get_args(hint)
    is_nullable = type(None) in options
    if is_nullable:
        (hint,) = (each for each in options if each is not type(None))
    if get_origin(hint) is tuple:
        item = _step_for(get_args(hint)[0], kafka_type, flexible=flexible)
        return _step_over_array(item, flexible=flexible, is_nullable=is_nullable)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _step_over_nullable(_steps(hint)) if is_nullable else _step_over_struct(_steps(hint))
    if kafka_type == "error_code":
        return _check_error_code
    if kafka_type is not None and kafka_type in _FIXED:
        return _FIXED[kafka_type]
    return _step_over_string(flexible=flexible) if kafka_type == "string" else _step_over_bytes(flexible=flexible)


def _check_error_code(cursor: _Walk) -> None:
    start = cursor.at
    if cursor.i16() not in _KNOWN_ERRORS:
        cursor.edits.append((start, cursor.at, _UNKNOWN_SERVER_ERROR))


def _step_over_struct(steps: tuple[_Step, ...]) -> _Step:
    if len(steps) == 1:
        return steps[0]
    return lambda cursor: _skip_all(steps, cursor)


def _step_over_nullable(steps: tuple[_Step, ...]) -> _Step:
    """Return a step that skips a nullable struct. Layout: ``-1: i8`` for null, or ``1: i8`` and the struct."""

    def step(cursor: _Walk) -> None:
        if cursor.i8() >= 0:
            _skip_all(steps, cursor)

    return step


def _step_over_array(item: _Step, *, flexible: bool, is_nullable: bool) -> _Step:
    item_bytes = item if isinstance(item, int) else 1

    def step(cursor: _Walk) -> None:
        count = cursor.nullable_count(flexible=flexible, item_bytes=item_bytes)
        if count < 0:
            if not is_nullable:
                raise MalformedFrame(f"null where an array must be, before {cursor.at}")
            return
        if isinstance(item, int):
            cursor.skip(count * item)
        else:
            for _ in range(count):
                item(cursor)

    return step


def _step_over_string(*, flexible: bool) -> _Step:
    return lambda cursor: cursor.skip(max(cursor.text_length(flexible=flexible), 0))


def _step_over_bytes(*, flexible: bool) -> _Step:
    return lambda cursor: cursor.skip(max(cursor.length(flexible=flexible), 0))


def _step_over_tags(known: dict[int, _Step]) -> _Step:
    """Return a step that skips tagged fields and cuts out those that are not in *known*.

    It raises MalformedFrame if the value of a known field does not have exactly the field's size.
    """

    def step(cursor: _Walk) -> None:
        start, is_edited = cursor.at, False
        kept: list[tuple[int, bytes | memoryview]] = []
        for tag, field in cursor.tags():
            if tag > _LARGEST_TAG:
                raise MalformedFrame(f"tag {tag} before {cursor.at}")
            if tag not in known:
                is_edited = True
                continue
            inner = _Walk(field)
            _skip_all((known[tag],), inner)
            inner.check_end()
            kept.append((tag, inner.apply_edits()))
            is_edited = is_edited or bool(inner.edits)
        if is_edited:
            cursor.edits.append((start, cursor.at, write_tags(kept)))

    return step
