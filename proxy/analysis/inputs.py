"""Resolve the paths of ledgers to files and folders, and detect whether they contain JSON lines or Parquet."""

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
    """The format of an input file, or of all files of an input folder."""

    LINES = "JSON lines"
    PARQUET = "Parquet"


@attrs.frozen
class InputLocation:
    """An existing input: a file of ledger rows, or a folder with all files below it."""

    path: str
    """The full path, with the scheme of its file system: ``file:/var/log/a.jsonl``."""
    format: Format
    is_folder: bool
    """Whether the path is a folder."""


def find_inputs(spark: SparkSession, paths: Iterable[str]) -> list[InputLocation]:
    """Expand *paths* to the existing files and folders that they match, and detect the format of each.

    *paths* are files, folders and globs, in any file system that Spark reads. A folder is Parquet if it contains
    ``record=…`` folders or a stream's log (``STREAM_LOG``), a file if its name ends with ``.parquet``; all others
    are JSON lines.

    Raises: ConfigError: one of *paths* matches nothing, or *paths* is empty.
    """
    found = [place for path in paths for place in _places(spark, path)]
    if not found:
        raise ConfigError("no path is given; accepted: folders and files of a ledger")
    return found


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's ``FileSystem`` and ``Path`` objects for *path*, with the configuration of the Spark session.

    Both are references to objects in the driver's JVM, so executors cannot use them.
    """
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
