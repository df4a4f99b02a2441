"""What-if question: sessions granted, refused and evicted with other numbers of session slots per broker.

Spark sorts the fetches of each broker by time and replays them with a model of its cache (``replay``). The shard of
a session depends on all earlier requests for sessions, so a replay cannot be split further: one task replays a
broker with one number of slots. It reads its rows as a stream; its memory holds the fetchers and the slots.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from proxy.analysis.frames import LedgerFrames
from proxy.analysis.whatif.broker import SHARDS
from proxy.analysis.whatif.replay import Others, Replay

__all__ = ["RESULT", "slots"]

RESULT: Final = StructType(
    [
        StructField("cluster_id", StringType()),
        StructField("node", LongType()),
        StructField("slots", LongType()),
        StructField("granted", LongType()),
        StructField("refused", LongType()),
        StructField("evicted", LongType()),
        StructField("noticed", LongType()),
        StructField("fetches", LongType()),
        StructField("hit_ratio", DoubleType()),
        StructField("named_anew", LongType()),
        StructField("peak_sessions", LongType()),
        StructField("peak_partitions", LongType()),
    ]
)
"""The result columns, with a row for each broker and number of slots.

granted, refused: requests for a session; evicted: sessions that made room for another; noticed: evicted sessions
whose fetcher fetched in them again. fetches: of fetchers that want a session; hit_ratio: the share of incremental
fetches among these, null if there are none. named_anew: partitions named by the other fetches. Peaks: most sessions
and partitions at one time.
"""

_EVENTS: Final = ("cluster_id", "node", "at_us", "proxy_id", "fetcher", "ledger_id", "size", "fetches", "is_full")


def slots(
    ledger: LedgerFrames, candidates: Sequence[int], *, shards: int = SHARDS, others: Others | None = None
) -> DataFrame:
    """Replay the ledger's upstream fetches on each broker with each number of session slots in *candidates*.

    Return one row for each broker and number, with the sessions that are granted, refused and evicted, the share of
    incremental fetches, and peaks (``RESULT``).

    Args: shards: the number of shards of a broker's session cache, which share the slots.
          others: sessions that the ledger does not have: those of followers and of clients without Sidefetch.
    Cost: about 5 us per event and candidate; an event is a fetch; a row of several folded fetches is two events.
    """
    what = F.array(*(F.lit(each) for each in candidates))
    events = _events(ledger).withColumn("slots", F.explode(what))
    order = ("cluster_id", "node", "slots", "at_us")
    sorted_ = events.repartition(*order[:3]).sortWithinPartitions(*order)
    return sorted_.mapInArrow(partial(_played, shards, others), RESULT)


def _events(ledger: LedgerFrames) -> DataFrame:
    """Return the events to replay: fetches, and ends of sessions. A folded run is two: first fetch, and rest."""
    fetch = ledger.fetch.select(
        "cluster_id",
        "node",
        F.explode(
            F.when(
                F.col("fetches") > 1,
                F.array(
                    F.struct(F.col("first_at_us").alias("at_us"), F.lit(1).cast("long").alias("fetches")),
                    F.struct(F.col("at_us"), (F.col("fetches") - 1).alias("fetches")),
                ),
            ).otherwise(F.array(F.struct(F.col("at_us"), F.col("fetches"))))
        ).alias("part"),
        "proxy_id",
        F.concat_ws("/", "connection_id", "fetcher_id").alias("fetcher"),
        F.col("session_id").alias("ledger_id"),
        F.expr("size div fetches").alias("size"),
        (F.col("kind") == "full").alias("is_full"),
    )
    closed = ledger.session.where("side = 'upstream' and event = 'closed'").select(
        "cluster_id",
        "node",
        "at_us",
        "proxy_id",
        F.lit(None).cast("string").alias("fetcher"),
        F.col("session_id").alias("ledger_id"),
        F.lit(0).cast("long").alias("size"),
        F.lit(0).cast("long").alias("fetches"),
        F.lit(False).alias("is_full"),
    )
    fetches_of = fetch.withColumns({name: F.col("part")[name] for name in ("at_us", "fetches")})
    return fetches_of.select(*_EVENTS).unionByName(closed)


def _played(shards: int, others: Others | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replay *batches* and yield the results. Rows must be grouped by broker and slots, and in order of time."""
    schema = to_arrow_schema(RESULT)
    subject: tuple[Any, ...] | None = None
    replay = Replay(0)
    for row in _rows(batches):
        *now, at_us, proxy_id, fetcher, ledger_id, size, fetches, is_full = row
        if subject != tuple(now):
            if subject is not None:
                yield _result(subject, replay, schema)
            subject = tuple(now)
            replay = Replay(subject[2], shards, others)
        if fetcher is None:
            replay.apply_end(proxy_id, ledger_id, at_us / 1e6)
        else:
            replay.apply_fetches(proxy_id, fetcher, ledger_id, size, fetches, at_us / 1e6, full=is_full)
    if subject is not None:
        yield _result(subject, replay, schema)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    names = (*_EVENTS[:2], "slots", *_EVENTS[2:])
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _result(subject: Sequence[Any], replay: Replay, schema: pa.Schema) -> pa.RecordBatch:
    cluster_id, node, candidate = subject
    outcome = attrs.asdict(replay.outcome)
    fetches, in_session = outcome["fetches"], outcome.pop("in_session")
    row = {"cluster_id": cluster_id, "node": node, "slots": candidate, **outcome}
    row["hit_ratio"] = in_session / fetches if fetches else None
    return pa.RecordBatch.from_pylist([row], schema)
