"""Ports of loopback that are free, that no outgoing connection takes by chance and no other test process is given.

A port is bound long after it is chosen: brokers take seconds to start, Sidefetch binds a broker's port when it
learns of the broker. So each process takes a block of ports, and gives each of them once before any of them again.
"""

import functools
import random
import socket

__all__ = ["free_port_range", "free_ports"]

_FIRST, _LAST = 15_000, 32_000
"""Below every usual range of ephemeral ports (Linux: from 32768; others: from 49152)."""
_BLOCK = 500


class _Block:
    """The ports of this process; its first port, bound as long as the process lives, keeps other processes out."""

    def __init__(self) -> None:
        for first in random.sample(range(_FIRST, _LAST, _BLOCK), (_LAST - _FIRST) // _BLOCK):
            self._claim = socket.socket()
            try:
                self._claim.bind(("127.0.0.1", first))
            except OSError:
                self._claim.close()
                continue
            self._ports = range(first + 1, first + _BLOCK)
            self._next = self._ports.start
            return
        raise RuntimeError(f"each block of {_BLOCK} ports from {_FIRST} to {_LAST} belongs to another process")

    def take(self, count: int) -> range | None:
        """Return the next *count* ports of the block, or None if one of them is bound."""
        if self._next + count > self._ports.stop:
            self._next = self._ports.start
        ports = range(self._next, self._next + count)
        self._next = ports.stop
        return ports if all(_is_free(port) for port in ports) else None


@functools.cache
def _block() -> _Block:
    return _Block()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port_range(count: int) -> int:
    """Return the first of *count* ports in a row, all free and, at first, none of them given before."""
    for _ in range(_BLOCK):
        if ports := _block().take(count):
            return ports.start
    raise RuntimeError(f"no {count} free ports in a row in the block of this process")


def free_ports(count: int) -> list[int]:
    """Return *count* different free ports."""
    first = free_port_range(count)
    return list(range(first, first + count))
