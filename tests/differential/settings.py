"""The settings of each client library that are drawn, by its own names, from its own documented ranges."""

import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

__all__ = ["FAMILIES", "Family", "draw_settings", "family_of"]

Value = str | int | float | bool
Settings = dict[str, Value]


@attrs.frozen
class Family:
    """The settings of one client library."""

    ranges: Mapping[str, Sequence[Value]]
    """Values by name; ordinary ones occur more than once."""
    presets: Sequence[Settings] = ()
    """Combinations that have broken before, drawn often."""
    always: Mapping[str, Value] = attrs.field(factory=dict)
    """Settings that a reader of all records needs instead of the library's defaults."""
    min_bytes: str = ""
    partition_bytes: str = ""
    max_wait_ms: str = ""
    """Names of those that make a reader wait out its maximum wait at every fetch, when drawn badly."""
    brief_waits_ms: Sequence[int] = (1, 9, 20)
    """For readers that cannot reach their minimum bytes."""


_WAITS: Final = (500, 500, 0, 1, 9, 20, 100, 1_500)
_MIN_BYTES: Final = (1, 1, 1, 100, 20_000, 1_000_000, 50_000_000)
_MAX_BYTES: Final = (52_428_800, 1, 1_000, 10_000, 100_000, 1_048_576, 1_048_576, 5_000_000)
_PARTITION_BYTES: Final = (1_048_576, 1, 500, 4_000, 16_384, 100_000, 10_000_000)
_POLL_RECORDS: Final = (500, 1, 4, 10, 50, 50, 5_000)

_JAVA: Final = Family(
    {
        "fetch.min.bytes": _MIN_BYTES,
        "fetch.max.wait.ms": _WAITS,
        "fetch.max.bytes": _MAX_BYTES,
        "max.partition.fetch.bytes": _PARTITION_BYTES,
        "max.poll.records": _POLL_RECORDS,
        # At 1 KiB, Linux goes over to its persist timer in some 5 % of all connections: 489 bytes every 200 ms.
        "receive.buffer.bytes": (65_536, 8_192, 32_768, 1_000_000),
        "check.crcs": ("true", "false"),
        "metadata.max.age.ms": (300_000, 300, 2_000),
    },
    presets=(
        {"fetch.max.bytes": 1_048_576, "max.poll.records": 50},
        {"fetch.max.bytes": 10_000, "max.partition.fetch.bytes": 4_000, "max.poll.records": 4},
        {"fetch.max.bytes": 1, "max.partition.fetch.bytes": 1, "max.poll.records": 10},
    ),
    always={"auto.offset.reset": "earliest"},
    min_bytes="fetch.min.bytes",
    partition_bytes="max.partition.fetch.bytes",
    max_wait_ms="fetch.max.wait.ms",
)

_PYTHON: Final = Family(
    {
        "fetch_min_bytes": _MIN_BYTES,
        "fetch_max_wait_ms": _WAITS,
        "fetch_max_bytes": _MAX_BYTES,
        "max_partition_fetch_bytes": _PARTITION_BYTES,
        "max_poll_records": _POLL_RECORDS,
        "check_crcs": (True, False),
        "metadata_max_age_ms": (300_000, 1_000),
    },
    presets=(
        {"fetch_max_bytes": 1_048_576, "max_poll_records": 50},
        {"fetch_max_bytes": 10_000, "max_partition_fetch_bytes": 4_000, "max_poll_records": 4},
        {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1, "max_poll_records": 10},
    ),
    always={"auto_offset_reset": "earliest"},
    min_bytes="fetch_min_bytes",
    partition_bytes="max_partition_fetch_bytes",
    max_wait_ms="fetch_max_wait_ms",
)

