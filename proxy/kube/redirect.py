"""The rules that have the packet filter send connections to brokers to Sidefetch, as a script for ``nft``. Pure.

They stand in a table of their own, in the output hook: they see what processes of this host, or pod, connect to,
and only connections that begin after them. In their order:

1. connections of the users that are spared, Sidefetch's own among them, go where they are going;
2. so do those that stay within the host;
3. TCP to the given ports, in the given networks, goes to Sidefetch.

Priority: below that of iptables' and most others' NAT (-100), so that these rules decide first. A connection is
redirected once: what a service mesh's rules would do with it they do with the connection that Sidefetch makes for
it.
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
"""From the first to the last."""

LISTEN_PORT: Final = 15092
"""Where Sidefetch takes what is redirected, unless told otherwise: on 127.0.0.1 and ::1."""
SPARED_UIDS: Final = (65532, 1337, 2102)
"""Sidefetch's in its image; those of Istio's and Linkerd's proxies, which carry on what Sidefetch has begun."""
DEFAULT_PORTS: Final[tuple[Ports, ...]] = ((9092, 9094),)

_TABLE: Final = "inet sidefetch"
_PRIORITY: Final = -101
_MAX_UID: Final = 2**32 - 2

REMOVE: Final = f"table {_TABLE}\ndelete table {_TABLE}\n"
"""Takes the rules out; does nothing where there are none."""


def parse_ports(text: str) -> tuple[Ports, ...]:
    """``9092-9094,19092``, put together where they meet. Raises: ValueError: it is something else."""
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
    """``10.0.0.0/8,fd00::/8``, put together where they meet. Raises: ValueError: it is something else."""
    given = [ipaddress.ip_network(each.strip()) for each in text.split(",")]
    v4 = [each for each in given if isinstance(each, ipaddress.IPv4Network)]
    v6 = [each for each in given if isinstance(each, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(v4), *ipaddress.collapse_addresses(v6))


def parse_uids(text: str) -> tuple[int, ...]:
    """``65532,1337``, each once. Raises: ValueError: it is something else."""
    uids = [each.strip() for each in text.split(",")]
    for each in uids:
        if re.fullmatch(r"[0-9]{1,10}", each) is None or int(each) > _MAX_UID:
            raise ValueError(f"{each!r} is no user id")
    return tuple(dict.fromkeys(map(int, uids)))


@attrs.frozen
class Rules:
    """What is redirected, and where to."""

    ports: Sequence[Ports] = DEFAULT_PORTS
    networks: Sequence[Network] = ()
    """Those that are redirected; none: all."""
    uids: Sequence[int] = SPARED_UIDS
    """The users whose connections are left alone."""
    to: int = LISTEN_PORT

    def script(self) -> str:
        """One transaction, which replaces the rules that there are: all of it is done, or nothing."""
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
