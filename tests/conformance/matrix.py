"""The clients that Sidefetch serves, old and new, with the codecs and the record fields that each supports."""

from typing import Final, Literal

import attrs

from tests.kafka.records import Record

__all__ = ["CODECS", "DIRECTLY_ON_39", "MATRIX", "THROUGH_SIDEFETCH", "Entry", "Way"]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Way = Literal["3.9 directly", "4.3 through Sidefetch"]
DIRECTLY_ON_39: Final = "3.9 directly"
THROUGH_SIDEFETCH: Final = "4.3 through Sidefetch"


@attrs.frozen
class Entry:
    """One client."""

    title: str
    """The name in the README."""
    program: str
    """The name in ``tests.clients.programs``."""
    magic: Literal[0, 1, 2]
    """The record format that it reads and writes: 0 has no timestamps, 1 no headers."""
    reads: tuple[str, ...] = CODECS
    """Codecs, as far as its brokers or Sidefetch see to it that it is sent no other."""
    reads_on_39: tuple[str, ...] = CODECS[:-1]
    """Codecs: Kafka 3.9 refuses to convert zstd, and sends it as it is to those who read the newest format."""
    writes: tuple[str, ...] = CODECS[:-1]
    makes_topics: bool = False
    keeps_offsets_in_zookeeper: bool = False
    """It commits to any broker, for ZooKeeper, which Kafka 3.9 does not have in KRaft mode."""

    def codecs(self, way: Way) -> tuple[str, ...]:
        """Return the codecs that the client can read from a log with all codecs."""
        return self.reads_on_39 if way == DIRECTLY_ON_39 else self.reads

    def seen(self, record: Record) -> Record:
        """Return *record* with the fields that the client's format has."""
        if self.magic < 1:
            record = attrs.evolve(record, timestamp_ms=-1)
        return attrs.evolve(record, headers=()) if self.magic < 2 else record


_PLAIN: Final = ("none", "gzip")

MATRIX: Final = (
    Entry("Java 0.9.0.1", "java-0.9.0.1", 0),
    Entry("Java 0.10.2.2", "java-0.10.2.2", 1),
    Entry("Java 0.11.0.3", "java-0.11.0.3", 2),
    Entry("Java 2.0.1", "java-2.0.1", 2),
    Entry(
        "kafka-python 1.4.7 as 0.8.1",
        "kafka-python-1.4.7-as-0.8.1",
        0,
        writes=CODECS[:3],
        keeps_offsets_in_zookeeper=True,
    ),
    Entry("kafka-python 1.4.7 as 0.8.2", "kafka-python-1.4.7-as-0.8.2", 0),
    Entry("kafka-python 1.4.7 as 0.9", "kafka-python-1.4.7-as-0.9", 0),
    Entry("kafka-python 1.4.7 as 0.10", "kafka-python-1.4.7-as-0.10", 1),
    # It wants the right checksum in the header of LZ4, where Kafka 3.9 sees to the wrong one of old.
    Entry("Sarama 1.19.0 as 0.8.2", "sarama-1.19.0-as-0.8.2", 0, reads_on_39=CODECS[:3], writes=CODECS[:3]),
    Entry("Sarama 1.19.0 as 0.9", "sarama-1.19.0-as-0.9", 0, reads_on_39=CODECS[:3], writes=CODECS[:3]),
    Entry("Sarama 1.19.0 as 0.10.2", "sarama-1.19.0-as-0.10.2", 1, makes_topics=True),
    Entry("librdkafka 0.11.6", "librdkafka-0.11.6", 2),
    # It brings no other codecs; whoever wants them adds them.
    Entry("KafkaJS 2.2.4", "kafkajs", 2, reads=_PLAIN, reads_on_39=_PLAIN, writes=_PLAIN, makes_topics=True),
    Entry("franz-go 1.16.1", "franz-go", 2, reads_on_39=CODECS, writes=CODECS, makes_topics=True),
    Entry("confluent-kafka, newest", "librdkafka", 2, reads_on_39=CODECS, writes=CODECS, makes_topics=True),
)
