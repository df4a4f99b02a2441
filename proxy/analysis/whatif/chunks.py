"""With other chunks of conversion (``--convert-chunk``): how much of what old clients get would be padding.

An answer's record set is declared before it is converted. What of it is compressed is guessed
(``proxy.convert.down``), unless all of it is a chunk or less: then it is converted at once, and nothing is wasted.
So with larger chunks fewer sets are guessed, and with smaller ones more.

Ledgers tell how many bytes were converted for an answer, not how large its sets were: all that can be told are
bounds. An answer with no more than a chunk has no set that is larger; of one with more, and with records of a
single partition, the set is. Whether it was compressed shows in its padding alone. How far guesses for sets would
be off that were converted at once is not known: as the most is taken what the worst guess of the ledger was off, or
the margin by which guesses are raised, if that is more.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from proxy.analysis.answers.parts import finish_columns, total
from proxy.analysis.frames import LedgerFrames
from proxy.convert.sizes import MARGIN

__all__ = ["RESULT", "TOLD_CHUNK_BYTES", "chunks"]

TOLD_CHUNK_BYTES: Final = 128 * 1024
"""Sidefetch's default."""

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
"""A row for each cluster and size of chunks. ``answers``: for which records were converted; ``padding_bytes``: as
it was; least and most: as it would be."""


def chunks(ledger: LedgerFrames, sizes: Sequence[int], *, told_bytes: int = TOLD_CHUNK_BYTES) -> DataFrame:
    """*sizes*: of chunks, in bytes; *told_bytes*: what the ledger's sidecars were set to."""
    converted = ledger.exchange.where("converted_in_bytes > 0")
    off = F.max(F.try_divide(F.col("padding_bytes").cast("double"), F.col("converted_out_bytes").cast("double")))
    worst = converted.select(F.greatest(F.coalesce(off, F.lit(0.0)), F.lit(1 / MARGIN)).alias("worst"))
    tried = F.explode(F.array(*(F.lit(size).cast("long") for size in sizes)))
    answers = converted.withColumn("chunk_bytes", tried).crossJoin(F.broadcast(worst))
    padding, size = F.col("padding_bytes"), F.col("chunk_bytes")
    is_at_once = F.col("converted_in_bytes") <= size
    is_one_set = F.col("with_data") == 1
    # What was guessed with larger chunks is guessed with smaller ones; with others, where it is surely larger.
    stays = (size <= told_bytes) | (~is_at_once & is_one_set)
    is_new = (size < told_bytes) & ~is_at_once & ~(is_one_set & (F.col("converted_in_bytes") > told_bytes))
    guess = F.greatest(padding.cast("double"), F.col("converted_out_bytes") * F.col("worst"))
    most = F.when(is_new, guess).when((size > told_bytes) & is_at_once, 0).otherwise(padding)
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
