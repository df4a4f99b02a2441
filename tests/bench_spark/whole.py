"""Ledgers of all records through the jobs themselves: lines to Parquet, and Parquet to a report."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from pyspark.sql import SparkSession

from proxy.analysis import ingest, layout
from proxy.analysis.answers.zones import Prices
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.build import report_of

__all__ = ["JOBS", "by_spark", "written_lines"]

JOBS: Final = ("ingest of JSON lines", "report of Parquet")
"""The jobs in order: the second reads the output of the first."""


def written_lines(ledger: LedgerFrames, folder: Path) -> Path:
    """Write the rows as sidecars do."""
    for record, frame in attrs.asdict(ledger, recurse=False).items():
        frame.write.option("ignoreNullFields", False).json(str(folder / record))
    for path in folder.glob("*/*.json"):
        path.rename(path.with_suffix(".jsonl"))
    return folder


def by_spark(spark: SparkSession, lines: Path) -> Mapping[str, Callable[[], int]]:
    """Return a function that runs each job and returns the number of rows that it read."""
    parquet = lines.with_name(f"{lines.name}-parquet")
    return {JOBS[0]: partial(_ingested, spark, lines, parquet), JOBS[1]: partial(_reported, spark, parquet)}


def _ingested(spark: SparkSession, lines: Path, parquet: Path) -> int:
    layout.write(ingest.read_wide(spark, str(lines)), str(parquet), "overwrite")
    return spark.read.parquet(str(parquet)).count()


def _reported(spark: SparkSession, parquet: Path) -> int:
    report = report_of(ingest.read(spark, str(parquet), kept=True), Prices(0.01, 0.01))
    spark.catalog.clearCache()
    return report.about.row_count
