"""Connections that we make: which they are, should the packet filter bring one back, and why there is none."""

import time
from contextlib import suppress
from typing import Final

import trio
from cachetools import TTLCache

from proxy.config import Address

__all__ = ["connect_failure", "is_outbound", "register_outbound"]

_MOST: Final = 4096
_KEPT_S: Final = 120.0
"""Longer than a connection may have been accepted before it says something (``handshake-timeout``)."""

_recent: Final[TTLCache[tuple[Address, Address], None]] = TTLCache(_MOST, _KEPT_S, timer=time.monotonic)
"""By both of its ends, of which there is one connection at a time."""


def register_outbound(stream: trio.SocketStream) -> None:
    """We have made this connection."""
    with suppress(OSError):  # it broke already
        _recent[_address(stream.socket.getsockname()), _address(stream.socket.getpeername())] = None


def is_outbound(client: Address, destination: Address) -> bool:
    """Whether it was us who connected, lately, from *client* to *destination*."""
    return (client, destination) in _recent


def connect_failure(error: BaseException) -> str:
    """Why a connection could not be made, without trio's list of every address tried."""
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(str(each) for each in cause.exceptions))
    return str(cause or error)


def _address(name: tuple[str, int]) -> Address:
    return Address(*name[:2])
