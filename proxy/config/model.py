"""The settings as one frozen model, which is also the table of options: each field carries what its Option says."""

from typing import Final, Literal

import attrs

from proxy.bypass import Bypass
from proxy.config.kinds import (
    ADDRESS,
    ADDRESSES,
    BYPASS,
    FOLDER,
    HOST,
    ON,
    PORTS,
    RACK,
    RACK_PLACES,
    SHARE,
    SWITCH,
    TOPIC,
    TOPIC_SWITCH,
    Address,
    PortRange,
    RackPlace,
    TopicSwitch,
    choice,
    seconds,
    size,
    whole,
)
from proxy.config.kinds import option as _option
from proxy.config.security import DownstreamSecurity, UpstreamSecurity

__all__ = [
    "SECTIONS",
    "AdminConfig",
    "Config",
    "ConversionConfig",
    "DownstreamConfig",
    "LedgerConfig",
    "LimitsConfig",
    "LogConfig",
    "RoutingConfig",
    "TelemetryConfig",
    "UpstreamConfig",
]


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
            "How long a broker may take to answer a fetch that needs no waiting; its connection is closed then.",
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


@attrs.frozen
class DownstreamConfig:
    """Towards the clients."""

    listen: tuple[Address, ...] = attrs.field(
        default=(Address("127.0.0.1", 9092),),
        metadata=_option(
            "listen",
            ADDRESSES,
            "Where clients connect first: their bootstrap.servers. Several for dual stack.",
            "A sidecar serves its own host only, on Kafka's port.",
        ),
    )
    broker_ports: PortRange = attrs.field(
        default=PortRange(9093, 9192),
        metadata=_option(
            "broker-ports",
            PORTS,
            "Ports that stand for the brokers, one each: first port + node id where that fits.",
            "100 brokers, next to the bootstrap port.",
        ),
    )
    advertise: str | None = attrs.field(
        default=None,
        metadata=_option(
            "advertise",
            HOST,
            "The host that clients are told to connect to.",
            "Not given: the address the client has connected to. Needed where listen is 0.0.0.0 or [::].",
        ),
    )
    max_frame_bytes: int = attrs.field(
        default=100 * 1024**2,
        metadata=_option(
            "max-frame",
            size(1024, 2**31 - 1),
            "The largest request taken from a client; a connection that sends more is closed.",
            "As socket.request.max.bytes of the brokers.",
        ),
    )
    client_sessions: int = attrs.field(
        default=1000,
        metadata=_option(
            "client-sessions",
            whole(0, 1_000_000),
            "How many fetch sessions clients of Fetch v7 and later may have with Sidefetch; 0 for none.",
            "As max.incremental.fetch.session.cache.slots of the brokers.",
        ),
    )


@attrs.frozen
class LimitsConfig:
    """What clients may take, so that one of them cannot harm the others."""

    max_connections: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections",
            whole(1, 1_000_000),
            "How many connections clients may have at once; one more is closed as soon as it is made.",
            "A pod has tens. Each may need four more to brokers, so 10,000 open files, which is granted as a rule.",
        ),
    )
    max_connections_per_peer: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections-per-peer",
            whole(1, 1_000_000),
            "The same for each address that clients come from.",
            "As many as in all: a sidecar's clients have one address. To be set where many hosts share Sidefetch.",
        ),
    )
    max_handshakes: int = attrs.field(
        default=32,
        metadata=_option(
            "max-handshakes",
            whole(1, 10_000),
            "How many TLS handshakes with clients may be under way at once; the others wait for their turn.",
            "Each takes up to a millisecond of the one thread that serves all: others wait for 32 of them at most.",
        ),
    )
    max_in_flight: int = attrs.field(
        default=64,
        metadata=_option(
            "max-in-flight",
            whole(1, 10_000),
            "How many requests of a connection may wait for their answers; beyond it, it is not read.",
            "Clients send 5 unless told otherwise; brokers take one at a time.",
        ),
    )
    max_fetch_partitions: int = attrs.field(
        default=100_000,
        metadata=_option(
            "max-fetch-partitions",
            whole(1, 10_000_000),
            "The most partitions of a fetch, or of a session; a connection that asks for more is closed.",
            "Ten times what one broker can bear to be asked for in a fetch.",
        ),
    )
    request_memory_bytes: int = attrs.field(
        default=128 * 1024**2,
        metadata=_option(
            "request-memory",
            size(1024**2, 2**40),
            "The most memory for requests over 64 KiB; beyond it they are read later, and nobody fails.",
            "One request of max-frame and some; larger ones than that pass alone.",
        ),
    )
    handshake_timeout_s: float = attrs.field(
        default=60.0,
        metadata=_option(
            "handshake-timeout",
            seconds(1, 86400),
            "How long a new connection may take until its first request is complete.",
            "Clients send it at once; one that connects ahead of need connects again.",
        ),
    )
    request_timeout_s: float = attrs.field(
        default=30.0,
        metadata=_option(
            "request-timeout",
            seconds(1, 86400),
            "How long a request that has begun to arrive may take to be complete.",
            "As request.timeout.ms of Kafka's own clients, which give up then.",
        ),
    )
    idle_timeout_s: float = attrs.field(
        default=600.0,
        metadata=_option(
            "idle-timeout",
            seconds(1, 86400),
            "How long a connection may be silent while nothing is owed to it.",
            "As connections.max.idle.ms of the brokers.",
        ),
    )
    send_timeout_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "send-timeout",
            seconds(1, 86400),
            "How long a client may read nothing of what it is sent; the memory that it holds comes back then.",
            "As max.poll.interval.ms of Kafka's own clients: one that is slower has left its group.",
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


