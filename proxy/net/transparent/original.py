"""The destination of a connection before the packet filter redirected it, from the kernel's connection tracking."""

import errno
import socket
import struct
from typing import Final, Protocol

from proxy.config import Address

__all__ = ["AcceptedSocket", "original_destination"]

_SO_ORIGINAL_DST: Final = 80
"""From linux/netfilter_ipv4.h; IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h has the same number."""
_SOL_IPV6: Final = 41
_SOCKADDR_IN: Final = struct.Struct("!2xH4s8x")
_SOCKADDR_IN6: Final = struct.Struct("!2xH4x16s4x")
_UNKNOWN: Final = (errno.ENOENT, errno.ENOPROTOOPT, errno.EOPNOTSUPP)
"""The errors for a connection that the kernel does not track: it was not redirected."""


class AcceptedSocket(Protocol):
    """The methods of an accepted TCP socket, standard or trio's, that ``original_destination`` needs."""

    @property
    def family(self) -> socket.AddressFamily: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...

    def getsockname(self) -> tuple[str, int]: ...


def original_destination(accepted: AcceptedSocket) -> Address | None:
    """Return the address to which the client of *accepted* connected before the packet filter redirected it.

    Returns: None if the connection was not redirected: the client connected to this socket's own address, or the
        kernel does not track the connection.
    Raises: OSError: the connection broke, or the kernel does not report the destination for another reason.
    """
    is_v6 = accepted.family == socket.AF_INET6
    layout, level = (_SOCKADDR_IN6, _SOL_IPV6) if is_v6 else (_SOCKADDR_IN, socket.SOL_IP)
    try:
        sockaddr = accepted.getsockopt(level, _SO_ORIGINAL_DST, layout.size)
    except OSError as wrong:
        if wrong.errno in _UNKNOWN:
            return None
        raise
    port, host = layout.unpack(sockaddr)
    destination = Address(socket.inet_ntop(accepted.family, host), port)
    return None if destination == Address(*accepted.getsockname()[:2]) else destination
