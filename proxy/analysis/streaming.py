"""Ledgers as they are written, from a folder or a topic, into Parquet as it lies in ``layout``.

    new files, offsets --> lines --> rows, good and bad --> each once --> one sink, and its log of batches

**Exactly once.** The checkpoint has, for each batch, what it is of: files, or offsets of partitions. A batch that
was cut off is made again of the same, from the state that the one before has left. Its files are named in the
folder's ``_spark_metadata`` by one atomic write, all records and the bad rows together, and that is what Spark's
readers of the folder go by: what a killed batch has left behind is not in it. That is why there is one sink, and no
``foreachBatch`` that writes one folder after another: it is called again for a batch of which some are written.
Who lists files instead of reading the log (DuckDB, say) can see rows of a killed batch twice.

**Late.** No row is dropped for being late: it is written to its day whenever it comes. The watermark is of the time
of arrival, and bounds what is remembered: of a row that comes again within ``remembered``, one is written. A second
one that comes later is written, too; reading (``ingest``) makes it one again.

**One checkpoint, one folder.** The checkpoint is in the folder (``_checkpoint``): the two belong together.
A new checkpoint would number its batches from 0, and the log would take them for done.
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
from proxy.analysis.layout import PARTITIONS, dated
from proxy.analysis.lines import KEY, parsed
from proxy.errors import ConfigError

__all__ = ["TriggerSettings", "from_folder", "from_topic", "start"]

_CHECKPOINT: Final = "_checkpoint"
_FILES_OF_A_BATCH: Final = 1_000
"""Of 64 MiB at most, as sidecars write them."""


@attrs.frozen
class TriggerSettings:
    """When batches are made, and what is remembered between them."""

    every: str | None = "1 minute"
    """Between the starts of two batches. None: what is there now, and then the query ends."""
    remembered: str = "1 hour"
    """For how long a row is known to have come. Each takes some 100 bytes of the executors' state for that time."""


def from_folder(spark: SparkSession, folder: str, *, files_of_a_batch: int = _FILES_OF_A_BATCH) -> DataFrame:
    """The lines of all ``*.jsonl`` (also ``.gz``, ``.bz2``) that are in *folder* or come there, however deep.

    A file that is more than a year older than the newest one is left out, since Spark has forgotten by then whether
    it was read.
    """
    reader = (
        spark.readStream.option("recursiveFileLookup", True)
        .option("pathGlobFilter", "*.jsonl{,.gz,.bz2}")
        .option("maxFilesPerTrigger", files_of_a_batch)
        .option("maxFileAge", "365d")
    )
    return reader.text(folder).select("value", F.col("_metadata.file_path").alias("file"))


def from_topic(spark: SparkSession, options: Mapping[str, str], *, is_native: bool = False) -> DataFrame:
    """The lines of the ledger's topic, by *options* of ``kafka_source``.

    *is_native*: read by Spark's own source, whose jar (``org.apache.spark:spark-sql-kafka-0-10``) must be there.
    """
    if not is_native:
        spark.dataSource.register(LedgerTopicSource)
    rows = spark.readStream.format("kafka" if is_native else LedgerTopicSource.name()).options(**options).load()
    place = F.format_string("%s/%d@%d", "topic", "partition", "offset")
    return rows.select(F.col("value").cast("string").alias("value"), place.alias("file"))


def start(lines: DataFrame, path: str, pace: TriggerSettings | None = None) -> StreamingQuery:
    """Write *lines*, which stream, to the folder *path* until the query is stopped; go on where it was left.

    Raises: ConfigError: something else has written to *path*.
    """
    pace = pace or TriggerSettings()
    _check_folder(lines.sparkSession, path)
    rows = dated(parsed(lines)).withColumn("arrived", F.current_timestamp())
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
            f"{path}: not empty, and no stream's; accepted: a folder that is new, or this stream's own"
        )
    if STREAM_LOG in here and _CHECKPOINT not in here:
        raise ConfigError(
            f"{path}: its {_CHECKPOINT} is gone, so that rows would be lost; accepted: another folder"
        )
