"""Read ledgers into Spark: the JSON lines that sidecars write, and the Parquet files that jobs make of them.

    files --> lines --> parsed --> checked against the ledger's definition --> rows of a record, each once
                                   '--> bad rows: their text, the reason, and their file

Spark's own expressions do all of this; no row passes through Python. Duplicates are removed (``lines.KEY``).
"""

from collections.abc import Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from proxy.analysis.days import ALL, DayRange, day_of
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.inputs import Format, find_inputs
from proxy.analysis.lines import BAD, BAD_ROWS, KEY, WIDE, parse_lines
from proxy.analysis.schemas import SCHEMAS

__all__ = ["IngestResult", "read", "read_wide"]

_LINES: Final = "*.jsonl{,.gz,.bz2}"
_OF_OLDER_ROWS: Final = MappingProxyType({"client_fetches": "fetches"})
"""The columns of ``fetch`` rows that older rows lack, by name, and the column that has their value: without shared
reads, each upstream fetch serves one client fetch."""


@attrs.frozen
class IngestResult:
    """The result of reading ledgers: the valid rows by record type, and the lines that are not valid rows."""

    ledger: LedgerFrames
    """The valid rows, each once."""
    bad: DataFrame
    """The lines that are not valid rows, each once, with the reason and the file (``lines.BAD_ROWS``)."""


def read(
    spark: SparkSession, paths: str | Sequence[str], days: DayRange = ALL, *, kept: bool = False
) -> IngestResult:
    """Read ledger files into one lazy DataFrame per record type, and one of the bad lines; drop duplicates.

    *paths* are files, folders and globs of them, in any file system that Spark reads. A folder is read as Parquet
    if it contains ``record=…`` folders or a stream's log (``_spark_metadata``); otherwise all ``*.jsonl`` files
    below it are read (also ``.gz``, ``.bz2``). A file is read as Parquet if its name ends with ``.parquet``,
    otherwise as JSON lines.

    Args:   days: the UTC days whose rows are read. All bad lines are read, because they have no day.
            kept: whether Spark keeps the parsed rows in memory or on disk, from their first use to the end of its
            session; for callers that use several record types.
    Cost:   unless *kept*, Spark reads all lines again for each record type that is used. From Parquet it reads only
            the rows of that type, and from a Parquet folder only those of *days*.
    Raises: ConfigError: one of *paths* matches nothing.
    """
    rows = read_wide(spark, paths, days)
    if kept:
        rows = rows.persist()
    frames = {record: _of_record(rows, record) for record in SCHEMAS}
    bad = rows.where(F.col("record") == BAD).select(*BAD_ROWS.names)
    return IngestResult(LedgerFrames(**frames), bad.dropDuplicates(["file", "row"]))


def read_wide(spark: SparkSession, paths: str | Sequence[str], days: DayRange = ALL) -> DataFrame:
    """Read ledger files like ``read``, but into one lazy DataFrame of all record types, with duplicates.

    Its columns are those of all record types together (``lines.WIDE``), null where a type does not have the column.
    Bad lines are rows, too, with ``record`` = ``bad``. The job ``ingest`` writes this frame as Parquet.
    """
    found = find_inputs(spark, [paths] if isinstance(paths, str) else paths)
    frames = [_parquet(spark, place.path, days) for place in found if place.format == Format.PARQUET]
    for is_folder in (True, False):
        texts = [place.path for place in found if place.format == Format.LINES and place.is_folder == is_folder]
        if texts:
            rows = parse_lines(_lines(spark, texts, _LINES if is_folder else None))
            frames.append(rows.where(days.contains(day_of("at_us"))))
    return reduce(DataFrame.unionByName, frames)


def _of_record(rows: DataFrame, record: str) -> DataFrame:
    """Return the rows of one record type from *rows* (``lines.WIDE``), with its own columns, without duplicates.

    Columns that an older Sidefetch did not write get the values that they would have (``_OF_OLDER_ROWS``).
    """
    own = rows.where(F.col("record") == record).select(*SCHEMAS[record].names)
    known = {name: F.coalesce(name, value) for name, value in _OF_OLDER_ROWS.items() if name in own.columns}
    own = own.withColumns(known) if known else own
    return own.dropDuplicates([name for name in KEY if name in own.columns])


def _lines(spark: SparkSession, paths: Sequence[str], names: str | None) -> DataFrame:
    # A sidecar at its size limit deletes its oldest files, maybe during the read; a `lost` row elsewhere says so.
    reader = spark.read.option("recursiveFileLookup", True).option("ignoreMissingFiles", True)
    if names is not None:
        reader = reader.option("pathGlobFilter", names)
    return reader.text(list(paths)).select("value", F.col("_metadata.file_path").alias("file"))


def _parquet(spark: SparkSession, path: str, days: DayRange) -> DataFrame:
    # Read each path by itself: the log of a stream's committed files applies to the whole folder only.
    rows = spark.read.schema(WIDE).parquet(path)
    # Partition folders give the day before a file is opened; a single file has no such column.
    day = F.col("day") if "day" in rows.columns else day_of("at_us")
    return rows.where(days.contains(day)).select(*WIDE.names)
