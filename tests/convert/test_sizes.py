"""Estimates of the decompressed size of batches, and the padding that they cost."""

import json
import random

import pytest

from proxy.convert import ConversionTarget, Converted, DownConversion
from proxy.convert.aborted import AbortedBatchFinder
from proxy.convert.sizes import Behind, Growth, size_behind
from proxy.wire.records import Codec, entries
from tests.convert.logs import Record, batch, entry_sizes, marker


def orders(batches: int, *, codec: Codec, each: int = 100) -> bytes:
    """Return batches of small JSON documents, as many logs hold them."""
    chance = random.Random(5)
    made = []
    for index in range(batches):
        records = [
            Record(
                index * each + number,
                1_700_000_000_000 + index * 1000 + number,
                b"%d" % chance.randrange(10_000),
                json.dumps(
                    {"order": chance.randrange(10**9), "city": chance.choice("abcde") * 8, "n": number}
                ).encode(),
            )
            for number in range(each)
        ]
        made.append(batch(records, codec=codec))
    return b"".join(made)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("magic", [0, 1])
def test_guesses_waste_little(codec: Codec, magic: int) -> None:
    log = orders(40, codec=codec)
    conversion = DownConversion(memoryview(log), 0, ConversionTarget(magic, chunk_bytes=16 * 1024))
    assert isinstance(conversion.begin(), Converted)

    data = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    assert len(data) - sum(entry_sizes(data)) < len(data) * 0.06
    assert conversion.counts.unread_bytes < len(log) * 0.06


def test_all_is_known_where_a_chunk_has_it_all() -> None:
    log = orders(5, codec=Codec.GZIP)
    conversion = DownConversion(memoryview(log), 0, ConversionTarget(1))
    conversion.begin()

    data = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    assert sum(entry_sizes(data)) == len(data)
    assert (conversion.counts.padding_bytes, conversion.counts.cut_bytes) == (0, 0)
    assert conversion.counts.messages == 500


def behind(
    log: bytes, target: ConversionTarget, aborted: tuple[tuple[int, int], ...] = (), limit_bytes: int = 1 << 30
) -> Behind:
    view = memoryview(log)
    first = next(entries(view))
    return size_behind(
        first, view, 0, target, AbortedBatchFinder(aborted), Growth(first, None, target), limit_bytes
    )


def plain(offset: int, **options: int) -> bytes:
    return batch([Record(offset, value=b"x" * 10)], **options)  # type: ignore[arg-type]


def test_batches_that_are_not_compressed_are_known_exactly() -> None:
    log = plain(0) + plain(1) + plain(2) + plain(3)[:-1]

    assert behind(log, ConversionTarget(1)) == (2 * 44, 3 * len(plain(0)), True)
    assert behind(log, ConversionTarget(0)) == (2 * 36, 3 * len(plain(0)), True)


def test_skipped_batches_add_nothing_to_the_converted_size() -> None:
    emptied = batch([], base_offset=5, last_offset=9, records_bytes=b"")
    log = plain(0) + plain(1, producer_id=3) + marker(2, 3, commits=False) + emptied + plain(10)

    size, _, is_exact = behind(log, ConversionTarget(1, committed=True), ((3, 1),))

    assert (size, is_exact) == (44, True)


def test_size_excludes_entries_after_a_damaged_or_refused_batch() -> None:
    bad = bytearray(plain(2))
    bad[8:12] = bytes(4)
    refused = plain(2, codec=Codec.ZSTD)

    for end in (bytes(bad), refused):
        size, until, is_exact = behind(plain(0) + plain(1) + end + plain(3), ConversionTarget(1, zstd=None))
        assert (size, until, is_exact) == (44, 2 * len(plain(0)), True)


def test_a_compressed_batch_makes_it_a_guess() -> None:
    _, _, is_exact = behind(plain(0) + plain(1, codec=Codec.GZIP), ConversionTarget(1))

    assert not is_exact


def test_guess_grows_with_records_shrinks_in_proportion_and_stays_without_knowledge() -> None:
    small, large = plain(0, codec=Codec.GZIP), batch([Record(1 + k, value=b"x") for k in range(50)], codec=1)
    first, entry = entries(memoryview(small + large))
    inside, records = len(large) - 27, 50  # a wrapper's header is so much smaller than a batch's

    def guess(size: int | None) -> int:
        return Growth(first, size, ConversionTarget(1)).size_of(entry)

    def raised(size: float) -> int:
        return int(size) + int(size) // 32

    assert guess(None) == raised(inside)
    assert guess(len(small) - 27) == raised(inside)
    assert guess(len(small) - 27 + 10) == raised(inside + 10 * records)
    assert guess((len(small) - 27) // 2) == raised(inside * ((len(small) - 27) // 2) / (len(small) - 27))
