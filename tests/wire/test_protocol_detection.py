"""The protocol of a connection by its first bytes."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from proxy.wire.protocol_detection import NEEDED_BYTES, detect_protocol


def client_hello(minimum: ssl.TLSVersion) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = minimum
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="kafka")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


@given(st.integers(0, 100), st.integers(0, 20), st.integers(), st.binary(max_size=400))
def test_every_request_that_clients_send_is_one(key: int, version: int, correlation_id: int, body: bytes) -> None:
    header = RequestHeader(key, version, correlation_id % 2**31, "a client")
    frame = with_size(write_request_header(header, flexible=False) + body)

    assert detect_protocol(bytes(frame)[:NEEDED_BYTES]) == "kafka"


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"\0\0\0\x08\0\xff\0\x3f", "kafka"),
        (b"\0\0\0\x07\0\xff\0\x3f", "other"),
        (b"\0\0\0\x08\1\0\0\x3f", "other"),
        (b"\0\0\0\x08\0\xff\0\x40", "other"),
    ],
)
def test_the_bounds_of_size_api_key_and_version_are_inclusive(first: bytes, protocol: str) -> None:
    assert detect_protocol(first) == protocol


@given(st.binary(max_size=NEEDED_BYTES))
def test_whatever_comes_is_one_of_three(first: bytes) -> None:
    assert detect_protocol(first) in ("kafka", "tls", "other")


@pytest.mark.parametrize("minimum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_client_hello_is_detected(minimum: ssl.TLSVersion) -> None:
    assert detect_protocol(client_hello(minimum)[:NEEDED_BYTES]) == "tls"


def test_a_client_hello_of_which_the_length_reads_as_an_api_key_is_tls() -> None:
    assert detect_protocol(bytes([0x16, 3, 1, 2, 0, 1, 0, 1])) == "tls"


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"\0\0\0\7\0\1\0\1",
        b"\xff\xff\xff\xff\0\1\0\1",
        b"\0\0\0\x20\x60\x82\1\0",
        b"ab",
    ],
)
def test_bytes_of_neither_tls_nor_kafka_are_detected_as_other(first: bytes) -> None:
    assert detect_protocol(first[:NEEDED_BYTES]) == "other"
