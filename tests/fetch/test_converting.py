"""Answers of many partitions that are to be converted, each of them a small bomb."""

import itertools
import random
import tracemalloc
from collections.abc import Sequence

import pytest

from proxy.convert import kernel
from proxy.convert.down import DownConversion
from proxy.convert.types import ConversionTarget, Converted
from proxy.fetch.converting import Job, NoRoom, are_small, begin_all, conversion_of
from proxy.fetch.log import Slice
from proxy.wire.fetch import PartitionKey, erroneous
from proxy.wire.records import Codec
from tests.convert.logs import Record, batch

MIB = 1 << 20
BOMB = batch([Record(0, 0, None, bytes(MIB))], codec=Codec.ZSTD)
PARTITIONS = 100
HELD_BYTES = 128 * 1024
"""More than twice these records."""


def job(log: bytes, target: ConversionTarget | None, max_bytes: int = 2**31 - 1) -> Job:
    reply = erroneous(0, 0)._replace(records=memoryview(log))
    found = Slice(reply.records, 1, (), 0.0)
    return Job(PartitionKey("t", 0), reply, found, max_bytes, conversion_of(reply, 0, target))


def conversions(jobs: Sequence[Job]) -> list[DownConversion]:
    return [each.conversion for each in jobs if each.conversion is not None]


def sent(conversion: DownConversion) -> bytes:
    chunks = []
    while (chunk := conversion.next_chunk()) is not None:
        chunks.append(bytes(chunk))
    return b"".join(chunks)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_kept_conversion_output_is_bounded_for_many_decompression_bombs(magic: int, codec: Codec) -> None:
    target = ConversionTarget(magic, zstd=codec)
    alone = DownConversion(memoryview(BOMB), 0, target)
    alone.begin()
    expected = sent(alone)
    jobs = tuple(job(BOMB, target) for _ in range(PARTITIONS))

    tracemalloc.start()
    begin_all(jobs, 2**31 - 1, float)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert sum(each.held_bytes for each in conversions(jobs)) <= HELD_BYTES
    assert peak_bytes < 8 * MIB, "of one bomb, whatever it is made into"
    assert all(each.outcome == Converted(len(expected)) for each in jobs)
    for each in conversions(jobs):
        assert sent(each) == expected
        assert each.counts == alone.counts, "what was converted twice was counted twice"


def test_cpu_time_of_dropped_output_counts() -> None:
    jobs = tuple(job(BOMB, ConversionTarget(1)) for _ in range(PARTITIONS))
    clock = itertools.count()

    begin_all(jobs, 2**31 - 1, lambda: float(next(clock)))

    assert any(each.held_bytes == 0 for each in conversions(jobs))
    assert all(each.counts.cpu_us == 1_000_000 for each in conversions(jobs))


def test_conversion_output_of_ordinary_size_is_kept() -> None:
    log = batch([Record(k, k, None, b"%d, and more of the same" % k) for k in range(100)], codec=Codec.ZSTD)
    jobs = tuple(job(log, ConversionTarget(1)) for _ in range(3))

    begin_all(jobs, 2**31 - 1, float)

    assert all(each.held_bytes > 0 for each in conversions(jobs))


@pytest.mark.parametrize("at_once", [True, False], ids=["to know the size", "while it is sent"])
def test_a_chunk_ends_when_a_batch_of_it_has_gone_off(at_once: bool) -> None:
    bombs = b"".join(batch([Record(k, 0, None, bytes(MIB))], codec=Codec.ZSTD) for k in range(50))
    target = ConversionTarget(1, zstd=Codec.NONE, chunk_bytes=len(bombs) if at_once else len(bombs) - 1)
    conversion = DownConversion(memoryview(bombs), 0, target)

    conversion.begin()

    assert conversion.held_bytes < 2 * MIB
    while (chunk := conversion.next_chunk()) is not None:
        assert len(chunk) < 2 * MIB


def test_bombs_are_begun_in_a_thread_however_few_bytes_they_are() -> None:
    assert len(BOMB) < 1024
    assert not are_small(conversions([job(BOMB, ConversionTarget(1))]))
    assert are_small(conversions([job(batch([Record(0, 0, None, b"x")]), ConversionTarget(1))]))


@pytest.mark.parametrize(("count", "codec", "is_small"), [(8, 0, True), (9, 0, False), (1, Codec.GZIP, False)])
def test_a_few_are_begun_at_once_that_need_nothing_decompressed(
    count: int, codec: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "is_compiled", True)  # interpreted code always takes long
    log = batch([Record(0, 0, None, random.Random(1).randbytes(20_000))], codec=codec)

    assert are_small(conversions([job(log, ConversionTarget(1))] * count)) is is_small


MESSAGE_BYTES = 35
"""The size of a converted record with a value of one byte, in format 1."""
FOUR = batch([Record(k, 0, None, b"v") for k in range(4)])


def outcomes(jobs: Sequence[Job], max_bytes: int, *, is_cut: bool = False) -> list[object]:
    begin_all(jobs, max_bytes, float, is_cut=is_cut)
    return [each.outcome.size if isinstance(each.outcome, Converted) else type(each.outcome) for each in jobs]


def test_l14_converted_records_do_not_exceed_a_limit_of_the_partition_or_response() -> None:
    two = FOUR + batch([Record(k, 0, None, b"v") for k in range(4, 8)])
    jobs = [job(two, ConversionTarget(1), 6 * MESSAGE_BYTES) for _ in range(2)]

    assert outcomes(jobs, 11 * MESSAGE_BYTES) == [4 * MESSAGE_BYTES, 4 * MESSAGE_BYTES]
    assert [len(sent(each)) for each in conversions(jobs)] == [4 * MESSAGE_BYTES, 4 * MESSAGE_BYTES]
    assert [each.taken for each in jobs] == [(len(FOUR), 4)] * 2


def test_l14_only_the_first_converted_batch_of_a_response_exceeds_a_limit() -> None:
    jobs = [job(FOUR, ConversionTarget(1)), job(FOUR, ConversionTarget(1)), job(FOUR, None)]

    assert outcomes(jobs, 1) == [4 * MESSAGE_BYTES, NoRoom, NoRoom]


def test_l14_converted_records_that_outgrow_the_rest_of_a_response_are_left_out() -> None:
    jobs = [job(FOUR, ConversionTarget(1)) for _ in range(2)]
    rest_bytes = 4 * MESSAGE_BYTES - 1
    assert len(FOUR) < rest_bytes

    assert outcomes(jobs, 4 * MESSAGE_BYTES + rest_bytes) == [4 * MESSAGE_BYTES, NoRoom]


def test_l14_records_without_conversion_take_room_from_those_behind_them() -> None:
    jobs = [job(FOUR, None), job(FOUR, ConversionTarget(1)), job(FOUR, ConversionTarget(1), 1)]

    assert outcomes(jobs, len(FOUR) + 4 * MESSAGE_BYTES) == [len(FOUR), 4 * MESSAGE_BYTES, NoRoom]


def test_l14_below_fetch_v3_each_partition_has_its_first_converted_batch() -> None:
    jobs = [job(FOUR, ConversionTarget(1), 1) for _ in range(2)]

    assert outcomes(jobs, 2**31 - 1, is_cut=True) == [4 * MESSAGE_BYTES] * 2
