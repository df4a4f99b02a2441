"""Responses with brokers' addresses, and the addresses that replace them."""

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.primitive import i16, i32

from proxy.wire.apis import CARRIES_ADDRESSES, is_accepted
from tests.wire.entities import item_type, made

__all__ = [
    "REAL_HOST",
    "array_of",
    "entity",
    "filled",
    "found",
    "map_address",
    "moved",
    "nodes",
    "response_versions",
]

REAL_HOST = "broker.internal"


def map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """Node 9 is one that no port is left for."""
    assert host == REAL_HOST
    assert port == 19000 + node_id
    return None if node_id == 9 else ("127.0.0.1", 9093 + node_id)


def nodes(kind: Any, *ids: int) -> tuple[Any, ...]:
    """Return items of an array field with these ids."""
    id_field = "broker_id" if any(f.name == "broker_id" for f in dataclasses.fields(kind)) else "node_id"
    return tuple(made(kind, **{id_field: i32(each), "host": REAL_HOST, "port": i32(19000 + each)}) for each in ids)


@cache
def response_versions() -> list[tuple[int, int]]:
    """Return each API key and version whose response has addresses and is forwarded."""
    return [
        (key, version)
        for key, first in CARRIES_ADDRESSES.items()
        for version in schema_name_map[api_key_map[key]]
        if version >= first and is_accepted(key, version)
    ]


def entity(key: int, version: int, *ids: int) -> Any:
    """An answer that names the nodes *ids*."""
    kind: Any = load_response_schema(key, i16(version))
    names = {field.name for field in dataclasses.fields(kind)}
    for name in ("brokers", "node_endpoints", "coordinators"):
        if name in names:
            return made(kind, **{name: nodes(item_type(kind, name), *ids)})
    (one,) = ids[:1]
    return made(kind, node_id=i32(one), host=REAL_HOST, port=i32(19000 + one))


def found(body: Any) -> Iterator[tuple[int, str, int]]:
    """The nodes that an answer names."""
    for name in ("brokers", "node_endpoints", "coordinators"):
        for each in getattr(body, name, ()):
            yield (each.broker_id if hasattr(each, "broker_id") else each.node_id), each.host, each.port
    if hasattr(body, "host"):
        yield body.node_id, body.host, body.port


def filled(kind: Any) -> Any:
    """An entity with two of everything."""
    given: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name.startswith("__"):
            continue
        array, inner = array_of(hint)
        if dataclasses.is_dataclass(inner):
            given[name] = (filled(inner), filled(inner)) if array else filled(inner)
        elif array:
            given[name] = tuple(_some(inner))
        elif name == "host":
            given[name] = REAL_HOST
        elif name == "port":
            given[name] = i32(19003)
        elif name in ("node_id", "broker_id"):
            given[name] = i32(3)
        else:
            value = next(iter(_some(inner)), None)
            if value is not None:
                given[name] = value
    return made(kind, **given)


def _some(kind: Any) -> list[Any]:
    if kind is ErrorCode:
        return [ErrorCode.not_leader_or_follower]
    if kind is bool:
        return [True]
    if isinstance(kind, type) and issubclass(kind, int):
        return [kind(5), kind(6)]
    if isinstance(kind, type) and issubclass(kind, str):
        return [kind("five"), kind("six")]
    if isinstance(kind, type) and issubclass(kind, bytes):
        return [b"five"]
    if kind is UUID:
        return [UUID(int=5)]
    return []


def array_of(hint: Any) -> tuple[bool, Any]:
    """Return whether it is an array, and its item type."""
    args = [each for each in get_args(hint) if each not in (type(None), ...)]
    if get_origin(hint) is tuple:
        return True, args[0]
    return array_of(args[0]) if args else (False, hint)


def moved(value: Any) -> Any:
    """Return the same with every node moved by ``map_address``."""
    if isinstance(value, tuple):
        return tuple(map(moved, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changed = {field.name: moved(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if "host" in changed:
        changed |= {"host": "127.0.0.1", "port": i32(9096)}
    return dataclasses.replace(value, **changed)
