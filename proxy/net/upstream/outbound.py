"""A list of connections that this process opened: if the packet filter redirects one back, it is a loop."""

import time
from contextlib import suppress
from typing import Final

import trio
from cachetools import TTLCache

from proxy.config import Address

__all__ = ["connect_failure", "is_outbound", "register_outbound"]

_MOST: Final = 4096
_KEPT_S: Final = 120.0
"""The time for which a connection is remembered; longer than ``handshake-timeout``."""

_recent: Final[TTLCache[tuple[Address, Address], None]] = TTLCache(_MOST, _KEPT_S, timer=time.monotonic)
"""The keys are (local address, remote address), which identify a connection. There is one table for the process,
since the packet filter redirects connections of the process, whichever part of it opens them."""


def register_outbound(stream: trio.SocketStream) -> None:
    """Remember both ends of a connection that this process has opened, for ``is_outbound``, for two minutes."""
    with suppress(OSError):  # it is closed already
        _recent[_address(stream.socket.getsockname()), _address(stream.socket.getpeername())] = None


def is_outbound(client: Address, destination: Address) -> bool:
    """Return whether this process opened the connection from *client* to *destination*, in the last two minutes.

    If it did, a redirected connection between these addresses is a loop.
    """
    return (client, destination) in _recent


def connect_failure(error: BaseException) -> str:
    """Return the reason in *error*, which a failed attempt to connect has raised, as text for a message.

    The text leaves out the list of all addresses that trio has tried.
    """
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(str(each) for each in cause.exceptions))
    return str(cause or error)


def _address(name: tuple[str, int]) -> Address:
    return Address(*name[:2])
