"""Frames of kio's entities: an invalid one is malformed, whatever exception kio raises."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.request_header.v1 import RequestHeader
from kio.static.primitive import i16, i32

from proxy.errors import MalformedFrame
from proxy.wire import messages
from proxy.wire.apis import CARRIES_ADDRESSES, ApiKey
from tests.strategies import examples
from tests.wire.address_entities import entity, response_versions

ALL = response_versions()


def sample(key: int, version: int) -> tuple[Any, bytes]:
    return load_response_schema(key, i16(version)), messages.response_frame(7, entity(key, version, 1, 2))[4:]


@pytest.mark.parametrize(("key", "version"), ALL)
def test_response_is_equal_after_encoding_and_decoding(key: int, version: int) -> None:
    kind, frame = sample(key, version)

    assert messages.read_response(kind, frame) == (7, entity(key, version, 1, 2))
    assert messages.response_type(key, version) is kind


@pytest.mark.parametrize(("key", "version"), ALL)
def test_truncated_response_is_malformed(key: int, version: int) -> None:
    kind, frame = sample(key, version)

    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            messages.read_response(kind, frame[:size])


def test_response_with_trailing_bytes_is_malformed() -> None:
    kind, frame = sample(ApiKey.FIND_COORDINATOR, 6)

    with pytest.raises(MalformedFrame, match="2 bytes behind"):
        messages.read_response(kind, frame + b"\0\0")


@examples(600)
@given(st.sampled_from(ALL), st.data())
def test_bytes_at_random_are_read_or_malformed_and_nothing_else(
    which: tuple[int, int], data: st.DataObject
) -> None:
    kind, whole = sample(*which)
    frame = bytearray(whole)
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))

    with contextlib.suppress(MalformedFrame):
        messages.read_response(kind, bytes(frame))


def test_a_request_is_a_frame_with_the_header_that_its_version_has() -> None:
    frame = messages.request_frame(7, "client", FindCoordinatorRequest(key="group", key_type=0))  # type: ignore[arg-type]

    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, at = messages.read_entity(RequestHeader, frame, 4)
    body, end = messages.read_entity(FindCoordinatorRequest, frame, at)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (10, 2, i32(7))
    assert header.client_id == "client"
    assert (body.key, end) == ("group", len(frame))


def test_every_message_that_is_decoded_has_an_entity() -> None:
    for key, first in CARRIES_ADDRESSES.items():
        assert any(version >= first for api, version in ALL if api == key)
