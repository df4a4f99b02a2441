"""What is to be read where: the files and folders that a path stands for, and what they are made of."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import attrs
from pyspark.sql import SparkSession

from proxy.errors import ConfigError

__all__ = ["STREAM_LOG", "Format", "InputLocation", "find_inputs", "hadoop_path"]


STREAM_LOG: Final = "_spark_metadata"
"""Where a stream has its log of batches, in the folder that it writes to: Spark reads that folder by it."""


class Format(Enum):
    LINES = "JSON lines"
    PARQUET = "Parquet"


@attrs.frozen
class InputLocation:
    """A file, or a folder with all that is in it."""

    path: str
    format: Format
    is_folder: bool


def find_inputs(spark: SparkSession, paths: Iterable[str]) -> list[InputLocation]:
    """The files and folders that *paths* name, globs resolved, as Spark's file systems have them.

    Raises: ConfigError: nothing is at one of *paths*, or no path is given.
    """
    found = [place for path in paths for place in _places(spark, path)]
    if not found:
        raise ConfigError("no path is given; accepted: folders and files of a ledger")
    return found


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's FileSystem and Path of *path*: what Spark reads by, known to the driver's JVM only."""
    jvm: Any = spark.sparkContext._jvm
    named = jvm.org.apache.hadoop.fs.Path(path)
    return named.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), named


def _places(spark: SparkSession, path: str) -> list[InputLocation]:
    files, named = hadoop_path(spark, path)
    found = [_place(files, status) for status in files.globStatus(named) or ()]
    if not found:
        raise ConfigError(f"{path}: nothing is there; accepted: folders and files of a ledger, and globs of them")
    return found


def _place(files: Any, status: Any) -> InputLocation:
    path = status.getPath()
    if status.isDirectory():
        of_records = files.globStatus(path.suffix(f"/{{record=*,{STREAM_LOG}}}"))
        return InputLocation(path.toString(), Format.PARQUET if of_records else Format.LINES, is_folder=True)
    is_parquet = path.getName().endswith(".parquet")
    return InputLocation(path.toString(), Format.PARQUET if is_parquet else Format.LINES, is_folder=False)
