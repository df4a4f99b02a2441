"""The connections that this process opened, to recognise them if the packet filter redirects one back to it."""

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
"""By both ends, which identify one connection."""


def register_outbound(stream: trio.SocketStream) -> None:
    """Remember a connection that this process opened."""
    with suppress(OSError):  # it is closed already
        _recent[_address(stream.socket.getsockname()), _address(stream.socket.getpeername())] = None


def is_outbound(client: Address, destination: Address) -> bool:
    """Whether it was us who connected, lately, from *client* to *destination*."""
    return (client, destination) in _recent


def connect_failure(error: BaseException) -> str:
    """Return the reason of a failed connection, without trio's list of all addresses tried."""
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(str(each) for each in cause.exceptions))
    return str(cause or error)


def _address(name: tuple[str, int]) -> Address:
    return Address(*name[:2])
