"""The settings, as one frozen model, which is also the table of options.

Each field carries what its :class:`Option` tells. ``OPTIONS`` is made from the model, and from ``OPTIONS`` come the
flags, the names in the environment, the keys of the file, ``--help`` and the README's table. ``cli.settings`` fills
the model in.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Self

import attrs

from proxy.bypass import Bypass

__all__ = [
    "ENV_PREFIX",
    "OPTIONS",
    "SECTIONS",
    "Address",
    "Config",
    "DownstreamConfig",
    "LogConfig",
    "Option",
    "PortRange",
    "UpstreamConfig",
    "problems_between",
]

ENV_PREFIX: Final = "SIDEFETCH_"
_UNITS_S: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS_BYTES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")


@attrs.frozen
class Address:
    """Where something listens, or is reached."""

    host: str
    """A name or an IP address, without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """``host:1`` or ``[::1]:9092``; raises ValueError for anything else. Ports are 1 to 65535."""
        host, colon, port = text.rpartition(":")
        if not colon or re.fullmatch(r"[0-9]{1,5}", port) is None or not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        return cls(_host(host), int(port))

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every interface, and so cannot be told to a client."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class PortRange:
    """Ports from *first* to *last*, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """``9093-9192``; raises ValueError for anything else."""
        match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 65535:
            raise ValueError(f"{text!r} is not FIRST-LAST")
        return cls(int(match[1]), int(match[2]))

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@attrs.frozen
class Kind:
    """What values an option takes: *parse* raises ValueError, and reads what *show* writes."""

    parse: Callable[[str], object]
    accepts: str
    """For people, to follow "accepted:"."""
    show: Callable[[Any], str] = str


def _host(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError:
        # Digits and dots only are an address with a mistake, not a name.
        if _HOST_NAME.fullmatch(text) is None or re.fullmatch(r"[0-9.]+", text) is not None:
            raise ValueError(f"{text!r} is neither a host name nor an IP address") from None
        return text


def _plain_host(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    host = str(ipaddress.IPv6Address(bare)) if ":" in bare else _host(text)
    if Address(host, 1).is_wildcard:
        raise ValueError(f"{text!r} cannot be connected to")
    return host


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(Address.parse(part.strip()) for part in text.split(","))


def _scaled(units: Mapping[str, float], low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", text)
        if match is None or match[2] not in units:
            raise ValueError(f"{text!r} is not a number with a unit of {', '.join(filter(None, units))}")
        value = float(match[1]) * units[match[2]]
        if not low <= value <= high:
            raise ValueError(f"{text!r} is not within {low:g} to {high:g}")
        return value

    return parse


def _show_seconds(value: float) -> str:
    return f"{value:g}s"


def _show_bytes(value: int) -> str:
    unit = next(name for name in ("GiB", "MiB", "KiB", "B") if value % _UNITS_BYTES[name] == 0)
    return f"{value // _UNITS_BYTES[unit]}{unit}"


def _seconds(low: float, high: float) -> Kind:
    accepts = f"{low:g}s to {high:g}s (a number of seconds, or with ms, s, m or h)"
    return Kind(_scaled(_UNITS_S, low, high), accepts, _show_seconds)


def _bytes(low: int, high: int) -> Kind:
    scaled = _scaled(_UNITS_BYTES, low, high)
    accepts = f"{low} to {high} bytes (a number, or with KiB, MiB or GiB)"
    return Kind(lambda text: int(scaled(text)), accepts, _show_bytes)


def _choice(*values: str) -> Kind:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"{text!r} is not one of {', '.join(values)}")
        return text

    return Kind(parse, f"{', '.join(values[:-1])} or {values[-1]}")


_ADDRESSES: Final = Kind(
    _addresses, "HOST:PORT[,HOST:PORT...], IPv6 as [::1]:9092", lambda v: ",".join(map(str, v))
)
_PORTS: Final = Kind(PortRange.parse, "FIRST-LAST, within 1-65535")
_BYPASS: Final = Kind(Bypass.parse, "all, client:ID or topic:NAME, several with commas")
_SHARE: Final = Kind(_scaled({"": 1.0}, 0, 1), "0 to 1", lambda v: f"{v:g}")
_HOST: Final = Kind(
    _plain_host,
    "a host name or IP address without a port, not 0.0.0.0 or ::",
    lambda v: "" if v is None else str(v),
)


def _option(name: str, kind: Kind, meaning: str, reason: str) -> dict[str, object]:
    return {"name": name, "kind": kind, "meaning": meaning, "reason": reason}


@attrs.frozen
class UpstreamConfig:
    """Towards the brokers."""

    bootstrap_servers: tuple[Address, ...] = attrs.field(
        metadata=_option(
            "bootstrap-servers",
            _ADDRESSES,
            "Brokers to ask first; the rest of the cluster is found from them.",
            "There is no cluster to guess.",
        )
    )
    connect_timeout_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "connect-timeout",
            _seconds(0.1, 300),
            "How long a connection to a broker may take to be made.",
            "Kafka's own clients give up after 10 s (socket.connection.setup.timeout.ms).",
        ),
    )
    metadata_max_age_s: float = attrs.field(
        default=300.0,
        metadata=_option(
            "metadata-max-age",
            _seconds(1, 86400),
            "How old the knowledge of brokers and leaders may grow; errors refresh it at once.",
            "As metadata.max.age.ms of Kafka's own clients.",
        ),
    )
    patience_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "patience",
            _seconds(0, 60),
            "How long a fetch may wait at a broker that has nothing new, while its client is answered here; 0 for"
            " as long as the client's own.",
            "A twentieth of the fetches of clients that wait half a second.",
        ),
    )
    ask_timeout_s: float = attrs.field(
        default=5.0,
        metadata=_option(
            "ask-timeout",
            _seconds(0.1, 300),
            "How long a broker may take to answer a fetch that needs no waiting; its connection is closed then.",
            "Below the request timeouts of all clients.",
        ),
    )
    memory_bytes: int = attrs.field(
        default=256 * 1024**2,
        metadata=_option(
            "memory",
            _bytes(16 * 1024**2, 2**40),
            "The most memory for what brokers have sent; beyond it they are read later, and nobody fails.",
            "32 answers of the default fetch-buffer at once.",
        ),
    )
    fetch_buffer_bytes: int = attrs.field(
        default=8 * 1024**2,
        metadata=_option(
            "fetch-buffer",
            _bytes(64 * 1024, 2**31 - 1),
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
            _ADDRESSES,
            "Where clients connect first: their bootstrap.servers. Several for dual stack.",
            "A sidecar serves its own host only, on Kafka's port.",
        ),
    )
    broker_ports: PortRange = attrs.field(
        default=PortRange(9093, 9192),
        metadata=_option(
            "broker-ports",
            _PORTS,
            "Ports that stand for the brokers, one each: first port + node id where that fits.",
            "100 brokers, next to the bootstrap port.",
        ),
    )
    advertise: str | None = attrs.field(
        default=None,
        metadata=_option(
            "advertise",
            _HOST,
            "The host that clients are told to connect to.",
            "Not given: the address the client has connected to. Needed where listen is 0.0.0.0 or [::].",
        ),
    )
    max_frame_bytes: int = attrs.field(
        default=100 * 1024**2,
        metadata=_option(
            "max-frame",
            _bytes(1024, 2**31 - 1),
            "The largest request taken from a client; a connection that sends more is closed.",
            "As socket.request.max.bytes of the brokers.",
        ),
    )


@attrs.frozen
class LogConfig:
    """What is told on stderr."""

    format: Literal["text", "json"] = attrs.field(
        default="text",
        metadata=_option("log-format", _choice("text", "json"), "How a log line is written.", "For people's eyes."),
    )
    level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        metadata=_option(
            "log-level",
            _choice("debug", "info", "warning", "error"),
            "The least level that is written.",
            "A few lines per start, client and fault; none per request.",
        ),
    )


@attrs.frozen
class Config:
    """Everything, in sections: each part of the program is given its own section, never the whole."""

    upstream: UpstreamConfig
    downstream: DownstreamConfig = DownstreamConfig()
    log: LogConfig = LogConfig()
    bypass: Bypass = attrs.field(
        default=Bypass(),
        metadata=_option(
            "bypass",
            _BYPASS,
            "Whose fetches pass to the brokers as they came; SIGHUP has it read again.",
            "Everybody is read for.",
        ),
    )
    verify_rate: float = attrs.field(
        default=0.0,
        metadata=_option(
            "verify",
            _SHARE,
            "Share of the answers with records that are compared with a fetch of their own at the broker.",
            "Each costs the broker a second read.",
        ),
    )
    grace_s: float = attrs.field(
        default=10.0,
        metadata=_option(
            "grace",
            _seconds(0, 3600),
            "After SIGTERM or Ctrl-C: how long the clients there are may finish and leave.",
            "Well within the 30 s that Kubernetes gives a pod.",
        ),
    )


@attrs.frozen
class Option:
    """One setting, by all of its names."""

    name: str
    section: str
    """``""`` for the top level."""
    field: str
    kind: Kind
    default: object
    """``attrs.NOTHING`` where it must be given."""
    meaning: str
    reason: str
    """Why the default is what it is."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper().replace("-", "_")

    @property
    def key(self) -> str:
        """In the file, dotted: ``log.format``."""
        return f"{self.section}.{self.name.removeprefix(self.section + '-')}" if self.section else self.name

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    @property
    def default_text(self) -> str:
        return "" if self.required else self.kind.show(self.default)

    def of(self, config: Config) -> object:
        """Its value in *config*."""
        return getattr(getattr(config, self.section) if self.section else config, self.field)


