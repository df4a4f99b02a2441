"""Ports of loopback that are free, that no outgoing connection takes by chance and no other test process is given.

A port is bound long after it is chosen: brokers take seconds to start, Sidefetch binds a broker's port when it
learns of the broker. So each process takes blocks of ports, and gives each port once while there are free blocks.
"""

import functools
import random
import socket

__all__ = ["free_port_range", "free_ports", "open_ends"]

_FIRST, _LAST = 15_000, 32_000
"""Below every usual range of ephemeral ports (Linux: from 32768; others: from 49152)."""
_BLOCK = 500


class _Block:
    """The ports of this process, by blocks; the first port of each, bound as long as it lives, keeps others out."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []
        self._firsts = random.sample(range(_FIRST, _LAST, _BLOCK), (_LAST - _FIRST) // _BLOCK)
        self._ports = range(0)
        self._next = 0

    def take(self, count: int) -> range | None:
        """Return the next *count* ports, or None if one of them is bound.

        When the block ends, another one is claimed: clients of past tests may still try to connect to their ports.
        Once other processes have all the rest, the last block is used again.
        """
        if self._next + count > self._ports.stop:
            self._claim_block()
            self._next = self._ports.start
        ports = range(self._next, self._next + count)
        self._next = ports.stop
        return ports if all(_is_free(port) for port in ports) else None

    def _claim_block(self) -> None:
        while self._firsts:
            first = self._firsts.pop()
            claim = socket.socket()
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                claim.close()
            else:
                self._claims.append(claim)
                self._ports = range(first + 1, first + _BLOCK)
                return
        if not self._claims:
            raise RuntimeError(f"each block of {_BLOCK} ports from {_FIRST} to {_LAST} belongs to another process")


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


def open_ends(port: int) -> int:
    """Return the number of open sockets of connections to *port* on this host, whose both ends count."""
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table][1:]
    wanted, listening, no_inode = f"{port:04X}", "0A", "0"
    return sum(
        wanted in (local[-4:], remote[-4:]) and state != listening and inode != no_inode
        for _, local, remote, state, _, _, _, _, _, inode, *_ in rows
    )
