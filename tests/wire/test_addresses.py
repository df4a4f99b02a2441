"""No broker's own address in any answer; all else in it as the broker said it. kio is the second opinion."""

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from proxy.wire import messages
from proxy.wire.addresses import replace_addresses
from proxy.wire.apis import ApiKey, is_accepted
from tests.wire.address_entities import REAL_HOST, entity, filled, found, map_address, moved, response_versions
from tests.wire.entities import item_type, made

REAL = REAL_HOST.encode()


def through(key: int, version: int, body: Any) -> tuple[int, Any, bytes]:
    frame = memoryview(messages.response_frame(7, body))[4:]
    pieces = b"".join(replace_addresses(key, version, frame, map_address))
    assert int.from_bytes(pieces[:4]) == len(pieces) - 4
    correlation_id, reported = messages.read_response(type(body), pieces[4:])
    return correlation_id, reported, pieces


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


def test_responses_that_can_carry_broker_addresses_are_rewritten_or_not_accepted() -> None:
    """Check kio's schemas for hosts and ports, so that an API that gets one is noticed."""
    carrying = {
        (key, version)
        for key, version, path in every_host()
        if (key, path) not in _NOT_OF_BROKERS and is_accepted(key, version)
    }

    assert carrying == set(response_versions())


def test_host_fields_excluded_as_not_of_brokers_exist() -> None:
    assert {(key, path) for key, _, path in every_host()} >= _NOT_OF_BROKERS


@pytest.mark.parametrize(("key", "version"), [(55, 2), (52, 1), (53, 1), (54, 1), (59, 1), (82, 0)])
def test_controllers_endpoints_do_not_pass(key: int, version: int) -> None:
    assert (key, version) in {(key, version) for key, version, _ in every_host()}
    assert not is_accepted(key, version)


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


@pytest.mark.parametrize(("key", "version"), response_versions())
def test_responses_have_local_addresses_in_place_of_broker_addresses(key: int, version: int) -> None:
    body = entity(key, version, 1, 2, 3)

    correlation_id, reported, pieces = through(key, version, body)

    assert correlation_id == 7
    assert REAL not in pieces
    assert list(found(reported)) == [(node, "127.0.0.1", 9093 + node) for node, _, _ in found(body)]


@pytest.mark.parametrize(("key", "version"), response_versions())
def test_a_broker_without_a_port_is_left_out_or_unavailable(key: int, version: int) -> None:
    _, reported, pieces = through(key, version, entity(key, version, 9, 2))

    assert REAL not in pieces
    if key == ApiKey.FIND_COORDINATOR:
        coordinator = reported.coordinators[0] if hasattr(reported, "coordinators") else reported
        assert coordinator.error_code == ErrorCode.coordinator_not_available
        assert (coordinator.node_id, coordinator.host, coordinator.port) == (-1, "", -1)
    else:
        assert list(found(reported)) == [(2, "127.0.0.1", 9095)]


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
def test_negative_node_id_keeps_its_address(version: int) -> None:
    body = entity(ApiKey.FIND_COORDINATOR, version, -1)

    assert through(ApiKey.FIND_COORDINATOR, version, body)[1] == body


@pytest.mark.parametrize("version", range(7))
def test_broker_0_can_be_a_coordinator(version: int) -> None:
    reported = through(ApiKey.FIND_COORDINATOR, version, entity(ApiKey.FIND_COORDINATOR, version, 0))[1]

    assert list(found(reported)) == [(0, "127.0.0.1", 9093)]


@pytest.mark.parametrize(("key", "version"), response_versions())
def test_all_but_hosts_and_ports_is_as_it_was(key: int, version: int) -> None:
    """Every other field has something in it, and keeps it."""
    body = filled(load_response_schema(key, i16(version)))

    reported = through(key, version, body)[1]

    assert reported != body
    assert reported == moved(body)


@pytest.mark.parametrize("version", range(14))
def test_of_metadata_all_but_hosts_and_ports_is_as_it_was(version: int) -> None:
    body = entity(ApiKey.METADATA, version, 1, 2)
    topic = item_type(type(body), "topics")
    body = dataclasses.replace(body, topics=(made(topic, name="orders"), made(topic, name="payments")))
    expected = tuple(dataclasses.replace(b, host="127.0.0.1", port=i32(9093 + b.node_id)) for b in body.brokers)

    assert through(ApiKey.METADATA, version, body)[1] == dataclasses.replace(body, brokers=expected)
