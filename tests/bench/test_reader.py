"""The benchmarks' client against kio's codec."""

import io
import socket
import struct
import time
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchRequest
from kio.schema.fetch.v11.response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from tests.bench.reader import Asking, Job, Part, run, whole_batches
from tests.bench.small_broker import answer, empty_batch, served_by, take


def batch_header_of_size(base: int, delta: int, size: int = 100, time_ms: int = 0) -> bytes:
    """The header of a batch of that size, and nothing else in it."""
    head = struct.pack(">qiibIhiq", base, size - 12, 0, 2, 0, 0, delta, time_ms)
    return head + bytes(size - len(head))


def test_a_request_names_every_partition_and_no_session() -> None:
    job = Job("h:1", {"a": 2, "b": 1}, first_partition=5, max_wait_ms=250, min_bytes=3, partition_bytes=9)

    asking = Asking(job)
    asking.move("a", 6, 42)
    frame = bytes(asking.frame(7))

    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header, header_size = entity_reader(RequestHeader)(frame, 4)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (1, 11, 7)
    assert header.client_id == "bench"
    read, size = entity_reader(FetchRequest)(frame, 4 + header_size)
    assert 4 + header_size + size == len(frame)
    assert (read.session_id, read.session_epoch, read.min_bytes) == (0, -1, 3)
    assert read.max_wait == timedelta(milliseconds=250)
    assert read.forgotten_topics_data == ()
    assert read.rack_id == ""
    assert [(t.topic, p.partition, p.fetch_offset) for t in read.topics for p in t.partitions] == [
        ("a", 5, 0),
        ("a", 6, 42),
        ("b", 5, 0),
    ]
    assert {p.partition_max_bytes for t in read.topics for p in t.partitions} == {9}


def test_a_request_begins_at_the_offset_of_the_job() -> None:
    frame = bytes(Asking(Job("h:1", {"a": 2}, first_offset=42)).frame(7))

    _, header_size = entity_reader(RequestHeader)(frame, 4)
    read, _ = entity_reader(FetchRequest)(frame, 4 + header_size)
    assert [(p.partition, p.fetch_offset) for t in read.topics for p in t.partitions] == [(0, 42), (1, 42)]


def partition(index: int, records: Any, error: ErrorCode = ErrorCode.none) -> PartitionData:
    return PartitionData(
        partition_index=i32(index),
        error_code=error,
        high_watermark=i64(100 + index),
        last_stable_offset=i64(90),
        log_start_offset=i64(0),
        aborted_transactions=None,
        preferred_read_replica=BrokerId(-1),
        records=records,
    )


def test_fetch_response_is_decoded_by_partition() -> None:
    out = io.BytesIO()
    response = FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode.none,
        session_id=i32(0),
        responses=(
            FetchableTopicResponse(
                topic=TopicName("a"),
                partitions=(
                    partition(0, batch_header_of_size(5, 4, time_ms=70) + batch_header_of_size(10, 0, time_ms=80)),
                    partition(1, b""),
                ),
            ),
            FetchableTopicResponse(topic=TopicName("b"), partitions=(partition(3, None, ErrorCode(3)),)),
        ),
    )
    entity_writer(FetchResponse)(out, response)

    parts = list(Part.all_of(memoryview(out.getvalue())))

    assert parts == [
        Part("a", 0, 0, 100, 200, 11, [70, 80]),
        Part("a", 1, 0, 101, 0, -1, []),
        Part("b", 3, 3, 103, 0, -1, []),
    ]
    assert list(Part.all_of(memoryview(out.getvalue()), quiet=False)) == [parts[0], parts[2]]


def test_a_batch_that_is_cut_short_does_not_count() -> None:
    records = batch_header_of_size(5, 4, time_ms=70) + batch_header_of_size(10, 9, time_ms=80)

    assert whole_batches(memoryview(records)) == (len(records), 20, [70, 80])
    assert whole_batches(memoryview(records[:-1])) == (len(records) // 2, 10, [70])
    assert whole_batches(memoryview(records[:70])) == (0, -1, [])
    assert whole_batches(memoryview(b"")) == (0, -1, [])


def test_reader_starts_at_given_time_and_reports_own_cpu() -> None:
    def serve(broker: socket.socket) -> None:
        for number in range(2):
            take(broker)
            broker.sendall(answer(number, empty_batch(number, 0)))

    with served_by(serve) as address:
        not_before_s = time.monotonic() + 0.1
        count = run(Job(address, {"a": 1}, fetches=2, not_before_s=not_before_s))

    assert count.began_s >= not_before_s
    assert 0 < count.cpu_s < count.seconds * 2
    assert (count.fetches, count.record_bytes) == (2, 122)
