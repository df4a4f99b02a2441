"""Options about brokers: the connections to them, and the replica that is read."""

from typing import Literal

import attrs

from proxy.config.option_types import (
    ADDRESSES,
    RACK,
    RACK_PLACES,
    SWITCH,
    Address,
    RackSource,
    choice,
    seconds,
    size,
)
from proxy.config.option_types import option as _option

__all__ = ["RoutingConfig", "UpstreamConfig"]


@attrs.frozen
class UpstreamConfig:
    """The section ``upstream`` of the settings: connections, fetches and memory towards the brokers."""

    bootstrap_servers: tuple[Address, ...] = attrs.field(
        metadata=_option(
            "bootstrap-servers",
            ADDRESSES,
            "Brokers to connect to first, as bootstrap.servers of Kafka's clients; they name the other brokers.",
            "Required.",
        )
    )
    connect_timeout_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "connect-timeout",
            seconds(0.1, 300),
            "Longest time to open a connection to a broker, including TLS and login; then the broker counts as"
            " unreachable.",
            "Default: as socket.connection.setup.timeout.ms of Kafka's clients.",
        ),
    )
    metadata_max_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "metadata-max-age",
            seconds(1, 86400),
            "Longest time until Sidefetch requests the cluster's metadata (brokers, leaders) again; errors cause a"
            " request at once.",
            "Default: as metadata.max.age.ms of Kafka's clients.",
        ),
    )
    upstream_max_wait_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "upstream-max-wait",
            seconds(0, 60),
            "Longest time that a fetch of Sidefetch waits at a broker for new records (a long poll), while"
            " Sidefetch answers the client's polls itself. New records end the wait at once. 0: as long as the"
            " client's own fetch waits.",
            "Default: a client that polls twice a second then causes a twentieth of its fetches at the broker.",
        ),
    )
    ask_timeout_s: float = attrs.field(
        default=5.0,
        metadata=_option(
            "ask-timeout",
            seconds(0.1, 300),
            "Longest time that a broker may take to answer a fetch of Sidefetch, beyond the wait that the fetch"
            " allows, and longest pause in the middle of a response. Then Sidefetch closes the connection and"
            " fetches again.",
            "Default: below the request timeouts of all clients.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=256 * 1024**2,
        metadata=_option(
            "memory",
            size(16 * 1024**2, 2**40),
            "Memory for the responses of brokers, over all connections. When it is used up, further responses are"
            " read later, and no request fails.",
            "Default: enough for 32 responses of the default fetch-buffer at once.",
        ),
    )
    fetch_buffer_bytes: int = attrs.field(
        default=8 * 1024**2,
        metadata=_option(
            "fetch-buffer",
            size(64 * 1024, 2**31 - 1),
            "Largest number of bytes that one fetch of Sidefetch requests from a broker, even if the client"
            " requests more; at most half of memory. A single larger batch is still delivered (KIP-74).",
            "Default: eight partitions at the usual 1 MiB of clients (max.partition.fetch.bytes).",
        ),
    )
    read_ahead: bool = attrs.field(
        default=False,
        metadata=_option(
            "read-ahead",
            SWITCH,
            "Whether Sidefetch fetches the next records of a reading client before the client asks for them. It"
            " speeds up clients that make many small fetches; a seek wastes one response.",
            "Default: off, until the tests that compare reads with and without Sidefetch have passed with it.",
        ),
    )


@attrs.frozen
class RoutingConfig:
    """The section ``routing`` of the settings: the rack of this process, and the choice of the replica to read."""

    rack: str | None = attrs.field(
        default=None,
        metadata=_option(
            "rack",
            RACK,
            "The rack or zone of this process, exactly as in broker.rack; Sidefetch reads from replicas in the"
            " same rack (KIP-392).",
            "Default: the first rack that a source of rack-from names.",
        ),
    )
    rack_from: tuple[RackSource, ...] = attrs.field(
        default=(
            RackSource("env", "TOPOLOGY_ZONE"),
            RackSource("file", "/etc/podinfo/zone"),
            RackSource("kubernetes"),
        ),
        metadata=_option(
            "rack-from",
            RACK_PLACES,
            "Sources in which Sidefetch looks for its rack at the start, in order, if rack is not given. env: an"
            " environment variable; file: a file with the rack, or with labels in the format of the downward API;"
            " kubernetes: the label topology.kubernetes.io/zone, or LABEL, of the node in NODE_NAME.",
            "Default: the sources that a pod's manifest can provide, then the Kubernetes API.",
        ),
    )
    replica_selector: Literal["broker", "rack-aware", "leader"] = attrs.field(
        default="broker",
        metadata=_option(
            "replica-selector",
            choice("broker", "rack-aware", "leader"),
            "Who selects the replica that Sidefetch reads. broker: the leader, by its replica.selector.class;"
            " rack-aware: Sidefetch, which takes an in-sync replica in its own rack, also if brokers have no"
            " selector; leader: nobody, leaders are read.",
            "Default: as for Kafka's clients with a client.rack.",
        ),
    )
