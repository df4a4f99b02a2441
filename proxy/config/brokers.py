"""Options about brokers: the connections to them, and the replica that is read."""

from typing import Literal

import attrs

from proxy.config.option_types import (
    ADDRESSES,
    FETCH_RULES,
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
from proxy.fetch_rules import NO_RULES, FetchRules

__all__ = ["RoutingConfig", "UpstreamConfig"]


@attrs.frozen
class UpstreamConfig:
    """The section ``upstream`` of the settings: connections, fetches and memory towards the brokers."""

    bootstrap_servers: tuple[Address, ...] = attrs.field(
        metadata=_option(
            "bootstrap-servers",
            ADDRESSES,
            "Brokers to connect to first, as bootstrap.servers of Kafka's clients; they name the other brokers."
            " Sidefetch needs only one of them, so give two or more. If none answers, it starts all the same, and"
            " tries again until one does; until then, each client connection is closed connect-timeout after its"
            " first request, and /readyz succeeds unless ready-requires-broker is on.",
            "Required.",
        )
    )
    connect_timeout_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "connect-timeout",
            seconds(0.1, 300),
            "Longest time to open a connection to a broker, including TLS and login; for a closer replica,"
            " response-timeout if that is shorter. After that, Sidefetch connects to another broker or reads"
            " another replica where it can; otherwise a client's fetch gets a retriable error, unless"
            " response-timeout has ended it before, and any other request ends the client's connection. A new"
            " client connection waits as long for the first metadata of the cluster.",
            "Default: as socket.connection.setup.timeout.ms of Kafka's clients.",
        ),
    )
    metadata_max_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "metadata-max-age",
            seconds(1, 86400),
            "Longest time until Sidefetch requests its own metadata of the cluster (brokers, leaders) again; errors"
            " cause a request at once, but at most two per second for a topic. Sidefetch also reads a preferred"
            " replica for this time before it asks the leader again, and avoids a failed replica for this time at"
            " most. Metadata requests of clients are forwarded in any case.",
            "Default: as metadata.max.age.ms of Kafka's clients.",
        ),
    )
    upstream_max_wait_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "upstream-max-wait",
            seconds(0, 60),
            "Longest time that a fetch of Sidefetch waits at a broker for new records (a long poll); new records"
            " end the wait at once. Meanwhile Sidefetch answers the client's polls itself, each within the client's"
            " own wait. After a client's right to read a topic was revoked, it may get new records once within this"
            " time. All fetches if this option is 0, and without share-reads those for a client that recently got"
            " less than its fetch.min.bytes, wait as long as the client's.",
            "Default: a client that polls twice a second then causes a twentieth of its fetches at the broker.",
        ),
    )
    response_timeout_s: float = attrs.field(
        default=5.0,
        metadata=_option(
            "response-timeout",
            seconds(0.1, 300),
            "Longest time from a fetch of Sidefetch to the beginning of the broker's response, or 2 s beyond the"
            " fetch's wait for new records if that is later. Then Sidefetch closes the connection and fetches"
            " again, from the leader if it was a closer replica. A client's fetch gets a retriable error"
            " (NOT_LEADER_OR_FOLLOWER) for all its partitions if it has no response this long after its own wait;"
            " this time starts again when the leader is read instead of a closer replica, when a broker's"
            " throttling or a wait for metadata ends, and when a response of more than 16 KiB has arrived. It is"
            " also the longest pause in the middle of any response of a broker.",
            "Default: twice this is below the request timeouts of all clients.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=256 * 1024**2,
        metadata=_option(
            "memory",
            size(16 * 1024**2, 2**40),
            "Memory for the responses of brokers, over all connections. When it is used up, further responses are"
            " received later, and no request fails. A response counts as it arrives, and while its records are kept"
            " or sent; one of up to 64 KiB does not count. If only incomplete responses have all of it, one of them"
            " exceeds it. The process needs more: set request-memory to half of this value, and limit a container"
            " to this value + 2.5 x request-memory + 128 KiB x max-connections + 96 MiB.",
            "Default: enough for 32 responses of the default fetch-buffer at once.",
        ),
    )
    fetch_buffer_bytes: int = attrs.field(
        default=8 * 1024**2,
        metadata=_option(
            "fetch-buffer",
            size(64 * 1024, 2**31 - 1),
            "Largest number of bytes that one fetch of Sidefetch requests from a broker. A client that requests"
            " more gets smaller responses than from the broker; a single larger batch is still delivered (KIP-74)."
            " It must be at most half of memory. Fetches that are forwarded unchanged are not limited.",
            "Default: eight partitions at the usual 1 MiB of clients (max.partition.fetch.bytes).",
        ),
    )
    read_ahead: bool = attrs.field(
        default=False,
        metadata=_option(
            "read-ahead",
            SWITCH,
            "Whether Sidefetch fetches the next records of a reading client before the client asks for them: of"
            " each partition as much as the client requests, but at least 64 KiB. It speeds up clients that make"
            " many small fetches; a seek wastes one response. It has no effect with upstream-max-wait 0 and for"
            " clients that recently got less than their fetch.min.bytes.",
            "Default: off, because it reads records that the client may never request.",
        ),
    )
    share_reads: Literal["off", "client-id", "principal"] = attrs.field(
        default="off",
        metadata=_option(
            "share-reads",
            choice("off", "client-id", "principal"),
            "Which clients share upstream fetches, so that records that many of them read are fetched once."
            " off: each client connection has fetches of its own; client-id: connections with the same client id"
            " and login; principal: all with the same login, and brokers see the client id sidefetch in fetches,"
            " to which their quotas then apply. Clients that log in to the brokers by SCRAM or GSSAPI share with"
            " nobody, and no client with one of another isolation level. Records that another client has read are"
            " delivered for up to 1 s, with the high watermark of that time; not to clients with a max wait below"
            " 10 ms.",
            "Default: off, so that brokers see the fetches of each client apart, with its own client id.",
        ),
    )
    share_reads_except: FetchRules = attrs.field(
        default=NO_RULES,
        metadata=_option(
            "share-reads-except",
            FETCH_RULES,
            "Client fetches that share no upstream fetches, although share-reads is on: all, those of a client id,"
            " or those of a topic; a fetch of several topics shares none of them if one matches. It shows whether"
            " sharing causes a problem. It applies from a client's next fetch on. SIGHUP reloads it from the"
            " configuration file, unless a flag or a variable sets it.",
            "Default: none.",
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
            "The rack or zone of this process, exactly as in broker.rack: Sidefetch reads from replicas in the same"
            " rack (KIP-392). This needs brokers with replica.selector.class, or replica-selector rack-aware;"
            " without a replica in the rack, leaders are read. Records of other replicas arrive later, by up to"
            " replica.fetch.wait.max.ms of the brokers. For a client that names a rack itself (client.rack, Fetch"
            " v11 and later), that rack counts.",
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
            "Sources in which Sidefetch looks for its rack at the start, in order, if rack is not given; the search"
            " takes 4 s at most, and if no source has a rack, leaders are read. env: an environment variable. file:"
            " a file with the rack, or with labels in the format of the downward API, of which"
            " topology.kubernetes.io/zone counts. kubernetes: this label, or LABEL, of the node in the variable"
            " NODE_NAME; the pod's service account must be allowed to get nodes.",
            "Default: the sources that a pod's manifest can provide, then the Kubernetes API. They are not used"
            " with replica-selector leader.",
        ),
    )
    replica_selector: Literal["broker", "rack-aware", "leader"] = attrs.field(
        default="broker",
        metadata=_option(
            "replica-selector",
            choice("broker", "rack-aware", "leader"),
            "Who selects the replica that Sidefetch reads. broker: the leader, by its replica.selector.class, so"
            " that only leaders are read if brokers have none; rack-aware: Sidefetch, which takes an in-sync"
            " replica in its own rack, or in the client's if the client names one (client.rack), also if brokers"
            " have no selector; leader: nobody, leaders are read, except for clients that name a rack, for which"
            " the leader selects. Other replicas than leaders need a rack, and brokers that serve Fetch v11 (Kafka"
            " 2.3; brokers have selectors from 2.4 on).",
            "Default: as for Kafka's clients with a client.rack.",
        ),
    )
