"""Unknown tagged fields (KIP-482) in every message that is read: in headers, top level, nested structs."""

import dataclasses
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import ProduceRequest

from proxy.errors import MalformedFrame
from proxy.wire import api_versions, fetch, messages, produce, sasl
from proxy.wire.addresses import replace_addresses
from proxy.wire.apis import KNOWN_KEYS, ApiKey
from proxy.wire.headers import read_request_header
from proxy.wire.primitives import write_tags
from tests.fuzz import seeds
from tests.wire import unknown_tags
from tests.wire.address_entities import entity, filled, found, map_address, moved, response_versions
from tests.wire.entities import made
from tests.wire.unknown_tags import TAGS, UNKNOWN_FIELD, UNKNOWN_TAG, with_unknown_tags


def flexible(*, responses: bool) -> list[Any]:
    """Every flexible message of every API and version that passes."""
    load: Any = load_response_schema if responses else load_request_schema
    kinds = [load(key, version) for key in sorted(KNOWN_KEYS) for version in seeds.versions(key)]
    return [pytest.param(kind, id=f"{kind.__name__}-v{kind.__version__}") for kind in kinds if kind.__flexible__]


def samples(kind: Any) -> list[Any]:
    """Entities with nothing, and with two of everything."""
    return [each for each in (seeds.empty(kind), seeds.full(kind, 2)) if each is not None]


@pytest.mark.parametrize("kind", flexible(responses=True))
def test_response_is_read_without_its_unknown_tags(kind: Any) -> None:
    for body in samples(kind):
        frame = unknown_tags.response_frame(7, body)[4:]

        assert UNKNOWN_FIELD in frame
        assert messages.read_response(kind, frame) == (7, body)
        assert messages.read_response(kind, memoryview(frame)) == (7, body)


@pytest.mark.parametrize("kind", flexible(responses=False))
def test_request_is_read_without_its_unknown_tags(kind: Any) -> None:
    for body in samples(kind):
        written = with_unknown_tags(body)

        assert UNKNOWN_FIELD in written
        assert messages.read_entity(kind, b"head" + written + b"tail", 4) == (body, 4 + len(written))


@pytest.mark.parametrize("kind", flexible(responses=True))
def test_response_with_unknown_tags_cut_short_is_malformed(kind: Any) -> None:
    frame = unknown_tags.response_frame(7, samples(kind)[0])[4:]

    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            messages.read_response(kind, frame[:size])


@pytest.mark.parametrize(("key", "version"), response_versions())
def test_addresses_are_rewritten_beside_unknown_tags(key: int, version: int) -> None:
    body = filled(load_response_schema(key, version))
    frame = memoryview(unknown_tags.response_frame(7, body))[4:]

    reported = b"".join(replace_addresses(key, version, frame, map_address))

    assert int.from_bytes(reported[:4]) == len(reported) - 4
    assert messages.read_response(type(body), reported[4:]) == (7, moved(body))


@pytest.mark.parametrize("version", range(9, 14))
def test_metadata_keeps_its_unknown_tags_when_addresses_are_rewritten(version: int) -> None:
    body = entity(ApiKey.METADATA, version, 1, 2)
    frame = memoryview(unknown_tags.response_frame(7, body))[4:]

    reported = b"".join(replace_addresses(ApiKey.METADATA, version, frame, map_address))

    assert reported.count(UNKNOWN_FIELD) == bytes(frame).count(UNKNOWN_FIELD) == 4
    assert [host for _, host, _ in found(messages.read_response(type(body), reported[4:])[1])] == ["127.0.0.1"] * 2


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_are_narrowed_beside_unknown_tags(version: int) -> None:
    kind: Any = load_response_schema(ApiKey.API_VERSIONS, version)
    for body in samples(kind):
        frame = unknown_tags.response_frame(7, body)[4:]

        assert api_versions.rewrite_response(version, frame) == api_versions.rewrite_response(
            version, messages.response_frame(7, body)[4:]
        )


def test_software_of_a_client_is_read_behind_unknown_tags_of_the_header() -> None:
    body = ApiVersionsRequest(client_software_name="java", client_software_version="9.9")

    assert api_versions.read_client_software(unknown_tags.request_frame(1, "c", body)[4:]) == "java 9.9"


