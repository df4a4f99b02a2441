"""kafka-python's messages of the old versions, which it wrote down on its own."""

import struct
import sys
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

from proxy.convert.codecs import compress

__all__ = ["admin", "commit", "encoded", "group", "legacy_set", "offset", "produce"]

with warnings.catch_warnings():
    # It brings an old copy of six, which Python 3.11 warns of; left alone, that would look at every later import.
    warnings.simplefilter("ignore", ImportWarning)
    _finders = list(sys.meta_path)
    from kafka.protocol import admin, commit, group, offset, produce
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    sys.meta_path[:] = _finders


def encoded(kind: Any, *fields: Any, **named: Any) -> bytes:
    """The body of a message."""
    message = kind(*fields, **named)  # it must outlive its method
    return bytes(message.encode())


def legacy_set(magic: int, messages: Sequence[tuple[int, bytes | None, bytes | None]], codec: int = 0) -> bytes:
    """A message set of (timestamp, key, value); *codec*: 0 none, 1 gzip, 2 snappy, 3 lz4."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 30)
    for number, (timestamp_ms, key, value) in enumerate(messages):
        builder.append(number, timestamp=timestamp_ms, key=key, value=value)
    plain = bytes(builder.build())
    return _wrapper(magic, codec, messages[-1][0], len(messages) - 1, plain) if codec else plain


def _wrapper(magic: int, codec: int, timestamp_ms: int, offset: int, inside: bytes) -> bytes:
    value = compress(codec, inside, magic=magic)
    times = struct.pack(">q", timestamp_ms) if magic else b""
    checked = struct.pack(">bb", magic, codec) + times + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked
