"""Whether a message can be what it claims to be, looked at before kio reads it.

kio reserves memory for as many items as an array claims to have: four bytes of a stranger's could so take 16 GB,
and where these are not to be had, the whole process ends. And it reads null for an array that is never null.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args, get_origin, get_type_hints

from proxy.errors import MalformedFrame
from proxy.wire.primitives import Cursor

__all__ = ["check_shape"]

_FIXED: Final = MappingProxyType(
    {
        "bool": 1,
        "int8": 1,
        "uint8": 1,
        "int16": 2,
        "uint16": 2,
        "error_code": 2,
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
"""Bytes that values take, by kio's names of their types."""
_LARGEST_TAG: Final = 2**31 - 1

_Step = int | Callable[[Cursor], None]
"""So many bytes to pass over, or what passes over a value whose size it must read."""


def check_shape(kind: type, frame: bytes | memoryview, at: int) -> None:
    """Raise unless each array of the entity of *kind* at *at* has only as many items as can be there.

    Null is refused where an array is never null.

    Cost:   O(its items) in Python, some 0.3 us a value of no fixed size; arrays of numbers are passed over whole.
    Raises: MalformedFrame.
    """
    _pass_over(_steps(kind), Cursor(frame, at))


def _pass_over(steps: tuple[_Step, ...], cursor: Cursor) -> None:
    for step in steps:
        if isinstance(step, int):
            cursor.skip(step)
        else:
            step(cursor)


@cache
def _steps(kind: Any) -> tuple[_Step, ...]:
    """All of an entity; values of fixed size in a row are one step."""
    hints = get_type_hints(kind)
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    for field in dataclasses.fields(kind):
        # A request's header has its client id as before, so that brokers can read it of any version (KIP-482).
        is_as_before = (kind.__name__, field.name) == ("RequestHeader", "client_id")
        flexible = kind.__flexible__ and not is_as_before
        step = _step(hints[field.name], field.metadata.get("kafka_type"), flexible=flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if kind.__flexible__:
        steps.append(_tags(tagged))
    return tuple(steps)


def _step(hint: Any, kafka_type: str | None, *, flexible: bool) -> _Step:
    options = get_args(hint)
    is_nullable = type(None) in options
    if is_nullable:
        (hint,) = (each for each in options if each is not type(None))
    if get_origin(hint) is tuple:
        item = _step(get_args(hint)[0], kafka_type, flexible=flexible)
        return _array(item, flexible=flexible, is_nullable=is_nullable)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _maybe(_steps(hint)) if is_nullable else _all(_steps(hint))
    if kafka_type is not None and kafka_type in _FIXED:
        return _FIXED[kafka_type]
    return _text(flexible=flexible) if kafka_type == "string" else _bytes(flexible=flexible)


def _all(steps: tuple[_Step, ...]) -> _Step:
    if len(steps) == 1:
        return steps[0]
    return lambda cursor: _pass_over(steps, cursor)


def _maybe(steps: tuple[_Step, ...]) -> _Step:
    """Layout: ``-1: i8`` for null, or ``1: i8`` and the struct."""

    def step(cursor: Cursor) -> None:
        if cursor.i8() >= 0:
            _pass_over(steps, cursor)

    return step


def _array(item: _Step, *, flexible: bool, is_nullable: bool) -> _Step:
    item_bytes = item if isinstance(item, int) else 1

    def step(cursor: Cursor) -> None:
        count = cursor.length(flexible=flexible)
        if count < 0:
            if not is_nullable:
                raise MalformedFrame(f"null where an array must be, before {cursor.at}")
            return
        if count * item_bytes > cursor.rest():
            raise MalformedFrame(f"{count} items cannot follow at {cursor.at}")
        if isinstance(item, int):
            cursor.skip(count * item)
        else:
            for _ in range(count):
                item(cursor)

    return step


def _text(*, flexible: bool) -> _Step:
    return lambda cursor: cursor.skip(max(cursor.text_length(flexible=flexible), 0))


def _bytes(*, flexible: bool) -> _Step:
    return lambda cursor: cursor.skip(max(cursor.length(flexible=flexible), 0))


def _tags(known: dict[int, _Step]) -> _Step:
    """Each known one must fill its field: kio would read on behind it."""

    def step(cursor: Cursor) -> None:
        for tag, field in cursor.tags():
            if tag > _LARGEST_TAG:
                raise MalformedFrame(f"tag {tag} before {cursor.at}")
            if tag in known:
                inner = Cursor(field)
                _pass_over((known[tag],), inner)
                inner.done()

    return step
