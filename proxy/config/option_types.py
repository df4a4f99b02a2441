"""The types of option values, with their parsers."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Self, cast
from urllib.parse import urlsplit

import attrs

from proxy.bypass import Bypass

__all__ = [
    "ADDRESS",
    "ADDRESSES",
    "BYPASS",
    "FILE",
    "FOLDER",
    "HOST",
    "ON",
    "PORTS",
    "RACK",
    "RACK_PLACES",
    "SHARE",
    "SWITCH",
    "TOPIC",
    "TOPIC_SWITCH",
    "WORDS",
    "Address",
    "OptionType",
    "PortRange",
    "RackSource",
    "TopicSwitch",
    "choice",
    "format_bytes",
    "https",
    "option",
    "seconds",
    "size",
]

_UNITS_S: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS_BYTES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_PLACES: Final = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "file": re.compile(r".+"),
    "kubernetes": re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"),
}
_LONGEST_RACK: Final = 255
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")


@attrs.frozen
class Address:
    """A host and a port, to listen on or to connect to."""

    host: str
    """A name or an IP address, without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``host:1`` or ``[::1]:9092``; raise ValueError for anything else. Ports are 1 to 65535."""
        host, colon, port = text.rpartition(":")
        if not colon or re.fullmatch(r"[0-9]{1,5}", port) is None or not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        return cls(_host(host), int(port))

    @property
    def is_wildcard(self) -> bool:
        """Whether the host stands for all interfaces, so that it cannot be advertised to clients."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104

    @property
    def here(self) -> "Address":
        """The address by which this host reaches a listener on this address: loopback for a wildcard."""
        if not self.is_wildcard:
            return self
        return Address("::1" if self.host == "::" else "127.0.0.1", self.port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class PortRange:
    """Ports from *first* to *last*, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``9093-9192``; raise ValueError for anything else."""
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
class TopicSwitch:
    """A switch that is on or off, with the opposite setting for some topics."""

    is_on: bool = True
    others: frozenset[str] = frozenset()
    """Names of the topics with the opposite setting."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``on``, or ``off,topic:NAME,topic:NAME``; raise ValueError for anything else."""
        first, *rest = (part.strip() for part in text.split(","))
        names = [part.removeprefix("topic:") for part in rest]
        if first not in ("on", "off") or not all(names) or any(map(str.__eq__, names, rest)):
            raise ValueError(f"{text!r} is not on or off, with topic:NAME after it")
        return cls(first == "on", frozenset(names))

    def is_on_for(self, topic: str | None) -> bool:
        """Return whether the switch is on for *topic*; None is a topic whose name is not known."""
        return self.is_on != (topic in self.others)

    def __str__(self) -> str:
        return ",".join(("on" if self.is_on else "off", *(f"topic:{name}" for name in sorted(self.others))))


ON: Final = TopicSwitch()
"""A switch that is on for all topics."""


@attrs.frozen
class RackSource:
    """A source of the rack of this process."""

    kind: Literal["env", "file", "kubernetes"]
    name: str = ""
    """The variable, the path of the file, or the label of the Kubernetes node; empty for the usual label."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``env:NAME``, ``file:PATH`` or ``kubernetes[:LABEL]``; raise ValueError for anything else."""
        kind, _, name = text.partition(":")
        if text == "kubernetes" or (kind in _PLACES and _PLACES[kind].fullmatch(name)):
            return cls(cast(Any, kind), name)
        raise ValueError(f"{text!r} is neither env:NAME nor file:PATH nor kubernetes[:LABEL]")

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


@attrs.frozen
class OptionType:
    """A type of option values. *parse* raises ValueError for wrong text, and accepts the output of *show*."""

    parse: Callable[[str], object]
    accepts: str
    """The accepted values, as a text for people that follows "accepted:"."""
    show: Callable[[Any], str] = str


def option(name: str, kind: OptionType, meaning: str, reason: str) -> dict[str, object]:
    """Return the metadata of a field of the model, from which ``OPTIONS`` is made."""
    return {"name": name, "kind": kind, "meaning": meaning, "reason": reason}


def _host(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError:
        # Text of digits and dots only is a wrong IP address, not a name.
        if _HOST_NAME.fullmatch(text) is None or re.fullmatch(r"[0-9.]+", text) is not None:
            raise ValueError(f"{text!r} is neither a host name nor an IP address") from None
        return text


def _plain_host(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    host = str(ipaddress.IPv6Address(bare)) if ":" in bare else _host(text)
    if Address(host, 1).is_wildcard:
        raise ValueError(f"{text!r} cannot be connected to")
    return host


def _rack(text: str) -> str:
    """Return the rack *text*; racks are compared exactly, so a blank at either end raises ValueError."""
    if not 1 <= len(text) <= _LONGEST_RACK or not text.isprintable() or text != text.strip():
        raise ValueError(f"{text!r} is not the name of a rack")
    return text


def _rack_places(text: str) -> tuple[RackSource, ...]:
    if text.strip() == "none":
        return ()
    places = tuple(RackSource.parse(part.strip()) for part in text.split(","))
    if len(set(places)) < len(places):
        raise ValueError(f"{text!r} names a source twice")
    return places


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


def format_bytes(value: int) -> str:
    """Return *value* bytes with the largest unit that divides it: ``8MiB``."""
    unit = next(name for name in ("GiB", "MiB", "KiB", "B") if value % _UNITS_BYTES[name] == 0)
    return f"{value // _UNITS_BYTES[unit]}{unit}"


def seconds(low: float, high: float) -> OptionType:
    """Return the type of durations from *low* to *high* seconds."""
    accepts = f"{low:g}s to {high:g}s (a number of seconds, or with ms, s, m or h)"
    return OptionType(_scaled(_UNITS_S, low, high), accepts, _show_seconds)


def size(low: int, high: int) -> OptionType:
    """Return the type of sizes from *low* to *high* bytes."""
    scaled = _scaled(_UNITS_BYTES, low, high)
    accepts = f"{low} to {high} bytes (a number, or with KiB, MiB or GiB)"
    return OptionType(lambda text: int(scaled(text)), accepts, format_bytes)


def whole(low: int, high: int) -> OptionType:
    """Return the type of whole numbers from *low* to *high*."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,19}", text) is None or not low <= int(text) <= high:
            raise ValueError(f"{text!r} is not a whole number within {low} to {high}")
        return int(text)

    return OptionType(parse, f"{low} to {high}")


def choice(*values: str) -> OptionType:
    """Return the type of options that accept one of *values*."""

    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"{text!r} is not one of {', '.join(values)}")
        return text

    return OptionType(parse, f"{', '.join(values[:-1])} or {values[-1]}")


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def _topic(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) is None or text in (".", ".."):
        raise ValueError(f"{text!r} is not the name of a topic")
    return text


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} is empty, or cannot be printed")
    return text


def https(what: str) -> OptionType:
    """Return the type of https URLs; http is accepted for this host only. *what* is the noun in ``accepts``."""

    def parse(text: str) -> str:
        parts = urlsplit(text)
        is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or parts.username is not None or not (parts.scheme == "https" or is_local):
            raise ValueError(f"{text!r} is not an https URL")
        return text

    return OptionType(parse, f"an https {what}; http only to this host", _shown)


def _shown(value: object) -> str:
    return "" if value is None else str(value)


ADDRESS: Final = OptionType(Address.parse, "HOST:PORT, IPv6 as [::1]:9080", _shown)
ADDRESSES: Final = OptionType(
    _addresses, "HOST:PORT[,HOST:PORT...], IPv6 as [::1]:9092", lambda v: ",".join(map(str, v))
)
PORTS: Final = OptionType(PortRange.parse, "FIRST-LAST, within 1-65535")
BYPASS: Final = OptionType(Bypass.parse, "all, client:ID or topic:NAME, several with commas")
SHARE: Final = OptionType(_scaled({"": 1.0}, 0, 1), "0 to 1", lambda v: f"{v:g}")
HOST: Final = OptionType(
    _plain_host,
    "a host name or IP address without a port, not 0.0.0.0 or ::",
    _shown,
)
RACK: Final = OptionType(
    _rack,
    f"1 to {_LONGEST_RACK} printable characters, as in broker.rack",
    _shown,
)
RACK_PLACES: Final = OptionType(
    _rack_places,
    "env:NAME, file:PATH, kubernetes or kubernetes:LABEL, several with commas and each once, or none alone",
    lambda v: ",".join(map(str, v)) or "none",
)
TOPIC_SWITCH: Final = OptionType(
    TopicSwitch.parse, "on or off, then topic:NAME for each topic with the opposite setting"
)
SWITCH: Final = OptionType(_switch, "on or off", lambda v: "on" if v else "off")
FILE: Final = OptionType(_printable, "a file's path", _shown)
FOLDER: Final = OptionType(_printable, "a folder's path", _shown)
TOPIC: Final = OptionType(_topic, "a topic's name: 1 to 249 of A-Z a-z 0-9 . _ -", _shown)
WORDS: Final = OptionType(_printable, "words", _shown)
