"""Padding in converted responses with other chunk sizes of conversion (``--convert-chunk``).

Sidefetch declares the size of a response's record set before it converts it. For compressed records the size is an
estimate (``proxy.convert.down``), unless the record set fits into one chunk: then it is converted at once, without
padding. So larger chunks need fewer estimates, and smaller chunks need more.

Ledgers have the converted bytes of a response, but not the size of each record set, so the results are bounds. A
response with at most a chunk of bytes has no larger set; if it has more, and records of only one partition, its set
is larger. Only padding shows that a set was compressed. The error of estimates for sets that were converted at once
is unknown. The upper bound assumes the worst error in the ledger, or the margin by which estimates are raised, if
that is larger.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from proxy.analysis.answers.parts import finish_columns, total
from proxy.analysis.frames import LedgerFrames
from proxy.convert.sizes import MARGIN

__all__ = ["LEDGER_CHUNK_BYTES", "RESULT", "chunks"]

LEDGER_CHUNK_BYTES: Final = 128 * 1024
"""Sidefetch's default chunk size in bytes."""

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("chunk_bytes", LongType())
    .add("answers", LongType())
    .add("converted_out_bytes", LongType())
    .add("padding_bytes", LongType())
    .add("least_padding_bytes", LongType())
    .add("most_padding_bytes", LongType())
)
"""The result columns, with a row for each cluster and chunk size. ``answers``: number of responses with converted
records; ``padding_bytes``: the actual padding; ``least_padding_bytes``, ``most_padding_bytes``: bounds of the
padding with this chunk size."""


def chunks(ledger: LedgerFrames, sizes: Sequence[int], *, ledger_bytes: int = LEDGER_CHUNK_BYTES) -> DataFrame:
    """Return bounds of the padding in converted responses, if sidecars had converted with other chunk sizes.

    Padding fills up a record set whose size was declared too high before its conversion. There is one row for each
    cluster and each chunk size in *sizes*, in bytes, with the actual padding and the least and most padding with
    that chunk size (``RESULT``).

    Args: ledger_bytes: the chunk size that the ledger's sidecars used, in bytes.
    """
    converted = ledger.exchange.where("converted_in_bytes > 0")
    off = F.max(F.try_divide(F.col("padding_bytes").cast("double"), F.col("converted_out_bytes").cast("double")))
    worst = converted.select(F.greatest(F.coalesce(off, F.lit(0.0)), F.lit(1 / MARGIN)).alias("worst"))
    tried = F.explode(F.array(*(F.lit(size).cast("long") for size in sizes)))
    answers = converted.withColumn("chunk_bytes", tried).crossJoin(F.broadcast(worst))
    padding, size = F.col("padding_bytes"), F.col("chunk_bytes")
    is_at_once = F.col("converted_in_bytes") <= size
    is_one_set = F.col("with_data") == 1
    # Sets with an estimated size keep it with smaller chunks; with larger ones, if the set surely exceeds a chunk.
    stays = (size <= ledger_bytes) | (~is_at_once & is_one_set)
    is_new = (size < ledger_bytes) & ~is_at_once & ~(is_one_set & (F.col("converted_in_bytes") > ledger_bytes))
    guess = F.greatest(padding.cast("double"), F.col("converted_out_bytes") * F.col("worst"))
    most = F.when(is_new, guess).when((size > ledger_bytes) & is_at_once, 0).otherwise(padding)
    return finish_columns(
        answers.groupBy("cluster_id", "chunk_bytes").agg(
            total("exchanges").alias("answers"),
            total("converted_out_bytes").alias("converted_out_bytes"),
            total("padding_bytes").alias("padding_bytes"),
            total(F.when(stays, padding).otherwise(0)).alias("least_padding_bytes"),
            total(most).alias("most_padding_bytes"),
        ),
        RESULT,
    )
