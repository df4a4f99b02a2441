"""Options about clients: listeners, limits, and the conversion of records that clients cannot read."""

from typing import Literal

import attrs

from proxy.config.allowed_apis import ALL_APIS, AllowedApis
from proxy.config.option_types import (
    ADDRESSES,
    APIS,
    HOST,
    ON,
    PORTS,
    SWITCH,
    TOPIC_SWITCH,
    Address,
    PortRange,
    TopicSwitch,
    choice,
    seconds,
    size,
    whole,
)
from proxy.config.option_types import option as _option

__all__ = ["ConversionConfig", "DownstreamConfig", "LimitsConfig"]


@attrs.frozen
class DownstreamConfig:
    """The section ``downstream`` of the settings: listeners, advertised host and fetch sessions for clients."""

    listen: tuple[Address, ...] = attrs.field(
        default=(Address("127.0.0.1", 9092),),
        metadata=_option(
            "listen",
            ADDRESSES,
            "Addresses on which Sidefetch accepts clients: the bootstrap.servers of the clients. On the same hosts,"
            " it opens ports of broker-ports, a range that must not include these ports. For IPv4 and IPv6, give"
            " two addresses: [::] accepts IPv6 only. An address other than loopback needs listen-tls-cert or"
            " insecure-listen on, and 0.0.0.0 and [::] need advertise.",
            "Default: only clients on this host can connect, on Kafka's usual port.",
        ),
    )
    broker_ports: PortRange = attrs.field(
        default=PortRange(9093, 9192),
        metadata=_option(
            "broker-ports",
            PORTS,
            "Local ports that stand for the brokers, on the hosts of listen: a client reaches each broker at one of"
            " them. Broker N gets the first port + N if that is in the range and neither another broker nor another"
            " program has it, else the first such port, and keeps it until Sidefetch ends. If none is left at the"
            " first metadata of the cluster, Sidefetch ends with an error, except with upstream-sasl client or once"
            " transparent mode has forwarded a connection; then, and if the broker appears later, clients do not"
            " see this broker.",
            "Default: room for 100 brokers, next to the port of listen.",
        ),
    )
    share_ports: bool = attrs.field(
        default=False,
        metadata=_option(
            "share-ports",
            SWITCH,
            "Whether several Sidefetch processes may listen on the same ports, to use several cores; the system"
            " distributes the connections. All processes need this option, the same user and the same ports, and"
            " each its own admin-listen; memory, limits and fetch sessions are per process. Broker N then has the"
            " first port of broker-ports + N or, if that is out of the range or taken, none: Sidefetch ends with an"
            " error or, if the broker appears later, clients do not see it.",
            "Default: off, so that a second process that is started by mistake fails.",
        ),
    )
    advertise: str | None = attrs.field(
        default=None,
        metadata=_option(
            "advertise",
            HOST,
            "Host name or address that Sidefetch gives clients as the host of every broker (as"
            " advertised.listeners); the ports are those of broker-ports, and all of them must lead to Sidefetch."
            " With TLS, the certificate in listen-tls-cert must be for this name. Required if listen is 0.0.0.0 or"
            " [::]; not used for redirected connections (transparent).",
            "Default: the IP address that the client has connected to.",
        ),
    )
    transparent: tuple[Address, ...] = attrs.field(
        default=(),
        metadata=_option(
            "transparent",
            ADDRESSES,
            "Loopback addresses on which Sidefetch accepts connections that the packet filter redirects to it, so"
            " that clients need no new settings (transparent mode). The rules of sidefetch redirect install lead to"
            " 127.0.0.1:15092,[::1]:15092; Sidefetch must run as a user of its flag --uid. TLS and protocols other"
            " than Kafka's are forwarded unchanged to their destination; with listen-tls-cert, nothing is"
            " forwarded, and clients must use TLS. IPv6 addresses are skipped on a host without IPv6.",
            "Default: transparent mode is off.",
        ),
    )
    max_frame_bytes: int = attrs.field(
        default=100 * 1024**2,
        metadata=_option(
            "max-frame",
            size(1024, 2**31 - 1),
            "Largest request of a client; if a client sends a larger one, Sidefetch closes its connection. SASL"
            " requests may have 512 KiB at most; with listen-sasl-file, requests before the login 64 KiB. Fetches"
            " are also limited by max-fetch-partitions.",
            "Default: as socket.request.max.bytes of the brokers.",
        ),
    )
    client_sessions: int = attrs.field(
        default=1000,
        metadata=_option(
            "client-sessions",
            whole(0, 1_000_000),
            "Largest number of fetch sessions (KIP-227) that clients have with Sidefetch; a client that uses"
            " sessions has one for each broker. Beyond it, a session is evicted that was unused for two minutes, or"
            " one that is older than that and has fewer partitions than the new one; otherwise the client gets none"
            " and sends full fetches. 0: no client gets one. Sidefetch's own sessions at brokers do not count.",
            "Default: as max.incremental.fetch.session.cache.slots of the brokers.",
        ),
    )


