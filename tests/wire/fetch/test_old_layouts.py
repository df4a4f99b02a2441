"""Fetch v0 to v3, which kio does not know, read and written by aiokafka."""

import io
import struct
from typing import Any

import pytest

from proxy.wire.fetch import FetchPartition, PartitionReply, read_request, request_layout, response_layout
from proxy.wire.headers import read_request_header
from tests.old_clients import fetch_frame, response_type

OLD = range(4)


@pytest.mark.parametrize("version", OLD)
def test_a_request_is_read_as_it_was_written(version: int) -> None:
    frame = fetch_frame(version, {0: 10, 7: 2**40}, max_wait_ms=250)

    request = read_request(*read_request_header(memoryview(frame)[4:]))

    layout = request_layout(version)
    (section,) = request.sections
    assert request.replica_id == -1
    assert (request.options.max_wait_ms, request.options.min_bytes) == (250, 1)
    assert request.options.max_bytes == (1 << 25 if version >= 3 else 2**31 - 1)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert section.topic == "t"
    assert {fields[0]: layout.fetch_partition(fields) for fields in layout.entry.iter_unpack(section.entries)} == {
        0: FetchPartition(10, 1 << 20),
        7: FetchPartition(2**40, 1 << 20),
    }


@pytest.mark.parametrize("version", OLD)
def test_encoded_response_is_decoded_equally_by_aiokafka(version: int) -> None:
    layout = response_layout(version)
    quiet = bytearray(layout.stride)
    layout.pack_quiet(quiet, 0, 3, (40, 39, 38), committed=False)
    head, tail = layout.partition(PartitionReply(5, 6, 50, 49, 48, ((1, 2),), 9), 7)

    frame = b"".join(
        [layout.header(77, 250, 0, 1), layout.topic("t", 2), quiet, head, b"records", tail, layout.end(())]
    )

    buffer = io.BytesIO(frame)
    assert struct.unpack(">i", buffer.read(4)) == (77,)
    answer: Any = response_type(version).decode(buffer)
    assert not buffer.read()
    assert answer.topics == [("t", [(3, 0, 40, b""), (5, 6, 50, b"records")])]
    assert getattr(answer, "throttle_time_ms", None) == (250 if version >= 1 else None)
    assert layout.quiet_offsets(quiet, 0) == (40,)
