"""kafka-python's records in a process of its own, because its import causes warnings at every later one.

``python -m tests.convert.kafka_python read`` prints the records of standard input as JSON: offset, time, key,
value.
``write MAGIC CODEC`` encodes a message set of such a list.
"""

import json
import sys
from typing import Any

from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords


def _read(data: bytes) -> list[Any]:
    found = []
    log = MemoryRecords(data)
    while log.has_next():
        batch = log.next_batch()
        assert batch.validate_crc()
        found += [(each.offset, each.timestamp, _hex(each.key), _hex(each.value)) for each in batch]
    return found


def _write(magic: int, codec: int, wanted: list[Any]) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 24)
    for offset, time, key, value in wanted:
        builder.append(offset, time, _bytes(key), _bytes(value))
    return bytes(builder.build())


def _hex(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).hex()


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


if __name__ == "__main__":
    given = sys.stdin.buffer.read()
    if sys.argv[1] == "read":
        print(json.dumps(_read(given)))
    else:
        sys.stdout.buffer.write(_write(int(sys.argv[2]), int(sys.argv[3]), json.loads(given)))
