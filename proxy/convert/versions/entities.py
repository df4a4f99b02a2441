"""Message classes ("entities") of removed versions in the style of the library kio, and their conversion.

None of the removed versions is flexible, so none has tagged fields, and headers are request v1 and response v0.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16

from proxy.errors import MalformedFrame
from proxy.wire import messages

__all__ = ["Code", "Nested", "OldRequest", "OldResponse", "keep_code", "limit_codes", "read", "recast", "write"]

E = TypeVar("E")
Code = Callable[[ErrorCode], ErrorCode]
"""Maps a broker's error code to one that the client knows."""

_NOTHING: Final = object()


class Nested:
    """The base class of structs inside messages of removed versions, with the class attributes that kio reads."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False


class OldRequest(Nested):
    """The base class of requests in removed versions, with the class attributes that kio reads."""

    __slots__ = ()
    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class OldResponse(Nested):
    """The base class of responses in removed versions, with the class attributes that kio reads."""

    __slots__ = ()
    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


def read(kind: type[E], body: memoryview) -> E:
    """Decode *body*, the body of a request or response, as an instance of the message class *kind*.

    Raises: MalformedFrame: the bytes are no such message, or others follow it.
    """
    entity, end = messages.read_entity(kind, body)  # type: ignore[type-var]  # kio recognizes entities by their fields
    if end != len(body):
        raise MalformedFrame(f"{len(body) - end} bytes behind {kind.__qualname__}")
    return entity


def write(entity: Any) -> list[bytes | memoryview]:
    """Encode a message as the body of a request or response, in one buffer."""
    return [messages.entity_bytes(entity)]


def keep_code(code: ErrorCode) -> ErrorCode:
    """Return *code*: a mapping of error codes that changes none."""
    return code


def limit_codes(newest: ErrorCode, **instead: ErrorCode) -> Code:
    """Return a function that maps a broker's error code to one that the clients of an old version know.

    Args: newest:  the highest code that they know: the last one of the Kafka release whose own clients last sent
              the version. Higher codes become UNKNOWN_SERVER_ERROR.
          instead: the replacements of other codes, by the name of the code in lower case; they take precedence.
    """

    def map_code(error: ErrorCode) -> ErrorCode:
        if error.name in instead:
            return instead[error.name]
        return error if int(error) <= int(newest) else ErrorCode.unknown_server_error

    return map_code


def recast(kind: type[E], entity: Any, code: Code = keep_code, **given: Any) -> E:
    """Convert *entity* to the message class *kind* of another version: copy the fields that both have.

    This includes the structs in arrays. Fields that only *entity* has are dropped; those that neither *entity* nor
    *given* has get their default.

    Args: code:  maps each error code.
          given: the values of fields, by name, at any depth: a value, or a function that gets the message or struct
              of *entity* at that depth and returns the value.
    """
    fields = {}
    for name, item, default in _fields(cast(Any, kind)):
        if name in given:
            value = given[name]
            fields[name] = value(entity) if callable(value) else value
        elif not hasattr(entity, name):
            assert default is not _NOTHING, f"{kind.__qualname__}.{name} is not given"
        else:
            fields[name] = _value(getattr(entity, name), item, code, given)
    return kind(**fields)


def _value(value: Any, item: Any, code: Code, given: dict[str, Any]) -> Any:
    if item is not None and value is not None:
        return tuple(recast(item, each, code, **given) for each in value)
    return code(value) if isinstance(value, ErrorCode) else value


@cache
def _fields(kind: Any) -> list[tuple[str, Any, Any]]:
    """Return the fields of a message class: name, class of the items or None, and default value or ``_NOTHING``."""
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        inner = get_args(hint)[0] if get_origin(hint) is tuple else None
        item = inner if dataclasses.is_dataclass(inner) else None
        missing = field.default is dataclasses.MISSING
        fields.append((field.name, item, _NOTHING if missing else field.default))
    return fields
