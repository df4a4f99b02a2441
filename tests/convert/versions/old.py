"""kafka-python's messages of the old versions, which it wrote down on its own."""

import warnings
from collections.abc import Iterable
from typing import Any

__all__ = ["admin", "commit", "encoded", "group", "legacy_set", "offset", "produce"]

with warnings.catch_warnings():
    # It brings an old copy of six, which Python 3.11 dislikes.
    warnings.simplefilter("ignore", ImportWarning)
    from kafka.protocol import admin, commit, group, offset, produce
    from kafka.record.legacy_records import LegacyRecordBatchBuilder


def encoded(kind: Any, *fields: Any, **named: Any) -> bytes:
    """The body of a message."""
    message = kind(*fields, **named)  # it must outlive its method
    return bytes(message.encode())


def legacy_set(magic: int, messages: Iterable[tuple[int, bytes | None, bytes | None]], *, codec: int = 0) -> bytes:
    """A message set of (timestamp, key, value); *codec*: 0 none, 1 gzip, 2 snappy, 3 lz4."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 30)
    for number, (timestamp_ms, key, value) in enumerate(messages):
        builder.append(number, timestamp=timestamp_ms, key=key, value=value)
    return bytes(builder.build())
