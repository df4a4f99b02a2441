"""Arrays that claim more than can be there are refused before memory is reserved for them."""

import resource
import subprocess
import sys
from uuid import UUID

import pytest
from kio.schema.consumer_group_heartbeat.v0 import response as heartbeat
from kio.schema.metadata.v4 import response as v4
from kio.schema.metadata.v12 import response as v12
from kio.static.primitive import i32

from proxy.errors import MalformedFrame
from proxy.wire import messages
from proxy.wire.apis import ApiKey
from tests.fuzz import seeds
from tests.wire.entities import made

HEADS = {4: bytes(4) + bytes(4), 12: bytes(4) + b"\0" + bytes(4)}
"""The heads of Metadata responses up to the count of brokers: correlation id, tags, throttle time."""
SIZE_LIMIT = 2 << 30


def read(version: int, behind: bytes) -> object:
    kind = {4: v4.MetadataResponse, 12: v12.MetadataResponse}[version]
    return messages.read_response(kind, HEADS[version] + behind)[1]


@pytest.mark.parametrize(
    ("version", "count"),
    [(4, b"\x7f\xff\xff\xff"), (4, b"\0\0\0\x15"), (12, b"\xff\xff\xff\xff\x0f"), (12, b"\x16")],
)
def test_a_count_that_lies_is_refused(version: int, count: bytes) -> None:
    with pytest.raises(MalformedFrame, match="bytes wanted at"):
        read(version, count + bytes(20))


def test_a_count_that_lies_does_not_end_the_process() -> None:
    """kio reserves the memory in a way that ends the process where there is none; so in a process of its own."""
    program = (
        "from tests.wire.test_shapes import read\n"
        "from proxy.errors import MalformedFrame\n"
        "try:\n    read(4, b'\\x7f\\xff\\xff\\xff' + bytes(20))\n"
        "except MalformedFrame:\n    print('refused')\n"
    )

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (SIZE_LIMIT, SIZE_LIMIT))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, preexec_fn=confine, check=False
    )
    assert done.stdout == "refused\n", done.stderr[:500]


def test_a_null_array_that_is_never_null_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="null where an array must be"):
        read(12, b"\0" + bytes(20))


def test_a_tag_that_does_not_fill_its_field_is_refused() -> None:
    """Check that the rest is not parsed as a part of the tag: nobody would check its addresses."""
    body = next(iter(seeds.response_bodies(ApiKey.PRODUCE, 10)))
    kind = messages.response_type(ApiKey.PRODUCE, 10)
    endpoints = b"\1\0\2\1\0"
    with pytest.raises(MalformedFrame, match="bytes too many"):
        messages.read_response(kind, bytes(4) + b"\0" + body[:-1] + endpoints)


def test_a_tag_number_beyond_31_bits_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="tag 4294967296"):
        read(12, b"\1\0\0\0\0\0\1\1\x80\x80\x80\x80\x10\0")


def test_nullable_structs_are_read() -> None:
    partitions = heartbeat.TopicPartitions(topic_id=UUID(int=1), partitions=(i32(2),))
    for assignment in (None, heartbeat.Assignment(topic_partitions=(partitions,))):
        body = made(heartbeat.ConsumerGroupHeartbeatResponse, assignment=assignment, member_id="m")
        frame = messages.response_frame(7, body)[4:]

        assert messages.read_response(type(body), frame) == (7, body)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.SHARE_FETCH, ApiKey.DESCRIBE_CLUSTER])
def test_responses_encoded_by_kio_pass_array_count_check(key: ApiKey) -> None:
    for version in seeds.versions(key):
        kind = messages.response_type(key, version)
        head = bytes(4) + b"\0" * kind.__header_schema__.__version__
        for body in seeds.response_bodies(key, version):
            assert messages.entity_bytes(messages.read_response(kind, head + body)[1]) == body
