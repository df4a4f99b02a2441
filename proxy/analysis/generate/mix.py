"""What a fleet is made of: figures, each with the reason for its default."""

from collections.abc import Mapping
from typing import Final

import attrs

__all__ = ["FETCH", "HEARTBEAT", "KINDS", "METADATA", "OFFSET_COMMIT", "SERVED", "ClientKind", "FleetMix"]

FETCH: Final = 1
"""Kafka's API keys of what is generated, here and below."""
_LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
_OFFSET_FETCH: Final = 9
_JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
_API_VERSIONS: Final = 18

SERVED: Final[Mapping[int, tuple[int, int]]] = {
    FETCH: (4, 18),
    _LIST_OFFSETS: (1, 11),
    METADATA: (0, 13),
    OFFSET_COMMIT: (2, 10),
    _OFFSET_FETCH: (1, 10),
    _JOIN_GROUP: (2, 9),
    HEARTBEAT: (0, 4),
    _API_VERSIONS: (0, 4),
}
"""The versions that Kafka 4.3 serves; what is older is lifted to the first. (JoinGroup, as 4.0.0 serves it.)"""


@attrs.frozen
class ClientKind:
    """A client, as it speaks."""

    name: str
    """Its client ids begin with it."""
    software: str
    """As the ledger tells it: as ApiVersions v3 does, or as guessed from the Fetch version."""
    share: float
    """Of the fleet; shares need not add up to 1."""
    poll_s: float
    """How long its fetches wait for records."""
    has_sessions: bool
    apis: Mapping[int, int] = attrs.field(hash=False)
    """Version by API key."""

    @property
    def fetch_version(self) -> int:
        return self.apis[FETCH]

    @property
    def converted_to(self) -> int | None:
        """The newest record format (magic) that it reads, where that is not the brokers' own."""
        return 0 if self.fetch_version < 2 else 1 if self.fetch_version < 4 else None


def _kind(
    name: str,
    software: str,
    share: float,
    *versions: int | None,
    poll_s: float = 0.5,
    has_sessions: bool = False,
) -> ClientKind:
    """*versions* of Fetch, ListOffsets, Metadata, OffsetFetch, OffsetCommit, JoinGroup, Heartbeat, ApiVersions."""
    keys = (
        FETCH,
        _LIST_OFFSETS,
        METADATA,
        _OFFSET_FETCH,
        OFFSET_COMMIT,
        _JOIN_GROUP,
        HEARTBEAT,
        _API_VERSIONS,
    )
    apis = {key: version for key, version in zip(keys, versions, strict=True) if version is not None}
    return ClientKind(name, software, share, poll_s, has_sessions, apis)


KINDS: Final = (
    _kind("java-0.9", "speaks as Kafka 0.9", 0.06, 1, 0, 0, 1, 2, 0, 0, None),
    _kind("java-0.10.2", "speaks as Kafka 0.10.1 or 0.10.2", 0.14, 3, 1, 2, 2, 2, 1, 0, 0),
    _kind("java-0.11", "speaks as Kafka 0.11", 0.12, 5, 2, 4, 3, 3, 2, 1, 1),
    _kind("java-2.0", "speaks as Kafka 2.0", 0.15, 8, 3, 6, 4, 4, 3, 2, 2, has_sessions=True),
    _kind("java-4.3", "apache-kafka-java 4.3.1", 0.10, 18, 9, 12, 9, 9, 9, 4, 4, has_sessions=True),
    _kind("kafka-python-1.4", "speaks as Kafka 0.10.0", 0.06, 2, 0, 1, 1, 2, 0, 0, None),
    _kind("kafka-python-2.0", "speaks as Kafka 0.11", 0.07, 4, 1, 1, 1, 2, 2, 1, 0),
    _kind("sarama", "speaks as Kafka 0.8", 0.05, 0, 0, 0, 1, 1, None, None, None, poll_s=0.25),
    _kind("sarama-0.10.2", "speaks as Kafka 0.10.1 or 0.10.2", 0.07, 3, 1, 1, 1, 1, 1, 0, 0, poll_s=0.25),
    _kind("kafkajs", "speaks as Kafka 2.3 to 2.6", 0.06, 11, 3, 6, 4, 5, 5, 3, 2, poll_s=5.0),
    _kind("aiokafka", "speaks as Kafka 2.3 to 2.6", 0.05, 11, 3, 5, 3, 3, 5, 1, 0),
    _kind("librdkafka-0.11", "speaks as Kafka 0.11", 0.05, 4, 0, 2, 1, 1, 0, 0, 0, poll_s=0.1),
    _kind("confluent-kafka", "librdkafka 2.16.0", 0.02, 16, 7, 12, 9, 9, 5, 3, 3),
)
"""Versions as these clients were seen to speak with Kafka 3.9. Shares are a guess at a fleet that was left to age:
for a third of it records are converted."""


@attrs.frozen
class FleetMix:
    """A fleet."""

    kinds: tuple[ClientKind, ...] = KINDS
    clusters: int = 1
    brokers: int = 3
    """Of each cluster: the least that production has."""
    racks: tuple[str, ...] = ("a", "b", "c")
    """Zones, of brokers in turn and of sidecars by chance."""
    without_rack: float = 0.05
    """Share of the sidecars that do not know where they are."""
    topics: int = 30
    """Of each cluster."""
    topic_partitions: tuple[int, ...] = (3, 6, 12, 24, 50, 100)
    """One of these."""
    two_replicas: float = 0.2
    """Share of the topics with two replicas, the others having three: what makes reads cross zones."""
    idle_topics: float = 0.6
    """Share of the topics to which next to nothing is written: what sessions are for."""
    client_topics: tuple[int, ...] = (1, 1, 2, 3, 5, 8)
    """How many a client reads; one of these."""
    hourly_news: float = 20.0
    """Exchanges with records an hour and connection of a client that reads busy topics, around noon; the median."""
    restart_h: float = 24.0
    """How long a connection lives; the mean."""
    hourly_evictions: float = 0.02
    """Of a session."""
    hourly_resets: float = 0.005
    """Of a session."""
    refused: float = 0.1
    """Share of the sessions that a broker does not grant when asked."""
    odd: float = 0.02
    """Share of the sidecars whose client gets ten times as much in the last tenth of the time."""
    losses: float = 2e-5
    """Chance of each row to be the first of some that are lost."""
    duplicates: float = 1e-5
    """Chance of each row to come twice."""
    start_us: int = 1_767_571_200_000_000
    """When the ledger begins, in microseconds since 1970: Monday, 5 January 2026, 0:00 UTC."""