@attrs.frozen
class LimitsConfig:
    """The section ``limits`` of the settings: limits and timeouts, so that no client can harm the others."""

    allowed_apis: AllowedApis = attrs.field(
        default=ALL_APIS,
        metadata=_option(
            "allowed-apis",
            APIS,
            "APIs that clients may use. clients: for producers, consumers and transactions; describe: for reading"
            " groups, settings, rights and the state of the cluster; topics: for creating topics and partitions,"
            " and deleting topics and records, as Kafka Streams does; all: these, and administrative APIs such as"
            " AlterConfigs or UnregisterBroker. Clients do not see other APIs in ApiVersions; if a client uses one"
            " nevertheless, Sidefetch closes its connection. Metadata, ApiVersions and SASL are always allowed.",
            "Default: all, so that the brokers decide by the login's rights. The chart's gateway has"
            " clients,describe.",
        ),
    )
    max_connections: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections",
            whole(1, 1_000_000),
            "Largest number of client connections, forwarded ones of transparent mode included; a further one is"
            " closed at once. For each, Sidefetch may open four connections to brokers, and three more for each"
            " closer replica that it reads: the limit of open files must allow that. A connection takes up to 128"
            " KiB of memory beside its large requests, responses and fetches.",
            "Default: a pod has tens. This many need about 10,000 open files, which most systems allow, and 250 MiB"
            " of memory; the chart sets one for each 128 KiB of memory, if that is less.",
        ),
    )
    max_connections_per_peer: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections-per-peer",
            whole(1, 1_000_000),
            "Largest number of connections from one IP address; a further one is closed at once. Lower it if"
            " clients on many hosts share this process. All clients of a sidecar have one address: if you raise"
            " max-connections, raise this option, too.",
            "Default: that of max-connections, whose value it does not follow.",
        ),
    )
    max_handshakes: int = attrs.field(
        default=32,
        metadata=_option(
            "max-handshakes",
            whole(1, 10_000),
            "Largest number of TLS handshakes with clients that compute in a row; further ones wait until other"
            " work was done. A handshake that waits for bytes of its client does not count. A connection whose"
            " handshake is not complete 10 s after the connection began, waiting included, is closed.",
            "Default: each takes up to 1 ms of CPU, so that other clients wait for 32 ms at most.",
        ),
    )
    max_in_flight: int = attrs.field(
        default=64,
        metadata=_option(
            "max-in-flight",
            whole(1, 10_000),
            "Largest number of unanswered requests of a client connection. Beyond it, Sidefetch reads no further"
            " request of the connection until a response was sent; no request fails.",
            "Default: Java's producers send 5 at most by default, and brokers process one at a time.",
        ),
    )
    max_fetch_partitions: int = attrs.field(
        default=20_000,
        metadata=_option(
            "max-fetch-partitions",
            whole(1, 10_000_000),
            "Largest number of partitions in a client's fetch or fetch session; if a client asks for more,"
            " Sidefetch closes its connection, and ends a session that has more. The limit also applies to the"
            " number of topics in a fetch, and to the topics and partitions that a fetch removes from its session."
            " A fetch may have 289 bytes for each, and 1 MiB more: as much as it needs for topics with the longest"
            " names.",
            "Default: more than a broker usually leads; request-memory 32MiB suffices for one such client.",
        ),
    )
    request_memory_bytes: int = attrs.field(
        default=128 * 1024**2,
        metadata=_option(
            "request-memory",
            size(1024**2, 2**40),
            "Memory for clients' requests of more than 64 KiB, over all connections. When it is used up, further"
            " requests are read later, however long that takes. A request takes memory while it arrives; if only"
            " incomplete requests have all of it, one of them exceeds it. The host and the connection that hold"
            " least of it come first; a client of whose large request less than 64 KiB arrives in 2 s, while"
            " others wait for memory, is disconnected. The same amount again is for the partitions of fetches,"
            " beyond which the fetches of the largest clients wait for 0.1 s at most, and each costs as much as a"
            " client's first. Half of it is for fetch sessions, beyond which some are evicted, as beyond"
            " client-sessions, or new ones are not granted.",
            "Default: enough for one request of the default max-frame, and more.",
        ),
    )
    handshake_timeout_s: float = attrs.field(
        default=60.0,
        metadata=_option(
            "handshake-timeout",
            seconds(1, 86400),
            "Longest time from the start of a client connection until its first request is complete; then Sidefetch"
            " closes it. The time begins after the TLS handshake, which may take 10 s. With listen-sasl-file, the"
            " login must be complete within 30 s instead.",
            "Default: clients send a request at once; one that only connects early has to connect again.",
        ),
    )
    request_timeout_s: float = attrs.field(
        default=30.0,
        metadata=_option(
            "request-timeout",
            seconds(1, 86400),
            "Longest time from the first to the last byte of a client's request; then Sidefetch closes the"
            " connection. The time begins again whenever Sidefetch does not read, for example while request-memory"
            " is used up. The time until the response is not limited.",
            "Default: as request.timeout.ms of Kafka's clients, which give up then.",
        ),
    )
    idle_timeout_s: float = attrs.field(
        default=600.0,
        metadata=_option(
            "idle-timeout",
            seconds(1, 86400),
            "Longest time without a request on a client connection that waits for no response; then Sidefetch"
            " closes it, and Kafka's clients connect again when they need to. Connections that transparent mode"
            " forwards are not closed.",
            "Default: as connections.max.idle.ms of the brokers.",
        ),
    )
    send_timeout_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "send-timeout",
            seconds(1, 86400),
            "Longest time during which a client accepts less than 64 KiB of the responses that wait for it; then"
            " Sidefetch closes the connection and frees their memory.",
            "Default: as max.poll.interval.ms of Kafka's clients; a slower consumer has left its group.",
        ),
    )


