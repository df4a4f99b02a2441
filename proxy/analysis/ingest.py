"""Reading ledgers: JSON lines as sidecars write them, and the Parquet that is made of them.

    files --> lines --> parsed --> held to the ledger's definition --> rows of a record, each once
                                   '--> bad rows: their text, what is wrong, and where they were

All of it is Spark's own expressions: no row passes through Python. Rows that came twice are one (``lines.KEY``).
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from proxy.analysis.days import ALL, DayRange, day_of
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.inputs import Format, find_inputs
from proxy.analysis.lines import BAD, BAD_ROWS, KEY, WIDE, parsed
from proxy.analysis.schemas import SCHEMAS

__all__ = ["IngestResult", "read", "read_wide"]

_LINES: Final = "*.jsonl{,.gz,.bz2}"


@attrs.frozen
class IngestResult:
    """What was read."""

    ledger: LedgerFrames
    bad: DataFrame
    """Rows that are none, as ``lines.BAD_ROWS``."""


def read(
    spark: SparkSession, paths: str | Sequence[str], days: DayRange = ALL, *, kept: bool = False
) -> IngestResult:
    """Read *paths*: files, folders and globs of them, in any file system that Spark reads.

    A folder is one of Parquet if ``record=…`` folders are in it; of others all ``*.jsonl`` are read (also ``.gz``,
    ``.bz2``), however deep. A file is of Parquet if it ends with ``.parquet``, else of lines, whatever its name.

    Args:   days: of what has happened on these. Bad rows are all told: none has a day.
            kept: have the rows stay in memory or on disk, as long as the session: for who asks for several records.
    Cost:   each record that is asked for reads all lines once more, unless they are kept; of Parquet it reads its
            own rows only, and of a folder of Parquet nothing of other days.
    Raises: ConfigError: nothing is at one of *paths*.
    """
    rows = read_wide(spark, paths, days)
    if kept:
        rows = rows.persist()
    frames = {record: _of_record(rows, record) for record in SCHEMAS}
    bad = rows.where(F.col("record") == BAD).select(*BAD_ROWS.names)
    return IngestResult(LedgerFrames(**frames), bad.dropDuplicates(["file", "row"]))


def read_wide(spark: SparkSession, paths: str | Sequence[str], days: DayRange = ALL) -> DataFrame:
    """The same, as ``lines.WIDE``; rows that came twice are in it twice."""
    found = find_inputs(spark, [paths] if isinstance(paths, str) else paths)
    frames = [_parquet(spark, place.path, days) for place in found if place.format == Format.PARQUET]
    for is_folder in (True, False):
        texts = [place.path for place in found if place.format == Format.LINES and place.is_folder == is_folder]
        if texts:
            rows = parsed(_lines(spark, texts, _LINES if is_folder else None))
            frames.append(rows.where(days.hold(day_of("at_us"))))
    return reduce(DataFrame.unionByName, frames)


def _of_record(rows: DataFrame, record: str) -> DataFrame:
    own = rows.where(F.col("record") == record).select(*SCHEMAS[record].names)
    return own.dropDuplicates([name for name in KEY if name in own.columns])


def _lines(spark: SparkSession, paths: Sequence[str], names: str | None) -> DataFrame:
    # A sidecar deletes its oldest files when they are too many: the row that tells of it is in another one.
    reader = spark.read.option("recursiveFileLookup", True).option("ignoreMissingFiles", True)
    if names is not None:
        reader = reader.option("pathGlobFilter", names)
    return reader.text(list(paths)).select("value", F.col("_metadata.file_path").alias("file"))


def _parquet(spark: SparkSession, path: str, days: DayRange) -> DataFrame:
    # One at a time: what a stream has committed is known of the folder as a whole only.
    rows = spark.read.schema(WIDE).parquet(path)
    # That of the folders is known before a file is opened; a file by itself has none.
    day = F.col("day") if "day" in rows.columns else day_of("at_us")
    return rows.where(days.hold(day)).select(*WIDE.names)
