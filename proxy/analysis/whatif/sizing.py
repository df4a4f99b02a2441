"""How many slots a fleet needs: ``max.incremental.fetch.session.cache.slots``, by trying.

It takes more than there are sessions: shards are filled in turn, but sessions end by chance, so that some shards
are full while others have room. How many more is told by playing a fleet's comings and goings through a broker's
cache (``fleet``); brokers are alike, so that one stands for all. All that a session costs a broker is memory, which
is told, too: many slots are cheap, many partitions in each are not.
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

__all__ = ["RESULT", "sizing", "smallest"]

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
"""A row for each number of slots; of one broker. ``sessions``: that are wanted at once. ``heap_bytes``: of the most
that were held at once. ``is_enough``: nobody was refused, and nobody noticed that its session was gone; what nobody
uses any more may well have been evicted."""


def sizing(
    spark: SparkSession,
    fleet: Fleet,
    slots: Sequence[int] = (),
    *,
    hours: float = 1.0,
    others: Others | None = None,
    seed: int = 1,
) -> DataFrame:
    """*slots*: numbers to try; without any, some around the number of sessions.

    Cost: as ``fleet.play`` for each number, each in a task of its own.
    """
    others = others or Others()
    tried = list(slots) or candidates(fleet, others)
    frame = spark.createDataFrame([(each,) for each in tried], "slots long").repartition(len(tried), "slots")
    return frame.mapInArrow(partial(_played, fleet, hours, others, seed), RESULT).orderBy("slots")


def smallest(sized: DataFrame) -> DataFrame:
    """Of ``sizing``'s rows the one with the fewest slots that are enough, also for all larger numbers; or none."""
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
