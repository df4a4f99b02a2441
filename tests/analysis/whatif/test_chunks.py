"""Bounds of the padding, on rows made by hand."""

from typing import Any

from pyspark.sql import SparkSession

from proxy.analysis.whatif.chunks import RESULT, chunks
from proxy.telemetry.ledger import Row
from tests.analysis.rows import columns, ledger_of, row

KIB = 1024


def converted(size: int, padding: int, with_data: int = 1, **fields: Any) -> Row:
    sizes = {"converted_in_bytes": size, "converted_out_bytes": size, "padding_bytes": padding}
    return row("exchange", with_data=with_data, **sizes, **fields)


def bounds(spark: SparkSession, sizes: list[int], *rows: Row) -> dict[int, tuple[int, int, int]]:
    frame = chunks(ledger_of(spark, *rows), sizes)
    assert columns(frame.schema) == columns(RESULT)
    return {
        each["chunk_bytes"]: (each["padding_bytes"], each["least_padding_bytes"], each["most_padding_bytes"])
        for each in frame.collect()
    }


def test_sets_are_guessed_or_converted_at_once_by_the_chunk(spark: SparkSession) -> None:
    large = converted(1000 * KIB, 30 * KIB)
    small = converted(64 * KIB, 0, weight=2.0)
    several = converted(320 * KIB, 5 * KIB, with_data=3)
    source_bytes = 35 * KIB

    assert bounds(spark, [size * KIB for size in (32, 128, 256, 512, 1024)], large, small, several) == {
        # Guesses were off by 3 % at worst, which is less than the margin of a 32nd.
        32 * KIB: (source_bytes, source_bytes, 30 * KIB + 2 * 2 * KIB + 10 * KIB),
        128 * KIB: (source_bytes, source_bytes, source_bytes),
        # The large one's set is larger still; the three sets may be all below, or one of them above.
        256 * KIB: (source_bytes, 30 * KIB, 35 * KIB),
        512 * KIB: (source_bytes, 30 * KIB, 30 * KIB),
        1024 * KIB: (source_bytes, 0, 0),
    }


def test_the_worst_guess_is_taken_for_guesses_that_were_not_made(spark: SparkSession) -> None:
    off_by_a_tenth = converted(1000 * KIB, 100 * KIB)

    result = bounds(spark, [32 * KIB], off_by_a_tenth, converted(100 * KIB, 0))

    assert result == {32 * KIB: (100 * KIB, 100 * KIB, 110 * KIB)}
