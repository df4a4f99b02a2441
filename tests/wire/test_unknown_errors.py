"""Error codes of a newer Kafka are read as UNKNOWN_SERVER_ERROR, as Kafka's own clients do (``Errors.forCode``)."""

import dataclasses
import struct
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.wire import messages
from proxy.wire.apis import KNOWN_KEYS
from tests.fuzz import seeds

MARK = ErrorCode.policy_violation
NEWER = 20_000


def replaced(value: Any, new: ErrorCode) -> Any:
    """Return *value* with *new* in place of each error code."""
    if isinstance(value, ErrorCode):
        return new
    if isinstance(value, tuple):
        return tuple(replaced(each, new) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: replaced(getattr(value, each.name), new) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def bodies_with_errors() -> list[Any]:
    """Every response of every API and version that has error codes, with two of everything."""
    kinds = [load_response_schema(key, version) for key in sorted(KNOWN_KEYS) for version in seeds.versions(key)]
    bodies = [body for kind in kinds if (body := seeds.full(kind, 2)) is not None]
    return [
        pytest.param(body, id=f"{type(body).__name__}-v{type(body).__version__}")
        for body in bodies
        if replaced(body, MARK) != replaced(body, ErrorCode.none)
    ]


@pytest.mark.parametrize("body", bodies_with_errors())
def test_unknown_error_codes_are_read_as_unknown_server_error(body: Any) -> None:
    marked = messages.response_frame(7, replaced(body, MARK))[4:]
    frame = marked.replace(struct.pack(">h", MARK), struct.pack(">h", NEWER))

    assert frame != marked
    assert messages.read_response(type(body), frame) == (7, replaced(body, ErrorCode.unknown_server_error))
