"""Readers and writers of two client libraries, on converted records."""

import json
import random
import subprocess
import sys

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from proxy.convert import ConversionTarget, Converted, DownConversion, to_batches
from proxy.wire.records import Codec

Seen = list[tuple[int, int | None, bytes | None, bytes | None]]
LIBRARIES = ("aiokafka", "kafka-python")


def read(library: str, data: bytes) -> Seen:
    """Offset, time, key and value of every record; checksums are asserted."""
    if library == "kafka-python":
        listed = json.loads(kafka_python(data, "read"))
        return [
            (offset, time, *(each if each is None else bytes.fromhex(each) for each in pair))
            for offset, time, *pair in listed
        ]
    found: Seen = []
    log = MemoryRecords(data)
    while log.has_next():
        batch = log.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        found += [(each.offset, each.timestamp, each.key, each.value) for each in batch]
    return found


def kafka_python(given: bytes, *command: str) -> bytes:
    argv = [sys.executable, "-m", "tests.convert.kafka_python", *command]
    done = subprocess.run(argv, input=given, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def legacy_set(library: str, wanted: Seen, magic: int, codec: Codec) -> bytes:
    """Return a set as a producer of *library* writes it."""
    if library == "kafka-python":
        listed = [
            (offset, time, *(each if each is None else each.hex() for each in pair))
            for offset, time, *pair in wanted
        ]
        return kafka_python(json.dumps(listed).encode(), "write", str(magic), str(int(codec)))
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 24)
    for each in wanted:
        builder.append(*each)
    return bytes(builder.build())


def can_read(library: str, codec: Codec, magic: int) -> bool:
    """kafka-python has snappy and zstd of packages that are not here; aiokafka has no LZ4 for magic 0."""
    if library == "kafka-python":
        return codec not in (Codec.SNAPPY, Codec.ZSTD)
    return (codec, magic) != (Codec.LZ4, 0)


def some(count: int, magic: int) -> Seen:
    chance = random.Random(count)
    found: Seen = []
    for index in range(count):
        key = None if index % 3 == 0 else chance.randbytes(index % 7)
        value = None if index % 5 == 0 else chance.randbytes(10) + b"text " * (index % 40)
        found.append((index, 1_700_000_000_000 - index * 7 if magic else None, key, value))
    return found


def aiokafkas_batch(wanted: Seen, codec: Codec, base_offset: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for offset, time, key, value in wanted:
        assert builder.append(offset, time, key, value, [("header", b"value")]) is not None
    return base_offset.to_bytes(8) + bytes(builder.build())[8:]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("lz4_magic0", [Codec.GZIP, Codec.LZ4])
def test_clients_read_down_converted_batches(library: str, codec: Codec, magic: int, lz4_magic0: Codec) -> None:
    target = ConversionTarget(magic, lz4_magic0=lz4_magic0)
    if not can_read(library, Codec(target.codec(codec) or 0), magic):
        return
    wanted = some(100, 1)
    log = aiokafkas_batch(wanted, codec, 0) + aiokafkas_batch(wanted, codec, 100)
    conversion = DownConversion(memoryview(log), 0, target)
    assert isinstance(conversion.begin(), Converted)

    down = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    offsets = [(base, each) for base in (0, 100) for each in wanted]
    expected = [(base + at, time if magic else None, key, value) for base, (at, time, key, value) in offsets]
    assert read(library, down) == expected


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_clients_read_batches_that_lost_zstd(library: str, codec: Codec) -> None:
    wanted = some(100, 1)
    log = aiokafkas_batch(wanted, Codec.ZSTD, 7)
    conversion = DownConversion(memoryview(log), 7, ConversionTarget(2, zstd=codec))
    assert isinstance(conversion.begin(), Converted)

    down = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    assert read(library, down) == [(7 + at, time, key, value) for at, time, key, value in wanted]
    assert b"".join(each.headers[0][1] for each in MemoryRecords(down).next_batch()) == b"value" * 100


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_client_libraries_convert_to_batches(library: str, codec: Codec, magic: int) -> None:
    if not can_read(library, codec, magic):
        return
    wanted = some(100, magic)

    (batch,) = to_batches(memoryview(legacy_set(library, wanted, magic, codec)), max_batch_bytes=1 << 20)

    expected = [(at, -1 if time is None else time, key, value) for at, time, key, value in wanted]
    assert read("aiokafka", bytes(batch)) == expected
    assert bytes(batch)[22] == codec
