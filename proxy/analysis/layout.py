"""How a ledger lies in Parquet: ``record=…/day=…/cluster_id=…``, whether a batch or a stream has written it.

All records, and the bad rows as ``record=bad``, are rows of one frame (``lines.WIDE``), so that one write has them
all or none. A column that a record has not takes next to nothing in Parquet. ``day`` is that of ``at_us``, UTC;
those of bad rows are not known (``__HIVE_DEFAULT_PARTITION__``, as is a ``cluster_id`` that is null).
"""

from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from proxy.analysis.days import day_of
from proxy.analysis.inputs import STREAM_LOG, hadoop_path
from proxy.analysis.lines import KEY
from proxy.errors import ConfigError

__all__ = ["PARTITIONS", "Mode", "dated", "write"]

PARTITIONS: Final = ("record", "day", "cluster_id")

Mode = Literal["error", "append", "overwrite"]


def dated(rows: DataFrame) -> DataFrame:
    """*rows* with their ``day``."""
    return rows.withColumn("day", day_of("at_us"))


def _check_folder(spark: SparkSession, path: str, mode: Mode) -> None:
    files, folder = hadoop_path(spark, path)
    if mode == "error" and files.exists(folder):
        raise ConfigError(f"{path}: is there already; accepted: a new folder, or --mode append or overwrite")
    if files.exists(folder.suffix(f"/{STREAM_LOG}")):
        raise ConfigError(f"{path}: a stream's, whose readers would not see the rows; accepted: another folder")


def write(rows: DataFrame, path: str, mode: Mode = "error", *, all_days: bool = True) -> None:
    """Write *rows* (``lines.WIDE``) to the folder *path*, each once.

    Files are made for a partition by as many tasks as its size asks for (``spark.sql.adaptive.*``): a cluster with
    most of the rows is not one task's, and one with few has one file.

    Args:   all_days: ``overwrite`` replaces all that is there; else only the folders of which *rows* has some.
    Cost:   two shuffles of all rows.
    Raises: ConfigError: the folder is there already, and *mode* is ``error``; or a stream writes to it.
    """
    _check_folder(rows.sparkSession, path, mode)
    once = dated(rows.dropDuplicates(list(KEY)))
    balanced = once.hint("rebalance", *(F.col(name) for name in PARTITIONS))
    writer = balanced.write.option("partitionOverwriteMode", "static" if all_days else "dynamic")
    writer.partitionBy(*PARTITIONS).mode(mode).parquet(path)