_OLD_LIBRDKAFKA: Final = Family(
    {
        "fetch.min.bytes": (1, 1, 1, 100, 20_000, 1_000_000),
        "fetch.wait.max.ms": _WAITS,
        "fetch.max.bytes": (52_428_800, 1_000, 10_000, 100_000, 1_000_000, 1_048_576),
        "max.partition.fetch.bytes": _PARTITION_BYTES,
        "check.crcs": ("true", "false"),
        "socket.receive.buffer.bytes": (0, 0, 8_192, 1_000_000),
    },
    presets=({"fetch.max.bytes": 1_000_000, "receive.message.max.bytes": 1_000_512},),
    always={"auto.offset.reset": "earliest"},
    min_bytes="fetch.min.bytes",
    partition_bytes="max.partition.fetch.bytes",
    max_wait_ms="fetch.wait.max.ms",
)

_LIBRDKAFKA: Final = attrs.evolve(
    _OLD_LIBRDKAFKA,
    ranges={
        **_OLD_LIBRDKAFKA.ranges,
        "queued.min.messages": (100_000, 1, 100),
        "queued.max.messages.kbytes": (65_536, 1, 64),
    },
    presets=(
        *_OLD_LIBRDKAFKA.presets,
        {"fetch.max.bytes": 1_048_576, "queued.min.messages": 100},
        {"fetch.max.bytes": 10_000, "max.partition.fetch.bytes": 4_000},
    ),
)

_FRANZ: Final = Family(
    {
        "FetchMinBytes": _MIN_BYTES,
        "FetchMaxWait": _WAITS,
        "FetchMaxBytes": _MAX_BYTES,
        "FetchMaxPartitionBytes": _PARTITION_BYTES,
        "MaxConcurrentFetches": (0, 1, 2),
        "PollRecords": (0, 4, 50, 500),
    },
    presets=(
        {"FetchMaxBytes": 1_048_576, "PollRecords": 50},
        {"FetchMaxBytes": 10_000, "FetchMaxPartitionBytes": 4_000},
        {"FetchMaxBytes": 1, "FetchMaxPartitionBytes": 1},
    ),
    min_bytes="FetchMinBytes",
    partition_bytes="FetchMaxPartitionBytes",
    max_wait_ms="FetchMaxWait",
    brief_waits_ms=(10, 20),  # it refuses less
)

_SARAMA: Final = Family(
    {
        "Consumer.Fetch.Min": (1, 1, 100, 20_000),
        "Consumer.Fetch.Default": (1_048_576, 4_000, 16_384, 100_000, 10_000_000),
        "Consumer.MaxWaitTime": (250, 1, 20, 500, 1_500),
        "ChannelBufferSize": (256, 0, 1, 4, 5_000),
    },
    presets=({"Consumer.Fetch.Default": 4_000, "ChannelBufferSize": 1},),
    min_bytes="Consumer.Fetch.Min",
    partition_bytes="Consumer.Fetch.Default",
    max_wait_ms="Consumer.MaxWaitTime",
)

_KAFKAJS: Final = Family(
    {
        "minBytes": (1, 1, 100, 20_000),
        "maxBytes": (10_485_760, 1, 10_000, 100_000, 1_048_576),
        "maxBytesPerPartition": (1_048_576, 1, 4_000, 16_384, 100_000),
        "maxWaitTimeInMs": (5_000, 20, 100, 500),
    },
    presets=({"maxBytes": 10_000, "maxBytesPerPartition": 4_000}, {"maxBytes": 1_048_576}),
    min_bytes="minBytes",
    partition_bytes="maxBytesPerPartition",
    max_wait_ms="maxWaitTimeInMs",
)

_KAFKA_GO: Final = Family(
    {
        "MinBytes": (1, 1, 100, 20_000),
        "MaxBytes": (1_000_000, 20_000, 100_000, 10_000_000),
        "MaxWait": (500, 100, 1_500),
        "QueueCapacity": (100, 1, 10),
    },
    min_bytes="MinBytes",
    partition_bytes="MaxBytes",
    max_wait_ms="MaxWait",
    brief_waits_ms=(100,),  # it is also the deadline of its socket, after which it gives up
)