@attrs.frozen
class ConversionConfig:
    """What becomes of records that a client cannot read."""

    down_conversion: TopicSwitch = attrs.field(
        default=ON,
        metadata=_option(
            "down-conversion",
            TOPIC_SWITCH,
            "Whether clients that cannot read today's record format get an older one, or error 35.",
            "As message.downconversion.enable of brokers that had it.",
        ),
    )
    isolation: Literal["read_uncommitted", "read_committed"] = attrs.field(
        default="read_uncommitted",
        metadata=_option(
            "isolation",
            choice("read_uncommitted", "read_committed"),
            "What clients read that cannot choose (Fetch below v4).",
            "As brokers did.",
        ),
    )
    zstd: Literal["gzip", "snappy", "lz4", "none", "refuse"] = attrs.field(
        default="gzip",
        metadata=_option(
            "zstd",
            choice("gzip", "snappy", "lz4", "none", "refuse"),
            "What zstd becomes for clients that cannot read it; refuse answers error 76, as brokers did.",
            "Every client reads gzip.",
        ),
    )
    lz4_magic0: Literal["gzip", "kafka"] = attrs.field(
        default="gzip",
        metadata=_option(
            "lz4-magic0",
            choice("gzip", "kafka"),
            "What lz4 becomes in message format 0: gzip, or lz4 with Kafka's own wrong checksum.",
            "Some readers of that format insist on the right checksum, and some on the wrong one.",
        ),
    )
    chunk_bytes: int = attrs.field(
        default=128 * 1024,
        metadata=_option(
            "convert-chunk",
            size(1024, 64 * 1024**2),
            "How many bytes of records are converted at once, and at least one batch.",
            "As in KIP-283.",
        ),
    )


@attrs.frozen
class LogConfig:
    """What is told on stderr."""

    format: Literal["text", "json"] = attrs.field(
        default="text",
        metadata=_option("log-format", choice("text", "json"), "How a log line is written.", "For people's eyes."),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            choice("debug", "info", "warning", "error"),
            "The least level that is written.",
            "A few lines per start, client and fault; none per request.",
        ),
    )


@attrs.frozen
class AdminConfig:
    """For whoever runs this: is it up, does it turn, what does it do."""

    listen: Address | None = attrs.field(
        default=None,
        metadata=_option(
            "admin-listen",
            ADDRESS,
            "Where probes (/startupz, /readyz, /livez), /metrics and the status page (/) are answered over HTTP."
            " 0.0.0.0:9080 in a pod.",
            "Not given: nowhere. Only who runs it knows who may ask.",
        ),
    )
    open: bool = attrs.field(
        default=False,
        metadata=_option(
            "admin-open",
            SWITCH,
            "Whether the status page and its API answer to other hosts, too; probes and metrics always do.",
            "They tell who reads what. From elsewhere: by a forwarded port.",
        ),
    )
    ready_requires_broker: bool = attrs.field(
        default=False,
        metadata=_option(
            "ready-requires-broker",
            SWITCH,
            "Whether /readyz is yes only while a broker can be reached: for a gateway that many share.",
            "An outage of Kafka must not take the application next to a sidecar out of its services.",
        ),
    )