def test_acks_are_read_behind_unknown_tags_of_the_header() -> None:
    for acks in (0, 1):
        body = made(ProduceRequest, acks=acks)
        _, cursor = read_request_header(unknown_tags.request_frame(1, "c", body)[4:])

        assert produce.is_answered(9, cursor) == bool(acks)


def test_sasl_token_is_read_beside_unknown_tags() -> None:
    request = made(load_request_schema(ApiKey.SASL_AUTHENTICATE, 2), auth_bytes=b"token")
    frame = memoryview(unknown_tags.request_frame(1, "c", request))[4:]
    header, _ = read_request_header(frame)
    response = made(load_response_schema(ApiKey.SASL_AUTHENTICATE, 2), auth_bytes=b"answer")

    assert sasl.read_request(header, frame) == request
    assert sasl.read_response(header, memoryview(unknown_tags.response_frame(1, response))[4:]) == response


@pytest.mark.parametrize("version", range(12, 19))
def test_fetch_request_is_read_without_its_unknown_tags(version: int) -> None:
    """Also where the connection's last fetch had the same length, and the entries are compared as bytes."""
    body: Any = seeds.full(load_request_schema(ApiKey.FETCH, version), 1)
    tagged, plain = unknown_tags.request_frame(1, "c", body)[4:], messages.request_frame(1, "c", body)[4:]
    expected = fetch.read_request(*read_request_header(plain))
    repeats = fetch.Repeats()

    assert fetch.read_request(*read_request_header(tagged)) == expected
    assert [repeats.read(*read_request_header(tagged)) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("version", range(12, 19))
def test_fetch_response_is_read_without_its_unknown_tags(version: int) -> None:
    for body in samples(load_response_schema(ApiKey.FETCH, version)):
        tagged = unknown_tags.response_frame(7, body)[4:]

        assert fetch.read_response(version, tagged) == fetch.read_response(
            version, messages.response_frame(7, body)[4:]
        )


def test_unknown_tag_is_cut_out_between_known_ones() -> None:
    """Known tags keep their fields, whatever stands before, between and behind them."""
    kind: Any = load_response_schema(ApiKey.API_VERSIONS, 4)
    body = made(kind, finalized_features_epoch=5, zk_migration_ready=True)
    end = write_tags([(1, (5).to_bytes(8)), (3, b"\1")])
    whole = messages.response_frame(7, body)[4:]
    assert whole.endswith(end)
    mixed = [(UNKNOWN_TAG, b"x"), (1, (5).to_bytes(8)), (2**31 - 1, b""), (3, b"\1"), TAGS[0]]

    assert messages.read_response(kind, whole[: -len(end)] + write_tags(mixed)) == (7, body)


WITH_ENDPOINTS = [
    (key, version) for key, version in response_versions() if hasattr(entity(key, version, 1), "node_endpoints")
]


@pytest.mark.parametrize(("key", "version"), WITH_ENDPOINTS)
def test_response_keeps_its_unknown_tags_when_endpoints_are_replaced(key: int, version: int) -> None:
    """Check that only the tags in the endpoints' own structs are dropped."""
    body: Any = filled(load_response_schema(key, version))
    frame = memoryview(unknown_tags.response_frame(7, body))[4:]

    reported = b"".join(replace_addresses(key, version, frame, map_address))

    assert reported.count(UNKNOWN_FIELD) == bytes(frame).count(UNKNOWN_FIELD) - len(body.node_endpoints)


@pytest.mark.parametrize(("key", "version"), WITH_ENDPOINTS)
def test_response_without_endpoints_passes_unchanged(key: int, version: int) -> None:
    """Also with an error code that kio does not know."""
    body: Any = dataclasses.replace(filled(load_response_schema(key, version)), node_endpoints=())
    frame = unknown_tags.response_frame(7, body)
    known, newer = ErrorCode.not_leader_or_follower.to_bytes(2), (9_999).to_bytes(2)
    assert known in frame
    frame = frame.replace(known, newer)

    assert b"".join(replace_addresses(key, version, memoryview(frame)[4:], map_address)) == frame