FAMILIES: Final[Mapping[str, Family]] = {
    "java": _JAVA,
    "kafka-python": _PYTHON,
    "aiokafka": _PYTHON,
    "librdkafka-0.11.6": _OLD_LIBRDKAFKA,
    "librdkafka": _LIBRDKAFKA,
    "franz-go": _FRANZ,
    "sarama": _SARAMA,
    "kafkajs": _KAFKAJS,
    "kafka-go": _KAFKA_GO,
}
"""The settings, by prefix of the clients' names."""


def family_of(client: str) -> Family:
    """Return the family with the longest name that *client* begins with; one without settings if there is none."""
    names = [name for name in FAMILIES if client.startswith(name)]
    return FAMILIES[max(names, key=len)] if names else Family({})


def draw_settings(dice: random.Random, client: str, *, largest_bytes: int, is_small: bool = False) -> Settings:
    """Draw settings for *client*.

    Args:
        largest_bytes: the size of the largest batch of the topic, which every client has to take.
        is_small:      fetch little at once, so that an event meets a reader with little in its buffers.
    """
    family = family_of(client)
    settings: Settings = {}
    if family.presets and dice.random() < 0.35:
        settings |= dice.choice(family.presets)
    for name, values in family.ranges.items():
        value = dice.choice(values)
        if dice.random() < 0.35:
            settings.setdefault(name, value)
    if is_small and family.partition_bytes:
        settings[family.partition_bytes] = dice.choice((1_000, 4_000, 16_384))
    _limit_waits(dice, family, settings)
    if client.startswith("librdkafka"):
        _fit_librdkafka(dice, settings, largest_bytes, is_old=client != "librdkafka")
    if client in _WITHOUT_FIRST_BATCH:
        most = int(settings.get(family.partition_bytes, 1_048_576))
        settings[family.partition_bytes] = max(most, largest_bytes)
    for name in _LATER.get(client, ()):
        settings.pop(name, None)
    return {**family.always, **settings}


_WITHOUT_FIRST_BATCH: Final = (
    "java-0.9.0.1",
    "kafka-python-1.4.7-as-0.8.1",
    "kafka-python-1.4.7-as-0.8.2",
    "kafka-python-1.4.7-as-0.9",
    "kafka-python-1.4.7-as-0.10",
    "sarama-1.19.0-as-0.8.2",
    "sarama-1.19.0-as-0.9",
)
"""Clients of Fetch v2 and below, which give up at a batch that is larger than their limit."""

_LATER: Final = {"java-0.9.0.1": ("fetch.max.bytes", "max.poll.records")}
"""Settings that a version does not know yet."""


def _limit_waits(dice: random.Random, family: Family, settings: Settings) -> None:
    """Let a reader that cannot reach its minimum bytes wait only briefly at each fetch."""
    if int(settings.get(family.min_bytes, 1)) > 1:
        settings[family.max_wait_ms] = dice.choice(family.brief_waits_ms)


def _fit_librdkafka(dice: random.Random, settings: Settings, largest_bytes: int, *, is_old: bool) -> None:
    """Hold the rules that librdkafka checks between its settings."""
    fetch_bytes = int(settings.get("fetch.max.bytes", 52_428_800))
    settings["message.max.bytes"] = min(fetch_bytes, 1_000_000)
    is_tight = settings.pop("receive.message.max.bytes", None) is not None or dice.random() < 0.2
    if is_tight and largest_bytes < fetch_bytes:
        settings["receive.message.max.bytes"] = fetch_bytes + 512
    if not is_old and ("queued.min.messages" in settings or "queued.max.messages.kbytes" in settings):
        # A full queue is looked at again after this time: a second by default.
        settings["fetch.queue.backoff.ms"] = dice.choice((0, 1, 5))
