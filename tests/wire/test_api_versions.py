"""ApiVersions in all of its versions, narrowed to the versions that Sidefetch supports."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.errors import MalformedFrame
from proxy.wire import api_versions, messages
from proxy.wire.apis import VersionRange
from tests.wire.broker_versions import BROKERS
from tests.wire.entities import item_type, made

UNKNOWN_API = 9_999


def answer(version: int, *ranges: tuple[int, int, int]) -> Any:
    kind: Any = load_response_schema(i16(18), i16(version))
    item = item_type(kind, "api_keys")
    keys = (made(item, api_key=i16(k), min_version=i16(a), max_version=i16(b)) for k, a, b in ranges)
    return made(kind, api_keys=tuple(keys))


def ranges_in(body: Any) -> list[tuple[int, int, int]]:
    return [(int(each.api_key), each.min_version, each.max_version) for each in body.api_keys]


@pytest.mark.parametrize("version", range(5))
def test_response_is_narrowed_to_supported_versions(version: int) -> None:
    body = answer(version, (1, 4, 19), (8, 2, 99), (18, 0, 5), (UNKNOWN_API, 0, 3), (60, 0, 2))

    frame = api_versions.rewrite_response(version, messages.response_frame(7, body)[4:])

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    correlation_id, reported = api_versions.read_response(version, frame[4:])
    assert correlation_id == 7
    assert ranges_in(reported) == [(1, 4, 18), (8, 2, 99), (18, 0, 4), (60, 0, 2)]


def test_versions_that_sidefetch_upgrades_are_added_to_the_response() -> None:
    body = answer(3, (1, 4, 18), (8, 2, 9))

    frame = api_versions.rewrite_response(3, messages.response_frame(7, body)[4:], {(1, 3): 4})

    assert ranges_in(api_versions.read_response(3, frame[4:])[1]) == [(1, 3, 18), (8, 2, 9)]


@pytest.mark.parametrize("version", range(5))
def test_v0_response_to_unsupported_version_is_unchanged(version: int) -> None:
    item = item_type(ApiVersionsResponseV0, "api_keys")
    only = made(item, api_key=i16(18), min_version=i16(0), max_version=i16(2))
    body = made(ApiVersionsResponseV0, error_code=ErrorCode.unsupported_version, api_keys=(only,))
    frame = messages.response_frame(7, body)

    assert api_versions.rewrite_response(version, frame[4:]) == frame


def test_response_to_version_newer_than_ours_is_v0_with_our_range() -> None:
    frame = api_versions.unsupported_version_response(7)

    correlation_id, reported = messages.read_response(ApiVersionsResponseV0, frame[4:])
    assert (correlation_id, reported.error_code) == (7, ErrorCode.unsupported_version)
    assert ranges_in(reported) == [(18, 0, 4)]


def test_software_of_a_client_is_empty_if_its_request_does_not_name_it() -> None:
    before_kip_511: Any = load_request_schema(i16(18), i16(2))
    unnamed: Any = load_request_schema(i16(18), i16(3))

    for body in (made(before_kip_511), made(unnamed, client_software_name="", client_software_version="")):
        assert api_versions.read_client_software(messages.request_frame(7, "c", body)[4:]) == ""


def test_version_ranges_are_returned_by_api_key() -> None:
    assert api_versions.ranges_of(answer(3, (1, 4, 18), (3, 0, 13))) == {
        1: VersionRange(4, 18),
        3: VersionRange(0, 13),
    }


LOOKED_FOR = [
    *((0, version) for version in (1, 2, 3, 7)),
    *((1, version) for version in (1, 2, 4, 10)),
    *((2, 1), (8, 1), (8, 2), (9, 1), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (17, 0), (17, 1), (22, 0)),
]


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize(("key", "version"), LOOKED_FOR)
def test_versions_checked_by_old_librdkafka_are_offered_if_served(broker: str, key: int, version: int) -> None:
    served = BROKERS[broker]
    body = answer(3, *((key, first, last) for key, (first, last) in served.items()))

    _, reported = api_versions.read_response(
        3, api_versions.rewrite_response(3, messages.response_frame(7, body)[4:])[4:]
    )

    offered = api_versions.ranges_of(reported)
    assert (version in offered[key]) == (served[key][0] <= version <= served[key][1])


@pytest.mark.parametrize("broker", BROKERS)
def test_of_these_brokers_only_the_controllers_endpoints_are_hidden(broker: str) -> None:
    served = BROKERS[broker]
    body = answer(3, *((key, first, last) for key, (first, last) in served.items()))

    _, reported = api_versions.read_response(
        3, api_versions.rewrite_response(3, messages.response_frame(7, body)[4:])[4:]
    )

    assert {key: tuple(range_) for key, range_ in api_versions.ranges_of(reported).items()} == {
        **served,
        55: (0, 1),
    }


def test_sasl_handshake_is_never_offered_above_1() -> None:
    _, reported = api_versions.read_response(
        3, api_versions.rewrite_response(3, messages.response_frame(7, answer(3, (17, 0, 2)))[4:])[4:]
    )

    assert ranges_in(reported) == [(17, 0, 1)]


@pytest.mark.parametrize("version", range(5))
def test_features_and_throttle_time_are_preserved(version: int) -> None:
    body = answer(version, (18, 0, 4))
    if version >= 1:
        body = dataclasses.replace(body, throttle_time=timedelta(milliseconds=77))
    if version >= 3:
        feature = item_type(type(body), "supported_features")
        named = made(feature, name="metadata.version", min_version=i16(1), max_version=i16(27))
        body = dataclasses.replace(body, supported_features=(named,), finalized_features_epoch=9)
    frame = messages.response_frame(7, body)

    assert api_versions.rewrite_response(version, frame[4:]) == frame


@pytest.mark.parametrize("version", range(5))
def test_the_header_is_v0_whatever_the_version(version: int) -> None:
    """Or a client would take the tagged fields of a v1 header for the error."""
    frame = api_versions.rewrite_response(version, messages.response_frame(7, answer(version, (18, 0, 4)))[4:])

    assert frame[4:10] == b"\0\0\0\7\0\0"


@pytest.mark.parametrize("version", range(5))
def test_truncated_response_is_malformed(version: int) -> None:
    whole = messages.response_frame(7, answer(version, (1, 4, 18), (18, 0, 4)))[4:]

    for size in range(len(whole)):
        with pytest.raises(MalformedFrame):
            api_versions.read_response(version, whole[:size])
