"""A stream that writes ledger rows from a folder or a Kafka topic to Parquet (``layout``) as they arrive.

    new files, offsets --> lines --> rows, good and bad --> each once --> one sink, and its log of batches

**Exactly once.** The checkpoint records the input of each batch: files, or offsets of partitions. Spark repeats an
interrupted batch with the same input, from the state after the batch before. One atomic write to the folder's
``_spark_metadata`` names the files of a batch, all records and the bad rows together. Spark reads the folder by
that log, so the remains of a killed batch are not visible. Hence there is one sink, and no ``foreachBatch`` that
writes several folders in turn: Spark would call it again for a batch whose first folders are written already. A
reader that lists files instead of reading the log (DuckDB, for example) can see rows of a killed batch twice.

**Late rows.** The stream never drops a late row; it writes the row to its day. The watermark is on the arrival time
and bounds the state: of duplicates that arrive within ``remembered`` one is written. A duplicate that arrives later
is written, too; ``ingest`` removes it when it reads.

**One checkpoint per folder.** The checkpoint is in the folder (``_checkpoint``) and belongs to it. A new checkpoint
would number its batches from 0, and the log would take these batches for completed ones.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from proxy.analysis.inputs import STREAM_LOG, hadoop_path
from proxy.analysis.kafka_source import LedgerTopicSource
from proxy.analysis.layout import PARTITIONS, add_day
from proxy.analysis.lines import KEY, parse_lines
from proxy.errors import ConfigError

__all__ = ["TriggerSettings", "from_folder", "from_topic", "start"]

_CHECKPOINT: Final = "_checkpoint"
_FILES_OF_A_BATCH: Final = 1_000
"""Maximum number of files in a batch. A file has at most 64 MiB, by the sidecars' default."""


@attrs.frozen
class TriggerSettings:
    """The interval of a stream's batches, and the time for which the stream remembers rows to drop duplicates."""

    every: str | None = "1 minute"
    """Time between the starts of two batches, in Spark's notation. None: process the input that exists now, then
    end the query."""
    remembered: str = "1 hour"
    """Time for which a row is remembered, so that duplicates of it are dropped. Each remembered row takes about 100
    bytes of the executors' memory."""


def from_folder(spark: SparkSession, folder: str, *, files_of_a_batch: int = _FILES_OF_A_BATCH) -> DataFrame:
    """Return a streaming DataFrame of the lines of all ``*.jsonl`` files below *folder*, present and future.

    Files may be compressed (``.gz``, ``.bz2``). The columns are ``value``, a line, and ``file``, its path. A file
    that is more than a year older than the newest one is ignored, because Spark no longer remembers whether it was
    read.

    Args: files_of_a_batch: the maximum number of files that one batch reads.
    """
    reader = (
        spark.readStream.option("recursiveFileLookup", True)
        .option("pathGlobFilter", "*.jsonl{,.gz,.bz2}")
        .option("maxFilesPerTrigger", files_of_a_batch)
        .option("maxFileAge", "365d")
    )
    return reader.text(folder).select("value", F.col("_metadata.file_path").alias("file"))


def from_topic(spark: SparkSession, options: Mapping[str, str], *, is_native: bool = False) -> DataFrame:
    """Return a streaming DataFrame of the ledger's lines in a Kafka topic.

    The columns are ``value``, a line, and ``file``, its place as ``topic/partition@offset``.

    Args: options: the options of ``kafka_source``, such as ``subscribe`` and ``kafka.bootstrap.servers``.
          is_native: whether to read with Spark's own Kafka source, whose jar
          (``org.apache.spark:spark-sql-kafka-0-10``) must be installed, instead of ``kafka_source``.
    """
    if not is_native:
        spark.dataSource.register(LedgerTopicSource)
    rows = spark.readStream.format("kafka" if is_native else LedgerTopicSource.name()).options(**options).load()
    place = F.format_string("%s/%d@%d", "topic", "partition", "offset")
    return rows.select(F.col("value").cast("string").alias("value"), place.alias("file"))


def start(lines: DataFrame, path: str, pace: TriggerSettings | None = None) -> StreamingQuery:
    """Start a Spark query that parses *lines* and writes the rows to *path* as Parquet; return the query.

    *lines* comes from ``from_folder`` or ``from_topic``, *path* is a folder. The query drops duplicates that arrive
    within the time of ``pace.remembered``. If *path* is the folder of an earlier stream, the query continues from
    the checkpoint in it.

    Args:   pace: the interval of batches; None for the defaults of ``TriggerSettings``.
    Raises: ConfigError: *path* is not empty and not a stream's folder, or its checkpoint is missing.
    """
    pace = pace or TriggerSettings()
    _check_folder(lines.sparkSession, path)
    rows = add_day(parse_lines(lines)).withColumn("arrived", F.current_timestamp())
    once = rows.withWatermark("arrived", pace.remembered).dropDuplicatesWithinWatermark(list(KEY)).drop("arrived")
    writer = once.writeStream.format("parquet").partitionBy(*PARTITIONS)
    writer = writer.option("checkpointLocation", f"{path}/{_CHECKPOINT}").queryName(f"ledger to {path}")
    return _triggered(writer, pace).start(path)


def _triggered(writer: DataStreamWriter, pace: TriggerSettings) -> DataStreamWriter:
    return writer.trigger(availableNow=True) if pace.every is None else writer.trigger(processingTime=pace.every)


def _check_folder(spark: SparkSession, path: str) -> None:
    files, folder = hadoop_path(spark, path)
    here: set[Any] = {each.getPath().getName() for each in files.globStatus(folder.suffix("/*")) or ()}
    if here and not {_CHECKPOINT, STREAM_LOG} & here:
        raise ConfigError(
            f"{path}: not empty, and not the folder of a stream; accepted: a new folder, or this stream's own"
        )
    if STREAM_LOG in here and _CHECKPOINT not in here:
        raise ConfigError(
            f"{path}: its {_CHECKPOINT} is missing, so a new stream would lose rows; accepted: another folder"
        )
