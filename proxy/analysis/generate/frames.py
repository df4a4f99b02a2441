"""Generated ledgers as frames: each task makes the rows of some sidecars, and nothing passes the driver."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, concat, lit
from pyspark.sql.pandas.types import to_arrow_schema

from proxy.analysis.frames import LedgerFrames
from proxy.analysis.generate.cluster import cluster_of
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.analysis.schemas import SCHEMAS
from proxy.telemetry.ledger import RECORDS, Row

__all__ = ["generate", "tiled"]

_BATCH_ROWS = 10_000
_DAY_US = 86_400_000_000


def generate(spark: SparkSession, mix: FleetMix, seed: int, sidecars: int, hours: float) -> LedgerFrames:
    """The ledger of so many *sidecars*: the rows that ``sidefetch ledger generate`` writes, each once.

    Cost: all rows are made anew for each of the frames, some 30 us a row and core; write what is used twice.
    """
    once = attrs.evolve(mix, duplicates=0.0)

    def frame(record: str) -> DataFrame:
        if record == "topology":
            indices, rows_of = mix.clusters, partial(_topology_rows, once, seed)
        else:
            indices, rows_of = sidecars, partial(_rows_of, once, seed, hours, record)
        parts = min(indices, 4 * spark.sparkContext.defaultParallelism)
        made = partial(_batches, rows_of, to_arrow_schema(SCHEMAS[record]))
        return spark.range(0, indices, 1, parts).mapInArrow(made, SCHEMAS[record])

    return LedgerFrames(**{record: frame(record) for record in RECORDS})


def tiled(ledger: LedgerFrames, copies: int, days: int = 1) -> LedgerFrames:
    """The same sidecars so many times over, each time under other names: as many rows as are wanted, soon.

    Copies take turns at so many *days*, one after the other: of 14 copies over 7 days two begin on each. What they
    read, and how much, is the same in all copies: good for sizes and times, not for what differs in a large fleet.
    """
    copy = ledger.exchange.sparkSession.range(copies).withColumnRenamed("id", "copy")

    def tile(frame: DataFrame) -> DataFrame:
        times = [name for name in frame.columns if name in ("at_us", "first_at_us", "created_us", "last_used_us")]
        shifted = {name: col(name) + col("copy") % days * _DAY_US for name in times}
        other = {"proxy_id": concat("proxy_id", lit("-"), col("copy").cast("string"))}
        return frame.crossJoin(broadcast(copy)).withColumns(shifted | other).select(*frame.columns)

    tiles = {record: tile(getattr(ledger, record)) for record in RECORDS if record != "topology"}
    return LedgerFrames(**tiles, topology=ledger.topology)


def _rows_of(mix: FleetMix, seed: int, hours: float, record: str, index: int) -> Iterator[Row]:
    return (row for row in sidecar_rows(mix, seed, index, hours) if row["record"] == record)


def _topology_rows(mix: FleetMix, seed: int, number: int) -> Iterator[Row]:
    return cluster_of(mix, seed, number).topology_rows(mix.start_us)


def _batches(
    rows_of: Callable[[int], Iterator[Row]], schema: pa.Schema, indices: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in indices:
        rows = (row for index in batch.column("id").to_pylist() for row in rows_of(index))
        while some := list(islice(rows, _BATCH_ROWS)):
            yield pa.RecordBatch.from_pylist(some, schema)