SECTIONS: Final[dict[str, type[attrs.AttrsInstance]]] = {
    "upstream": UpstreamConfig,
    "downstream": DownstreamConfig,
    "log": LogConfig,
}


def _options() -> Iterator[Option]:
    models: dict[str, type[attrs.AttrsInstance]] = {**SECTIONS, "": Config}
    for section, model in models.items():
        for field in attrs.fields(model):
            if field.metadata:
                yield Option(section=section, field=field.name, default=field.default, **field.metadata)


OPTIONS: Final = tuple(_options())


def problems_between(config: Config) -> list[str]:
    """What is wrong with values that are each right by themselves."""
    down = config.downstream
    problems = [
        f"listen: port {address.port} is one of broker-ports ({down.broker_ports}), which stand for brokers;"
        " accepted: a port outside of that range"
        for address in down.listen
        if address.port in down.broker_ports
    ]
    problems += [
        f"listen: {address} is given twice; accepted: each address once"
        for address in sorted({a for a in down.listen if down.listen.count(a) > 1}, key=str)
    ]
    problems += [
        f"advertise: not given, and listen is {address}, to which no client can connect; accepted:"
        " the host that clients reach Sidefetch by"
        for address in down.listen
        if address.is_wildcard and down.advertise is None
    ]
    problems += [
        f"bootstrap-servers: {address} is where Sidefetch itself listens; accepted: addresses of brokers"
        for address in config.upstream.bootstrap_servers
        if any(_same(address, ours) for ours in down.listen)
    ]
    up = config.upstream
    if up.fetch_buffer_bytes > up.memory_bytes / 2:
        most = _show_bytes(up.memory_bytes // 2)
        problems.append(
            f"fetch-buffer: {_show_bytes(up.fetch_buffer_bytes)} is more than half of memory"
            f" ({_show_bytes(up.memory_bytes)}); accepted: at most {most}"
        )
    return problems


def _same(one: Address, other: Address) -> bool:
    def plain(host: str) -> str:
        return "127.0.0.1" if host == "localhost" else host.lower()

    return (plain(one.host), one.port) == (plain(other.host), other.port)
