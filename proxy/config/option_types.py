"""The types of option values: their parsers, and the texts about the accepted values."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Self, cast
from urllib.parse import urlsplit

import attrs

from proxy.config.allowed_apis import AllowedApis
from proxy.fetch_rules import FetchRules

__all__ = [
    "ADDRESS",
    "ADDRESSES",
    "APIS",
    "FETCH_RULES",
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
        """Return the address in *text*, ``HOST:PORT`` or ``[IPV6]:PORT``, with a port of 1 to 65535.

        Raises: ValueError: *text* has another form.
        """
        host, colon, port = text.rpartition(":")
        if not colon or re.fullmatch(r"[0-9]{1,5}", port) is None or not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        return cls(_host(host), int(port))

    @property
    def is_wildcard(self) -> bool:
        """Whether the host is ``0.0.0.0`` or ``::``, all interfaces, so that it cannot be advertised to clients."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104

    @property
    def here(self) -> "Address":
        """The address by which this host reaches a listener on this address.

        It is the same address; for ``0.0.0.0`` and ``::``, loopback with the same port.
        """
        if not self.is_wildcard:
            return self
        return Address("::1" if self.host == "::" else "127.0.0.1", self.port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class PortRange:
    """A range of ports from ``first`` to ``last``, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range in *text*, such as ``9093-9192``. Raises: ValueError: *text* has another form."""
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
    """A setting that is on or off for all topics but some, for which it is the opposite."""

    is_on: bool = True
    others: frozenset[str] = frozenset()
    """Names of the topics with the opposite setting."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the switch in *text*: ``on`` or ``off``, then ``,topic:NAME`` for each topic with the opposite.

        Raises: ValueError: *text* has another form.
        """
        first, *rest = (part.strip() for part in text.split(","))
        names = [part.removeprefix("topic:") for part in rest]
        if first not in ("on", "off") or not all(names) or any(map(str.__eq__, names, rest)):
            raise ValueError(f"{text!r} is not on or off, with topic:NAME after it")
        return cls(first == "on", frozenset(names))

    def is_on_for(self, topic: str | None) -> bool:
        """Return whether the switch is on for *topic*; None, a topic of unknown name, has the general setting."""
        return self.is_on != (topic in self.others)

    def __str__(self) -> str:
        return ",".join(("on" if self.is_on else "off", *(f"topic:{name}" for name in sorted(self.others))))


ON: Final = TopicSwitch()
"""A switch that is on for all topics."""


@attrs.frozen
class RackSource:
    """A source from which Sidefetch may learn its rack at the start: a variable, a file, or the Kubernetes node."""

    kind: Literal["env", "file", "kubernetes"]
    name: str = ""
    """The variable, the path of the file, or the label of the Kubernetes node; empty for the usual label."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the source in *text*: ``env:NAME``, ``file:PATH``, ``kubernetes`` or ``kubernetes:LABEL``.

        Raises: ValueError: *text* has another form.
        """
        kind, _, name = text.partition(":")
        if text == "kubernetes" or (kind in _PLACES and _PLACES[kind].fullmatch(name)):
            return cls(cast(Any, kind), name)
        raise ValueError(f"{text!r} is neither env:NAME nor file:PATH nor kubernetes[:LABEL]")

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


@attrs.frozen
class OptionType:
    """The type of an option's values: a parser, a formatter, and a text about the accepted values."""

    parse: Callable[[str], object]
    """Converts the text of a flag, variable or file to the value; raises ValueError for a wrong text."""
    accepts: str
    """The accepted values, as a text for people that follows "accepted:"."""
    show: Callable[[Any], str] = str
    """Converts a value to a text that ``parse`` accepts; the text is empty if there is no value."""


def option(name: str, kind: OptionType, meaning: str, reason: str) -> dict[str, object]:
    """Return the attrs metadata that makes a field of the settings an option with flag, variable, key and help.

    Args: name: the flag without its dashes.
          meaning: the help text.
          reason: the reason for the default, as a sentence that begins with "Default:".
    """
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


def _parse_rack_sources(text: str) -> tuple[RackSource, ...]:
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
    """Return *value* bytes as text in the largest unit (GiB, MiB, KiB or B) without a fraction: ``8MiB``."""
    unit = next(name for name in ("GiB", "MiB", "KiB", "B") if value % _UNITS_BYTES[name] == 0)
    return f"{value // _UNITS_BYTES[unit]}{unit}"


def seconds(low: float, high: float) -> OptionType:
    """Return an option type for durations from *low* to *high* seconds, such as ``500ms``; values are seconds."""
    accepts = f"{low:g}s to {high:g}s (a number of seconds, or with ms, s, m or h)"
    return OptionType(_scaled(_UNITS_S, low, high), accepts, _show_seconds)


def size(low: int, high: int) -> OptionType:
    """Return an option type for sizes from *low* to *high* bytes, such as ``8MiB``; values are bytes."""
    scaled = _scaled(_UNITS_BYTES, low, high)
    accepts = f"{low} to {high} bytes (a number, or with KiB, MiB or GiB)"
    return OptionType(lambda text: int(scaled(text)), accepts, format_bytes)


def whole(low: int, high: int) -> OptionType:
    """Return an option type for whole numbers from *low* to *high*, both included."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[0-9]{1,19}", text) is None or not low <= int(text) <= high:
            raise ValueError(f"{text!r} is not a whole number within {low} to {high}")
        return int(text)

    return OptionType(parse, f"{low} to {high}")


def choice(*values: str) -> OptionType:
    """Return an option type whose values are the texts *values*, and no others."""

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
    """Return an option type for https URLs without a user name; http is accepted for localhost and loopback only.

    Args: what: the noun for the values in messages, such as ``URL``.
    """

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
APIS: Final = OptionType(
    AllowedApis.parse,
    "all, clients, describe, topics or the name of an API such as ListOffsets, several with commas",
)
FETCH_RULES: Final = OptionType(FetchRules.parse, "all, client:ID or topic:NAME, several with commas")
SHARE: Final = OptionType(_scaled({"": 1.0}, 0, 1), "0 to 1, such as 0.01", lambda v: f"{v:g}")
HOST: Final = OptionType(
    _plain_host,
    "a host name or IP address without a port, not 0.0.0.0 or ::",
    _shown,
)
RACK: Final = OptionType(
    _rack,
    f"1 to {_LONGEST_RACK} printable characters without blanks around them, as in broker.rack",
    _shown,
)
RACK_PLACES: Final = OptionType(
    _parse_rack_sources,
    "env:NAME, file:PATH, kubernetes or kubernetes:LABEL, several with commas and each once, or none alone",
    lambda v: ",".join(map(str, v)) or "none",
)
TOPIC_SWITCH: Final = OptionType(
    TopicSwitch.parse, "on or off, then with commas topic:NAME for each topic with the opposite setting"
)
SWITCH: Final = OptionType(_switch, "on or off", lambda v: "on" if v else "off")
FILE: Final = OptionType(_printable, "a file's path", _shown)
FOLDER: Final = OptionType(_printable, "a folder's path", _shown)
TOPIC: Final = OptionType(_topic, "a topic's name: 1 to 249 of A-Z a-z 0-9 . _ -", _shown)
WORDS: Final = OptionType(_printable, "words", _shown)
