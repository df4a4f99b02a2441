import io
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i32Timedelta, i64

from tests.ports import free_ports
from tests.tap import SeenFetch, Tap

ANSWER = struct.pack(">iBihiBB", 7, 0, 0, 70, 4712, 1, 0)
"""Correlation id, no tags; no throttle time, an error, a session's id, no topics, no tags."""


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.fixture
def tap() -> Iterator[Tap]:
    """A tap before a broker that answers the first frame of its only connection, byte by byte."""
    here, there = free_ports(2)

    def answer_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            stream.read(*struct.unpack(">i", stream.read(4)))
            for byte in _framed(ANSWER):
                connection.sendall(bytes([byte]))
            stream.read()

    with socket.create_server(("127.0.0.1", there)) as listener:
        broker = threading.Thread(target=answer_once, args=(listener,))
        broker.start()
        with Tap({here: ("127.0.0.1", there)}) as tap:
            yield tap
        broker.join(5)


def _fetch() -> bytes:
    partition = FetchPartition(partition=i32(0), fetch_offset=i64(0), partition_max_bytes=i32(1))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(milliseconds=500)),
        min_bytes=i32(1),
        session_id=i32(4711),
        session_epoch=i32(3),
        topics=(FetchTopic(topic_id=uuid.UUID(int=1), partitions=(partition, partition)),),
        forgotten_topics_data=(ForgottenTopic(topic_id=uuid.UUID(int=2), partitions=(i32(5),)),),
    )
    header = RequestHeader(
        request_api_key=i16(1), request_api_version=i16(13), correlation_id=i32(7), client_id="someone"
    )
    buffer = io.BytesIO()
    entity_writer(RequestHeader)(buffer, header)
    entity_writer(FetchRequest)(buffer, request)
    return _framed(buffer.getvalue())


def test_tap_forwards_all_bytes_and_decodes_fragmented_fetches(tap: Tap) -> None:
    request = _fetch()
    host, port = tap.bootstrap.split(":")

    with socket.create_connection((host, int(port)), timeout=10) as client:
        for byte in request:
            client.sendall(bytes([byte]))
        with client.makefile("rb") as stream:
            answer = stream.read(4 + len(ANSWER))

    assert answer == _framed(ANSWER)
    assert (tap.bytes_up, tap.bytes_down) == (len(request), len(answer))
    assert tap.answered() == [
        SeenFetch(
            port=int(port),
            connection=1,
            client_id="someone",
            version=13,
            session_id=4711,
            epoch=3,
            named=2,
            forgotten=1,
            request_bytes=len(request),
            response_bytes=len(answer),
            granted_id=4712,
            error=70,
        )
    ]
