"""Resolve input paths to files and folders, and detect their formats."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import attrs
from pyspark.sql import SparkSession

from proxy.errors import ConfigError

__all__ = ["STREAM_LOG", "Format", "InputLocation", "find_inputs", "hadoop_path"]


STREAM_LOG: Final = "_spark_metadata"
"""The folder with a stream's log of batches, in the stream's output folder. Spark reads the output by this log."""


class Format(Enum):
    """The format of an input file, or of the files of an input folder."""

    LINES = "JSON lines"
    PARQUET = "Parquet"


@attrs.frozen
class InputLocation:
    """An input file, or an input folder with all files below it."""

    path: str
    format: Format
    is_folder: bool


def find_inputs(spark: SparkSession, paths: Iterable[str]) -> list[InputLocation]:
    """Return the files and folders of *paths*, with globs expanded, in any file system that Spark reads.

    Raises: ConfigError: one of *paths* matches nothing, or *paths* is empty.
    """
    found = [place for path in paths for place in _places(spark, path)]
    if not found:
        raise ConfigError("no path is given; accepted: folders and files of a ledger")
    return found


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's FileSystem and Path of *path*, as Spark uses them. They exist only in the driver's JVM."""
    jvm: Any = spark.sparkContext._jvm
    named = jvm.org.apache.hadoop.fs.Path(path)
    return named.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), named


def _places(spark: SparkSession, path: str) -> list[InputLocation]:
    files, named = hadoop_path(spark, path)
    found = [_place(files, status) for status in files.globStatus(named) or ()]
    if not found:
        raise ConfigError(
            f"{path}: no such file or folder; accepted: folders and files of a ledger, and globs of them"
        )
    return found


def _place(files: Any, status: Any) -> InputLocation:
    path = status.getPath()
    if status.isDirectory():
        of_records = files.globStatus(path.suffix(f"/{{record=*,{STREAM_LOG}}}"))
        return InputLocation(path.toString(), Format.PARQUET if of_records else Format.LINES, is_folder=True)
    is_parquet = path.getName().endswith(".parquet")
    return InputLocation(path.toString(), Format.PARQUET if is_parquet else Format.LINES, is_folder=False)
