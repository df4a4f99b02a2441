"""A Spark data source for the ledger's topic, with a Kafka client in Python, so that no jar is needed.

The options are those of Spark's own Kafka source that apply here, so that each source can replace the other:

=========================  ========================================================================================
``kafka.…``                Client settings with librdkafka's names: ``kafka.bootstrap.servers`` (required),
                           ``kafka.security.protocol``, ``kafka.sasl.mechanism``, ``kafka.sasl.username``,
                           ``kafka.ssl.ca.location``, … With ``kafka.group.id``, a stream commits its offsets to
                           this group, for lag monitoring; the stream itself uses only its checkpoint.
``subscribe``              The topic (required).
``startingOffsets``        ``earliest`` (default) or ``latest``: where a new stream, or a batch, begins.
``maxOffsetsPerTrigger``   The maximum number of offsets in a batch of a stream, over all partitions.
``failOnDataLoss``         ``true`` (default): the query fails if Kafka deleted rows before they were read.
                           ``false``: it continues, and returns a line that names the missing offsets.
=========================  ========================================================================================

The source skips rows of aborted transactions (the default of ``kafka.isolation.level`` is ``read_committed``). It
reads a new partition from its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from proxy.errors import ConfigError, ProxyError

__all__ = ["LedgerTopicSource", "RowsGone"]

_SCHEMA: Final = "value string, topic string, partition int, offset long"
_ARROW: Final = pa.schema(
    [("value", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)
_TIMEOUT_S: Final = 60.0
"""Timeout for a response or the next row: the Java consumer's default (``default.api.timeout.ms``)."""
_ROWS_AT_ONCE: Final = 10_000
_KNOWN: Final = {"subscribe", "startingoffsets", "maxoffsetspertrigger", "failondataloss", "path"}

Offsets = dict[str, int]
"""The next offset to read, by partition number. The number is a text, because Spark stores offsets as JSON."""


class RowsGone(ProxyError):
    """The error that rows of the ledger's topic can no longer be read.

    Either Kafka deleted them before they were read, or the topic was deleted and created again since the last
    batch. The message names the partition, the offsets and the remedy.
    """


class _Range(InputPartition):
    """A range of offsets of one partition, which one task reads."""

    def __init__(self, partition: int, first: int, end: int, gone_from: int) -> None:
        """Set the range *first* to *end* - 1. Kafka deleted the offsets from *gone_from* to *first* - 1."""
        super().__init__(partition)
        self.partition = partition
        self.first = first
        self.end = end
        self.gone_from = gone_from


