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
    """Options of the connections and fetches to brokers."""

    bootstrap_servers: tuple[Address, ...] = attrs.field(
        metadata=_option(
            "bootstrap-servers",
            ADDRESSES,
            "Brokers to ask first; they name the other brokers.",
            "Required.",
        )
    )
    connect_timeout_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "connect-timeout",
            seconds(0.1, 300),
            "Longest time to establish a connection to a broker.",
            "Default: as socket.connection.setup.timeout.ms of Kafka's clients.",
        ),
    )
    metadata_max_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "metadata-max-age",
            seconds(1, 86400),
            "Longest time between two metadata updates; errors cause an update at once.",
            "Default: as metadata.max.age.ms of Kafka's clients.",
        ),
    )
    upstream_max_wait_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "upstream-max-wait",
            seconds(0, 60),
            "Longest wait of a fetch at a broker without new records, while Sidefetch answers the client's"
            " polls; 0: the client's own wait.",
            "Default: a twentieth of the fetches of a client that waits for half a second.",
        ),
    )
    ask_timeout_s: float = attrs.field(
        default=5.0,
        metadata=_option(
            "ask-timeout",
            seconds(0.1, 300),
            "Longest time until a broker answers a fetch that need not wait, and longest silence in the middle"
            " of a response; the connection is closed then.",
            "Default: below the request timeouts of all clients.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=256 * 1024**2,
        metadata=_option(
            "memory",
            size(16 * 1024**2, 2**40),
            "Memory for responses of brokers; when it is used up, responses are read later, and no request fails.",
            "Default: 32 responses of the default fetch-buffer at once.",
        ),
    )
    fetch_buffer_bytes: int = attrs.field(
        default=8 * 1024**2,
        metadata=_option(
            "fetch-buffer",
            size(64 * 1024, 2**31 - 1),
            "Largest number of bytes that one fetch asks for, whatever the client asks for; at most half of"
            " memory. A larger batch is still delivered (KIP-74).",
            "Default: eight partitions at the usual 1 MiB of clients.",
        ),
    )
    read_ahead: bool = attrs.field(
        default=False,
        metadata=_option(
            "read-ahead",
            SWITCH,
            "Whether Sidefetch fetches more records before a reading client asks for them. Many small fetches"
            " then cost one round trip to the broker; a seek wastes one response.",
            "Default: off, until the differential test has passed with it.",
        ),
    )


@attrs.frozen
class RoutingConfig:
    """Options for the choice of the replica that is read."""

    rack: str | None = attrs.field(
        default=None,
        metadata=_option(
            "rack",
            RACK,
            "The rack or zone of this process, exactly as in broker.rack; Sidefetch reads from replicas in the"
            " same rack.",
            "Default: the first rack that rack-from finds.",
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
            "Sources of the rack, read at the start; the first that has one wins. env: an environment"
            " variable; file: a file with the rack, or with labels in the format of the downward API;"
            " kubernetes: the label topology.kubernetes.io/zone of the node in NODE_NAME.",
            "Default: what a pod's manifest can provide, then the Kubernetes API.",
        ),
    )
    replica_selector: Literal["broker", "rack-aware", "leader"] = attrs.field(
        default="broker",
        metadata=_option(
            "replica-selector",
            choice("broker", "rack-aware", "leader"),
            "Who selects the replica to read. broker: the leader, by its replica.selector.class; rack-aware:"
            " Sidefetch, by the same rule for racks; leader: always the leader.",
            "Default: as for clients with a rack of their own.",
        ),
    )
