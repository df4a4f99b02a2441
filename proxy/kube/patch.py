"""The difference between two documents as a JSON Patch (RFC 6902), and its application to a third."""

from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import attrs

__all__ = ["Operation", "apply", "difference"]

Path = tuple[str | int, ...]


@attrs.frozen
class Operation:
    """One operation of a JSON Patch (``add``, ``remove`` or ``replace``), at a path of keys and indexes."""

    op: str
    path: Path
    """The keys of mappings and indexes of lists from the document's root to the value."""
    value: Any = None

    def as_json(self) -> dict[str, Any]:
        """Return the operation as an object of RFC 6902; its path is a JSON Pointer such as ``/spec/volumes/0``."""
        pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in self.path)
        value = {} if self.op == "remove" else {"value": self.value}
        return {"op": self.op, "path": pointer, **value}


def difference(before: Any, after: Any, path: Path = ()) -> Iterator[Operation]:
    """Yield the operations that, applied in order, turn the document *before* into *after*.

    Lists whose items are mappings with distinct ``name``s are compared by name, so that an item added in front does
    not change the others. Other lists, and lists whose common items have changed order, are replaced whole.

    Args: path: the path of *before* within a larger document; operations begin with it.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from (Operation("remove", (*path, key)) for key in before if key not in after)
        for key, value in after.items():
            if key in before:
                yield from difference(before[key], value, (*path, key))
            else:
                yield Operation("add", (*path, key), value)
    elif not _is_same(before, after):
        old, new = _by_name(before), _by_name(after)
        if old is None or new is None or [name for name in old if name in new] != [n for n in new if n in old]:
            yield Operation("replace", path, after)
        else:
            yield from _of_lists(old, new, path)


def _of_lists(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Operation]:
    gone = [index for index, name in enumerate(old) if name not in new]
    yield from (Operation("remove", (*path, index)) for index in reversed(gone))
    for index, (name, value) in enumerate(new.items()):
        if name in old:
            yield from difference(old[name], value, (*path, index))
        else:
            yield Operation("add", (*path, index), value)


def _by_name(things: Any) -> dict[str, Any] | None:
    """Return the items of a list by their ``name``; None if it is no list of mappings with distinct names."""
    if not isinstance(things, Sequence) or isinstance(things, str):
        return None
    named = {
        each["name"]: each for each in things if isinstance(each, Mapping) and isinstance(each.get("name"), str)
    }
    return named if len(named) == len(things) else None


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: a boolean is not equal to a number."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def apply(document: Any, operations: Iterator[Operation]) -> Any:
    """Apply *operations* in order to *document*, and return it; its mappings and lists are changed in place.

    An operation with an empty path replaces the document, so that the result is another object.
    """
    for each in operations:
        if not each.path:
            document = each.value
            continue
        parent = document
        for step in each.path[:-1]:
            parent = parent[step]
        last: Any = each.path[-1]
        if each.op == "remove":
            del parent[last]
        elif each.op == "add" and isinstance(parent, MutableSequence):
            parent.insert(last, each.value)
        else:
            assert isinstance(parent, MutableMapping | MutableSequence)
            parent[last] = each.value
    return document
