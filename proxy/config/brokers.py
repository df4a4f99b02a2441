"""Options about brokers: how they are talked to, and which of them is read."""

from typing import Literal

import attrs

from proxy.config.kinds import (
    ADDRESSES,
    RACK,
    RACK_PLACES,
    SWITCH,
    Address,
    RackPlace,
    choice,
    seconds,
    size,
)
from proxy.config.kinds import option as _option

__all__ = ["RoutingConfig", "UpstreamConfig"]


@attrs.frozen
class UpstreamConfig:
    """Towards the brokers."""

    bootstrap_servers: tuple[Address, ...] = attrs.field(
        metadata=_option(
            "bootstrap-servers",
            ADDRESSES,
            "Brokers to ask first; the rest of the cluster is found from them.",
            "There is no cluster to guess.",
        )
    )
    connect_timeout_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "connect-timeout",
            seconds(0.1, 300),
            "How long a connection to a broker may take to be made.",
            "Kafka's own clients give up after 10 s (socket.connection.setup.timeout.ms).",
        ),
    )
    metadata_max_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "metadata-max-age",
            seconds(1, 86400),
            "How old the knowledge of brokers and leaders may grow; errors refresh it at once.",
            "As metadata.max.age.ms of Kafka's own clients.",
        ),
    )
    patience_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "patience",
            seconds(0, 60),
            "How long a fetch may wait at a broker that has nothing new, while its client is answered here; 0 for"
            " as long as the client's own.",
            "A twentieth of the fetches of clients that wait half a second.",
        ),
    )
    ask_timeout_s: float = attrs.field(
        default=5.0,
        metadata=_option(
            "ask-timeout",
            seconds(0.1, 300),
            "How long a broker may take to answer a fetch that needs no waiting, or be silent in the middle of any"
            " response; its connection is closed then.",
            "Below the request timeouts of all clients.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=256 * 1024**2,
        metadata=_option(
            "memory",
            size(16 * 1024**2, 2**40),
            "The most memory for what brokers have sent; beyond it they are read later, and nobody fails.",
            "32 answers of the default fetch-buffer at once.",
        ),
    )
    fetch_buffer_bytes: int = attrs.field(
        default=8 * 1024**2,
        metadata=_option(
            "fetch-buffer",
            size(64 * 1024, 2**31 - 1),
            "The most bytes asked for in one fetch, whatever the client asks for; at most half of memory.",
            "Eight partitions at the clients' usual 1 MiB. A batch that is larger comes all the same (KIP-74).",
        ),
    )
    read_ahead: bool = attrs.field(
        default=False,
        metadata=_option(
            "read-ahead",
            SWITCH,
            "Whether clients that read on are read for before they ask, in larger fetches than theirs.",
            "Off until the differential test has passed with it. On, many small fetches cost one round trip to the"
            " broker, and a client that seeks wastes one response.",
        ),
    )


@attrs.frozen
class RoutingConfig:
    """Which of a partition's replicas is read."""

    rack: str | None = attrs.field(
        default=None,
        metadata=_option(
            "rack",
            RACK,
            "The rack or zone that this is in, as brokers call it; reads go to replicas of the same one.",
            "Not given: it is looked for in the places of rack-from.",
        ),
    )
    rack_from: tuple[RackPlace, ...] = attrs.field(
        default=(
            RackPlace("env", "TOPOLOGY_ZONE"),
            RackPlace("file", "/etc/podinfo/zone"),
            RackPlace("kubernetes"),
        ),
        metadata=_option(
            "rack-from",
            RACK_PLACES,
            "Where the rack is looked for, at the start, the first that tells it wins: an environment variable; a"
            " file, with its name or with labels from the downward API; the label topology.kubernetes.io/zone of"
            " the Kubernetes node that NODE_NAME names.",
            "What a pod can be told by its manifest, then what it can ask.",
        ),
    )
    replica_selector: Literal["broker", "rack-aware", "leader"] = attrs.field(
        default="broker",
        metadata=_option(
            "replica-selector",
            choice("broker", "rack-aware", "leader"),
            "Who chooses the replica that is read: the brokers (by their replica.selector.class); Sidefetch, by"
            " their rule for racks; nobody, so that leaders are read.",
            "Clients with a rack of their own have it so.",
        ),
    )
