"""No broker's own address in any answer; all else in it as the broker said it. kio is the second opinion."""

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from proxy.wire import messages
from proxy.wire.addresses import rewrite
from proxy.wire.apis import CARRIES_ADDRESSES, ApiKey, passes
from tests.wire.entities import item_type, made

REAL_HOST = "broker.internal"
REAL = REAL_HOST.encode()


def place(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """Node 9 is one that no port is left for."""
    assert host == REAL_HOST
    assert port == 19000 + node_id
    return None if node_id == 9 else ("127.0.0.1", 9093 + node_id)


def nodes(kind: Any, *ids: int) -> tuple[Any, ...]:
    """Return items of an array field with these ids."""
    id_field = "broker_id" if any(f.name == "broker_id" for f in dataclasses.fields(kind)) else "node_id"
    return tuple(made(kind, **{id_field: i32(each), "host": REAL_HOST, "port": i32(19000 + each)}) for each in ids)


@cache
def answers() -> list[tuple[int, int]]:
    """Every key and version whose answer carries addresses and may pass."""
    return [
        (key, version)
        for key, first in CARRIES_ADDRESSES.items()
        for version in schema_name_map[api_key_map[key]]
        if version >= first and passes(key, version)
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


def through(key: int, version: int, body: Any) -> tuple[int, Any, bytes]:
    frame = memoryview(messages.response_frame(7, body))[4:]
    pieces = b"".join(rewrite(key, version, frame, place))
    assert int.from_bytes(pieces[:4]) == len(pieces) - 4
    correlation_id, told = messages.read_response(type(body), pieces[4:])
    return correlation_id, told, pieces


def found(body: Any) -> Iterator[tuple[int, str, int]]:
    """The nodes that an answer names."""
    for name in ("brokers", "node_endpoints", "coordinators"):
        for each in getattr(body, name, ()):
            yield (each.broker_id if hasattr(each, "broker_id") else each.node_id), each.host, each.port
    if hasattr(body, "host"):
        yield body.node_id, body.host, body.port


_NOT_OF_BROKERS = {
    (15, "groups.members.client_host"),
    (69, "groups.members.client_host"),
    (77, "groups.members.client_host"),
    (88, "partitions_by_user_endpoint.user_endpoint.host"),
    (89, "groups.members.client_host"),
    (89, "groups.members.user_endpoint.host"),
    (29, "resources.acls.host"),
    (31, "filter_results.matching_acls.host"),
}
"""The hosts of a group's clients, and those that an access rule is about."""


def test_every_answer_that_can_carry_a_brokers_address_is_rewritten_or_does_not_pass() -> None:
    """Check kio's schemas for hosts and ports, so that an API that gets one is noticed."""
    carrying = {
        (key, version)
        for key, version, path in every_host()
        if (key, path) not in _NOT_OF_BROKERS and passes(key, version)
    }

    assert carrying == set(answers())


def test_what_is_taken_for_no_brokers_host_is_there() -> None:
    assert {(key, path) for key, _, path in every_host()} >= _NOT_OF_BROKERS


@pytest.mark.parametrize(("key", "version"), [(55, 2), (52, 1), (53, 1), (54, 1), (59, 1), (82, 0)])
def test_controllers_endpoints_do_not_pass(key: int, version: int) -> None:
    assert (key, version) in {(key, version) for key, version, _ in every_host()}
    assert not passes(key, version)


@cache
def every_host() -> list[tuple[int, int, str]]:
    """Each field of each answer that may be a node's address: key, version, path."""
    return [
        (key, version, path)
        for key, name in api_key_map.items()
        for version, types in schema_name_map[name].items()
        if EntityType.response in types
        for path in hosts_in(load_response_schema(key, i16(version)))
    ]


def hosts_in(kind: Any) -> Iterator[str]:
    for name, hint in get_type_hints(kind).items():
        parts = set(parts_of(hint))
        if str in parts and any(word in name for word in ("host", "address", "url", "uri", "endpoint")):
            yield name
        for inner in parts:
            if dataclasses.is_dataclass(inner) and not name.startswith("__"):
                yield from (f"{name}.{path}" for path in hosts_in(inner))


def parts_of(hint: Any) -> Iterator[Any]:
    """Return a type's parts, through arrays and optional fields."""
    yield hint
    for inner in get_args(hint):
        yield from parts_of(inner)


@pytest.mark.parametrize(("key", "version"), answers())
def test_brokers_own_addresses_are_in_no_answer(key: int, version: int) -> None:
    body = entity(key, version, 1, 2, 3)

    correlation_id, told, pieces = through(key, version, body)

    assert correlation_id == 7
    assert REAL not in pieces
    assert list(found(told)) == [(node, "127.0.0.1", 9093 + node) for node, _, _ in found(body)]


@pytest.mark.parametrize(("key", "version"), answers())
def test_a_broker_without_a_port_is_left_out_or_unavailable(key: int, version: int) -> None:
    _, told, pieces = through(key, version, entity(key, version, 9, 2))

    assert REAL not in pieces
    if key == ApiKey.FIND_COORDINATOR:
        coordinator = told.coordinators[0] if hasattr(told, "coordinators") else told
        assert coordinator.error_code == ErrorCode.coordinator_not_available
        assert (coordinator.node_id, coordinator.host, coordinator.port) == (-1, "", -1)
    else:
        assert list(found(told)) == [(2, "127.0.0.1", 9095)]


@pytest.mark.parametrize("version", range(7))
def test_no_coordinator_stays_none(version: int) -> None:
    kind: Any = load_response_schema(ApiKey.FIND_COORDINATOR, i16(version))
    none = {"node_id": i32(-1), "host": "", "port": i32(-1), "error_code": ErrorCode.coordinator_not_available}
    if version >= 4:
        body = made(kind, coordinators=(made(item_type(kind, "coordinators"), key="group", **none),))
    else:
        body = made(kind, **none)

    assert through(ApiKey.FIND_COORDINATOR, version, body)[1] == body


@pytest.mark.parametrize("version", range(7))
def test_a_node_id_below_0_stands_for_none_and_keeps_what_it_has(version: int) -> None:
    body = entity(ApiKey.FIND_COORDINATOR, version, -1)

    assert through(ApiKey.FIND_COORDINATOR, version, body)[1] == body


@pytest.mark.parametrize(("key", "version"), answers())
def test_all_but_hosts_and_ports_is_as_it_was(key: int, version: int) -> None:
    """Every other field has something in it, and keeps it."""
    body = filled(load_response_schema(key, i16(version)))

    told = through(key, version, body)[1]

    assert told != body
    assert told == moved(body)


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
    """Return the same with every node moved by ``place``."""
    if isinstance(value, tuple):
        return tuple(map(moved, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changed = {field.name: moved(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if "host" in changed:
        changed |= {"host": "127.0.0.1", "port": i32(9096)}
    return dataclasses.replace(value, **changed)


@pytest.mark.parametrize("version", range(14))
def test_of_metadata_all_but_hosts_and_ports_is_as_it_was(version: int) -> None:
    body = entity(ApiKey.METADATA, version, 1, 2)
    topic = item_type(type(body), "topics")
    body = dataclasses.replace(body, topics=(made(topic, name="orders"), made(topic, name="payments")))
    expected = tuple(dataclasses.replace(b, host="127.0.0.1", port=i32(9093 + b.node_id)) for b in body.brokers)

    assert through(ApiKey.METADATA, version, body)[1] == dataclasses.replace(body, brokers=expected)
