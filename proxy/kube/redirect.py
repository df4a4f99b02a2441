"""The packet filter's rules that redirect broker connections to Sidefetch, as a script for ``nft``. Pure.

The rules are in a table of their own, in the output hook: they apply to connections that processes of this host, or
pod, open once they are installed. In their order:

1. connections of exempt users, such as Sidefetch's own, are not redirected;
2. neither are connections within the host;
3. TCP connections to the given ports, in the given networks, are redirected to Sidefetch.

Their priority is below that of iptables' NAT and most other NAT rules (-100), so that they decide first. A
connection is redirected once: the rules of a service mesh apply to the connection that Sidefetch opens in its
place.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

__all__ = [
    "DEFAULT_PORTS",
    "LISTEN_PORT",
    "REMOVE",
    "SPARED_UIDS",
    "Network",
    "Ports",
    "Rules",
    "parse_networks",
    "parse_ports",
    "parse_uids",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Ports = tuple[int, int]
"""The first and the last port of a range."""

LISTEN_PORT: Final = 15092
"""The default port of Sidefetch for redirected connections, on 127.0.0.1 and ::1."""
SPARED_UIDS: Final = (65532, 1337, 2102)
"""The user ids of Sidefetch's image, and of the proxies of Istio and Linkerd, which forward Sidefetch's
connections."""
DEFAULT_PORTS: Final[tuple[Ports, ...]] = ((9092, 9094),)

_TABLE: Final = "inet sidefetch"
_PRIORITY: Final = -101
_MAX_UID: Final = 2**32 - 2

REMOVE: Final = f"table {_TABLE}\ndelete table {_TABLE}\n"
"""A script that removes the rules; without effect if there are none."""


def parse_ports(text: str) -> tuple[Ports, ...]:
    """Parse ports and ranges such as ``9092-9094,19092`` into ranges in ascending order.

    Overlapping and adjacent ranges are merged.

    Raises: ValueError: the text has another form, or a port is not from 1 to 65535.
    """
    ranges = []
    for each in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", each.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= 65535:
            raise ValueError(f"{each!r} is no PORT or FIRST-LAST")
        ranges.append((first, last))
    merged: list[Ports] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse networks such as ``10.0.0.0/8,fd00::/8``; IPv4 networks are first.

    Overlapping and adjacent networks are merged.

    Raises: ValueError: the text has another form, or an address has bits outside its network.
    """
    given = [ipaddress.ip_network(each.strip()) for each in text.split(",")]
    v4 = [each for each in given if isinstance(each, ipaddress.IPv4Network)]
    v6 = [each for each in given if isinstance(each, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(v4), *ipaddress.collapse_addresses(v6))


def parse_uids(text: str) -> tuple[int, ...]:
    """Parse user ids such as ``65532,1337``, dropping duplicates. Raises: ValueError: the text has another form."""
    uids = [each.strip() for each in text.split(",")]
    for each in uids:
        if re.fullmatch(r"[0-9]{1,10}", each) is None or int(each) > _MAX_UID:
            raise ValueError(f"{each!r} is no user id")
    return tuple(dict.fromkeys(map(int, uids)))


@attrs.frozen
class Rules:
    """The packet filter's rules for a host or pod: the connections that are redirected to a port of Sidefetch.

    These are TCP connections to *ports* in *networks*, except those within the host and those of the users *uids*.
    """

    ports: Sequence[Ports] = DEFAULT_PORTS
    networks: Sequence[Network] = ()
    """The destination networks; empty for all."""
    uids: Sequence[int] = SPARED_UIDS
    """The users whose connections are not redirected."""
    to: int = LISTEN_PORT
    """The local port of Sidefetch to which connections are redirected."""

    def script(self) -> str:
        """Return a script for ``nft`` that installs these rules, instead of earlier ones, in one transaction."""
        lines = [
            f"type nat hook output priority {_PRIORITY}; policy accept;",
            f"meta skuid {_set(map(str, self.uids))} return",
            'oifname "lo" return',
            *self._redirects(),
        ]
        rules = "".join(f"\t\t{line}\n" for line in lines)
        return f"{REMOVE}table {_TABLE} {{\n\tchain output {{\n{rules}\t}}\n}}\n"

    def _redirects(self) -> Iterator[str]:
        ports = _set(str(first) if first == last else f"{first}-{last}" for first, last in self.ports)
        redirect = f"tcp dport {ports} counter redirect to :{self.to}"
        if not self.networks:
            yield redirect
        for family, version in (("ip", 4), ("ip6", 6)):
            networks = [str(each) for each in self.networks if each.version == version]
            if networks:
                yield f"{family} daddr {_set(networks)} {redirect}"


def _set(elements: Iterable[str]) -> str:
    return f"{{ {', '.join(elements)} }}"
