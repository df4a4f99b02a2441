"""ApiVersions in all of its versions, narrowed to what Sidefetch can honour."""

from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.wire import api_versions, messages
from proxy.wire.apis import VersionRange
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
def test_an_answer_is_narrowed_in_every_version(version: int) -> None:
    body = answer(version, (1, 4, 19), (8, 2, 99), (18, 0, 5), (UNKNOWN_API, 0, 3), (60, 0, 2))

    frame = api_versions.rewrite(version, messages.response_frame(7, body)[4:])

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    correlation_id, told = api_versions.read(version, frame[4:])
    assert correlation_id == 7
    assert ranges_in(told) == [(1, 4, 18), (8, 2, 99), (18, 0, 4), (60, 0, 2)]


@pytest.mark.parametrize("version", range(5))
def test_an_answer_in_v0_to_a_version_that_the_broker_does_not_serve_stays_one(version: int) -> None:
    item = item_type(ApiVersionsResponseV0, "api_keys")
    only = made(item, api_key=i16(18), min_version=i16(0), max_version=i16(2))
    body = made(ApiVersionsResponseV0, error_code=ErrorCode.unsupported_version, api_keys=(only,))
    frame = messages.response_frame(7, body)

    assert api_versions.rewrite(version, frame[4:]) == frame


def test_to_a_version_newer_than_ours_the_answer_is_v0_with_ours() -> None:
    frame = api_versions.unsupported(7)

    correlation_id, told = messages.read_response(ApiVersionsResponseV0, frame[4:])
    assert (correlation_id, told.error_code) == (7, ErrorCode.unsupported_version)
    assert ranges_in(told) == [(18, 0, 4)]


def test_ranges_are_told_by_key() -> None:
    assert api_versions.ranges_of(answer(3, (1, 4, 18), (3, 0, 13))) == {
        1: VersionRange(4, 18),
        3: VersionRange(0, 13),
    }
