"""Options about clients: where they come, what they may take, and what those get that cannot read everything."""

from typing import Literal

import attrs

from proxy.config.kinds import (
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
from proxy.config.kinds import option as _option

__all__ = ["ConversionConfig", "DownstreamConfig", "LimitsConfig"]


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
    share_ports: bool = attrs.field(
        default=False,
        metadata=_option(
            "share-ports",
            SWITCH,
            "Whether several processes may listen on the same ports; a broker's is then first port + node id.",
            "One that is started twice by mistake is to fail.",
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
    transparent: tuple[Address, ...] = attrs.field(
        default=(),
        metadata=_option(
            "transparent",
            ADDRESSES,
            "Where connections arrive that the packet filter has redirected on their way to brokers.",
            "Not given: nowhere. 127.0.0.1:15092,[::1]:15092 is where sidefetch redirect sends them.",
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
