"""The Parquet layout of a ledger: ``record=…/day=…/cluster_id=…``, the same for batch jobs and streams.

All records, and the bad rows as ``record=bad``, are rows of one frame (``lines.WIDE``), so that one write commits
all of them or none. A column that a record does not have takes almost no space in Parquet. ``day`` is the UTC day
of ``at_us``. Bad rows have no day: their folder is ``__HIVE_DEFAULT_PARTITION__``, as for a null ``cluster_id``.
"""

from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from proxy.analysis.days import day_of
from proxy.analysis.inputs import STREAM_LOG, hadoop_path
from proxy.analysis.lines import KEY
from proxy.errors import ConfigError

__all__ = ["PARTITIONS", "Mode", "add_day", "write"]

PARTITIONS: Final = ("record", "day", "cluster_id")

Mode = Literal["error", "append", "overwrite"]
"""The action if the output folder exists: fail, add files to it, or replace its content."""


def add_day(rows: DataFrame) -> DataFrame:
    """Return *rows* with an additional column ``day``: the UTC date of their ``at_us``, null for bad lines.

    It is one of the columns by which the Parquet folders are partitioned.
    """
    return rows.withColumn("day", day_of("at_us"))


def _check_folder(spark: SparkSession, path: str, mode: Mode) -> None:
    files, folder = hadoop_path(spark, path)
    if mode == "error" and files.exists(folder):
        raise ConfigError(f"{path}: already exists; accepted: a new folder, or --mode append or overwrite")
    if files.exists(folder.suffix(f"/{STREAM_LOG}")):
        raise ConfigError(
            f"{path}: belongs to a stream, whose readers would not see the rows; accepted: another folder"
        )


def write(rows: DataFrame, path: str, mode: Mode = "error", *, all_days: bool = True) -> None:
    """Write ledger rows to the folder *path* as Parquet by record type, day and cluster, each row once.

    *rows* has the columns of ``lines.WIDE``, as ``ingest.read_wide`` returns them; duplicates are dropped here. The
    number of tasks that write a partition depends on its size (``spark.sql.adaptive.*``): several tasks write a
    cluster with most of the rows, and a cluster with few rows gets one file.

    Args:   mode: for an existing folder: fail (``error``), add files (``append``), or replace (``overwrite``).
            all_days: with ``overwrite``, whether to replace the whole folder; otherwise only those partitions are
            replaced for which there are rows.
    Cost:   two shuffles of all rows.
    Raises: ConfigError: the folder exists, and *mode* is ``error``; or a stream writes to it, which no mode allows.
    """
    _check_folder(rows.sparkSession, path, mode)
    once = add_day(rows.dropDuplicates(list(KEY)))
    balanced = once.hint("rebalance", *(F.col(name) for name in PARTITIONS))
    writer = balanced.write.option("partitionOverwriteMode", "static" if all_days else "dynamic")
    writer.partitionBy(*PARTITIONS).mode(mode).parquet(path)
