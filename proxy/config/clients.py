"""Options about clients: listeners, limits, and the conversion of records that clients cannot read."""

from typing import Literal

import attrs

from proxy.config.option_types import (
    ADDRESSES,
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
    """Options of the listeners and fetch sessions for clients."""

    listen: tuple[Address, ...] = attrs.field(
        default=(Address("127.0.0.1", 9092),),
        metadata=_option(
            "listen",
            ADDRESSES,
            "Addresses that clients connect to first (bootstrap.servers). Give two for IPv4 and IPv6.",
            "Default: only clients on this host, on Kafka's port.",
        ),
    )
    broker_ports: PortRange = attrs.field(
        default=PortRange(9093, 9192),
        metadata=_option(
            "broker-ports",
            PORTS,
            "One local port for each broker: the first port + the node id, if that is in the range and free,"
            " else the first free port.",
            "Default: 100 brokers, next to the bootstrap port.",
        ),
    )
    share_ports: bool = attrs.field(
        default=False,
        metadata=_option(
            "share-ports",
            SWITCH,
            "Whether several processes may listen on the same ports; the port of a broker is then always the"
            " first port + its node id.",
            "Default: off, so that a second process that is started by mistake fails.",
        ),
    )
    advertise: str | None = attrs.field(
        default=None,
        metadata=_option(
            "advertise",
            HOST,
            "Host name or address that clients use to connect to this process. Required if listen is 0.0.0.0"
            " or [::].",
            "Default: the address that the client has connected to.",
        ),
    )
    transparent: tuple[Address, ...] = attrs.field(
        default=(),
        metadata=_option(
            "transparent",
            ADDRESSES,
            "Addresses for connections that the packet filter redirects here; sidefetch redirect install uses"
            " 127.0.0.1:15092,[::1]:15092.",
            "Default: transparent mode is off.",
        ),
    )
    max_frame_bytes: int = attrs.field(
        default=100 * 1024**2,
        metadata=_option(
            "max-frame",
            size(1024, 2**31 - 1),
            "Largest request of a client; the connection is closed if it sends a larger one.",
            "Default: as socket.request.max.bytes of the brokers.",
        ),
    )
    client_sessions: int = attrs.field(
        default=1000,
        metadata=_option(
            "client-sessions",
            whole(0, 1_000_000),
            "Largest number of fetch sessions that clients of Fetch v7 and later have with Sidefetch; 0"
            " disables them.",
            "Default: as max.incremental.fetch.session.cache.slots of the brokers.",
        ),
    )


@attrs.frozen
class LimitsConfig:
    """Limits on clients, so that one of them cannot harm the others."""

    max_connections: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections",
            whole(1, 1_000_000),
            "Largest number of client connections; a further one is closed at once. Each may need four"
            " connections to brokers.",
            "Default: a pod has tens; needs 10,000 open files, which most systems allow.",
        ),
    )
    max_connections_per_peer: int = attrs.field(
        default=2000,
        metadata=_option(
            "max-connections-per-peer",
            whole(1, 1_000_000),
            "The same limit for each client address. Set it if many hosts share this process.",
            "Default: as max-connections, because all clients of a sidecar have one address.",
        ),
    )
    max_handshakes: int = attrs.field(
        default=32,
        metadata=_option(
            "max-handshakes",
            whole(1, 10_000),
            "Largest number of TLS handshakes with clients at a time; others wait for their turn.",
            "Default: each takes up to 1 ms of the event loop, so others wait for 32 ms at most.",
        ),
    )
    max_in_flight: int = attrs.field(
        default=64,
        metadata=_option(
            "max-in-flight",
            whole(1, 10_000),
            "Largest number of unanswered requests of a connection; Sidefetch stops reading the connection"
            " beyond it.",
            "Default: clients send 5 by default, and brokers process one at a time.",
        ),
    )
    max_fetch_partitions: int = attrs.field(
        default=100_000,
        metadata=_option(
            "max-fetch-partitions",
            whole(1, 10_000_000),
            "Largest number of partitions in a fetch or session; the connection is closed if it asks for more.",
            "Default: ten times the number that one broker can serve in a fetch.",
        ),
    )
    request_memory_bytes: int = attrs.field(
        default=128 * 1024**2,
        metadata=_option(
            "request-memory",
            size(1024**2, 2**40),
            "Memory for requests over 64 KiB; when it is used up, requests are read later, and none fails. A"
            " request that is larger passes alone.",
            "Default: one request of max-frame, and some.",
        ),
    )
    handshake_timeout_s: float = attrs.field(
        default=60.0,
        metadata=_option(
            "handshake-timeout",
            seconds(1, 86400),
            "Longest time until the first request of a new connection is complete.",
            "Default: clients send it at once; one that connects early connects again.",
        ),
    )
    request_timeout_s: float = attrs.field(
        default=30.0,
        metadata=_option(
            "request-timeout",
            seconds(1, 86400),
            "Longest time from the first to the last byte of a request.",
            "Default: as request.timeout.ms of Kafka's clients, which give up then.",
        ),
    )
    idle_timeout_s: float = attrs.field(
        default=600.0,
        metadata=_option(
            "idle-timeout",
            seconds(1, 86400),
            "Longest silence of a connection to which no response is due.",
            "Default: as connections.max.idle.ms of the brokers.",
        ),
    )
    send_timeout_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "send-timeout",
            seconds(1, 86400),
            "Longest time during which a client reads nothing of its responses; the connection is closed then,"
            " and its memory is freed.",
            "Default: as max.poll.interval.ms of Kafka's clients; a slower one has left its group.",
        ),
    )


@attrs.frozen
class ConversionConfig:
    """Options for records that a client cannot read."""

    down_conversion: TopicSwitch = attrs.field(
        default=ON,
        metadata=_option(
            "down-conversion",
            TOPIC_SWITCH,
            "Whether clients that cannot read the current record format get an older one; off: error 35.",
            "Default: as message.downconversion.enable of former brokers.",
        ),
    )
    isolation: Literal["read_uncommitted", "read_committed"] = attrs.field(
        default="read_uncommitted",
        metadata=_option(
            "isolation",
            choice("read_uncommitted", "read_committed"),
            "Isolation level of clients that cannot choose one (Fetch below v4).",
            "Default: as brokers treated them.",
        ),
    )
    zstd: Literal["gzip", "snappy", "lz4", "none", "refuse"] = attrs.field(
        default="gzip",
        metadata=_option(
            "zstd",
            choice("gzip", "snappy", "lz4", "none", "refuse"),
            "Codec that replaces zstd for clients that cannot read it; refuse: error 76, as from brokers.",
            "Default: every client reads gzip.",
        ),
    )
    lz4_magic0: Literal["gzip", "kafka"] = attrs.field(
        default="gzip",
        metadata=_option(
            "lz4-magic0",
            choice("gzip", "kafka"),
            "Codec that replaces lz4 in message format 0: gzip, or lz4 with the wrong checksum that Kafka"
            " wrote (kafka).",
            "Default: some readers require the correct checksum, others the wrong one.",
        ),
    )
    chunk_bytes: int = attrs.field(
        default=128 * 1024,
        metadata=_option(
            "convert-chunk",
            size(1024, 64 * 1024**2),
            "Bytes of records that are converted at a time; at least one batch.",
            "Default: as in KIP-283.",
        ),
    )
