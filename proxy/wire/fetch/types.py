"""Types that Fetch requests and responses share, and the encoding of topics and counts."""

import struct
from typing import Final, NamedTuple, NewType

from proxy.wire.primitives import Cursor, write_string, write_uvarint

FETCH: Final = 1
MAX_VERSION: Final = 18
IDS_VERSION: Final = 13
"""The first version that names topics by id."""

TopicId = NewType("TopicId", bytes)
"""A topic's id: the 16 bytes of a UUID."""
Topic = str | TopicId
"""A topic as a request names it: by name below v13, by id from there."""

UNKNOWN: Final = -1
"""The value of an id, offset or epoch that is not known."""
_I32: Final = struct.Struct(">i")


class PartitionKey(NamedTuple):
    """A partition: its topic, by name (below Fetch v13) or id (from v13 on) as in the request, and its number."""

    topic: Topic
    partition: int


class FetchPartition(NamedTuple):
    """The parameters of one partition in a Fetch request: offset, byte limit and leader epochs."""

    offset: int
    max_bytes: int
    epoch: int = UNKNOWN
    """The leader epoch that the client knows; -1 to skip the check for a fenced leader."""
    last_fetched_epoch: int = UNKNOWN
    """The epoch of the last record that the client has; -1 to skip the check for divergence."""


def read_topic(cursor: Cursor, *, by_id: bool, flexible: bool) -> Topic:
    return TopicId(bytes(cursor.take(16))) if by_id else cursor.string(flexible=flexible)


def write_topic(topic: Topic, *, flexible: bool) -> bytes:
    return topic if isinstance(topic, bytes) else write_string(topic, flexible=flexible)


def write_count(count: int, *, flexible: bool) -> bytes:
    return write_uvarint(count + 1) if flexible else _I32.pack(count)
