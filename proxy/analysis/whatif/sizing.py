"""The number of session slots that a fleet needs (``max.incremental.fetch.session.cache.slots``), by simulation.

A fleet needs more slots than it has sessions: brokers fill shards in turn, but sessions end at random, so that some
shards are full while others have room. To find the margin, this module simulates the starts and ends of a fleet's
sessions with one broker's cache (``fleet``); all brokers are alike. Slots cost a broker only memory, which the
result has, too: many slots are cheap, many partitions per session are not.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DoubleType, LongType, StructType

from proxy.analysis.whatif.fleet import Fleet, candidates, heap_bytes, play
from proxy.analysis.whatif.replay import Others

__all__ = ["RESULT", "select_smallest", "sizing"]

RESULT: Final = (
    StructType()
    .add("slots", LongType())
    .add("sessions", LongType())
    .add("granted", LongType())
    .add("refused", LongType())
    .add("evicted", LongType())
    .add("noticed", LongType())
    .add("hit_ratio", DoubleType())
    .add("peak_sessions", LongType())
    .add("peak_partitions", LongType())
    .add("heap_bytes", LongType())
    .add("is_enough", BooleanType())
)
"""The result columns, with a row for each number of slots, for one broker. ``sessions``: sessions that are wanted
at once. ``noticed``: evicted sessions that were still used. ``heap_bytes``: broker heap at the peak. ``is_enough``:
no session was refused, and no session in use was evicted; evictions of unused sessions do not matter."""


def sizing(
    spark: SparkSession,
    fleet: Fleet,
    slots: Sequence[int] = (),
    *,
    hours: float = 1.0,
    others: Others | None = None,
    seed: int = 1,
) -> DataFrame:
    """Simulate a fleet's sessions with one broker for each number of session slots; return one row for each.

    A row has the counts of granted, refused and evicted sessions, peaks, broker heap, and whether the slots are
    enough (``RESULT``). Rows are in the order of slots.

    Args: slots: the numbers of slots to try; if empty, those of ``fleet.candidates``.
          hours: the simulated time.
          others: sessions with the broker that do not belong to the fleet; None for none.
    Cost: as ``fleet.play`` for each number, each in a task of its own.
    """
    others = others or Others()
    tried = list(slots) or candidates(fleet, others)
    frame = spark.createDataFrame([(each,) for each in tried], "slots long").repartition(len(tried), "slots")
    return frame.mapInArrow(partial(_played, fleet, hours, others, seed), RESULT).orderBy("slots")


def select_smallest(sized: DataFrame) -> DataFrame:
    """Return the row of ``sizing`` with the fewest slots that are enough, as a frame of one row.

    All larger numbers in *sized* must be enough, too. If the largest is not, the frame is empty.
    """
    failed = F.max(F.when(~F.col("is_enough"), F.col("slots")))
    too_few = sized.select(F.coalesce(failed, F.lit(-1)).alias("too_few"))
    return sized.crossJoin(too_few).where("slots > too_few").orderBy("slots").limit(1).select(*RESULT.names)


def _played(
    fleet: Fleet, hours: float, others: Others, seed: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for slots in batch.column("slots").to_pylist():
            outcome = play(fleet, slots, seed, hours=hours, others=others)
            row = {
                "slots": slots,
                "sessions": fleet.sessions + others.followers + others.clients,
                "granted": outcome.granted,
                "refused": outcome.refused,
                "evicted": outcome.evicted,
                "noticed": outcome.noticed,
                "hit_ratio": outcome.in_session / max(outcome.fetches, 1),
                "peak_sessions": outcome.peak_sessions,
                "peak_partitions": outcome.peak_partitions,
                "heap_bytes": heap_bytes(outcome.peak_sessions, outcome.peak_partitions),
                "is_enough": not outcome.refused and not outcome.noticed,
            }
            yield pa.RecordBatch.from_pylist([row], to_arrow_schema(RESULT))