@attrs.frozen
class ConversionConfig:
    """The section ``conversion`` of the settings: the conversion of records that an old client cannot read."""

    down_conversion: TopicSwitch = attrs.field(
        default=ON,
        metadata=_option(
            "down-conversion",
            TOPIC_SWITCH,
            "Whether clients of Fetch below v4, which cannot read the current record format, get records in an"
            " older one (KIP-283). off: they get error 35 (UNSUPPORTED_VERSION) for every partition, even without"
            " records or with records that need no conversion. on,topic:a,topic:b is off for topics a and b only;"
            " off,topic:a is on for topic a only. Clients of later versions, the replacement of zstd and produced"
            " records are not affected.",
            "Default: as message.downconversion.enable of brokers before Kafka 4; if that is off, they refuse only"
            " records that need a conversion.",
        ),
    )
    isolation: Literal["read_uncommitted", "read_committed"] = attrs.field(
        default="read_uncommitted",
        metadata=_option(
            "isolation",
            choice("read_uncommitted", "read_committed"),
            "Isolation level for clients that are too old to choose one (Fetch below v4); all others choose it"
            " themselves. read_committed: they get no records of open or aborted transactions, and later records"
            " only after an open transaction has ended.",
            "Default: as brokers before Kafka 4 treated them.",
        ),
    )
    zstd: Literal["gzip", "snappy", "lz4", "none", "refuse"] = attrs.field(
        default="gzip",
        metadata=_option(
            "zstd",
            choice("gzip", "snappy", "lz4", "none", "refuse"),
            "Compression that replaces zstd for clients that cannot read zstd (Fetch below v10); it costs CPU for"
            " each batch, and the client must have the codec. none: records are sent uncompressed; refuse: these"
            " clients get error 76 (UNSUPPORTED_COMPRESSION_TYPE), as from brokers. With lz4, clients of message"
            " format 0 get the codec of lz4-magic0.",
            "Default: every client reads gzip.",
        ),
    )
    lz4_magic0: Literal["gzip", "kafka"] = attrs.field(
        default="gzip",
        metadata=_option(
            "lz4-magic0",
            choice("gzip", "kafka"),
            "Compression that replaces lz4 in records that are converted for clients of message format 0 (Fetch"
            " below v2: Kafka 0.8 and 0.9). gzip: gzip; kafka: lz4 with the wrong header checksum that Kafka wrote"
            " in this format.",
            "Default: some of these clients require the correct checksum, others the wrong one; all read gzip.",
        ),
    )
    chunk_bytes: int = attrs.field(
        default=128 * 1024,
        metadata=_option(
            "convert-chunk",
            size(1024, 64 * 1024**2),
            "Bytes of records that are converted at a time while a response is sent to an old client; at least one"
            " batch, even if it is larger. A smaller value needs less memory: a chunk may become four times as"
            " large, or one batch larger.",
            "Default: as in KIP-283.",
        ),
    )
