"""Request and response headers; kio is the second opinion."""

import io
from typing import Any

import pytest
from hypothesis import given
from kio.schema.request_header.v1 import RequestHeader as HeaderV1
from kio.schema.request_header.v2 import RequestHeader as HeaderV2
from kio.schema.response_header.v0 import ResponseHeader as ResponseV0
from kio.schema.response_header.v1 import ResponseHeader as ResponseV1
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from proxy.errors import MalformedFrame
from proxy.wire.headers import RequestHeader, read_correlation_id, read_request_header, write_request_header
from tests.strategies import client_ids, examples, i16s, i32s


def by_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("flexible", [False, True])
@examples(50)
@given(key=i16s, version=i16s, correlation_id=i32s, client_id=client_ids)
def test_a_request_header_is_as_kio_writes_it(
    flexible: bool, key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    kind: Any = HeaderV2 if flexible else HeaderV1
    entity = kind(
        request_api_key=i16(key),
        request_api_version=i16(version),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    header = RequestHeader(key, version, correlation_id, client_id)

    assert write_request_header(header, flexible=flexible) == by_kio(entity)
    read, cursor = read_request_header(by_kio(entity) + b"body")
    assert read == header
    assert cursor.count_rest() == len(b"body") + flexible


@pytest.mark.parametrize("kind", [ResponseV0, ResponseV1])
def test_the_correlation_id_comes_first_in_both_response_headers(kind: Any) -> None:
    assert read_correlation_id(by_kio(kind(correlation_id=i32(-77)))) == -77


def test_a_header_cut_short_anywhere_is_malformed() -> None:
    whole = write_request_header(RequestHeader(1, 12, 7, "client"), flexible=False)

    for size in range(len(whole)):
        with pytest.raises(MalformedFrame):
            read_request_header(whole[:size])
    with pytest.raises(MalformedFrame):
        read_correlation_id(b"\0\0\0")


def test_a_client_id_that_is_not_text_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="UTF-8"):
        read_request_header(b"\0\1\0\4\0\0\0\7\0\1\xff")
