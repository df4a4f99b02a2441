"""The parameters of a simulated fleet of clients and sidecars, with the reasons for their defaults."""

from collections.abc import Mapping
from typing import Final

import attrs

__all__ = ["FETCH", "HEARTBEAT", "KINDS", "METADATA", "OFFSET_COMMIT", "SERVED", "ClientKind", "FleetMix"]

FETCH: Final = 1
"""The API key of Fetch requests; the keys of the other generated requests are below."""
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
"""The first and last version that Kafka 4.3 serves, by API key; Sidefetch upgrades older ones to the first.
JoinGroup has the versions of 4.0.0."""


@attrs.frozen
class ClientKind:
    """A kind of Kafka client in a simulated fleet: its library, its API versions and its long polls."""

    name: str
    """The prefix of its client ids."""
    software: str
    """The ledger's ``software``: from ApiVersions v3 on by the client's own statement, else guessed from its Fetch
    version."""
    share: float
    """Its share of the fleet, relative to those of the other kinds: shares need not add up to 1."""
    poll_s: float
    """The longest wait of its fetches for records, in seconds."""
    has_sessions: bool
    """Whether it uses fetch sessions."""
    apis: Mapping[int, int] = attrs.field(hash=False)
    """The version of its requests, by API key."""

    @property
    def fetch_version(self) -> int:
        """The version of the client's Fetch requests."""
        return self.apis[FETCH]

    @property
    def converted_to(self) -> int | None:
        """The record format (magic) to which Sidefetch converts records for the client; None for no conversion.

        It is 0 for Fetch v0 and v1, and 1 for v2 and v3. Newer clients read the brokers' format, 2.
        """
        return 0 if self.fetch_version < 2 else 1 if self.fetch_version < 4 else None


def _kind(
    name: str,
    software: str,
    share: float,
    *versions: int | None,
    poll_s: float = 0.5,
    has_sessions: bool = False,
) -> ClientKind:
    """Return a kind of client.

    *versions*: of Fetch, ListOffsets, Metadata, OffsetFetch, OffsetCommit, JoinGroup, Heartbeat, ApiVersions;
    None for an API that it does not use.
    """
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
"""The default kinds of clients. The versions are those that these clients used with Kafka 3.9 in a test. The shares
are a guess for a fleet with many old clients: a third of them need record conversion."""


@attrs.frozen
class FleetMix:
    """The parameters of a simulated fleet: kinds of clients, clusters, racks, traffic and failures."""

    kinds: tuple[ClientKind, ...] = KINDS
    """The kinds of clients. The kind of each sidecar's client is chosen at random, by the kinds' shares."""
    clusters: int = 1
    """The number of Kafka clusters, which share the sidecars equally."""
    brokers: int = 3
    """Brokers of each cluster. Production clusters have at least three."""
    racks: tuple[str, ...] = ("a", "b", "c")
    """Racks, assigned to brokers in turn and to sidecars at random."""
    without_rack: float = 0.05
    """Share of the sidecars that do not know their rack."""
    topics: int = 30
    """Topics of each cluster."""
    topic_partitions: tuple[int, ...] = (3, 6, 12, 24, 50, 100)
    """Possible numbers of partitions of a topic, chosen at random."""
    two_replicas: float = 0.2
    """Share of the topics with two replicas; the others have three. With two, some reads cross racks."""
    idle_topics: float = 0.6
    """Share of the topics with almost no records, for which fetch sessions save the most."""
    client_topics: tuple[int, ...] = (1, 1, 2, 3, 5, 8)
    """Possible numbers of topics that a client reads, chosen at random."""
    hourly_news: float = 20.0
    """Median of client fetches with records per hour and connection, at the daily peak, if a topic is busy."""
    restart_h: float = 24.0
    """Mean lifetime of a connection in hours."""
    hourly_evictions: float = 0.02
    """Evictions of an upstream session per hour."""
    hourly_resets: float = 0.005
    """Resets of an upstream session per hour."""
    refused: float = 0.1
    """Share of the requests for a session that a broker refuses."""
    odd: float = 0.02
    """Share of the sidecars whose client has ten times the traffic in the last tenth of the time."""
    losses: float = 2e-5
    """Probability that a row is the first of up to 50 lost rows."""
    duplicates: float = 1e-5
    """Probability that a row appears twice."""
    start_us: int = 1_767_571_200_000_000
    """Start of the ledger, in microseconds since 1970: Monday, 5 January 2026, 0:00 UTC."""
