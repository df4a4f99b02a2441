"""Generate ledgers as Spark DataFrames: each task generates the rows of some sidecars, none on the driver."""

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

__all__ = ["generate", "repeat_ledger"]

_BATCH_ROWS = 10_000
_DAY_US = 86_400_000_000


def generate(spark: SparkSession, mix: FleetMix, seed: int, sidecars: int, hours: float) -> LedgerFrames:
    """Return the ledger of a simulated fleet of *sidecars* sidecars as lazy DataFrames, one per record type.

    The rows are those that ``sidefetch ledger generate`` writes with the same arguments, without duplicates. They
    cover *hours* hours from ``mix.start_us`` on.

    Args: mix: the parameters of the fleet: clients, traffic, failures.
          seed: of the random numbers; the same arguments give the same rows.
    Cost: each frame generates all rows again on each use, at about 30 us per row and core; store frames that are
          used twice.
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


def repeat_ledger(ledger: LedgerFrames, copies: int, days: int = 1) -> LedgerFrames:
    """Return a larger ledger: *copies* copies of each row of *ledger*, as if of other sidecars.

    Each copy has ``proxy_id`` values of its own. The copies start on *days* consecutive days in turn: of 14 copies
    over 7 days, two start on each. Topology rows are not copied. All copies read the same, so the result is good to
    measure sizes and run times, but does not have the variety of a large fleet.
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
