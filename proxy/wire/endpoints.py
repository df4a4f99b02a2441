"""Endpoints of new leaders (KIP-951), with one layout in responses of Fetch, Produce and both share-group APIs."""

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from proxy.wire.primitives import Cursor, write_string, write_tags, write_uvarint

__all__ = ["Endpoint", "read_endpoints", "replace_listed_endpoints", "replace_tagged_endpoints", "write_endpoints"]

_I32: Final = struct.Struct(">i")
_NONE: Final = write_uvarint(1)
"""An empty array."""


class Endpoint(NamedTuple):
    """The address of a partition's new leader in a response: node id, host, port, and rack (None for no rack)."""

    node_id: int
    host: str
    port: int
    rack: str | None


Replace = Callable[[Endpoint], Endpoint | None]
"""Returns the endpoint that the client gets in place of the broker's; None to leave it out."""


def read_endpoints(cursor: Cursor) -> tuple[Endpoint, ...]:
    """Decode the array of endpoints at *cursor*, and move *cursor* behind it.

    Raises: MalformedFrame: the frame ends before the array does, or a length in it is impossible.
    Layout: array of ``node: i32 | host: string | port: i32 | rack: nullable string | tags``, in flexible form.
    """
    endpoints = []
    for _ in range(cursor.count(flexible=True, item_bytes=11)):
        node_id, host = cursor.i32(), cursor.string(flexible=True)
        endpoints.append(Endpoint(node_id, host, cursor.i32(), cursor.nullable_string(flexible=True)))
        cursor.skip_tags()
    return tuple(endpoints)


def write_endpoints(endpoints: Iterable[Endpoint]) -> bytes:
    """Encode an array of endpoints in the layout that ``read_endpoints`` decodes."""
    listed = list(endpoints)
    parts = [write_uvarint(len(listed) + 1)]
    for each in listed:
        parts += (_I32.pack(each.node_id), write_string(each.host, flexible=True), _I32.pack(each.port))
        parts += (write_string(each.rack, flexible=True), b"\0")
    return b"".join(parts)


def replace_listed_endpoints(cursor: Cursor, replace: Replace) -> bytes:
    """Decode the array of endpoints at *cursor*, and return it encoded again with each endpoint replaced.

    *replace* returns the new endpoint for each one, or None to leave it out. *cursor* moves behind the array.

    Raises: MalformedFrame: as ``read_endpoints``.
    """
    return write_endpoints(each for each in map(replace, read_endpoints(cursor)) if each is not None)


def replace_tagged_endpoints(cursor: Cursor, replace: Replace) -> bytes:
    """Return the tagged fields at the end of a response, encoded again with the endpoints in field 0 replaced.

    *cursor* stands at the tagged fields, and moves behind them. *replace* returns the new endpoint for each one, or
    None to leave it out; field 0 is left out if no endpoint remains. All other fields are copied.

    Raises: MalformedFrame: the bytes are no tagged fields, or more bytes follow.
    """
    kept: list[tuple[int, bytes | memoryview]] = []
    for tag, field in cursor.tags():
        replaced = replace_listed_endpoints(Cursor(field), replace) if tag == 0 else field
        if tag != 0 or replaced != _NONE:
            kept.append((tag, replaced))
    cursor.check_end()
    return write_tags(kept)