@attrs.frozen
class TelemetryConfig:
    """What is told to other programs."""

    traces: Literal["auto", "on", "off"] = attrs.field(
        default="auto",
        metadata=_option(
            "traces",
            choice("auto", "on", "off"),
            "Whether spans are exported, as OpenTelemetry's own variables say (OTEL_...); on: to a Collector on"
            " this host, unless they say otherwise.",
            "auto: where OTEL_TRACES_EXPORTER or an OTEL_EXPORTER_OTLP_ENDPOINT is set, as in any other program.",
        ),
    )


@attrs.frozen
class LedgerConfig:
    """A row for each exchange and each fetch, for pipelines."""

    folder: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger",
            FOLDER,
            "The folder that rows are written to, as files of JSON lines; it is made if it is not there.",
            "Not given: no files.",
        ),
    )
    topic: str | None = attrs.field(
        default=None,
        metadata=_option(
            "ledger-topic",
            TOPIC,
            "The topic of the same cluster that rows are produced to; it must be there.",
            "Not given: none. The choice for fleets: a pod's disk goes with the pod.",
        ),
    )
    sample: float = attrs.field(
        default=1.0,
        metadata=_option(
            "ledger-sample",
            SHARE,
            "Share of the exchanges and fetches that get a row; each row tells for how many it stands.",
            "All: then sums are exact. Idle ones are folded, a row a minute.",
        ),
    )
    file_bytes: int = attrs.field(
        default=64 * 1024**2,
        metadata=_option(
            "ledger-file",
            size(64 * 1024, 2**40),
            "The size at which a file is finished, and the next one begun.",
            "What Spark reads at once of a file (128 MiB), and half of that to be sure.",
        ),
    )
    file_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "ledger-file-age",
            seconds(1, 86400),
            "The age at which a file is finished.",
            "How far behind a reader may be: five minutes.",
        ),
    )
    max_bytes: int = attrs.field(
        default=1024**3,
        metadata=_option(
            "ledger-max-size",
            size(128 * 1024, 2**50),
            "The most that all files of the folder may take; the oldest are deleted. At least twice ledger-file.",
            "A pod's ephemeral storage is some GiB as a rule.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=16 * 1024**2,
        metadata=_option(
            "ledger-memory",
            size(64 * 1024, 2**40),
            "The most memory for rows that cannot be written yet; the oldest are dropped, and that is told.",
            "Some 15,000 rows: minutes of a sidecar.",
        ),
    )


@attrs.frozen
class Config:
    """Everything, in sections: each part of the program is given its own section, never the whole."""

    upstream: UpstreamConfig
    downstream: DownstreamConfig = DownstreamConfig()
    upstream_security: UpstreamSecurity = attrs.field(factory=UpstreamSecurity)
    downstream_security: DownstreamSecurity = attrs.field(factory=DownstreamSecurity)
    limits: LimitsConfig = LimitsConfig()
    routing: RoutingConfig = RoutingConfig()
    conversion: ConversionConfig = ConversionConfig()
    log: LogConfig = LogConfig()
    admin: AdminConfig = AdminConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    ledger: LedgerConfig = LedgerConfig()
    bypass: Bypass = attrs.field(
        default=Bypass(),
        metadata=_option(
            "bypass",
            BYPASS,
            "Whose fetches pass to the brokers as they came; SIGHUP has it read again.",
            "Everybody is read for.",
        ),
    )
    verify_rate: float = attrs.field(
        default=0.0,
        metadata=_option(
            "verify",
            SHARE,
            "Share of the answers with records that are compared with a fetch of their own at the broker.",
            "Each costs the broker a second read.",
        ),
    )
    grace_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "grace",
            seconds(0, 3600),
            "After SIGTERM or Ctrl-C: how long the clients there are may finish and leave.",
            "Well within the 30 s that Kubernetes gives a pod.",
        ),
    )


SECTIONS: Final[dict[str, type[attrs.AttrsInstance]]] = {
    "upstream": UpstreamConfig,
    "downstream": DownstreamConfig,
    "upstream_security": UpstreamSecurity,
    "downstream_security": DownstreamSecurity,
    "limits": LimitsConfig,
    "routing": RoutingConfig,
    "conversion": ConversionConfig,
    "log": LogConfig,
    "admin": AdminConfig,
    "telemetry": TelemetryConfig,
    "ledger": LedgerConfig,
}