@attrs.frozen
class _TopicOptions:
    """The parsed options of the data source: plain values only, because Spark sends them to the executors."""

    name: str
    """The topic."""
    client: Mapping[str, str]
    """Settings of the Kafka client, with librdkafka's names."""
    starts_latest: bool
    """Whether a new stream, or a batch, begins at the end of the topic instead of its beginning."""
    most_rows: int | None
    """The maximum number of offsets in a batch of a stream; None for no limit."""
    fails_on_loss: bool
    """Whether the query fails if Kafka deleted rows before they were read."""
    group: str | None
    """The consumer group to which a stream commits its offsets; None for none."""

    def consumer(self) -> Consumer:
        """Return a consumer without group membership, whose caller assigns partitions and offsets."""
        return Consumer(
            {
                "group.id": "sidefetch-ledger",
                "isolation.level": "read_committed",
                **self.client,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )

    def offsets(self, consumer: Consumer, at: int) -> Offsets:
        """Return the first (``OFFSET_BEGINNING``) or the end (``OFFSET_END``) offset of each partition.

        Raises: ConfigError: the topic does not exist or may not be read; KafkaException: a broker fails.
        """
        topic = consumer.list_topics(self.name, _TIMEOUT_S).topics[self.name]
        if topic.error is not None:
            raise ConfigError(f"subscribe: {self.name}: {topic.error.str()}; accepted: a topic that may be read")
        asked = [TopicPartition(self.name, number, at) for number in topic.partitions]
        found: Offsets = {}
        for each in consumer.offsets_for_times(asked, _TIMEOUT_S):
            if each.error is not None:
                raise KafkaException(each.error)
            found[str(each.partition)] = each.offset
        return found

    def ranges(self, consumer: Consumer, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the offset ranges from *start* to *end*, at most one per partition, for tasks to read.

        Raises: RowsGone: Kafka deleted some of these offsets, and the options do not allow that.
        """
        firsts = self.offsets(consumer, OFFSET_BEGINNING)
        found: list[InputPartition] = []
        for number, stop in end.items():
            begin = start.get(number, 0)
            first = min(max(begin, firsts.get(number, 0)), stop)
            if first > begin and self.fails_on_loss:
                raise RowsGone(
                    f"{self.name}/{number}: offsets {begin} to {first - 1} were deleted before they were read;"
                    " to continue without them, set failOnDataLoss=false"
                )
            if stop > begin:
                found.append(_Range(int(number), first, stop, begin))
        return found


def _topic(options: Mapping[str, str]) -> _TopicOptions:
    lower_case = {name.lower(): value for name, value in options.items()}
    unknown = sorted(name for name in lower_case if name not in _KNOWN and not name.startswith("kafka."))
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: unknown option; accepted: kafka.…, {', '.join(sorted(_KNOWN - {'path'}))}"
        )
    client = {name.removeprefix("kafka."): value for name, value in lower_case.items() if name.startswith("kafka.")}
    if not client.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers: missing; accepted: brokers, as HOST:PORT,HOST:PORT")
    if not lower_case.get("subscribe"):
        raise ConfigError("subscribe: missing; accepted: the ledger's topic")
    starts = _one_of(lower_case, "startingoffsets", "earliest", "latest")
    fails = _one_of(lower_case, "failondataloss", "true", "false")
    most = lower_case.get("maxoffsetspertrigger")
    if most is not None and (not most.isdecimal() or int(most) == 0):
        raise ConfigError(f"maxOffsetsPerTrigger: {most}; accepted: a whole number from 1")
    return _TopicOptions(
        lower_case["subscribe"],
        client,
        starts == "latest",
        int(most) if most is not None else None,
        fails == "true",
        client.get("group.id"),
    )


def _one_of(options: Mapping[str, str], name: str, usual: str, other: str) -> str:
    value = options.get(name, usual).lower()
    if value not in (usual, other):
        raise ConfigError(f"{name}: {value}; accepted: {usual}, {other}")
    return value


class LedgerTopicSource(DataSource):
    """A Spark data source named ``ledger-topic``, which reads the ledger's Kafka topic as a batch or as a stream.

    Its rows have the columns ``value`` (a line of the ledger), ``topic``, ``partition`` and ``offset``; the
    module's docstring lists the options. To use it: ``spark.dataSource.register(LedgerTopicSource)``, then
    ``spark.readStream.format("ledger-topic")``.
    """

    @classmethod
    def name(cls) -> str:
        return "ledger-topic"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        return _Batch(_topic(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's signature
        return _Stream(_topic(self.options))


class _Batch(DataSourceReader):
    """A reader of one batch: all rows that the topic has when Spark plans the query."""

    def __init__(self, topic: _TopicOptions) -> None:
        self._topic = topic

    def partitions(self) -> Sequence[InputPartition]:
        consumer = self._topic.consumer()
        try:
            first = OFFSET_END if self._topic.starts_latest else OFFSET_BEGINNING
            start = self._topic.offsets(consumer, first)
            return self._topic.ranges(consumer, start, self._topic.offsets(consumer, OFFSET_END))
        finally:
            consumer.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        return _rows(self._topic, partition)


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of a stream, batch by batch, from the offsets of the checkpoint.

    The driver asks Kafka for offsets, the executors for rows.
    """

    def __init__(self, topic: _TopicOptions) -> None:
        self._topic = topic
        self._consumer: Consumer | None = None
        self._until: Offsets | None = None

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._topic.consumer()
        return self._consumer

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name, like those below
        return self._topic.offsets(
            self._open_consumer(), OFFSET_END if self._topic.starts_latest else OFFSET_BEGINNING
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._topic.most_rows is None else ReadMaxRows(self._topic.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._topic.offsets(self._open_consumer(), OFFSET_END)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        ends = self._until or self._topic.offsets(self._open_consumer(), OFFSET_END)
        for number, begin in start.items():
            if ends.get(number, -1) < begin:
                raise RowsGone(
                    f"{self._topic.name}/{number}: the stream has read up to offset {begin}, but the partition ends"
                    " before it: the topic was created again; to read it, use a new folder for the stream"
                )
        return limit_offsets(start, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return self._topic.ranges(self._open_consumer(), start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        return _rows(self._topic, partition)

    def commit(self, end: Offsets) -> None:
        if self._topic.group is not None:
            done = [TopicPartition(self._topic.name, int(number), offset) for number, offset in end.items()]
            # These offsets serve monitoring only, and the next commit replaces them, so failures do not matter.
            with suppress(KafkaException):
                self._open_consumer().commit(offsets=done, asynchronous=False)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def limit_offsets(start: Offsets, ends: Offsets, most: int) -> Offsets:
    """Return the end offsets of a stream's next batch of at most *most* offsets, over all partitions.

    The batch is divided among the partitions in proportion to their backlogs. If all backlogs fit into it, the
    result is *ends*.

    Args: start: the next offset to read, by partition; a partition that is not in it is read from offset 0.
          ends: the present end offset of each partition.
    """
    left = {number: end - start.get(number, 0) for number, end in ends.items()}
    total = sum(left.values())
    if total <= most:
        return ends
    taken = {number: most * rows // total for number, rows in left.items()}
    spare = most - sum(taken.values())
    for number in sorted(left, key=lambda number: left[number], reverse=True)[:spare]:
        taken[number] += 1
    return {number: start.get(number, 0) + rows for number, rows in taken.items()}


def _rows(topic: _TopicOptions, asked: _Range) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the offset range *asked*, in batches.

    If Kafka deleted offsets before the range, the first row is a line that names them, which becomes a bad row.
    """
    if asked.gone_from < asked.first:
        gone = f"offsets {asked.gone_from} to {asked.first - 1} were deleted before they were read"
        yield _batch(topic, asked.partition, [gone], [asked.gone_from])
    if asked.first == asked.end:
        return
    consumer = topic.consumer()
    try:
        consumer.assign([TopicPartition(topic.name, asked.partition, asked.first)])
        while True:
            first = consumer.poll(_TIMEOUT_S)
            if first is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no row of {topic.name}/{asked.partition}"))
            # With a timeout, consume() would wait until it has the full number of rows.
            messages = [first, *consumer.consume(_ROWS_AT_ONCE, 0)]
            is_over, rows = _until(messages, asked.end)
            yield _batch(topic, asked.partition, [value for _, value in rows], [offset for offset, _ in rows])
            if is_over:
                return
    finally:
        consumer.close()


def _until(messages: Sequence[Any], end: int) -> tuple[bool, list[tuple[int, str]]]:
    """Return whether *messages* reach the offset *end*, and the offset and value of each message before it.

    A message, or the end of the partition, that is at or after *end* reaches it, too: transaction markers and gaps
    have no message.
    """
    rows: list[tuple[int, str]] = []
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if message.offset() >= end:
            return True, rows
        if error is None:
            rows.append((message.offset(), (message.value() or b"").decode("utf-8", "replace")))
    return bool(rows) and rows[-1][0] == end - 1, rows


def _batch(topic: _TopicOptions, partition: int, values: list[str], offsets: list[int]) -> pa.RecordBatch:
    columns = [values, [topic.name] * len(values), [partition] * len(values), offsets]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )
