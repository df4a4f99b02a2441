"""Entities of kio with defaults, so that a test names only the fields that matter."""

import dataclasses
from datetime import timedelta
from typing import Any, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode

__all__ = ["item_type", "made"]


def made(kind: Any, **given: Any) -> Any:
    """An entity with *given* fields; the rest as it is by default, or empty."""
    fields = {}
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in given:
            fields[field.name] = given[field.name]
        elif field.default is dataclasses.MISSING:
            fields[field.name] = _empty(hints[field.name])
    return kind(**fields)


def _empty(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return ()
    options = get_args(hint)
    if type(None) in options:
        return None
    if hint is ErrorCode:
        return ErrorCode.none
    if hint is bool:
        return False
    if issubclass(hint, str):
        return hint("")
    if hasattr(hint, "parse"):
        return hint.parse(timedelta()) if "imedelta" in hint.__name__ else hint.parse(0)
    if issubclass(hint, int):
        return hint(0)
    return hint("")


def item_type(kind: Any, name: str) -> Any:
    """Return the item type of an array field."""
    return get_args(get_type_hints(kind)[name])[0]
