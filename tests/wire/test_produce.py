"""Whether a produce request is answered, in every version."""

import struct
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.static.primitive import i16

from proxy.demo.batches import DemoRecord, decode_records, split_batches
from proxy.errors import MalformedFrame
from proxy.wire import messages
from proxy.wire.headers import read_request_header
from proxy.wire.produce import is_answered, keyed_records
from proxy.wire.records import Codec, batch_of
from tests.wire.entities import made


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("transactional_id", [None, "transaction"])
@pytest.mark.parametrize("version", range(3, 14))
def test_all_requests_except_acks_0_have_responses(version: int, transactional_id: str | None, acks: int) -> None:
    kind: Any = load_request_schema(i16(0), i16(version))
    body = made(kind, acks=i16(acks), transactional_id=transactional_id)
    _, cursor = read_request_header(messages.request_frame(7, "client", body)[4:])

    assert is_answered(version, cursor) == (acks != 0)


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("version", range(3))
def test_all_requests_except_acks_0_have_responses_before_v3(version: int, acks: int) -> None:
    frame = struct.pack(">hhihhii", 0, version, 7, -1, acks, 1000, 0)
    _, cursor = read_request_header(frame)

    assert is_answered(version, cursor) == (acks != 0)


@pytest.mark.parametrize("version", [0, 3, 9, 13])
def test_a_request_without_acks_is_malformed(version: int) -> None:
    _, cursor = read_request_header(struct.pack(">hhih", 0, version, 7, -1))

    with pytest.raises(MalformedFrame):
        is_answered(version, cursor)


@pytest.mark.parametrize("values", [[b"a"], [b"", b"x" * 63, b"y" * 64, b"z" * 70_000], [b"v"] * 300])
def test_produced_batch_is_decoded_to_same_records(values: list[bytes]) -> None:
    batch = batch_of(keyed_records(b"key", values), Codec.NONE, len(values), 1234, 1234)

    (stored,) = split_batches(batch)

    assert (stored.last_offset, stored.max_timestamp_ms, stored.producer_id) == (len(values) - 1, 1234, -1)
    assert list(decode_records([stored])) == [
        DemoRecord(value, b"key", timestamp_ms=1234, offset=offset) for offset, value in enumerate(values)
    ]
